"""Docstrings as this library reads them: the text before the first section, and the texts of the parameters.

The layouts are Google's ("Args:" over an indented block), NumPy's (a heading over dashes) and reST's (":param x:").
"""

from __future__ import annotations

import re

from mcpd.server.functions.docstring import parse

__all__ = ["described", "unread"]

_HEADING = re.compile(r"^(\w[\w\s-]*):(?:\s+\S.*)?\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\(.*?\))?:\s*(.*)$")
_OTHER_SECTION = re.compile(
    r"^(?:(?P<heading>\w[\w ]*)\n-{3,}\s*|:(?:param|arg|argument|key|keyword|type|returns?|rtype|raises?)\b.*)$",
    re.MULTILINE,
)
"""What begins a section in NumPy's layout, or a field in that of reST."""
_ARGUMENTS = frozenset(("args", "arguments", "params", "parameters"))
_ITEMIZED = _ARGUMENTS | {"exceptions", "raises"}
_KNOWN = _ARGUMENTS | frozenset(
    ("keyword args", "keyword arguments", "other args", "other arguments", "other params", "other parameters",
     "type args", "type arguments", "type params", "type parameters", "type aliases", "raises", "exceptions",
     "returns", "yields", "receives", "examples", "attributes", "functions", "methods", "classes", "modules",
     "warns", "warnings", "attention", "caution", "danger", "error", "example", "hint", "important", "note", "notes",
     "raise", "references", "return", "see also", "see-also", "tip", "todo", "warning", "yield")
)  # fmt: skip
"""The headings that end a description. Text under any other heading is part of it, unless one of these follows."""


def described(doc: str | None) -> tuple[str | None, dict[str, str]]:
    """The description, and the texts of the parameters; a docstring without sections is a description."""
    if not doc:
        return None, {}
    sections = _sections(doc.split("\n"))
    if any(name in _KNOWN and not (name in _ITEMIZED and _is_prose(block)) for name, block in sections):
        texts: dict[str, str] = {}
        for name, block in sections:
            if name in _ARGUMENTS:
                texts.update(_entries(block))
        prose = ("\n".join(block).strip() for name, block in sections if not name)
        return next(filter(None, prose), None), texts
    for other in _OTHER_SECTION.finditer(doc):
        if other["heading"] is None or other["heading"].lower() in _KNOWN:
            return doc[: other.start()].strip() or None, parse(doc).parameters
    return doc, {}


def unread(doc: str | None) -> list[str]:
    """The lines of sections on arguments that this library drops, since they are not `name: text`."""
    lines: list[str] = []
    for name, block in _sections((doc or "").split("\n")):
        if name in _ARGUMENTS and not _is_prose(block):
            indent = next((len(line) - len(line.lstrip()) for line in block if line.strip()), 0)
            outermost = (line[indent:].rstrip() for line in block if line[indent : indent + 1].strip())
            lines += (line for line in outermost if not _ENTRY.match(line))
    return lines


def _sections(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Each heading with its indented block, and between them, with "" for a heading, what is in no section."""
    found: list[tuple[str, list[str]]] = [("", [])]
    is_code = False
    at = 0
    while at < len(lines):
        is_code ^= lines[at].lstrip().startswith("```")
        heading = None if is_code or (at and lines[at - 1].strip()) else _HEADING.match(lines[at])
        end = at + 1
        if heading is None or not "".join(lines[end : end + 1]).startswith(" "):
            found[-1][1].append(lines[at])
        else:
            while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
                end += 1
            found += [(heading[1].lower(), lines[at + 1 : end]), ("", [])]
        at = end
    return found


def _is_prose(block: list[str]) -> bool:
    """Whether none of the outermost lines has a colon; a docstring with no other section is a description."""
    indent = next((len(line) - len(line.lstrip()) for line in block if line.strip()), 0)
    return not any(":" in line and line[indent : indent + 1].strip() for line in block)


def _entries(block: list[str]) -> dict[str, str]:
    """`name (type): text` and the lines that are indented below it, which lose two indents, or all they have."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    indent = next((len(line) - len(line.lstrip()) for line in block if line.strip()), 0)
    for line in block:
        text = line[indent:]
        if text[:1].strip():
            entry = _ENTRY.match(text)
            current = [] if entry is None else found.setdefault(entry[1], [entry[2]])
        else:
            current.append(line[2 * indent :] if line.startswith(2 * indent * " ") else line.lstrip())
    return {name: "\n".join(texts).rstrip("\n") for name, texts in found.items()}
