"""Reads docstrings: the description of a function and of each parameter.

Reads the three common layouts, also mixed: Google ("Args:" with an indented block), NumPy ("Parameters" underlined with
dashes) and reST (":param name: text"). Everything else stays part of the description, so no docstring is an error. Does
not look at signatures.
"""

from __future__ import annotations

import re

from msgspec import Struct

_BLANK_LINES = r"\n\s*\n\s*\n+"

_TITLE_LENGTH = 60


class Docstring(Struct, frozen=True):
    """A docstring's text without its parameter sections, and the text of each parameter."""

    description: str
    parameters: dict[str, str]

    @property
    def title(self) -> str | None:
        """The first line without its full stop, if it is short and is a paragraph of its own; otherwise None."""
        first, _, rest = self.description.partition("\n")
        if not first or len(first) > _TITLE_LENGTH or (rest and not rest.startswith("\n")):
            return None
        return first.rstrip(".").rstrip()


def parse(text: str | None) -> Docstring:
    """Read a docstring as `inspect.getdoc` returns it. None means an empty one."""
    lines = text.split("\n") if text else []
    kept: list[str] = []
    parameters: dict[str, str] = {}
    if not any(map(_may_begin, lines)):
        kept = lines
    else:
        at = 0
        while at < len(lines):
            at = take(lines, at, kept, parameters)
    description = "\n".join(kept).strip()
    return Docstring(re.sub(_BLANK_LINES, "\n\n", description) if len(kept) > 2 else description, parameters)


def _may_begin(line: str) -> bool:
    return line.startswith((":", "---")) or line.rstrip().endswith(":")


PARAMETER_SECTIONS = frozenset(
    ("args", "arguments", "keyword args", "keyword arguments", "other parameters", "parameters", "params")
)
# Exceptions are for programmers; a model receives the error itself.
_DROPPED_SECTIONS = PARAMETER_SECTIONS | {"raises"}

_PARAMETER_FIELDS = frozenset(("arg", "argument", "key", "keyword", "param", "parameter"))
_DROPPED_FIELDS = _PARAMETER_FIELDS | {"except", "exception", "raise", "raises", "rtype", "type"}

# `re` compiles these patterns when they are first used.
_GOOGLE_HEADER = r"([A-Za-z][A-Za-z ]*):\s*$"
# Also as a list, with the name in backticks or bold, or with a dash instead of the colon.
_GOOGLE_ENTRY = (
    r"(?:[-*+]\s+)?(?:\*\*|`)?\*{0,2}(\w+)(?:\*\*|`)?(?:\s*\(.*?\))?(?:\*\*|`)?"
    r"(?:\s*:|\s+(?:--?|[–—])(?=\s))(?:\s+(.*))?$"
)
_NUMPY_ENTRY = r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$"
_REST_FIELD = r":(\w+)(?:\s+([^:]+?))?\s*:(?:\s+(.*))?$"


def take(lines: list[str], at: int, kept: list[str], parameters: dict[str, str]) -> int:
    """Read the section, field or plain line that begins at `at`. Returns the index after it."""
    line = lines[at]
    if _is_underlined(lines, at):
        end = _numpy_end(lines, at + 2)
        name = line.strip().lower()
        if name in PARAMETER_SECTIONS:
            parameters.update(_numpy_entries(lines[at + 2 : end]))
        if name not in _DROPPED_SECTIONS:
            kept += lines[at:end]
        return end

    if line.rstrip().endswith(":") and (header := re.match(_GOOGLE_HEADER, line)):
        end = _indented_end(lines, at + 1)
        name = header[1].lower()
        if name in _DROPPED_SECTIONS and end > at + 1:
            if name in PARAMETER_SECTIONS:
                entries, unread = _google_entries(lines[at + 1 : end])
                parameters.update(entries)
                if unread:  # prose, or an unknown form: the model reads it unchanged
                    kept += [line, *unread, ""]
            return end
    elif line.startswith(":") and (field := re.match(_REST_FIELD, line)):
        kind = field[1].lower()
        end = _indented_end(lines, at + 1)
        body = _joined([field[3] or "", *lines[at + 1 : end]])
        if kind in _PARAMETER_FIELDS and field[2] and field[2].strip():
            # ":param int days: text" has the type before the name.
            parameters[field[2].split()[-1].lstrip("*")] = body
        if kind in _DROPPED_FIELDS:
            return end
        if kind in ("return", "returns"):
            kept += ["", f"Returns: {body}"]
            return end

    kept.append(line)
    return at + 1


def _indented_end(lines: list[str], at: int) -> int:
    # Return the index after the indented block that begins at `at`; it includes blank lines inside.
    end = at
    for index in range(at, len(lines)):
        line = lines[index]
        if line.strip():
            if not line[0].isspace():
                break
            end = index + 1
    return end


def _numpy_end(lines: list[str], at: int) -> int:
    for index in range(at, len(lines) - 1):
        if _is_underlined(lines, index):
            return index
    return len(lines)


def _is_underlined(lines: list[str], at: int) -> bool:
    line, below = lines[at], lines[at + 1].rstrip() if at + 1 < len(lines) else ""
    return below.startswith("---") and not below.strip("-") and bool(line.strip()) and not line[0].isspace()


def _google_entries(block: list[str]) -> tuple[dict[str, str], list[str]]:
    # Return the text of each parameter, and the lines before the first one.
    level = next((_indent(line) for line in block if line.strip()), 0)
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    unread = current
    for line in block:
        if _indent(line) <= level and (entry := re.match(_GOOGLE_ENTRY, line.strip())):
            current = entries[entry[1]] = [entry[2] or ""]
        else:
            current.append(line)

    has_text = any(line.strip() for line in unread)
    return {name: _joined(text) for name, text in entries.items()}, unread if has_text else []


def _numpy_entries(block: list[str]) -> dict[str, str]:
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    for line in block:
        if line.strip() and not line[0].isspace() and (entry := re.match(_NUMPY_ENTRY, line)):
            current = []
            for name in entry[1].split(","):
                entries[name.strip().lstrip("*")] = current
        else:
            current.append(line)
    return {name: _joined(text) for name, text in entries.items()}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _joined(lines: list[str]) -> str:
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if stripped := line.strip():
            paragraphs[-1].append(stripped)
        elif paragraphs[-1]:
            paragraphs.append([])
    return "\n\n".join(" ".join(words) for words in paragraphs if words)
