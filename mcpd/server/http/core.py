"""What the modules of the HTTP package share: the server behind it, the settings, and what is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec import Struct
from msgspec.json import Decoder

from mcpd.errors import AccessDenied, ProtocolError
from mcpd.protocol.budget import client_of
from mcpd.protocol.channel import Channel
from mcpd.protocol.jsonrpc import Message
from mcpd.protocol.principal import Origin, Principal
from mcpd.protocol.session import Call, Opening
from mcpd.protocol.state_keys import StateKeys
from mcpd.protocol.types.base import Implementation
from mcpd.protocol.versions.table import Version
from mcpd.serve_defaults import SESSION_TIMEOUT
from mcpd.server.backplane.base import Backplane, EventStore
from mcpd.server.http.event_stream import KeepAlive
from mcpd.server.http.request import HttpRequest, Scope
from mcpd.server.registry.routes import Route
from mcpd.transports.authentication import Protection, Refusal, RequestHeaders
from mcpd.transports.stdio import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from mcpd.protocol.observer import Observer
    from mcpd.protocol.wire.headers import Mirror
    from mcpd.server.backplane.node import ListDigest
    from mcpd.server.dispatcher.connection import ServerConnection
    from mcpd.server.dispatcher.observing import PostFrames
    from mcpd.server.http.sharing import Changing, Sharing


class Forgotten:
    """A moment. Moments hold those after them and none before, so that what nobody asks about any more is gone."""

    __slots__ = ("_is_meant", "following")

    def __init__(self) -> None:
        self._is_meant: Callable[[Principal], bool] | None = None
        self.following: Forgotten | None = None

    def add(self, is_meant: Callable[[Principal], bool]) -> Forgotten:
        """Forget these principals now; gives the moment after that."""
        self._is_meant, self.following = is_meant, Forgotten()
        return self.following

    def has(self, user: Principal) -> bool:
        """Whether this one was forgotten since."""
        moment: Forgotten | None = self
        while moment is not None and moment._is_meant is not None:
            if moment._is_meant(user):
                return True
            moment = moment.following
        return False


class HttpSettings(Struct, frozen=True, kw_only=True):
    """How HTTP is served. Times are in seconds.

    `path` is the endpoint's. `stateless` keeps no sessions: each request of an older client stands alone, so
    nothing can be asked of it, and it cannot listen. A session ends when nothing came for `session_idle_timeout`
    (0: never); of more than `max_sessions` the one that was idle longest ends. `keep_alive_interval` is how
    often a quiet stream says that it is there, and after which a call that takes longer becomes one (0: never).
    `max_stored_events` and `max_stored_bytes` are what a session keeps for clients that lost the connection,
    which are to come back after `retry_ms`. A connection is closed when its request does not come within
    `head_timeout` and `body_timeout`, when none came for `idle_timeout`, or when its client took nothing of what
    is written to it for `write_timeout` (0: never).
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
    """Makes what keeps the events of a session, by its id; None for the memory of this process."""
    backplane: str | Backplane | None = None
    """What processes that serve the same clients share, or its URL; None for one alone."""
    strict_ready: bool = False
    """Whether `/readyz` says 503 while the backplane is away, which all processes lose at once."""
    routes: Sequence[Route] = ()
    """What is served beside the endpoint, before the routes of the server."""
    server_card: Literal["auto", "public", "never"] = "auto"
    """Who may read the Server Card: auto asks for what the endpoint asks for, public tells everybody."""
    public_url: str = ""
    """The endpoint's URL for the Server Card; empty for what a request was made to."""


class Facts(NamedTuple):
    """What an application knows of itself now, for who watches it."""

    streams: int
    """The event streams that are open."""
    backplane: str | None
    """None without one that others share; "" if it is well, else what is wrong with it."""
    refused: int = 0
    """What came over it and was forged, too old, or said twice."""
    dropped: int = 0
    """What was for other processes and could not be said."""


class Companion(Protocol):
    """What lives as long as an application."""

    def start(self) -> None:
        """In the event loop, before the first request. Safe to call again."""

    def stop(self) -> None:
        """The application ends. Safe to call twice."""


class Connect(Protocol):
    """The server: gives a channel its connection."""

    def __call__(self, channel: Channel, opening: Opening) -> ServerConnection: ...


class ServerLifespan(Protocol):
    """What the server behind an application opens before its first call, see `server.lifespan`."""

    def hold(self, holder: object) -> None:
        """Keep it open until `holder` lets go of it."""

    @property
    def value(self) -> Any:
        """What it gave, while it is open."""

    async def open(self) -> None:
        """Start it. Raises ConfigurationError if that fails."""

    async def let_go(self, holder: object) -> None:
        """End it, if nobody else holds it."""


