"""URIs and paths in them: valid characters, encoding, and values that could lead a path out of its folder.

A template variable's value is the peer's text, decoded once (RFC 6570). Code that joins it to a folder, or passes it to
a program that decodes it again, is safe from `..`, absolute paths, drive letters, backslashes and NULs in any number of
encodings. Links in file systems are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# `re` compiles these patterns when they are first used.
PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;="
"""The characters that may appear anywhere in a URI, except "%"."""

NOT_URI = r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]"
"""A pattern of characters that a URI must not contain."""

_IP_LITERAL = r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\[\]]*\[[0-9A-Fa-f:.v]+\]"


def as_uri(text: str) -> str:
    """Return a URI as people type it with invalid characters percent-encoded (RFC 3986; RFC 3987 section 3.1)."""
    uri = re.sub(NOT_URI, percent, text) if text.strip(PLAIN) else text
    if "[" not in uri and "]" not in uri:
        return uri
    # Brackets are only valid around an IP address.
    host = re.match(_IP_LITERAL, uri)
    end = host.end() if host else 0
    return uri[:end] + uri[end:].replace("[", "%5B").replace("]", "%5D")


def percent(found: re.Match[str]) -> str:
    """Return a match percent-encoded."""
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


MOST_ENCODINGS = 8
"""The maximum number of percent-encodings of a value; each is checked."""

_ANY_ENCODED_RUN = r"(?:%[0-9A-Fa-f]{2})+"
# Overlong forms of ASCII characters: UTF-8 forbids them, some decoders accept them (RFC 3629 section 3).
_OVERLONG = rb"[\xc0\xc1]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]"


def problem_of(variables: Mapping[str, str], exempt: frozenset[str]) -> tuple[str, str] | None:
    """Return the first variable whose value is not a safe path, and the reason; None if all are. `exempt` are not
    checked.
    """
    for name, value in variables.items():
        if name not in exempt:
            problem = path_problem(value)
            if problem:
                return name, problem
    return None


def path_problem(value: str) -> str:
    """Return what is wrong with a value, as a phrase that follows "it"; "" if nothing is."""
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
    """Bytes that some decoders read as an ASCII character."""


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
    # Windows ignores spaces around a name.
    if ".." in value and any(segment.strip() == ".." for segment in value.split("/")):
        return "has a segment '..'"
    return ""
