"""WebSocket on a port of its own: listening sockets, access, limits, paths and handshakes.

Each connection has its own session. `connection.py` implements an open connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import SERVER, Protocol as Framing
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from mcpd.errors import ConfigurationError, ConnectionLost, McpdError
from mcpd.protocol.channel import Channel, Receiver
from mcpd.protocol.principal import ANONYMOUS, Principal
from mcpd.protocol.printable import printable
from mcpd.transports.accepting import Acceptor, ConnectionLimit, CountedConnections, WebSocketLimits, is_tls
from mcpd.transports.address import Address, authority, bind, check_guarded, close, is_local, parse
from mcpd.transports.authentication import HandshakeFields, Refusal, RequestHeaders, unavailable
from mcpd.transports.guards import Access, Guard
from .connection import WebSocketChannel

__all__ = ["Endpoint", "WebSocketLimits", "WebSocketListener"]


# The logger that the library uses for these connections. Below level error it logs every frame and every header.
wire_log = logging.getLogger("mcpd.websocket.wire")

wire_log.setLevel(logging.ERROR)

log = logging.getLogger("mcpd.websocket")

SUBPROTOCOL = Subprotocol("mcp")

_MOST_EARLY = 16 * 1024

_Known: TypeAlias = Principal | Refusal


class _ServerProtocol(ServerProtocol):
    """The library's protocol of one handshake; accepts the subprotocol `mcp` if it is offered."""

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        return SUBPROTOCOL if SUBPROTOCOL in subprotocols else None


class Handshake:
    """The server's end of a handshake. `close` is called if the connection is lost before the answer."""

    __slots__ = ("_connection", "_early", "_endpoint", "_task", "framing")

    _connection: WebSocketChannel

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.framing = _ServerProtocol(max_size=endpoint.limits.max_frame_bytes, logger=wire_log)
        # Authenticates the handshake. Meanwhile reading stops, and little data is kept.
        self._task: asyncio.Task[_Known] | None = None
        self._early = b""

    def begin(self, connection: WebSocketChannel) -> None:
        self._connection = connection

    def eof(self) -> None:
        if self._task is not None:
            self._connection.abort()
        else:
            self.framing.receive_eof()

    def receive(self, data: bytes) -> None:
        """Feed the request line by line and answer it.

        The library would continue to parse without waiting for the answer, and answer a ping before it.
        """
        if self._task is not None:
            self._keep_early(data)
            return

        protocol = self.framing
        start = 0
        if is_tls(data, self._peer()):
            data += b"\n"  # end the line, which is then refused

        while start < len(data) and protocol.handshake_exc is None:
            end = data.find(b"\n", start) + 1 or len(data)
            protocol.receive_data(data[start:end])
            start = end
            for request in protocol.events_received():
                self._take(cast("Request", request), data[start:])
                return

        error = protocol.handshake_exc
        if error is not None:
            # Not HTTP, or a POST: the library would close the connection without a reason.
            text = f"This port serves WebSocket only, and this is not a handshake: {error.__cause__ or error}.\n"
            self._endpoint.refused(400)
            farewell = _reject(protocol, Refusal(400, text), None).serialize()
            self._connection.refuse(farewell)

    def close(self) -> None:
        task, self._task = self._task, None
        self._early = b""
        if task is not None:
            task.cancel()

    def _take(self, request: Request, rest: bytes) -> None:
        answer = self._endpoint.check(RequestHeaders.of(_raw_fields(request)))
        if isinstance(answer, Principal | Refusal):
            self._answer(request, answer, rest)
            return

        self._connection.begin_authenticating()
        self._endpoint.authenticating += 1
        self._task = asyncio.get_running_loop().create_task(answer)
        self._task.add_done_callback(partial(self._authenticated, request))
        self._keep_early(rest)

    def _authenticated(self, request: Request, task: asyncio.Task[_Known]) -> None:
        self._endpoint.authenticating -= 1
        if self._task is not task:
            return  # the connection is lost

        self._task = None
        if task.cancelled():  # cancelled together with the event loop
            self._connection.abort()
            return

        early, self._early = self._early, b""
        self._answer(request, task.result(), early)

    def _keep_early(self, data: bytes) -> None:
        # Keep data that arrives before the answer; RFC 6455 4.1 requires the client to wait.
        self._early += data
        if len(self._early) > _MOST_EARLY:
            log.warning("Disconnected %s, which did not wait for the answer to its handshake", printable(self._peer()))
            self._connection.abort()

    def _answer(self, request: Request, found: _Known, rest: bytes) -> None:
        protocol = self.framing
        refusal = found if isinstance(found, Refusal) else self._endpoint.refuse(request)
        headers = RequestHeaders.of(_raw_fields(request))  # the library's own headers raise if a header is repeated
        accept = headers.get("accept")
        if refusal is None:
            response = protocol.accept(request)
            if response.status_code == 426:
                place = f"ws://{headers.get('host')}/mcp"
                text = f"This is an MCP server that speaks WebSocket: connect an MCP client to {place}.\n"
                response = _reject(protocol, Refusal(426, text, (("Upgrade", "websocket"),)), accept)
            elif response.status_code != 101:
                response = _reject(protocol, Refusal(response.status_code, response.body.decode()), accept)
        else:
            shown = printable(refusal.text.rstrip())
            log.warning("Refused a connection from %s: %d %s", printable(self._peer()), refusal.status, shown)
            response = _reject(protocol, refusal, accept)

        if response.status_code == 101:
            try:
                user = found if isinstance(found, Principal) else ANONYMOUS
                self._connection.accept(HandshakeFields(request.path, _raw_fields(request), user))
            except Exception:
                log.exception("A connection could not be set up")
                text = "The server failed to set up the connection; see its log.\n"
                response = _reject(protocol, Refusal(500, text), accept)

        protocol.send_response(response)
        if response.status_code != 101:
            self._endpoint.refused(response.status_code)
            self._connection.refuse()
        else:
            # Otherwise 3 KiB of the library's handshake object would stay in memory.
            framing = Framing(SERVER, max_size=self._endpoint.limits.max_frame_bytes, logger=wire_log)
            self._connection.opened(framing, rest=rest)

    def _peer(self) -> str:
        return self._connection.peer or "a local peer"


