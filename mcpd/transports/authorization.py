"""What lets a client's requests in, as a transport asks for it: the one seam between transports and authorization.

`begin` is told of each request before it is sent; what that gives has the header fields for it, and is shown its
refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

__all__ = ["Authorization", "AuthorizedRequest"]


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
