"""The settings of HTTP, the server behind the endpoint, and its open connections: shared by the other modules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.json import Decoder

from mcpd.errors import AccessDenied, ProtocolError
from mcpd.protocol.budget import client_of
from mcpd.protocol.channel import Channel
from mcpd.protocol.defaults import SESSION_TIMEOUT
from mcpd.protocol.envelope import Opening, OpeningOfPart
from mcpd.protocol.jsonrpc import Message
from mcpd.protocol.principal import Principal
from mcpd.protocol.versions.table import Version
from mcpd.server.backplane.base import Backplane, EventStore
from mcpd.transports.authentication import Protection, Refusal, RequestHeaders
from mcpd.transports.routes import Route
from mcpd.transports.stdio import MAX_FRAME_BYTES
from .reply import KeepAlive
from .request import HttpRequest, Scope

if TYPE_CHECKING:
    from mcpd.server.backplane.node import Sharing
    from mcpd.server.dispatcher.connection import ServerConnection
    from mcpd.server.dispatcher.observing import PostFrames
    from mcpd.server.http_backend import Backend


class RevocationPoint(Struct, eq=False):
    """A point in time, from which a linked list leads to later revocations.

    A request holds the point at which it was admitted. Earlier points are not referenced, so they need no cleaning.
    """

    _matches: Callable[[Principal], bool] | None = None
    following: RevocationPoint | None = None

    def add(self, matches: Callable[[Principal], bool]) -> RevocationPoint:
        """Revoke the principals for which `matches` returns True. Returns the point after that."""
        self._matches, self.following = matches, RevocationPoint()
        return self.following

    def was_revoked(self, user: Principal) -> bool:
        """Whether a principal was revoked after this point."""
        point: RevocationPoint | None = self
        while point is not None and point._matches is not None:
            if point._matches(user):
                return True
            point = point.following
        return False


class HttpSettings(Struct, frozen=True, kw_only=True):
    """How HTTP is served. Times are in seconds, sizes in bytes.

    `path` is the path of the endpoint. With `stateless` the endpoint keeps no sessions: each request of an older client
    is independent, so the server cannot send it requests or change notifications. A session ends if no request comes
    for `session_idle_timeout` (0: never). Above `max_sessions` the session that was idle longest ends.

    `keep_alive_interval` is the time after which a quiet event stream sends a comment, and a running call starts one
    (0: never). `max_stored_events` and `max_stored_bytes` limit what a session stores for clients that have lost the
    connection, which should return after `retry_ms` milliseconds. A connection is closed if a request does not arrive
    within `head_timeout` and `body_timeout`, if no request arrives for `idle_timeout`, or if the client reads
    nothing for `write_timeout` (0: never).
    """

    path: str = "/mcp"
    stateless: bool = False
    session_idle_timeout: float = SESSION_TIMEOUT
    max_sessions: int = 10_000
    keep_alive_interval: float = 15.0
    retry_ms: int = 1000
    max_stored_events: int = 256
    max_stored_bytes: int = 1024 * 1024
    max_body_bytes: int = MAX_FRAME_BYTES
    body_timeout: float = 60.0
    max_head_bytes: int = 64 * 1024
    head_timeout: float = 10.0
    idle_timeout: float = 75.0
    write_timeout: float = 60.0
    max_connections: int = 10_000
    event_store: Callable[[str], EventStore] | None = None
    """Returns the store for the events of a session, by its id; None for the memory of this process."""
    backplane: str | Backplane | None = None
    """The backplane of several processes that serve the same clients, or its URL; None for a single process."""
    strict_ready: bool = False
    """Whether `/readyz` returns 503 while the backplane is away. All processes usually lose it at the same time."""
    routes: Sequence[Route] = ()
    """Routes besides the endpoint. They take precedence over the routes of the server."""
    server_card: Literal["auto", "public", "never"] = "auto"
    """Access to the Server Card: auto requires the credentials of the endpoint, public requires none."""
    public_url: str = ""
    """The endpoint's URL for the Server Card; by default the URL of the request."""


class EndpointStatus(NamedTuple):
    """The state of an application, for metrics and `mcpd status`."""

    streams: int
    """Open event streams."""
    backplane: str | None
    """None without a shared backplane, "" if it can be reached, otherwise the problem."""
    refused: int = 0
    """Messages of the backplane that were forged, too old or repeated."""
    dropped: int = 0
    """Messages to other processes that could not be sent."""


Identify = Callable[[Scope], str | Principal | None]
"""Returns the sender of a request, for applications that authenticate on their own; None for an anonymous one."""