def _raw_fields(request: Request) -> list[tuple[bytes, bytes]]:
    # Return the raw headers; older versions of the library return bytes beyond ASCII as lone surrogates.
    return [
        (name.encode("latin-1"), value.encode("latin-1", "surrogateescape"))
        for name, value in request.headers.raw_items()
    ]


def _reject(protocol: ServerProtocol, refusal: Refusal, accept: str | None) -> Response:
    response = protocol.reject(refusal.status, refusal.text)
    kind, response.body = refusal.body(accept)
    for name, value in (("Content-Type", kind), ("Content-Length", str(len(response.body)))):
        del response.headers[name]
        response.headers[name] = value
    for name, value in refusal.headers:
        response.headers[name] = value
    return response


_PATHS = ("/mcp", "/")
_IN_ORDER = (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.NO_STATUS_RCVD)

_DEFAULT_ACCESS = Access()
_DEFAULT_LIMITS = WebSocketLimits()


class Endpoint:
    """The state that the connections of one server share: access, limits and the receiver of their frames.

    `accept` is called after each handshake and returns the receiver of the frames. The first of `paths` is named in
    refusals of other paths. `on_refused` is called with the status of each refusal.
    """

    def __init__(
        self,
        accept: Callable[[Channel], Receiver],
        guard: Guard,
        limits: WebSocketLimits = _DEFAULT_LIMITS,
        paths: Sequence[str] = _PATHS,
        connection_limit: ConnectionLimit | None = None,
        on_refused: Callable[[str], object] | None = None,
    ) -> None:
        self.accept = accept
        self.guard = guard
        self.limits = limits
        self.paths = paths
        self._on_refused = on_refused
        self.connection_limit = ConnectionLimit() if connection_limit is None else connection_limit
        self.connections: CountedConnections[WebSocketChannel] = CountedConnections(self.connection_limit)
        self.authenticating = 0
        self.is_closed = False
        if guard.protection is not None:
            guard.protection.on_forget.append(self.turn_out)

    def turn_out(self, is_meant: Callable[[Principal], bool]) -> None:
        for channel in list(self.connections):
            channel.turn_out(is_meant)

    def connect(self) -> WebSocketChannel:
        return WebSocketChannel(Handshake(self), self.limits, _why_it_ended, self)

    def check(self, headers: RequestHeaders) -> Principal | Refusal | Coroutine[Any, Any, Principal | Refusal]:
        """Return the user of a handshake or a refusal, or a coroutine of one."""
        refusal = self.guard.check_source(headers.get("host"), headers.get("origin"))
        if refusal is not None or self.guard.authentication is None:
            return refusal or ANONYMOUS
        may_wait = self.authenticating < self.limits.max_authenticating
        answer = self.guard.authentication.check(headers, may_wait=may_wait)
        if isinstance(answer, Refusal) and self.guard.lets_in(answer):
            return ANONYMOUS
        return answer

    def refuse(self, request: Request) -> Refusal | None:
        """Return the reason to refuse a handshake of an authenticated user, or None. Others check RFC 6455."""
        if self.is_closed:
            return Refusal(503, "The server is shutting down.\n")
        path = request.path.partition("?")[0]
        if path not in self.paths:
            return Refusal(404, f"Nothing is served at {path[:200]!r}: connect to {self.paths[0]}.\n")

        if len(self.connections) > self.limits.max_connections:
            return unavailable(f"All {self.limits.max_connections} connections are in use; try again later.\n")
        return None

    def refused(self, status: int) -> None:
        if self._on_refused is not None:
            self._on_refused(str(status))

    def pause(self) -> None:
        """Stop reading from all clients. Running calls can still be answered; `aclose` follows."""
        self.is_closed = True
        for channel in self.connections:
            channel.pause()

    async def aclose(self, reason: str = "") -> None:
        """Close all connections with 1001 at the same time, within the close timeout."""
        self.is_closed = True
        await asyncio.gather(*(channel.aclose(reason) for channel in list(self.connections)))


