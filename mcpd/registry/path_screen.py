"""Which values of template variables could lead a path somewhere else than where its author meant it to stay.

A value is the peer's text, decoded once as RFC 6570 says. Whoever joins it to a folder, or hands it to a program that
decodes it once more, is safe from `..`, absolute paths, drive letters, backslashes and NULs, in any number of
encodings. What a file system makes of links is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST_ENCODINGS = 8
"""How often a value may be percent-encoded over again; each is looked at, and nobody needs more."""

_ANY_ENCODED_RUN = r"(?:%[0-9A-Fa-f]{2})+"
# Longer forms of ASCII characters, which UTF-8 forbids and some decoders take (RFC 3629 section 3).
_OVERLONG = rb"[\xc0\xc1]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]"


def problem_of(variables: Mapping[str, str], exempt: frozenset[str]) -> tuple[str, str] | None:
    """The first variable whose value is no harmless path, and why; `exempt` are not looked at. None if all are."""
    for name, value in variables.items():
        if name not in exempt:
            problem = path_problem(value)
            if problem:
                return name, problem
    return None


def path_problem(value: str) -> str:
    """What is wrong with a value, in words that follow "it"; "" if nothing is."""
    problem = _plain_problem(value)
    for _ in range(MOST_ENCODINGS):
        if problem or "%" not in value:
            return problem
        try:
            decoded = re.sub(_ANY_ENCODED_RUN, _decode, value)
        except _Overlong:
            return "has characters in a form that UTF-8 forbids"
        if decoded == value:
            return ""
        value = decoded
        problem = _plain_problem(value)
        if problem:
            problem += ", percent-encoded twice or more"
    return problem or ("is percent-encoded too often" if re.search(_ANY_ENCODED_RUN, value) else "")


class _Overlong(Exception):
    """Bytes that some decoders take for an ASCII character."""


def _decode(run: re.Match[str]) -> str:
    data = bytes.fromhex(run[0].replace("%", ""))
    if re.search(_OVERLONG, data):
        raise _Overlong
    return data.decode("utf-8", "replace")


def _plain_problem(value: str) -> str:
    if "\0" in value:
        return "has a NUL"
    if "\\" in value:
        return "has a backslash"
    if value.startswith("/"):
        return "is an absolute path"
    if value[1:2] == ":" and value[0].isascii() and value[0].isalpha():
        return "begins with a drive letter"
    # Windows takes no notice of spaces around a name.
    if ".." in value and any(segment.strip() == ".." for segment in value.split("/")):
        return "has a segment '..'"
    return ""
