"""TOML: whole statements are inserted or removed; comments and all other lines stay."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from mcpd.errors import ConfigurationError
from . import line_end, with_change

_PART = r"(?:\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[A-Za-z0-9_-]+)"
_PAIR = re.compile(rf"[ \t]*(?P<key>{_PART}(?:[ \t]*\.[ \t]*{_PART})*)[ \t]*=[ \t]*")
_PIECE = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")|\'\'\'.*?\'{3,5}(?!\')|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[{]|[\]}]|\n',
    re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class _Statement(Struct):
    """Whole lines: a header, a pair of key and value, or (`kind` "") one comment or empty line."""

    kind: str
    start: int
    # The index behind its line end.
    end: int
    path: tuple[str, ...] = ()
    # Where the value of a pair begins.
    value: int = -1
    value_end: int = -1


def parse(text: str, path: str) -> dict[str, Any]:
    """Return the table in a file. Raises ConfigurationError with line and column."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}") from None


def put(text: str, keys: Sequence[str], value: Any, *, in_list: bool = False) -> str:
    """Return the text with this value at `keys`. A new value becomes a table at the end of the file."""
    path = (*keys,)
    statements = _statements(text)
    ours = [each for each in statements if each.kind and each.path[: len(path)] == path]
    if ours:
        return _replace(text, ours, path, value)
    inline = [each for each in statements if each.kind == "pair" and path[: len(each.path)] == each.path]
    if inline:
        return _put_inline(text, inline[-1], path, value)
    if any(each.kind == "table" and each.path == path[:-1] for each in statements) and len(path) > 2:
        return _put_member(text, path, value)

    nl = line_end(text)
    gap = "" if not text else nl if text.endswith("\n") else nl + nl
    made = gap + nl.join(
        [
            f"[{'.'.join(map(toml_key, path))}]",
            *(f"{toml_key(name)} = {toml_value(each)}" for name, each in value.items()),
        ]
    )
    return text + made + (nl if not text or text.endswith("\n") else "")


def drop(text: str, keys: Sequence[str]) -> str:
    """Return the text without the statements that define the member at `keys`."""
    path = (*keys,)
    statements = _statements(text)
    for statement in reversed(statements):
        size = len(statement.path)
        if statement.kind == "pair" and size < len(path) and path[:size] == statement.path:
            text = _put_inline(text, statement, path, None)
    for first, last in reversed(_groups(_statements(text), path)):
        text = _without(text, _statements(text), first, last)
    return text


def _replace(text: str, ours: list[_Statement], path: tuple[str, ...], value: Any) -> str:
    if ours[0].kind == "pair" and ours[0].path == path:
        return text[: ours[0].value] + toml_value(value) + text[ours[0].value_end :]
    if ours[0].kind == "table" and ours[0].path == path and isinstance(value, dict):
        # The table keeps its header and its place.
        nl = line_end(text)
        end = ours[-1].end
        ends_line = text[:end].endswith("\n")
        header = text[ours[0].start : ours[0].end].rstrip("\r\n")
        lines = [header, *(f"{toml_key(name)} = {toml_value(each)}" for name, each in value.items())]
        return text[: ours[0].start] + nl.join(lines) + (nl if ends_line else "") + text[end:]
    return put(drop(text, path), path, value)


def _put_inline(text: str, statement: _Statement, path: tuple[str, ...], value: Any) -> str:
    before = tomllib.loads(f"value = {text[statement.value : statement.value_end]}")
    found = with_change(before, ("value", *path[len(statement.path) :]), value)["value"]
    return text[: statement.value] + toml_value(found) + text[statement.value_end :]


def _put_member(text: str, path: tuple[str, ...], value: Any) -> str:
    last: _Statement | None = None
    for statement in _statements(text):
        if statement.kind == "table" and statement.path == path[:-1]:
            last = statement
        elif statement.kind in ("table", "array") and last is not None:
            break
        elif statement.kind == "pair" and last is not None:
            last = statement

    assert last is not None
    line = f"{toml_key(path[-1])} = {toml_value(value)}"
    nl = line_end(text)
    if text[: last.end].endswith("\n"):
        return text[: last.end] + line + nl + text[last.end :]
    return text[: last.end] + nl + line + text[last.end :]


def _groups(statements: list[_Statement], path: tuple[str, ...]) -> list[tuple[int, int]]:
    # Comments between two statements about the same member belong to it, and are removed with it.
    groups: list[tuple[int, int]] = []
    is_running = False
    for at, statement in enumerate(statements):
        if not statement.kind:
            continue
        is_ours = statement.path[: len(path)] == path
        if is_ours and is_running:
            groups[-1] = (groups[-1][0], at)
        elif is_ours:
            groups.append((at, at))
        is_running = is_ours
    return groups


def _without(text: str, statements: list[_Statement], first: int, last: int) -> str:
    start, end = statements[first].start, statements[last].end
    before = statements[first - 1] if first else None
    is_empty_line = before is not None and not text[before.start : before.end].strip()
    if statements[first].kind == "table" and before is not None and is_empty_line:
        start = before.start
    head, removed = text[:start], text[start:end]
    if not removed.endswith("\n"):
        head = head[:-1].removesuffix("\r") if head.endswith("\n") else head
    return head + text[end:]


def _statements(text: str) -> list[_Statement]:
    found: list[_Statement] = []
    table: tuple[str, ...] = ()
    at = 0
    while at < len(text):
        line_stop = text.find("\n", at) + 1 or len(text)
        line = text[at:line_stop].strip()
        if not line or line.startswith("#"):
            found.append(_Statement("", at, line_stop))
        elif line.startswith("["):
            kind = "array" if line.startswith("[[") else "table"
            table = _path(tomllib.loads(line))
            found.append(_Statement(kind, at, line_stop, table))
        else:
            pair = _PAIR.match(text, at)
            assert pair is not None
            value_end, line_stop = _end_of_value(text, pair.end())
            path = (*table, *_path(tomllib.loads(f"{pair['key']} = 0")))
            found.append(_Statement("pair", at, line_stop, path, pair.end(), value_end))
        at = line_stop

    return found


def _end_of_value(text: str, at: int) -> tuple[int, int]:
    depth = 0
    for piece in _PIECE.finditer(text, at):
        sign = piece[0]
        if depth == 0 and (sign == "\n" or sign.startswith("#")):
            end = at + len(text[at : piece.start()].rstrip())
            return end, text.find("\n", piece.start()) + 1 or len(text)
        depth += (sign in ("[", "{")) - (sign in ("]", "}"))
    return at + len(text[at:].rstrip()), len(text)


def _path(found: Any) -> tuple[str, ...]:
    keys: list[str] = []
    while isinstance(found, (dict, list)) and found:
        if isinstance(found, list):
            found = found[0]
            continue
        ((key, found),) = found.items()
        keys.append(key)
    return (*keys,)


def toml_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Return a value on one line. TOML has the same escapes as JSON, except for DEL."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{toml_key(name)} = {toml_value(each)}" for name, each in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return repr(value) if isinstance(value, int | float) else str(value.isoformat())
