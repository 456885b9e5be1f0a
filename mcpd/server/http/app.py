"""Streamable HTTP as an ASGI application: admits requests to the endpoint, and chooses the era that answers them.

Checks are made in this order: `Host` and `Origin`, credentials, method, `Accept` and `Content-Type`, size of the body,
JSON. Then `modern` or `legacy` answers. Requests to other paths go to `routes`.
Spec: 2026-07-28 and 2025-11-25 basic/transports, 2026-07-28 basic/versioning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Raw

from mcpd.errors import AccessDenied, ConfigurationError, ParseError, ProtocolError
from mcpd.protocol.channel import Channel, Ending, Receiver
from mcpd.protocol.envelope import may_have_envelope, names_version, read_meta
from mcpd.protocol.jsonrpc import ABSENT, Batch, Message, Request, decode, decode_batch
from mcpd.protocol.principal import ANONYMOUS, Principal
from mcpd.protocol.printable import printable
from mcpd.protocol.versions import table
from mcpd.server.http_backend import Backend
from mcpd.transports.accepting import ConnectionLimit
from mcpd.transports.authentication import Authentication, Refusal, RequestHeaders
from mcpd.transports.guards import Access, Guard
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits
from .core import Core, EndpointStatus, HttpSettings, Identify
from .legacy import LegacyEndpoint
from .modern import ModernEndpoint
from .request import BadRequest, ClientDisconnected, HttpRequest, Receive, Refused, Scope, Send
from .routes import Cors, Router
from .websocket import serve_websocket

if TYPE_CHECKING:
    from mcpd.server.dispatcher.connection import ServerConnection

Step: TypeAlias = Coroutine[Any, Any, Any]
"""A part of the work on a request. It returns the next part, or None."""

Posted: TypeAlias = Message | list[Message | ProtocolError]
"""A posted message; a list is a batch."""

log = logging.getLogger("mcpd.http")

_MOUNTS = b"mounts="

_MOST_CHECKED = 1024
_LONGEST_CHECKED = 1024
_DEFAULT_ACCESS = Access()
_DEFAULT_SETTINGS = HttpSettings()


class _HeaderCheck(NamedTuple):
    # The problem of requests with certain headers: `refusal` for Host and Origin, `fault` for the others of a POST.
    refusal: Refusal | None
    fault: tuple[int, str] | None


class HttpApp:
    """The application, for any ASGI server or for `listener.HttpListener`.

    `bound` is the host of the listening socket, "" if unknown. `identify` returns the sender of a request, if another
    application authenticates before this one. Raises ConfigurationError for settings that contradict each other.
    """

    def __init__(
        self,
        server: Backend,
        access: Access = _DEFAULT_ACCESS,
        settings: HttpSettings = _DEFAULT_SETTINGS,
        *,
        bound: str = "",
        identify: Identify | None = None,
    ) -> None:
        if not settings.path.startswith("/"):
            raise ConfigurationError(f"path {settings.path!r}: write an absolute path, such as /mcp")
        self.settings = settings

        self.guard = Guard(access, bound)
        if identify is not None and access.authenticate is not None:
            raise ConfigurationError("identify= and authenticate= both name the sender of a request: use one of them")
        self._identify = identify
        self._authentication = self.guard.authentication
        if identify is not None:
            self._authentication = self._authentication or Authentication(None, access.authenticate_timeout)

        protection = self.guard.protection
        self._known_by: Callable[[bytes], Principal | None] | None = None if protection is None else protection.known

        self._loop: asyncio.AbstractEventLoop | None = None
        self.core = Core(server, settings, knows_users=self._authentication is not None, protection=protection)
        if protection is not None:
            protection.on_forget.append(self.forget)
        # Entered and exited with the ASGI server's lifespan; without one the first call enters it.
        self._lifespan = server.lifespan
        self._extensions = server.extensions
        self._cors = Cors(access.origins)

        path = settings.path.rstrip("/")
        self.paths = (path, path + "/") if path else ("/", "")
        """The paths of the endpoint, with and without a slash at the end; messages show the first."""
        self._legacy, self._modern = LegacyEndpoint(self.core), ModernEndpoint(self.core)
        # The endpoint by the value of `MCP-Protocol-Version`, if that is a modern version.
        self._endpoint_by_version: dict[bytes | None, ModernEndpoint]
        self._endpoint_by_version = {name.encode(): self._modern for name in table.MODERN}
        self._only_modern = table.modern_requests()
        find_sender = None if self._authentication is None else partial(self._find_sender, self._authentication)
        self.routes = Router(self.core, server, self.guard, self._cors, find_sender, self.paths)
        self.sessions = self._legacy.sessions
        self.on_start: Callable[[], object] | None = None
        """Called in the event loop before the first request, and possibly again."""
        self.on_stop: Callable[[], object] | None = None
        """Called when the application ends."""
        self._checked: dict[tuple[bytes | None, ...], _HeaderCheck] = {}

    # -- what the ASGI server calls ----------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, serve one WebSocket, or follow the server's lifespan. Spec: ASGI 3."""
        if scope["type"] == "http":
            began = perf_counter() if log.isEnabledFor(logging.DEBUG) else 0.0
            request = HttpRequest(scope, receive, send, self.core.on_refused)
            try:
                step: Step | None = self._route(request)
                while step is not None:
                    # One after the other, not nested: a long call keeps no frames of the earlier steps alive.
                    step = await step
            except ClientDisconnected:
                pass
            except BadRequest as bad:
                await request.fail(bad.status, bad.error, bad.request_id)
            except Refused as refused:
                await request.refuse(refused.refusal)
            finally:
                request.charge = request.watch = None  # the ASGI server may keep the request with its connection

            if began:
                took = (perf_counter() - began) * 1000
                log.debug(
                    "%s %s %s %.1f ms",
                    printable(request.method),
                    printable(request.path),
                    request.status or "gone",
                    took,
                )
        elif scope["type"] == "websocket":
            request = HttpRequest({**scope, "method": "GET"}, receive, send)
            refusal = await self._refuse_websocket(request)
            if refusal is not None:
                self.refused(refusal.status)
            await serve_websocket(self.core, request, send, refusal)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def start(self) -> None:
        """Serve in the running event loop, also after `aclose`. Safe to call again."""
        self._begin()

        if self.on_start is not None:
            self.on_start()
        if self.core.sharing is not None:
            await self.core.sharing.start()
        for extension in self._extensions():
            await extension.start()

    def _begin(self) -> None:
        # Accept clients again, and drop the state of an event loop that was closed without a shutdown.
        if self._loop is not None:
            self.core.is_draining = False
            if self._loop.is_closed():
                self.core.keep_alive.stop()
                self.sessions.end_all()
        self._loop = asyncio.get_running_loop()

    async def _live(self, receive: Receive, send: Send) -> None:
        lifespan = self._lifespan
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.aclose(0)
                if lifespan is not None:
                    await lifespan.release(self)
                await send({"type": "lifespan.shutdown.complete"})
                return

            if lifespan is not None:
                lifespan.hold(self)
                try:
                    await lifespan.open()
                except ConfigurationError as error:
                    await lifespan.release(self)
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return

            await self.start()
            await send({"type": "lifespan.startup.complete"})

    def _route(self, request: HttpRequest) -> Step:
        # Decide by the headers how to answer a request.
        check = self._check_headers(request)
        refusal = check.refusal
        if request.path not in self.paths or request.scope.get("query_string"):
            self._find_part(request)
            if request.path not in self.paths:
                return self.routes.serve(request, refusal)
        if refusal is not None:
            log.warning("Refused a request: %d %s", refusal.status, printable(refusal.text.rstrip()))
            raise Refused(refusal)

        if self._cors.is_enabled:
            preflight = self._cors.answer(request)
            if preflight is not None:
                return preflight

        if self._authentication is not None:
            if self._known_by is not None:
                # Most requests: their token is cached. A header that came twice is joined by a comma, and not cached.
                authorization = request.headers.get(b"authorization")
                user = None if authorization is None else self._known_by(authorization)
                if user is not None:
                    request.user = user
                    return self._serve(request, check)
            return self._admit(request, check, self._authentication)

        return self._serve(request, check)

    def _find_part(self, request: HttpRequest) -> None:
        # Limit a request to the mounted servers that it names: `/mcp/NAME`, or `/mcp?mounts=a,b`.
        known = {name for extension in self._extensions() for name in extension.parts}
        name = request.path.removeprefix(self.paths[1]) if request.path.startswith(self.paths[1]) else ""
        if name in known:
            request.part, request.path = (name,), self.paths[0]
        elif known and request.path in self.paths:
            words = request.scope["query_string"].split(b"&")
            named = next((word for word in words if word.startswith(_MOUNTS)), None)
            if named is None:
                return
            part = tuple(named.removeprefix(_MOUNTS).decode("latin-1").split(","))
            if unknown := [each for each in part if each not in known]:
                text = f"There is no mount {unknown[0][:100]!r} here; the mounts are {', '.join(sorted(known))}.\n"
                raise Refused(Refusal(404, text))
            request.part = part

    async def _find_sender(self, authentication: Authentication, request: HttpRequest) -> Principal | Refusal:
        # Return the sender of a request, or its refusal.
        path = "" if request.path in self.paths else request.path
        sender = authentication.check(RequestHeaders(request.headers, request.repeated, request.method, path))
        if self._identify is not None and isinstance(sender, Principal):
            sender = authentication.call(_identified, (self._identify, request.scope))
        return await sender if isinstance(sender, Coroutine) else sender

    async def _admit(self, request: HttpRequest, check: _HeaderCheck, authentication: Authentication) -> Step:
        # Answer a request once its sender is known, or refuse it.
        known = await self._find_sender(authentication, request)
        if isinstance(known, Principal):
            request.user = known
        elif not self.guard.lets_in(known):  # otherwise an anonymous user with few permissions
            log.warning("Refused a request: %d", known.status)
            raise Refused(known)
        return self._serve(request, check)

    def _serve(self, request: HttpRequest, check: _HeaderCheck) -> Step:
        # Answer an admitted request to the endpoint.
        if request.method == "POST":
            if check.fault is not None:
                raise BadRequest(*check.fault)
            return self._post(request)

        if request.method not in ("GET", "DELETE"):
            text = f"{request.method[:20]} is not supported here.\n"
            raise Refused(Refusal(405, text, (("Allow", "GET, POST, DELETE"),)))
        endpoint = self._endpoint_by_version.get(request.headers.get(b"mcp-protocol-version"), self._legacy)
        return endpoint.get(request) if request.method == "GET" else endpoint.delete(request)

    async def _refuse_websocket(self, request: HttpRequest) -> Refusal | None:
        known: Principal | Refusal = self._check_headers(request).refusal or ANONYMOUS
        if isinstance(known, Principal) and self._authentication is not None:
            known = await self._find_sender(self._authentication, request)
        if isinstance(known, Refusal):
            log.warning("Refused a WebSocket: %d", known.status)
            return known

        request.user = known
        if request.path not in self.paths and request.path != "/":
            return Refusal(404, f"Nothing is served at this path: connect to {self.paths[0]}.\n")
        if self.core.is_draining:
            return Refusal(503, "The server is shutting down.\n")
        return None

    def _check_headers(self, request: HttpRequest) -> _HeaderCheck:
        # Check the headers. Most clients send the same ones each time, so the result is cached.
        get = request.headers.get
        key = (get(b"host"), get(b"origin"), get(b"accept"), get(b"content-type"), get(b"content-encoding"))
        check = self._checked.get(key)
        if check is None:
            fault: tuple[int, str] | None = None
            if not request.accepts_both:
                fault = 406, "Not acceptable: Accept must include application/json and text/event-stream"
            elif not request.has_json:
                wanted = "send Content-Type: application/json, with a body in UTF-8 that is not compressed"
                fault = 415, f"Unsupported media type: {wanted}"
            refusal = self.guard.check_source(request.header(b"host"), request.header(b"origin"))
            check = _HeaderCheck(refusal, fault)
            if sum(map(len, filter(None, key))) <= _LONGEST_CHECKED:  # clients control the size of the cache
                if len(self._checked) >= _MOST_CHECKED:
                    self._checked.clear()
                self._checked[key] = check

        return check

    # -- the endpoint ------------------------------------------------------------------------

    async def _post(self, request: HttpRequest) -> Step:
        # Read and decode a message. Returns the step that answers it.
        admitted_at = self.core.revocations
        try:
            body = await request.read(self.settings.max_body_bytes, self.settings.body_timeout, self.core.owner)
            if not body.isascii():
                _check_utf8(body)
            message = decode(body)
        except ProtocolError as error:
            raise BadRequest(400, error, error.request_id) from None

        if admitted_at is not self.core.revocations and admitted_at.was_revoked(request.user):
            # Revoked before the body arrived: the request could otherwise listen as long as the token is valid.
            raise Refused(self.core.deny(request, AccessDenied("Authenticate again", error="invalid_token")))

        posted = decode_batch(message) if isinstance(message, Batch) else message
        if self.core.watch_post is not None:
            request.watch = self.core.watch_post(body, posted)
        endpoint = self._endpoint_by_version.get(request.headers.get(b"mcp-protocol-version"))
        return (endpoint or self._endpoint_for(request, posted, body)).post(request, posted)

    def _endpoint_for(self, request: HttpRequest, posted: Posted, body: bytes) -> LegacyEndpoint | ModernEndpoint:
        # Choose the era of a message whose header names no modern version: by the `_meta` of any part, or its method.
        # A POST whose header names a modern version is compared with its body by the modern endpoint.
        parts = posted if isinstance(posted, list) else [posted]
        if may_have_envelope(body) and any(map(_has_envelope, parts)):
            return self._modern
        is_known = isinstance(posted, Request) and posted.method in self._only_modern
        return self._modern if is_known and b"mcp-session-id" not in request.headers else self._legacy

    # -- ending ------------------------------------------------------------------------------

    @property
    def connections(self) -> list[ServerConnection]:
        """All connections that may have running calls."""
        return [*self.core.open, *(session.connection for session in self.sessions)]

    @property
    def endings(self) -> Iterable[Ending]:
        """The connections and the routes, which end gracefully."""
        return [*self.connections, self.routes]

    def status(self) -> EndpointStatus:
        """Return the number of open streams, and the state of the backplane."""
        sharing = self.core.sharing
        if sharing is None or not sharing.is_shared:
            return EndpointStatus(self.core.keep_alive.streams, None)
        return EndpointStatus(self.core.keep_alive.streams, sharing.trouble, sharing.node.refused, sharing.node.dropped)

    def new_endpoint(
        self, accept: Callable[[Channel], Receiver], limits: WebSocketLimits, connection_limit: ConnectionLimit
    ) -> Endpoint:
        """Return the WebSocket endpoint on the same port, which admits the same clients."""
        return Endpoint(accept, self.guard, limits, (*self.paths, "/"), connection_limit, self.core.on_refused)

    def refused(self, status: int) -> None:
        """Count a refusal that was sent before the application received the request."""
        if self.core.on_refused is not None:
            self.core.on_refused(str(status))

    def drain(self) -> None:
        """Refuse new sessions, and report it at /readyz. Running calls continue."""
        self.core.is_draining = True

    def forget(self, matches: Callable[[Principal], bool]) -> None:
        """End the sessions, streams and WebSockets of the principals for which `matches` returns True."""
        self.core.revocations = self.core.revocations.add(matches)
        for session in self.sessions:
            if matches(session.user):
                self.sessions.end(session)
        for connection, user in list(self.core.listening.items()):
            if matches(user):
                connection.end_subscriptions()
        for channel in list(self.core.sockets):
            if matches(channel.origin().user):
                self.core.spawn(channel.aclose("token revoked"))

    def end_streams(self) -> None:
        """End subscriptions, GET streams and WebSockets, which would never end on their own. Calls are answered."""
        for connection in self.connections:
            connection.end_subscriptions()
        for session in self.sessions:
            for stream in session.listening:
                if stream.response is not None:
                    self.core.spawn(stream.response.end())
        while self.core.sockets:
            self.core.spawn(_end_socket(*self.core.sockets.popitem()))

    async def aclose(self, grace: float = 0) -> None:
        """End everything: calls and routes have `grace` seconds, and subscriptions receive their result."""
        self.drain()
        works = [extension.work for extension in self._extensions()]
        ending = [*self.endings, *filter(None, works)]
        await asyncio.gather(*(running.finish(grace) for running in ending))
        self.sessions.end_all()
        for channel in list(self.core.sockets):
            await channel.aclose("the server is shutting down")
        self.core.keep_alive.stop()
        await self.core.settle()
        for extension in self._extensions():
            await extension.aclose()
        if self.core.sharing is not None:
            await self.core.sharing.aclose()
        if self.on_stop is not None:
            self.on_stop()


async def _end_socket(channel: Channel, connection: ServerConnection) -> None:
    # Accept no more requests on a WebSocket, and close it when the running ones are answered.
    await connection.finish(None)
    await channel.aclose("the server is shutting down")


def _has_envelope(part: Message | ProtocolError) -> bool:
    params: Raw = getattr(part, "params", ABSENT)
    return params is not ABSENT and names_version(read_meta(params))


def _check_utf8(body: bytes) -> None:
    # Raise ParseError unless a body is UTF-8 (S25-026, S26-043): parts that stay undecoded would hide the fault.
    try:
        str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"Parse error: not UTF-8: {error.reason} at byte {error.start}") from None


def _identified(asked: tuple[Identify, Scope]) -> object:
    # Return the principal that `identify` names.
    identify, scope = asked
    user = identify(scope)
    if isinstance(user, str) or user is None:
        return Principal(user) if user else ANONYMOUS
    return user
