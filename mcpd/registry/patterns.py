r"""Regular expressions of Python as clients can compile them: JavaScript's with the flag `u` (JSON Schema, 6.4).

A client that cannot compile one pattern loads none of the tools. What means the same in both comes out the same;
`\A`, `\Z`, named groups and needless backslashes are written as JavaScript has them. What has no such form is left out
of the schema; values are held to it all the same, by msgspec or by pydantic, whose patterns are Rust's.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?xs)
    \\ (?: x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | [1-9][0-9]? | . )  # an escape
    | \(\?P<[A-Za-z_]\w*>                                         # a named group
    | \(\?(?: : | = | ! | <= | <! )?                              # other groups; "(?" alone is one of the rest
    | \{[0-9]+(?:,[0-9]*)?\}                                      # a quantifier
    | .
    """
)
_SAME: Final = frozenset("dDwWsSnrtfv") | frozenset("^$\\.*+?()[]{}|/")
_QUANTIFIERS: Final = ("*", "+", "?")


def portable(pattern: str) -> str | None:
    """The pattern as JavaScript reads it, or None if it has no such form."""
    written: list[str] = []
    is_class = False
    before = ""

    for token in _TOKEN.findall(pattern):
        piece = _in_class(token, before) if is_class else _outside(token, before)
        if piece is None:
            return None

        if is_class:
            is_class = token != "]"
        elif token == "[":
            is_class = True
        is_quantifier = (token in _QUANTIFIERS and before != "quantifier") or _is_count(token)
        before = "quantifier" if is_quantifier else token
        written.append(piece)

    return "".join(written)


def _is_count(token: str) -> bool:
    return len(token) > 1 and token[0] == "{"


def _outside(token: str, before: str) -> str | None:
    if token.startswith("(?P<"):
        return "("
    if token == "(?" or token in ("{", "}", "]"):
        return None
    if before == "quantifier" and (token in ("*", "+") or _is_count(token)):
        return None  # Python's possessive quantifiers
    if token in (r"\A", r"\Z", r"\z"):
        return "^" if token == r"\A" else "$"
    if token in (r"\b", r"\B") or re.fullmatch(r"\\[1-9][0-9]?", token):
        return token
    return _escape(token)


def _in_class(token: str, before: str) -> str | None:
    if token == "]" and before in ("[", "^"):
        return None  # it is the first of the class in Python, and its end in JavaScript
    if token == r"\-":
        return token
    return _escape(token)


def _escape(token: str) -> str | None:
    if token == "\\":
        return None
    if token[0] != "\\" or len(token) > 2 or token[1] in _SAME:
        return token
    # A backslash before what needs none is an error there; before a letter it had a meaning of Python's own.
    return None if token[1].isalnum() else token[1]
