"""URIs as they are written (RFC 3986): which characters may stand in one, and how the others are encoded."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Patterns are compiled by `re` when they are first needed, a third of a millisecond each: most URIs need none.
PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;="
"""What may stand anywhere in a URI, but "%"."""

NOT_URI = r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]"
"""A pattern of what may not stand in a URI as it is."""

_IP_LITERAL = r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\[\]]*\[[0-9A-Fa-f:.v]+\]"


def as_uri(text: str) -> str:
    """A URI as people type it, with what may not stand in one percent-encoded (RFC 3986; RFC 3987 section 3.1)."""
    uri = re.sub(NOT_URI, percent, text) if text.strip(PLAIN) else text
    if "[" not in uri and "]" not in uri:
        return uri
    # Brackets belong around an IP address and nowhere else.
    host = re.match(_IP_LITERAL, uri)
    end = host.end() if host else 0
    return uri[:end] + uri[end:].replace("[", "%5B").replace("]", "%5D")


def percent(found: re.Match[str]) -> str:
    """What a pattern found, percent-encoded."""
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


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
