"""YAML: ruamel.yaml finds the positions, and the text itself is changed.

A library that writes YAML would indent, quote and fold the user's text in its own way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from mcpd.errors import ConfigurationError
from . import line_end

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_ALIAS = re.compile(r"\s*:\s*\*[^\s,\]}]+")
_BLOCK_START = re.compile(r"([|>])[-+]?([0-9]?)[-+]?")


def parse(text: str, path: str) -> dict[str, Any]:
    """Return the mapping in a file; {} for an empty one. Raises ConfigurationError with line and column."""
    YAML, YAMLError = _library(path)  # noqa: N806
    try:
        found = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigurationError(f"{path}{place}: {getattr(error, 'problem', None) or 'this is not YAML'}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from None

    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: it must contain a mapping, not a {type(found).__name__}")
    return found


def put(text: str, keys: Sequence[str], value: Any, *, in_list: bool = False) -> str:
    """Return the text with this value at `keys`. New members are the last ones of their mapping or list."""
    root = _compose(text)
    if root is None:
        gap = "" if not text or text.endswith("\n") else line_end(text)
        ends = line_end(text) if not text or text.endswith("\n") else ""
        return text + gap + line_end(text).join(_lines(_nested(keys, value, in_list), 0)) + ends

    node = root
    for depth, key in enumerate(keys):
        behind = keys[depth + 1 :]
        if _is_list(node):
            item = _item(node, key)
            if item is None:
                return _append(text, node, value)
            node = item
            if not behind:
                return _put_in_place(text, node, value)
            continue
        pair = _pair(node, key)
        if pair is None:
            return _insert(text, node, key, _nested(behind, value, in_list and depth == 0))
        if not behind:
            return _set(text, node, pair, key, value)
        if _is_empty(pair[1]):
            return _set(text, node, pair, key, _nested(behind, value, in_list and depth == 0))
        node = pair[1]
        if not (_is_list(node) or _is_mapping(node)):
            raise ConfigurationError(
                f"{key} is not a mapping in this file; change it by hand (--print shows the entry)"
            )
    raise AssertionError("no keys")


def drop(text: str, keys: Sequence[str]) -> str:
    """Return the text without the member at `keys`, which need not exist."""
    node = _compose(text)
    owner: Any = None
    for depth, key in enumerate(keys):
        if node is None or not (_is_list(node) or _is_mapping(node)):
            return text
        found = _item(node, key) if _is_list(node) else _pair(node, key)
        if found is None:
            return text
        if depth == len(keys) - 1:
            return _remove(text, node, found, owner)
        owner, node = found, (found if _is_list(node) else found[1])
    raise AssertionError("no keys")


def _insert(text: str, node: Any, key: str, value: Any) -> str:
    if node.flow_style:
        closing = _content_end(text, node) - 1
        at = _content_end(text, node.value[-1][1]) if node.value else closing
        sign = ", " if node.value else ""
        return f"{text[:at]}{sign}{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}{text[at:]}"
    lines = _lines({key: value}, node.value[0][0].start_mark.column)
    return _below(text, _pair_end(text, node.value[-1]), lines)


def _append(text: str, node: Any, value: Any) -> str:
    if node.flow_style:
        at = _content_end(text, node.value[-1]) if node.value else _content_end(text, node) - 1
        return f"{text[:at]}{', ' if node.value else ''}{json.dumps(value, ensure_ascii=False)}{text[at:]}"
    return _below(text, _content_end(text, node.value[-1]), _lines([value], node.start_mark.column))


def _set(text: str, node: Any, pair: Any, key: str, value: Any) -> str:
    start, end = pair[0].start_mark.index, _pair_end(text, pair)
    if node.flow_style:
        return f"{text[:start]}{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}{text[end:]}"
    column = pair[0].start_mark.column
    lines = _lines({key: value}, column)
    lines[0] = lines[0][column:]
    return text[:start] + line_end(text).join(lines) + text[end:]


def _put_in_place(text: str, node: Any, value: Any) -> str:
    start = node.start_mark
    lines = [json.dumps(value, ensure_ascii=False)] if node.flow_style else _lines(value, start.column)
    lines[0] = lines[0].lstrip(" ")
    return text[: start.index] + line_end(text).join(lines) + text[_content_end(text, node) :]


def _remove(text: str, node: Any, found: Any, owner: Any) -> str:
    is_list = _is_list(node)
    at = next(at for at, each in enumerate(node.value) if each is found)
    start = found.start_mark.index if is_list else found[0].start_mark.index
    end = _content_end(text, found) if is_list else _pair_end(text, found)
    if node.flow_style:
        if len(node.value) == 1:
            return text[: node.start_mark.index + 1] + text[_content_end(text, node) - 1 :]
        if at + 1 < len(node.value):
            following = node.value[at + 1]
            return text[:start] + text[(following if is_list else following[0]).start_mark.index :]
        before = node.value[at - 1]
        return text[: _content_end(text, before) if is_list else _pair_end(text, before)] + text[end:]

    # Whole lines go, with the comment behind the member.
    line_start = text.rfind("\n", 0, start) + 1
    line_stop = text.find("\n", end) + 1 or len(text)
    head = text[:line_start]
    if (
        not text[:line_stop].endswith("\n")
        and head.endswith("\n")
        and not (at and _ends_text(node.value[at - 1], "\n"))
    ):
        head = head[:-1].removesuffix("\r")
    if len(node.value) == 1 and isinstance(owner, tuple):
        colon = text.index(":", owner[0].end_mark.index) + 1
        head = f"{head[:colon]} {'[]' if is_list else '{}'}{head[colon:]}"
    return head + text[line_stop:]


def _below(text: str, at: int, lines: list[str]) -> str:
    nl = line_end(text)
    stop = text.find("\n", at) + 1
    if stop:
        return text[:stop] + nl.join(lines) + nl + text[stop:]
    last = _last(_compose(text))
    if _ends_text(last, ""):
        # The end of the file is the end of that text, without a line end: it must not get one.
        start = last.start_mark.index
        text = text[:start] + _BLOCK_START.sub(r"\1\2-", text[start:], count=1)
    return text + nl + nl.join(lines)


def _lines(value: Any, column: int) -> list[str]:
    indent = " " * column
    found: list[str] = []
    if isinstance(value, list):
        for each in value:
            inner = _lines(each, column + 2)
            found += [f"{indent}- {inner[0].lstrip(' ')}", *inner[1:]]
        return found

    for key, each in value.items():
        name = _scalar(str(key))
        is_flat = isinstance(each, list) and not any(isinstance(item, (dict, list)) for item in each)
        if each and is_flat:
            found += [f"{indent}{name}:", *(f"{indent}  - {_scalar(item)}" for item in each)]
        elif each and isinstance(each, (dict, list)):
            found += [f"{indent}{name}:", *_lines(each, column + 2)]
        else:
            found.append(f"{indent}{name}: {_scalar(each)}")
    return found


def _scalar(value: Any) -> str:
    # Strings that look like numbers, dates or booleans are quoted.
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\x7f")


def _nested(keys: Sequence[str], value: Any, in_list: bool) -> Any:
    for at, key in reversed(list(enumerate(keys))):
        value = [value] if in_list and at == len(keys) - 1 else {key: value}
    return value


def _library(path: str) -> tuple[Any, Any]:
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError:
        raise ConfigurationError(
            f"{path} is YAML, which needs ruamel.yaml: pip install 'mcpd-server[install]'"
        ) from None
    return YAML, YAMLError


def _compose(text: str) -> Any:
    YAML, _ = _library("the file")  # noqa: N806
    return YAML(typ="rt", pure=True).compose(text)


def _is_mapping(node: Any) -> bool:
    return str(node.id) == "mapping"


def _is_list(node: Any) -> bool:
    return str(node.id) == "sequence"


def _is_empty(node: Any) -> bool:
    return not node.value or (str(node.tag).endswith(":null") and node.value in ("null", "~", "Null", "NULL"))


def _last(node: Any) -> Any:
    # The last scalar, or collection in brackets, of a node or of a pair.
    while isinstance(node, tuple) or ((_is_mapping(node) or _is_list(node)) and not node.flow_style and node.value):
        node = node[1] if isinstance(node, tuple) else node.value[-1]
    return node


def _ends_text(node: Any, end: str) -> bool:
    # Whether a node ends with a text in a block (`|` or `>`) whose last line has this end.
    last = _last(node)
    return getattr(last, "style", None) in ("|", ">") and last.value.endswith("\n") == (end == "\n")


def _pair(node: Any, key: str) -> Any:
    return next((pair for pair in node.value if pair[0].value == key), None) if _is_mapping(node) else None


def _item(node: Any, name: str) -> Any:
    for item in node.value:
        pair = _pair(item, "name")
        if pair is not None and pair[1].value == name:
            return item
    return None


def _pair_end(text: str, pair: Any) -> int:
    key, value = pair
    behind = key.end_mark.index
    if value.start_mark.index < key.start_mark.index:  # an alias points to a node elsewhere
        found = _ALIAS.match(text, behind)
        return found.end() if found is not None else behind
    if value.end_mark.index <= behind or value.start_mark.index == value.end_mark.index:
        return text.index(":", behind) + 1
    return _content_end(text, value)


def _content_end(text: str, node: Any) -> int:
    # For ruamel.yaml, a block ends where the next one begins, so its own end lies behind the comments between them.
    is_block = (_is_mapping(node) or _is_list(node)) and not node.flow_style and bool(node.value)
    if is_block:
        return _pair_end(text, node.value[-1]) if _is_mapping(node) else _content_end(text, node.value[-1])
    end: int = node.end_mark.index
    if getattr(node, "style", None) in ("|", ">"):
        return len(text[:end].rstrip("\r\n"))
    return end
