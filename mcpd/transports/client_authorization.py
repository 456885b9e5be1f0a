"""What lets a client's requests in, as a transport asks for it: the one seam between transports and authorization.

`begin` is told of each request before it is sent; what that gives has the header fields for it, and is shown its
refusal. `advice_on` says what to do about a refusal that stays one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import DecodeError
from msgspec.json import decode

from mcpd.protocol.printable import printable

_error = re.compile(r"""\berror\s*=\s*"?([\w-]+)""").search
_scope = re.compile(r"""\bscope\s*=\s*"([^"]{1,500})""").search
_description = re.compile(r"""\berror_description\s*=\s*"([^"]{1,300})""").search
_names_source = re.compile(r"\b(host|origin)\b", re.IGNORECASE).search


def said_in(body: bytes) -> str:
    """Return what the body of a refusal says, printable and short: its `error_description`, or its first line."""
    try:
        found = decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(text := found.get("error_description"), str) and text.strip():
        return printable(" ".join(text.split()), 300)
    lines = (line.strip() for line in body[:4096].splitlines())
    return printable(next((line for line in lines if line), b"").decode(errors="replace"), 300)


def has_judged(challenges: Iterable[str]) -> bool:
    """Whether a refusal is of a token: if a request had none, its challenge has no `error` (RFC 6750 3.1)."""
    return any(_error(line) for line in challenges)


def advice_on(status: int, challenges: Sequence[str], said: str, *, has_token: bool) -> str:
    """Return what to do about status 401 or 403, by its cause; "" where `said`, the text of the refusal, has it."""
    line = ", ".join(challenges)
    error = _error(line)
    if error is not None and error[1] == "insufficient_scope":
        scopes = _scope(line)
        needed = f"with the scopes {printable(scopes[1])}" if scopes else "with more scopes"
        return f"the token is not enough: give one {needed}" if has_token else ""
    if status == 401 or line:
        if not has_token:
            return "a token is given by --token-file FILE, in Python by headers={'Authorization': 'Bearer …'}"
        why = _description(line)
        reason = "" if why is None or why[1].lower() in said.lower() else f": {printable(why[1])}"
        return f"the server refuses what was given as Authorization{reason}"
    if status != 403 or _names_source(said):
        return ""
    other = "another" if has_token else "a"
    return f"does it want {other} token (--token-file FILE), or not know this Host, Origin or address?"


class AuthorizedRequest(Protocol):
    """One request, with all that it takes to have it answered."""

    async def fields(self) -> Mapping[str, str]:
        """The header fields that let it in now, anew for each attempt. Raises McpdError."""

    def heard(self, headers: Mapping[str, str]) -> None:
        """The head of an answer has come; names are found in any case."""

    async def refused(self, status: int, challenges: Sequence[str]) -> bool:
        """It was refused, with these lines of `WWW-Authenticate`: whether to send it again. Raises McpdError."""


class Authorization(Protocol):
    """What a client has, or can get, to be let in at one server."""

    def begin(self, method: str, url: str, operation: str) -> AuthorizedRequest:
        """A request is to be sent. `operation` is the method of MCP in it, with its name; "" if it has none."""

    def covers(self, url: str) -> bool:
        """Whether a redirect to that URL of the same origin may be followed with the same fields."""
