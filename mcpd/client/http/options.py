"""`HttpOptions`, `auth=`: how a program configures HTTP connections and authorization, beside the URL.

Every client imports this module, so it needs no extra. The settings of logins are in `mcpd.client.auth.settings`.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from os import PathLike
from typing import TypeAlias

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import fields

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

Headers: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Header fields for every request, or a function that is called before each request and returns them."""


_OURS = frozenset(
    (
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect",
        "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "te", "trailer",
        "transfer-encoding", "upgrade",
    )
)  # fmt: skip
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class Challenge(Struct, frozen=True):
    """A request that was refused with status 401 or 403."""

    url: str
    status: int
    www_authenticate: tuple[str, ...]
    """The values of `WWW-Authenticate`, unchanged."""
    attempt: int = 1
    """The number of this attempt, from 1."""


Authenticate: TypeAlias = Callable[[Challenge], Awaitable[Mapping[str, str] | None]]
"""Returns header fields to send from now on, after which the request is repeated. None accepts the refusal."""


class HttpOptions(Struct, frozen=True, kw_only=True):
    """How an HTTP server is reached.

    headers
        Fields of every request, such as `{"Authorization": "Bearer …"}`; or a function or coroutine function that is
        called before each request.
    authenticate
        Called when a request is refused with 401 or 403. Returns header fields to repeat the request with. Called at
        most three times for one request.
    verify
        A file or folder of trusted certificates instead of the system's, or an `ssl.SSLContext`. False trusts every
        server; use it in tests only.
    socket
        The path of a unix socket to connect to. The URL then only sets `Host` and the path.
    connect_seconds
        Seconds that connecting may take, including TLS.
    connections
        Number of concurrent requests. Further requests wait.
    redirects
        Number of redirects that are followed for one request, each within the same origin.
    proxies
        Whether to use `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` of the environment.
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
    """Return these header fields. Raises ConfigurationError for a field that cannot be sent, without its value."""
    for name, value in fields.items():
        if not name or not _TOKEN.issuperset(name):
            raise ConfigurationError(f"{where}: {printable(name)!r} is not a valid header name")
        lower = name.lower()
        # A second value of such a field could contradict the message (2026-07-28 basic/transports/streamable-http).
        if lower in _OURS or lower.startswith("mcp-param-"):
            raise ConfigurationError(f"{where}: {name} is set by the client itself")
        if any(c in value for c in "\r\n\0") or value != value.strip(" \t"):
            raise ConfigurationError(
                f"{where}: the value of {name} must not contain line breaks or begin or end with blanks"
            )
        try:
            # RFC 9110 5.5: other characters have no defined encoding.
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise ConfigurationError(f"{where}: the value of {name} must be Latin-1 text") from None
    return fields


TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]
"""A plain or coroutine function that returns a token. It is called again after a token was refused."""

_SECRET_FIELDS = frozenset(("client_secret", "key_pem", "id_token", "idp_client_secret", "token", "source"))


class AuthSettings(Struct, frozen=True, kw_only=True):
    """The base of all settings for `auth=`. The `repr` hides the values of secrets."""

    def __repr__(self) -> str:
        names = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default and value is not None:
                names.append(f"{each.name}={'…' if each.name in _SECRET_FIELDS else repr(value)}")
        return f"{type(self).__name__}({', '.join(names)})"

    __str__ = __repr__


Auth: TypeAlias = AuthSettings | str | TokenSource
"""Values of `Client(url, auth=…)`: `OAuth`, a grant for programs, a token, or a function that returns a token."""


def login_file() -> str:
    """Return the path of the file with the user's logins, in the platform's folder for application state."""
    from mcpd.transports.files import state_folder  # loads modules that most clients never need

    return os.path.join(state_folder(), "auth.json")


def has_login(url: str) -> bool:
    """Whether the user's file may contain a login at this server. The file is searched, but not checked."""
    plain = url.partition("?")[0].partition("#")[0]
    try:
        with open(login_file(), "rb") as file:
            return encode(f"http{plain[2:]}" if plain.startswith("ws") else plain) in file.read()
    except OSError:
        return False
