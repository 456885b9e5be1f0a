"""JSON, with or without comments and trailing commas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from msgspec import Struct

from mcpd.client.targets.configurations import without_comments
from mcpd.errors import ConfigurationError
from . import line_end, position

_TOKEN = re.compile(
    r"(?P<space>(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)+)"
    r'|(?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")'
    r"|(?P<mark>[{}\[\]:,])"
    r'|(?P<word>[^\s{}\[\]:,"/]+)',
    re.DOTALL,
)
_SPACE_OF_LINE = re.compile(r"(?:[ \t]+|/\*[^\r\n]*?\*/)*(?://[^\r\n]*)?")
_COMMENTS = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_OPEN, _CLOSED = "{[", "}]"


class _Member(Struct):
    key: str
    # Where its key begins.
    start: int
    value: int
    # Where its value begins, and the index behind it.
    end: int
    # The index behind the comma that follows it; -1 without a comma.
    comma: int = -1


class _Object(Struct):
    # The index of its opening brace.
    start: int
    # The index of its closing brace.
    end: int
    members: list[_Member]

    def last(self, key: str) -> _Member | None:
        # Hosts use the last of several members with the same key.
        return next((member for member in reversed(self.members) if member.key == key), None)


def parse(text: str, path: str) -> dict[str, Any]:
    """Return the object in a file; {} for an empty one. Raises ConfigurationError with line and column."""
    try:
        found = _plain(text)
        if found is None:
            plain = without_comments(text)
            if not plain.strip():
                return {}
            found = json.loads(plain, parse_constant=_no_constant)
            if isinstance(found, dict):
                _object(text, _first(text))
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except _Fault as error:
        raise ConfigurationError(f"{path}, {position(text, error.at)}: {error.what}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: it is nested too deeply") from None
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from None

    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: it must contain an object, not a {type(found).__name__}")
    return found


def put(text: str, keys: Sequence[str], value: Any, *, in_list: bool = False) -> str:
    """Return the text, which `parse` has accepted, with this value at `keys`."""
    if _is_empty(text):
        gap = "" if not text or text.endswith("\n") else line_end(text)
        text = f"{text}{gap}{{}}{line_end(text)}"
    # The indentation of one level is that of the first member that begins a line.
    first = re.search(r"\n([ \t]+)\"", text)
    unit = first[1] if first is not None and len(first[1]) <= 8 else "  "
    found = _object(text, _first(text))
    for depth, key in enumerate(keys):
        member = found.last(key)
        behind = keys[depth + 1 :]
        if member is None:
            for name in reversed(behind):
                value = {name: value}
            return _insert(text, found, key, value, unit)
        if not behind or text[member.value : member.end] == "null":
            for name in reversed(behind):
                value = {name: value}
            made = _render(value, _line_indent(text, member.start), unit, text, is_flat=_is_flat(text, found))
            return text[: member.value] + made + text[member.end :]
        if text[member.value] != "{":
            raise ConfigurationError(
                f"{key} is not an object in this file; change it by hand (--print shows the entry)"
            )
        found = _object(text, member.value)

    raise AssertionError("no keys")


def drop(text: str, keys: Sequence[str]) -> str:
    """Return the text without the member at `keys`, which need not exist."""
    if _is_empty(text):
        return text
    found = _object(text, _first(text))
    for depth, key in enumerate(keys):
        member = found.last(key)
        if member is None:
            return text
        if depth == len(keys) - 1:
            return _remove(text, found, member)
        if text[member.value] != "{":
            return text
        found = _object(text, member.value)

    raise AssertionError("no keys")


def _insert(text: str, found: _Object, key: str, value: Any, unit: str) -> str:
    name = json.dumps(key, ensure_ascii=False)
    is_flat = _is_flat(text, found)
    if is_flat:
        made = f"{name}: {_render(value, '', unit, text, is_flat=True)}"
        if not found.members:
            return text[: found.start + 1] + made + text[found.end :]
        last = found.members[-1]
        if last.comma >= 0:
            return f"{text[: last.comma]} {made},{text[last.comma :]}"
        return f"{text[: last.end]}, {made}{text[last.end :]}"

    nl = line_end(text)
    outer = _line_indent(text, found.start)
    indent = outer + unit
    if found.members:
        start = found.members[-1].start
        begins_line = not text[text.rfind("\n", 0, start) + 1 : start].strip(" \t")
        indent = _line_indent(text, start) if begins_line else indent
    made = f"{nl}{indent}{name}: {_render(value, indent, unit, text, is_flat=False)}"
    if not found.members:
        # The object may hold comments.
        inner = text[found.start + 1 : found.end]
        behind = inner[len(inner.rstrip()) :]
        closing = behind if "\n" in behind else f"{nl}{outer}"
        return text[: found.start + 1] + inner.rstrip() + made + closing + text[found.end :]

    last = found.members[-1]
    if last.comma >= 0:
        at = _end_of_notes(text, last.comma)
        return f"{text[:at]}{made},{text[at:]}"
    at = _end_of_notes(text, last.end)
    return f"{text[: last.end]},{text[last.end : at]}{made}{text[at:]}"


def _remove(text: str, found: _Object, member: _Member) -> str:
    at = found.members.index(member)
    before = found.members[at - 1] if at else None
    begin = member.start
    while begin > found.start + 1 and text[begin - 1] in " \t\r\n":
        begin -= 1
    end = member.end if member.comma < 0 else member.comma
    if member.comma < 0 and before is not None:
        # It was the last member, and the new last one had no comma before.
        head = text[: before.comma - 1] + text[before.comma : begin]
    else:
        head = text[:begin]

    tail = text[end:]
    only = len(found.members) == 1
    if only and not text[found.start + 1 : begin].strip() and not text[end : found.end].strip():
        return text[: found.start + 1] + text[found.end :]
    space_from = found.start + 1 if before is None else max(before.end, before.comma)
    notes = [note for note in _COMMENTS.finditer(text, space_from, begin) if note.end() == begin]
    if notes and notes[0][0].startswith("//") and not tail.lstrip(" \t").startswith(("\n", "\r\n")):
        # The following text would become part of the comment before it.
        tail = line_end(text) + _line_indent(text, member.start) + tail.lstrip(" \t")
    return head + tail


def _render(value: Any, indent: str, unit: str, text: str, *, is_flat: bool) -> str:
    if is_flat or not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    nl, inner = line_end(text), indent + unit
    lines = []
    for key, each in value.items():
        made = _render(each, inner, unit, text, is_flat=False)
        lines.append(f"{inner}{json.dumps(key, ensure_ascii=False)}: {made}")
    return "{" + nl + f",{nl}".join(lines) + nl + indent + "}"


class _Fault(Exception):
    """A syntax error, and where it is."""

    def __init__(self, at: int, what: str) -> None:
        self.at, self.what = at, what


def _first(text: str) -> int:
    found = _TOKEN.match(text)
    return found.end() if found is not None and found.lastgroup == "space" else 0


def _tokens(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _Fault(at, f"unexpected {text[at]!r}")
        start, at = at, found.end()
        if found.lastgroup != "space":
            yield (text[start] if found.lastgroup == "mark" else str(found.lastgroup)), start, at


def _object(text: str, start: int) -> _Object:
    # The insides of its members are skipped: only the positions of the members themselves are needed.
    members: list[_Member] = []
    tokens = _tokens(text, start + 1)
    for kind, at, end in tokens:
        if kind == "}":
            return _Object(start, at, members)
        if kind == ",":
            if not members or members[-1].comma >= 0:
                raise _Fault(at, "a comma with nothing before it")
            members[-1].comma = end
            continue
        if kind != "string" or (members and members[-1].comma < 0):
            raise _Fault(at, "a comma is missing" if members and members[-1].comma < 0 else "a key is missing")

        key = json.loads(text[at:end])
        next(tokens, None)  # the colon, which json.loads has checked
        value, behind = _value(text, tokens)
        members.append(_Member(key, at, value, behind))
    raise _Fault(len(text), "the object has no end")


def _value(text: str, tokens: Iterator[tuple[str, int, int]]) -> tuple[int, int]:
    depth, start = 0, -1
    for kind, at, end in tokens:
        start = at if start < 0 else start
        depth += (kind in _OPEN) - (kind in _CLOSED)
        if depth <= 0:
            return start, end
    raise _Fault(len(text), "a value is missing")


def _plain(text: str) -> Any:
    # Ten times as fast as the scanner, for files without comments.
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def _is_flat(text: str, found: _Object) -> bool:
    if found.members:
        return "\n" not in text[found.start : found.end]
    return "\n" not in text.strip() and text.strip() != "{}" and not _COMMENTS.search(text)


def _is_empty(text: str) -> bool:
    return _first(text) == len(text)


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _end_of_notes(text: str, at: int) -> int:
    found = _SPACE_OF_LINE.match(text, at)
    assert found is not None
    end = found.end()
    return end if text[end : end + 1] in ("", "\n", "\r") and text[at:end].strip() else at
