"""`WWW-Authenticate`: challenges as a server builds them, and as a client reads those of any server.

Reading is lenient, as anybody may have written the header: what cannot be read is skipped, in linear time, and never
raises. Pure. Spec: RFC 9110 11.2 and 11.6.1, RFC 6750 3, RFC 9728 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_MOST_BYTES = 64 * 1024
_MOST_CHALLENGES = 64

# Possessive, all of them: nothing that fails is tried again in other ways.
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
    """One challenge: its `scheme` as it was written, and its parameters by lower-case name, or a `token68` instead.

    Of a parameter that came twice the first one counts.
    """

    scheme: str
    params: Mapping[str, str] = _NONE
    token68: str = ""

    def is_of(self, scheme: str) -> bool:
        """Whether it is of that scheme, in any case."""
        return self.scheme.lower() == scheme.lower()

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that it names, in their order, each once; () where it names none."""
        return tuple(dict.fromkeys(self.params.get("scope", "").split()))


def build(scheme: str, params: Mapping[str, str | None]) -> str:
    """One challenge as the value of a header line, with every parameter as a quoted string, but those that are None.

    Raises ValueError for what does not fit into a header: all but printable ASCII.
    """
    said = []
    for name, value in params.items():
        if value is None:
            continue
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the parameter {name} of a challenge is printable ASCII")
        if not _is_token(name):
            raise ValueError(f"{name!r} is no name of a parameter")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        said.append(f'{name}="{escaped}"')
    return f"{scheme} {', '.join(said)}" if said else scheme


def parse(lines: Iterable[str]) -> list[Challenge]:
    """All challenges of the header's lines, each of which may have several, in their order.

    Of lines that are longer than 64 KiB together, those beyond are left out, and more than 64 challenges too.
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
    params: dict[str, str] | None = None  # those of the challenge that is being read
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

        # A word by itself, or one with something else behind it than `=`, begins a challenge.
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
    """A parameter's value and where it ends; None for one that cannot be read."""
    quoted = _quoted(line, at)
    if quoted is not None:
        return _unescape(r"\1", quoted[1]), quoted.end()
    if line.startswith('"', at):
        return None, len(line)  # never closed: what follows may be anything
    word = _token(line, at)
    return (None, at) if word is None else (word[0], word.end())


def _next_element(line: str, at: int) -> int:
    """Where the next element of the list begins: behind the next comma that is in no quoted string."""
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
