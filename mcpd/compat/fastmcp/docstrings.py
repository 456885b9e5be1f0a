"""Docstrings as this library reads them: the text before the first section, and the texts of the parameters.

The layouts are Google's ("Args:" over an indented block), NumPy's (a heading over dashes) and reST's (":param x:").
"""

from __future__ import annotations

import re
from inspect import cleandoc

from ...registry.docstring import parse

__all__ = ["described"]

_HEADING = re.compile(r"^([A-Za-z][\w /-]*):\s*(.*)$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s?(.*)$")
_ARGUMENTS = frozenset(
    ("args", "arguments", "params", "parameters", "keyword args", "keyword arguments", "other args",
     "other arguments", "other params", "other parameters")
)  # fmt: skip


def described(doc: str | None) -> tuple[str | None, dict[str, str]]:
    """The description, and the texts of the parameters; a docstring without sections is a description."""
    if not doc:
        return None, {}
    lines = doc.split("\n")
    sections = _sections(lines)
    if sections:
        texts: dict[str, str] = {}
        for name, block in sections[1:]:
            if name in _ARGUMENTS:
                texts.update(_entries(block))
        return "\n".join(sections[0][1]).strip() or None, texts
    found = parse(doc)
    return (found.description or None, found.parameters) if found.parameters else (doc, {})


def _sections(lines: list[str]) -> list[tuple[str, list[str]]]:
    """What is before the first heading, then each heading with its indented block; [] where there is none."""
    found: list[tuple[str, list[str]]] = [("", [])]
    at = 0
    while at < len(lines):
        heading = _HEADING.match(lines[at])
        starts = heading is not None and (at == 0 or not lines[at - 1].strip() or len(found) > 1)
        if heading is not None and starts and at + 1 < len(lines) and lines[at + 1].startswith(" "):
            end = at + 1
            while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
                end += 1
            found.append((heading[1].strip().lower(), lines[at + 1 : end]))
            at = end
            continue
        if len(found) == 1:
            found[0][1].append(lines[at])
        at += 1
    return found if len(found) > 1 else []


def _entries(block: list[str]) -> dict[str, str]:
    """`name (type): text` and the lines that are indented below it."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in cleandoc("\n".join(block)).split("\n"):
        entry = None if line.startswith(" ") else _ENTRY.match(line)
        if entry is not None:
            current = found[entry[1]] = [entry[2].strip()]
        elif current:
            current.append(line)
    return {name: "\n".join([texts[0], *cleandoc("\n" + "\n".join(texts[1:])).split("\n")]).strip()
            for name, texts in found.items()}  # fmt: skip