class Core:
    """The server behind the endpoint, and everything that is open."""

    def __init__(
        self,
        server: Backend,
        settings: HttpSettings,
        *,
        knows_users: bool,
        protection: Protection | None = None,
    ) -> None:
        self.connect = server.connect
        self.mirrors = server.mirrors
        self.protection = protection
        self.hiding = server.hiding
        self.settings = settings
        self.keep_alive = KeepAlive(settings.keep_alive_interval, settings.write_timeout)
        self.sharing: Sharing | None = None
        """The connection to other processes of the service; None for a single process."""
        if settings.backplane is not None or server.keys:
            from mcpd.server.backplane.node import Sharing

            self.sharing = Sharing(server, settings.backplane)
            if self.sharing.is_shared:
                for extension in server.extensions():
                    extension.share(self.sharing.node.backplane)

        self.open: set[ServerConnection] = set()
        """The connections of requests without a session, while they are answered."""
        self.sockets: dict[Channel, ServerConnection] = {}
        """The WebSockets that an ASGI server has accepted, with their connections."""
        self.listening: dict[ServerConnection, Principal] = {}
        """The connections with a subscription of 2026-07-28, with their principals."""
        self.revocations = RevocationPoint()
        """The point after the last revocation."""
        self.is_draining = False
        self.watch_post: Callable[[bytes, Message | list[Message | ProtocolError]], PostFrames] | None = None
        """Creates the reporter of the frames of one POST; None unless an observer receives frames."""
        self.on_refused: Callable[[str], object] | None = None
        """Counts a refusal by its status or code; None unless an observer counts them."""
        if server.observers:
            from mcpd.server.dispatcher.observing import (  # few servers need it: it costs start-up
                PostFrames,
                observes_frames,
                refusal_counter,
            )

            self.on_refused = refusal_counter(server.observers)
            if any(map(observes_frames, server.observers)):
                self.watch_post = PostFrames

        self._knows_users = knows_users
        self._tasks: set[asyncio.Future[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait up to a second for background work to end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    def opening(
        self,
        request: HttpRequest,
        version: Version | None = None,
        *,
        is_stateless: bool = False,
        subscribes: bool = True,
    ) -> Opening:
        """Return what is known about the connection of a request: the client and its address."""
        client = request.scope.get("client")
        peer = client[0] if client else ""
        user = self.principal(request)
        if request.part is None:
            return Opening(version, user, peer, is_stateless, subscribes)
        return OpeningOfPart(version, user, peer, is_stateless, subscribes, named=request.part)

    def owner(self, request: HttpRequest) -> str:
        """Return the client of a request, for per-client limits."""
        return client_of(request.peer, self.principal(request))

    def principal(self, request: HttpRequest) -> str:
        """Return the sender's id, which does not reveal its credentials; empty for an anonymous sender."""
        if self._knows_users:
            return request.user.id
        # Without an authenticator, a proxy or a tool may still check credentials: they distinguish users.
        authorization = request.headers.get(b"authorization")
        # Not the credential itself: sessions live long, and their ids may appear in a debugger.
        return "" if authorization is None else sha256(authorization).hexdigest()

    def deny(self, request: HttpRequest, denied: AccessDenied) -> Refusal:
        """Return the response to an admitted request that lacks a permission."""
        from mcpd.transports.authentication import refusal_of  # few requests are denied

        refusal = refusal_of(self.protection, denied, request.user)
        return refusal if self.protection is None else self.protection.spelled(refusal, RequestHeaders(request.headers))


class _ErrorHead(Struct):
    code: int


class _Failed(Struct):
    error: _ErrorHead


_ERROR = b'{"jsonrpc":"2.0","error":'
_decode_failed = Decoder(_Failed).decode
_STATUS = {-32700: 400, -32600: 400, -32601: 404, -32020: 400, -32021: 400, -32022: 400}


def is_error(answer: bytes) -> bool:
    """Whether a response of the server is an error response."""
    return answer.startswith(_ERROR)


def status_of(answer: bytes | None) -> int:
    """Return the HTTP status of a response in 2026-07-28."""
    if answer is None or not answer.startswith(_ERROR):
        return 200
    return status_for(_decode_failed(answer).error.code)


def status_for(code: int) -> int:
    """Return the HTTP status of an error in 2026-07-28: 400 or 404 for the codes in the specification, otherwise 200.

    Invalid params, for example, have no status of their own.
    """
    return _STATUS.get(code, 200)
