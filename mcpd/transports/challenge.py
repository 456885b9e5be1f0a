"""`WWW-Authenticate` headers, written by servers and read by clients; advice about refusals; how clients authorize.

Parsing is lenient, because any server may have written the header: invalid parts are skipped in linear time, and
nothing is raised. A client's transport calls `Authorization.begin` before each request, adds the returned header
fields, and reports a refusal.

Spec: RFC 9110 sections 11.2 and 11.6.1, RFC 6750 section 3, RFC 9728 section 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from msgspec import DecodeError, Struct
from msgspec.json import decode

from mcpd.protocol.printable import printable

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_MOST_BYTES = 64 * 1024
_MOST_CHALLENGES = 64

# Possessive quantifiers prevent backtracking.
_QUOTED = r'"(?:[^"\\]++|\\.)*+"'
# Everything up to the next comma outside quotes. Without a closing quote, the rest cannot be parsed.
_SKIPPED = rf'(?:[^",]++|{_QUOTED}|".*+)'
_is_token = re.compile(rf"{_TOKEN}++").fullmatch
_unescape = re.compile(r"\\(.)", re.DOTALL).sub
_parts = re.compile(
    rf"""[ \t,]*+(?:
        (?P<name>{_TOKEN}++)[ \t]*+=[ \t]*+(?P<value>{_QUOTED}|{_TOKEN}++)?{_SKIPPED}*+
        |(?P<scheme>{_TOKEN}++)(?:[ \t]++(?P<token68>[A-Za-z0-9._~+/-]++=*+)(?=[ \t]*+(?:,|\Z)))?
        |{_SKIPPED}++
    )""",
    re.DOTALL | re.VERBOSE,
).finditer
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
    written = []
    for name, value in params.items():
        if value is None:
            continue
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the parameter {name} of a challenge must be printable ASCII")
        if not _is_token(name):
            raise ValueError(f"{name!r} is not a parameter name")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        written.append(f'{name}="{escaped}"')
    return f"{scheme} {', '.join(written)}" if written else scheme


def parse(lines: Iterable[str]) -> list[Challenge]:
    """Return the challenges in the lines of a header, in order.

    At most 64 KiB and 64 challenges are read.
    """
    challenges: list[Challenge] = []
    room = _MOST_BYTES
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        _parse_line(line, challenges)
    return challenges[:_MOST_CHALLENGES]


def _parse_line(line: str, challenges: list[Challenge]) -> None:
    params: dict[str, str] | None = None  # of the current challenge
    for part in _parts(line.rstrip(" \t,")):
        name, value, scheme, token68 = part.groups()
        # A word that is not followed by `=` begins a challenge.
        if scheme is not None:
            params = {}
            challenges.append(Challenge(scheme, MappingProxyType(params), token68 or ""))
        elif params is not None and value is not None:
            text = _unescape(r"\1", value[1:-1]) if value[0] == '"' else value
            params.setdefault(name.lower(), text)


_names_source = re.compile(r"\b(host|origin)\b", re.IGNORECASE).search


def said_in(body: bytes) -> str:
    """Return the message in the body of a refusal, printable and short: its `error_description`, or its first line.

    It has no full stop at the end, because callers add advice after a semicolon.
    """
    try:
        document = decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    if isinstance(document, dict) and isinstance(text := document.get("error_description"), str) and text.strip():
        return printable(" ".join(text.split()), 300).removesuffix(".")
    lines = (line.strip() for line in body[:4096].splitlines())
    return printable(next((line for line in lines if line), b"").decode(errors="replace"), 300).removesuffix(".")


def has_judged(challenges: Iterable[str]) -> bool:
    """Return whether the server refused a token; without a token, the challenge has no `error` (RFC 6750 3.1)."""
    return any("error" in challenge.params for challenge in parse(challenges))


def advice_on(status: int, challenges: Sequence[str], refusal_text: str, *, has_token: bool) -> str:
    """Return advice about a 401 or 403; "" if `refusal_text`, the text of the refusal, already has it."""
    params: dict[str, str] = {}
    for challenge in parse(challenges):
        params = {**challenge.params, **params}
    if params.get("error") == "insufficient_scope":
        scopes = params.get("scope")
        needed = f"with the scopes {printable(scopes, 500)}" if scopes else "with more scopes"
        return f"the token's scopes are insufficient: use one {needed}" if has_token else ""
    if status == 401 or any(challenges):
        if not has_token:
            return "give a token with --token-file FILE, in Python with headers={'Authorization': 'Bearer …'}"
        why = params.get("error_description", "").removesuffix(".")
        reason = f": {printable(why, 300)}" if why and why.lower() not in refusal_text.lower() else ""
        return f"the server refuses the Authorization header{reason}"

    if status != 403 or _names_source(refusal_text):
        return ""
    other = "another" if has_token else "a"
    return f"it may require {other} token (--token-file FILE), or not allow this Host, Origin or address"


class AuthorizedRequest(Protocol):
    """The authorization of one request."""

    async def fields(self) -> Mapping[str, str]:
        """Return the header fields for the next attempt. Raises McpdError."""

    def on_response(self, headers: Mapping[str, str]) -> None:
        """Receive the headers of a response; names are matched in any case."""

    async def refused(self, status: int, challenges: Sequence[str]) -> bool:
        """Handle a refusal with these `WWW-Authenticate` values. Return whether to try again. Raises McpdError."""


class Authorization(Protocol):
    """The authorization of a client at one server."""

    def begin(self, method: str, url: str, operation: str) -> AuthorizedRequest:
        """Start the authorization of a request. `operation` is its MCP method and name, or ""."""

    def covers(self, url: str) -> bool:
        """Return whether a redirect to this URL of the same origin may be followed with the same header fields."""