class WebSocketListener:
    """The listener of WebSocket on `:PORT`, `HOST:PORT` or `[IPV6]:PORT`. `url` is set once it has started.

    `connection_limit` counts all connections of the process. `sockets` are already bound to the address.
    `on_refused` is called with the status of each refused handshake. Raises ConfigurationError for an invalid host or
    origin.
    """

    endpoint: Endpoint
    """The access rules and the connections; set by `start`."""

    def __init__(
        self,
        address: str | Address,
        access: Access = _DEFAULT_ACCESS,
        limits: WebSocketLimits = _DEFAULT_LIMITS,
        connection_limit: ConnectionLimit | None = None,
        sockets: Sequence[socket.socket] = (),
        on_refused: Callable[[str], object] | None = None,
    ) -> None:
        self.url = ""
        self._address = parse(address) if isinstance(address, str) else address
        self._access = access
        self._guard = Guard(access, self._address.host)
        self._limits = limits
        self._given = list(sockets)
        self._on_refused = on_refused
        self._connection_limit = ConnectionLimit() if connection_limit is None else connection_limit
        self._acceptor: Acceptor | None = None

    async def start(self, accept: Callable[[Channel], Receiver]) -> None:
        """Start accepting connections; `accept` returns the receiver of each.

        Raises ConfigurationError for an address that cannot be used, or that other machines can reach without
        authentication (D9).
        """
        sockets = self._given or await bind(self._address, is_guarded=self._access.is_guarded)
        if not self._access.is_guarded:
            check_guarded(self._address, sockets)
        self._connection_limit.check(self._limits.max_connections)
        self.endpoint = Endpoint(
            accept, self._guard, self._limits, connection_limit=self._connection_limit, on_refused=self._on_refused
        )
        self._acceptor = Acceptor(self._connection_limit, sockets, self.endpoint.connect)
        self.url = f"ws://{authority(sockets[0])}/mcp"
        try:
            self._access.locate("", f"http{self.url[2:]}", is_local=is_local(sockets))
        except ConfigurationError:
            close(sockets)
            raise
        await self._acceptor.start()

    def pause(self) -> None:
        """Stop accepting and reading. Running calls can still be answered; `aclose` follows."""
        if self._acceptor is not None:
            self._acceptor.close()
            self.endpoint.pause()

    async def aclose(self) -> None:
        """Stop accepting, send the queues, and close every connection with 1001."""
        if self._acceptor is not None:
            self.pause()
            await self.endpoint.aclose("the server is shutting down")


def _why_it_ended(ended: ConnectionClosed, cause: str) -> McpdError | None:
    # Return the error of a connection that has ended; None if the client closed it properly.
    received, sent = ended.rcvd, ended.sent
    if received is None:
        return ConnectionLost(f"We closed the WebSocket: {sent}" if sent else "The WebSocket client went away")
    return None if received.code in _IN_ORDER else ConnectionLost(f"The WebSocket client closed: {received}")
