"""On which line of a TOML file a key stands, for messages: the parser of the standard library does not say."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"\s*\[\[?\s*([^\]#]+?)\s*\]")
_KEY = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'))*)\s*="""
)
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'""")


def line_of(text: str, path: Sequence[str]) -> int | None:
    """The line, from 1, of the key at `path`, or of what it stands in if it has none of its own; None if neither has.

    Texts over several lines are passed over, whatever is in them.
    """
    wanted, best, length = tuple(path), None, 0
    table: tuple[str, ...] = ()
    quotes = ""
    for number, line in enumerate(text.split("\n"), 1):
        if quotes:
            quotes = "" if line.count(quotes) % 2 else quotes
            continue

        found: tuple[str, ...] = ()
        if header := _HEADER.match(line):
            found = table = _parts(header[1])
        elif key := _KEY.match(line):
            found = table + _parts(key[1])
            quotes = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")
        if len(found) > length and found == wanted[: len(found)]:
            best, length = number, len(found)
    return best


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") if part[0] in "\"'" else part for part in _PART.findall(text))
