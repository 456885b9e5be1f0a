"""`WWW-Authenticate` headers: written by servers, read by clients.

Parsing is lenient, because any server may have written the header: invalid parts are skipped in linear time, and
nothing is raised.

Spec: RFC 9110 sections 11.2 and 11.6.1, RFC 6750 section 3, RFC 9728 section 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_MOST_BYTES = 64 * 1024
_MOST_CHALLENGES = 64

# Possessive quantifiers prevent backtracking.
_token = re.compile(rf"{_TOKEN}++").match
_is_token = re.compile(rf"{_TOKEN}++").fullmatch
_spaces = re.compile(r"[ \t]*+").match
_commas = re.compile(r"[ \t,]*+").match
_equals = re.compile(r"[ \t]*+=[ \t]*+").match
_token68 = re.compile(r"([A-Za-z0-9._~+/-]++=*+)[ \t]*+(?=,|\Z)").match
_quoted = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL).match
_unescape = re.compile(r"\\(.)", re.DOTALL).sub
_NONE: Mapping[str, str] = MappingProxyType({})


class Challenge(Struct, frozen=True):
    """One challenge: its `scheme`, and its parameters by lower-case name or a `token68`.

    The first of repeated parameters counts.
    """

    scheme: str
    params: Mapping[str, str] = _NONE
    token68: str = ""

    def is_of(self, scheme: str) -> bool:
        """Return whether it has this scheme, ignoring case."""
        return self.scheme.lower() == scheme.lower()

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes in order, without duplicates."""
        return tuple(dict.fromkeys(self.params.get("scope", "").split()))


def build(scheme: str, params: Mapping[str, str | None]) -> str:
    """Return a challenge for a header, with all parameters that are not None as quoted strings.

    Raises ValueError for characters other than printable ASCII.
    """
    said = []
    for name, value in params.items():
        if value is None:
            continue
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the parameter {name} of a challenge must be printable ASCII")
        if not _is_token(name):
            raise ValueError(f"{name!r} is not a parameter name")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        said.append(f'{name}="{escaped}"')
    return f"{scheme} {', '.join(said)}" if said else scheme


def parse(lines: Iterable[str]) -> list[Challenge]:
    """Return the challenges in the lines of a header, in order.

    At most 64 KiB and 64 challenges are read.
    """
    found: list[Challenge] = []
    room = _MOST_BYTES
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        _parse_line(line, found)
    return found[:_MOST_CHALLENGES]


def _parse_line(line: str, found: list[Challenge]) -> None:
    params: dict[str, str] | None = None  # of the current challenge
    at, end = _after(_commas, line, 0), len(line)
    while at < end:
        word = _token(line, at)
        if word is None:
            at = _next_element(line, at)
            continue

        name, at = word[0], word.end()
        equals = _equals(line, at)
        if equals is not None:
            value, at = _value(line, equals.end())
            if params is not None and value is not None:
                params.setdefault(name.lower(), value)
            at = _next_element(line, at)
            continue

        # A word that is not followed by `=` begins a challenge.
        params = {}
        behind = _after(_spaces, line, at)
        token68 = _token68(line, behind) if behind > at else None
        if token68 is not None:
            found.append(Challenge(name, MappingProxyType(params), token68[1]))
            at = token68.end()
        else:
            found.append(Challenge(name, MappingProxyType(params)))
            at = behind
        if at < end and line[at] == ",":
            at = _after(_commas, line, at)


def _value(line: str, at: int) -> tuple[str | None, int]:
    """Return a parameter's value, or None if it is malformed, and the position after it."""
    quoted = _quoted(line, at)
    if quoted is not None:
        return _unescape(r"\1", quoted[1]), quoted.end()
    if line.startswith('"', at):
        return None, len(line)  # without a closing quote, the rest cannot be parsed
    word = _token(line, at)
    return (None, at) if word is None else (word[0], word.end())


def _next_element(line: str, at: int) -> int:
    """Return the position of the next list element, after the next comma outside quoted strings."""
    while at < len(line) and line[at] != ",":
        quoted = _quoted(line, at) if line[at] == '"' else None
        if quoted is not None:
            at = quoted.end()
        elif line[at] == '"':
            return len(line)
        else:
            at += 1
    return _after(_commas, line, at)


def _after(pattern: Callable[[str, int], re.Match[str] | None], line: str, at: int) -> int:
    match = pattern(line, at)
    return at if match is None else match.end()
