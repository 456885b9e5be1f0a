"""Front matter: the YAML between two lines of `---` at the beginning of a file, or the TOML between lines of `+++`.

Prompts, skills and documents share this reader. It needs PyYAML (`mcpd-server[yaml]`), which is imported when a file
with YAML front matter is read. The values are JSON: scalars follow the core schema of YAML 1.2 (`yes` and dates are
strings), and anchors, aliases, tags and duplicate keys are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isinf
from typing import Any

from msgspec import json

_MAX_CHARACTERS = 64 * 1024
_MAX_DEPTH = 20

# `re` compiles these when they are first needed.
_FENCE = r"(---|\+\+\+)[ \t]*(?=\n|\Z)"
_END = r"(?m)^(---|\+\+\+|\.\.\.)[ \t]*$"
_KEY = r"""[ \t]*(?:"[^"\n]*"|'[^'\n]*'|[\w$@./-][^:#\n]*):(?:[ \t]|\n|\Z)"""
_PAIR = r"([\w$@./-][^:#\n]*?)[ \t]*:[ \t]+(\S.*)"
_INTEGER = r"[-+]?(?:0|[1-9][0-9]*)\Z|0x[0-9a-fA-F]+\Z|0o[0-7]+\Z"
_FLOAT = r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"
_CONSTANTS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}


class FrontMatterError(Exception):
    """The front matter of a file cannot be read. `line` is the line in the file, from 1."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class _InvalidYaml(FrontMatterError):
    """PyYAML cannot parse the text."""


def decoded(data: bytes, limit: int) -> str:
    """Return the text of a file with at most `limit` bytes. Raises FrontMatterError if it is larger or not UTF-8."""
    if len(data) > limit:
        raise FrontMatterError(1, f"is larger than {limit} bytes")
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FrontMatterError(line, f"is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def read_front_matter(text: str) -> tuple[dict[str, Any], str, int]:
    """Return the front matter of a file, the text after it, and that text's first line. Raises FrontMatterError."""
    parts = _split(text)
    if parts is None and (fence := re.match(_FENCE, text)):
        raise FrontMatterError(1, f"its front matter begins with {fence[1]} and never ends; write {fence[1]} after it")
    if parts is None:
        return {}, text, 1
    read, head, body = parts
    return read(head), body, text.count("\n", 0, len(text) - len(body)) + 1


def split_page(text: str) -> tuple[dict[str, Any], str]:
    # Documents are written for other tools, so nothing is an error: invalid front matter is left out, and a rule
    # (`---`) on the first line that is not followed by keys belongs to the text.
    parts = _split(text)
    if parts is None:
        return {}, text
    read, head, body = parts
    lines = [line for line in head.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if read is _yaml and head.strip() and not (lines and re.match(_KEY, lines[0])):
        return {}, text
    try:
        return read(head), body
    except FrontMatterError:
        return {}, body


def text_in(front: dict[str, Any], *names: str) -> str:
    """Return the first non-empty string among these keys, on one line, or an empty string."""
    for name in names:
        value = front.get(name)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())

    return ""


def number_in(front: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = front.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1_000_000:
            return int(value)

    return None


def _split(text: str) -> tuple[Callable[[str], dict[str, Any]], str, str] | None:
    # Return the reader of the front matter, the front matter, and the text after it; None if a fence is missing.
    fence = re.match(_FENCE, text)
    if fence is None:
        return None
    read, ends = (_yaml, ("---", "...")) if fence[1] == "---" else (_toml, ("+++",))
    for end in re.compile(_END).finditer(text, fence.end() + 1, fence.end() + _MAX_CHARACTERS):
        if end[1] in ends:
            return read, text[fence.end() + 1 : end.start()], text[end.end() + 1 :]

    return None


def _toml(head: str) -> dict[str, Any]:
    import tomllib

    try:
        # Dates become strings, as in YAML 1.2.
        return json.decode(json.encode(tomllib.loads(head)))  # type: ignore[no-any-return]
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) + 1 if found else head.count("\n") + 2
        raise FrontMatterError(line, f"its front matter is not valid TOML: {error}") from None


def _yaml(head: str) -> dict[str, Any]:
    if not head.strip():
        return {}
    try:
        return _parsed(head)
    except _InvalidYaml:
        # Hosts read values such as `Use when: asked` or `[file] [line]` as text, which YAML does not.
        quoted = "\n".join(map(_quoted, head.split("\n")))
        if quoted == head:
            raise
        try:
            return _parsed(quoted)
        except FrontMatterError:
            pass

        raise  # the error of what the author wrote


def _quoted(line: str) -> str:
    # A line `key: value` whose value is not valid YAML on its own, with that value in quotes.
    pair = re.fullmatch(_PAIR, line.rstrip())
    if pair is None or pair[2][0] in "\"'|>" or (pair[2][0] in "[{" and not re.search(r"[\]}]", pair[2])):
        return line
    try:
        _parsed(line)
    except _InvalidYaml:
        return f"{pair[1]}: {json.encode(pair[2]).decode()}"
    except FrontMatterError:
        pass

    return line


def _parsed(head: str) -> dict[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError:
        text = "its front matter is YAML, which requires PyYAML: pip install 'mcpd-server[yaml]'"
        raise FrontMatterError(1, text) from None

    def value(event: Any, depth: int) -> Any:
        if getattr(event, "anchor", None) is not None:
            raise refused(event, "anchors and aliases (& and *) are not supported; write the value again")
        if event.tag is not None:
            raise refused(event, f"the tag {event.tag} is not supported; leave it out")
        if depth > _MAX_DEPTH:
            raise refused(event, f"its front matter is nested more than {_MAX_DEPTH} deep")
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event.value) if event.implicit[0] else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                items.append(value(item, depth + 1))
            return items

        members: dict[str, Any] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise refused(key, "its front matter has a key that is not a string")
            value(key, depth)
            if key.value in members:
                raise refused(key, f"its front matter has the key {key.value[:60]!r} twice")
            members[key.value] = value(next(events), depth + 1)

        return members

    def refused(event: Any, text: str) -> FrontMatterError:
        return FrontMatterError(event.start_mark.line + 2, text)

    try:
        events = iter(yaml.parse(head, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        before = (yaml.StreamStartEvent, yaml.DocumentStartEvent)
        first = next(event for event in events if not isinstance(event, before))
        if isinstance(first, yaml.StreamEndEvent):  # only comments
            return {}
        found = value(first, 0)
        if not isinstance(found, dict):
            raise refused(first, "its front matter is not a list of keys with values, such as title: Plan a bed")
        if any(isinstance(event, yaml.DocumentStartEvent) for event in events):
            raise FrontMatterError(2, "its front matter has more than one YAML document")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        if mark is not None and mark.line > head.rstrip().count("\n"):  # something that begins earlier has no end
            mark = getattr(error, "context_mark", None) or mark
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        line = 2 if mark is None else min(mark.line, head.count("\n")) + 2
        hint = "put text that contains a colon or begins with a special character in quotes"
        raise _InvalidYaml(line, f"its front matter is not valid YAML ({problem}); {hint}") from None

    return found


def _scalar(text: str) -> Any:
    # Return the value of a plain scalar in the core schema of YAML 1.2.
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] in "+-.0123456789" and len(text) < 40:
        if re.match(_INTEGER, text):
            return int(text, 0)
        if re.match(_FLOAT, text) and not isinf(number := float(text)):
            return number

    return text