class ToolHiding(Protocol):
    """What a server hides from some of those who ask."""

    @property
    def has_rules(self) -> bool:
        """Whether there is anything that only some may see."""

    def denied_in(self, parts: Iterable[object], origin: Origin) -> AccessDenied | None:
        """Why a batch is denied to who sent it, before anything of it runs; None if it is not."""

    async def hides_tool(self, call: Call, connection: Any) -> bool:
        """Whether the tool of a call does not exist for whoever sent it."""


class Backend(NamedTuple):
    """The server behind an application. `mirrors` gives the mirrored arguments of a tool; `routes` may become more.

    Of its `observers`, those that hear of frames hear of the bodies of requests and answers too.
    """

    connect: Connect
    mirrors: Callable[[str], Sequence[Mirror]]
    lifespan: ServerLifespan | None = None
    observers: Sequence[Observer] = ()
    routes: Sequence[Route] = ()
    identity: Implementation | None = None
    hiding: ToolHiding | None = None
    keys: StateKeys | None = None
    changing: Changing | None = None
    list_digest: ListDigest | None = None


Identify = Callable[[Scope], str | Principal | None]
"""Gives the sender of a request, for applications that authenticate by themselves; None for an anonymous one."""


class Core:
    """The server behind the endpoint, and all that is open now."""

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
        """What makes this one node of several."""
        if settings.backplane is not None or server.keys:
            from mcpd.server.http.sharing import make_sharing

            name = "" if server.identity is None else server.identity.name
            self.sharing = make_sharing(
                settings.backplane,
                server.keys or StateKeys(),
                name,
                server.changing,
                server.observers,
                server.list_digest,
            )
        self.open: set[ServerConnection] = set()
        """The connections of requests that stand alone, while they are answered."""
        self.sockets: dict[Channel, ServerConnection] = {}
        """The WebSockets that came through the ASGI server, with their connections."""
        self.listening: dict[ServerConnection, Principal] = {}
        """The connections that subscribe in 2026-07-28, with who they belong to."""
        self.forgotten = Forgotten()
        """Now, as far as principals are forgotten."""
        self.is_draining = False
        self.watch_post: Callable[[bytes, Message | list[Message | ProtocolError]], PostFrames] | None = None
        """Makes what tells observers of the frames of one POST; None if none of them hears of frames."""
        self.on_refused: Callable[[str], object] | None = None
        """Hears of each refusal, by its status or code; None if nobody counts them."""
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
        """Wait up to a second for what runs in the background."""
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
        """How a connection for this request begins: who its client is, and where."""
        client = request.scope.get("client")  # as `request.peer`, without a call: made for every modern request
        return Opening(version, self.principal(request), client[0] if client else "", is_stateless, subscribes)

    def owner(self, request: HttpRequest) -> str:
        """The client of a request, for shares of what is limited."""
        return client_of(request.peer, self.principal(request))

    def principal(self, request: HttpRequest) -> str:
        """The sender's id, which reveals nothing of its credentials; empty for an anonymous one."""
        if self._knows_users:
            return request.user.id
        # Without an authenticator credentials may still be checked before us, or in a tool: they tell users apart.
        authorization = request.headers.get(b"authorization")
        return "" if authorization is None else _digest(authorization)

    def deny(self, request: HttpRequest, denied: AccessDenied) -> Refusal:
        """The answer to a request that was let in, and lacks something for what it asks."""
        from mcpd.transports.authentication import refusal_of  # few requests are denied

        refusal = refusal_of(self.protection, denied, request.user)
        return refusal if self.protection is None else self.protection.spelled(refusal, RequestHeaders(request.headers))


def _digest(data: bytes) -> str:
    # Not the credential itself: what holds this lives long, and may end up in somebody's debugger.
    return sha256(data).hexdigest()


class _ErrorHead(Struct):
    code: int


class _Failed(Struct):
    error: _ErrorHead


_ERROR = b'{"jsonrpc":"2.0","error":'
_decode_failed = Decoder(_Failed).decode
_STATUS = {-32700: 400, -32600: 400, -32601: 404, -32020: 400, -32021: 400, -32022: 400}


def is_error(answer: bytes) -> bool:
    """Whether an answer of ours is an error answer."""
    return answer.startswith(_ERROR)


def status_of(answer: bytes | None) -> int:
    """The HTTP status of an answer in 2026-07-28."""
    if answer is None or not answer.startswith(_ERROR):
        return 200
    return status_for(_decode_failed(answer).error.code)


def status_for(code: int) -> int:
    """The HTTP status of an error in 2026-07-28: 400 and 404 where the specification says so, else 200.

    Wrong params, above all, have no status of their own.
    """
    return _STATUS.get(code, 200)
