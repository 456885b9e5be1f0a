"""The interface between a client's transports and its authorization, and advice about refusals.

The transport calls `Authorization.begin` before each request, adds the returned header fields, and reports a refusal.
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
    """Return whether the server refused a token; without a token, the challenge has no `error` (RFC 6750 3.1)."""
    return any(_error(line) for line in challenges)


def advice_on(status: int, challenges: Sequence[str], said: str, *, has_token: bool) -> str:
    """Return advice about a 401 or 403; "" if `said`, the text of the refusal, already has it."""
    line = ", ".join(challenges)
    error = _error(line)
    if error is not None and error[1] == "insufficient_scope":
        scopes = _scope(line)
        needed = f"with the scopes {printable(scopes[1])}" if scopes else "with more scopes"
        return f"the token's scopes are insufficient: use one {needed}" if has_token else ""
    if status == 401 or line:
        if not has_token:
            return "give a token with --token-file FILE, in Python with headers={'Authorization': 'Bearer …'}"
        why = _description(line)
        reason = "" if why is None or why[1].lower() in said.lower() else f": {printable(why[1])}"
        return f"the server refuses the Authorization header{reason}"
    if status != 403 or _names_source(said):
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
