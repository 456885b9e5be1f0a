"""How an HTTP server is reached: what a program says besides its URL."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from os import PathLike
from typing import TypeAlias

from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

Headers: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Header fields for every request, or a function that gives them anew for each."""


_OURS = frozenset(
    (
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect",
        "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "te", "trailer",
        "transfer-encoding", "upgrade",
    )
)  # fmt: skip
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class Challenge(Struct, frozen=True):
    """A request that was refused for want of a better token: 401, or 403."""

    url: str
    status: int
    www_authenticate: tuple[str, ...]
    """The values of `WWW-Authenticate`, as they came."""
    attempt: int = 1
    """The how manieth refusal of this one request it is."""


Authenticate: TypeAlias = Callable[[Challenge], Awaitable[Mapping[str, str] | None]]
"""Gives the header fields to send from now on, after which the request is sent again; None to leave it refused."""


class HttpOptions(Struct, frozen=True, kw_only=True):
    """How an HTTP server is reached.

    headers
        Fields of every request, such as `{"Authorization": "Bearer …"}`; or a function, or a coroutine function, that
        is asked before each.
    authenticate
        Is shown a request that was refused with 401 or 403, and gives the header fields that may open the door. Asked
        three times for one request at most.
    verify
        A file or folder of certificates to trust in place of the system's, or an `ssl.SSLContext`; False trusts
        everybody, which is for tests.
    socket
        A unix socket to connect to; the URL then only says `Host` and path.
    connect_seconds
        How long connecting may take, TLS included.
    connections
        So many requests are open at a time; others wait their turn.
    redirects
        So many redirects are followed for one request, each to the same origin.
    proxies
        Whether `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` of the environment count.
    """

    headers: Headers | None = None
    authenticate: Authenticate | None = None
    verify: bool | str | PathLike[str] | ssl.SSLContext = True
    socket: str | None = None
    connect_seconds: float = 10.0
    connections: int = 100
    redirects: int = 5
    proxies: bool = True

    def __post_init__(self) -> None:
        if self.connections < 1 or self.connect_seconds <= 0:
            raise ConfigurationError("HttpOptions: connections and connect_seconds must be above 0")

    async def fields(self) -> Mapping[str, str]:
        """Return the header fields for the next request."""
        given = self.headers() if callable(self.headers) else self.headers or {}
        return await given if isawaitable(given) else given


def checked(fields: Mapping[str, str], where: str) -> Mapping[str, str]:
    """These header fields. Raises ConfigurationError, without a value in it, for what cannot be sent."""
    for name, value in fields.items():
        if not name or not _TOKEN.issuperset(name):
            raise ConfigurationError(f"{where}: {printable(name)!r} is no name of a header field")
        lower = name.lower()
        if lower in _OURS or lower.startswith("mcp-param-"):
            raise ConfigurationError(f"{where}: {name} is said by the client itself")
        if any(c in value for c in "\r\n\0") or value != value.strip(" \t"):
            raise ConfigurationError(
                f"{where}: the value of {name} cannot be sent: it has a line break, or blanks around"
            )
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise ConfigurationError(f"{where}: the value of {name} is not Latin-1") from None
    return fields
