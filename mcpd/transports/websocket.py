"""WebSocket: one JSON-RPC message per text frame, each connection with its own session.

The framing is websockets' sans-I/O protocol, fed straight from an asyncio protocol: its asyncio server
costs a queue, a lock and a task's wake-up for each message (measured: 0.57 of the time without them).
What arrives is pushed into the receiver; all that is sent while one read is worked on leaves in one write.
No MCP rule lives here. A WebSocket is a custom transport to the specification: it keeps the JSON-RPC format
and each version's lifecycle, and checks `Origin` as HTTP must (S25-043, S26-045, S26-051).

permessage-deflate is never accepted: on the loopback, where most of this runs, it only costs; elsewhere it
holds some 300 KiB for each connection, lets a small frame become a huge message, and leaks secrets that
are compressed together with what an attacker chose.

Close codes: 1001 the server stops; 1002, 1007, 1009 frames that break RFC 6455, are no UTF-8, or are too large;
1003 a binary frame (RFC 6455 7.4.1 names this very case); 1008 a client that reads too slowly; 1011 a client
that no longer answers pings, or a bug of ours.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import cast

from msgspec import Struct
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from ..channel import Channel, Receiver
from ..errors import ConnectionLost, McpdError
from ..jsonrpc import Id
from .address import Address, authority, bind, parse
from .guards import Access, Guard, Refusal
from .stdio import MAX_FRAME_BYTES

__all__ = ["Endpoint", "Limits", "Listener", "WebSocketChannel", "listen"]

log = logging.getLogger("mcpd.websocket")
_wire_log = logging.getLogger("mcpd.websocket.wire")

PATHS = ("/", "/mcp")
SUBPROTOCOL = Subprotocol("mcp")

_JOIN_BYTES = 65536
_HIGH_WATER = 1024 * 1024
_LOW_WATER = 256 * 1024
_REASON_BYTES = 123

_TEXT, _CONTINUATION, _BINARY, _CLOSE = Opcode.TEXT, Opcode.CONT, Opcode.BINARY, Opcode.CLOSE


class Limits(Struct, frozen=True, kw_only=True):
    """What one client may use. Times are in seconds; a `ping_interval` of 0 sends no pings.

    Reading stops while more than 1 MiB waits for a client; `max_queued_bytes` is for what calls that run
    already still answer, and bounds the memory that a client which does not read can hold.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    max_queued_bytes: int = 256 * 1024 * 1024
    max_connections: int = 1000
    open_timeout: float = 10.0
    close_timeout: float = 2.0
    ping_interval: float = 20.0
    ping_timeout: float = 20.0


_NO_RULES = Access()
_LIMITS = Limits()


class Endpoint:
    """What the connections of one server share: who may connect, the limits, and who takes their frames.

    `accept` is called for each connection after its handshake and gives the receiver of its frames.
    """

    def __init__(self, accept: Callable[[Channel], Receiver], guard: Guard, limits: Limits = _LIMITS) -> None:
        self.accept = accept
        self.guard = guard
        self.limits = limits
        self.connections: set[WebSocketChannel] = set()

    def connect(self) -> WebSocketChannel:
        """An asyncio protocol for one connection, which may have its handshake before it."""
        return WebSocketChannel(self)

    def refuse(self, request: Request) -> Refusal | None:
        """Why this handshake gets no WebSocket, if so; what RFC 6455 asks of it is checked elsewhere."""
        headers = request.headers
        host, origin, authorization = (
            ", ".join(headers.get_all(name)) if name in headers else None
            for name in ("Host", "Origin", "Authorization")
        )
        refusal = self.guard.check(host, origin, authorization)
        if refusal is not None:
            return refusal
        path = request.path.partition("?")[0]
        if path not in PATHS:
            return Refusal(404, f"Nothing is served at {path[:200]!r}: connect to /mcp.\n")
        if len(self.connections) > self.limits.max_connections:
            return Refusal(
                503,
                f"All {self.limits.max_connections} connections are in use; try again later.\n",
                (("Retry-After", "5"),),
            )
        return None

    async def aclose(self, reason: str = "") -> None:
        """Close all connections with 1001, at once and within the close time-out."""
        await asyncio.gather(*(channel.aclose(reason) for channel in list(self.connections)))


class _Protocol(ServerProtocol):
    """The framing of one connection; takes the subprotocol `mcp` if it is offered, and none otherwise."""

    def select_subprotocol(self, subprotocols: object) -> Subprotocol | None:
        return SUBPROTOCOL if SUBPROTOCOL in subprotocols else None  # type: ignore[operator]


class WebSocketChannel(asyncio.Protocol):
    """One connection, from the handshake's first byte on. It knows nothing of listening: feed it any transport.

    Handshake, open, closing and lost follow each other; each phase but the last has one timer.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._loop = asyncio.get_running_loop()
        self._protocol = _Protocol(max_size=endpoint.limits.max_frame_bytes, logger=_wire_log)
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._drained: asyncio.Future[None] | None = None
        self._events: deque[Frame] = deque()
        self._fragments: bytearray | None = None
        self._unflushed_bytes = 0
        self._is_pushing = False
        self._is_flush_due = False
        self._is_open = False
        self._is_closing = False
        self._has_ended = False
        self._was_heard = False
        self._was_pinged = False
        self._taken_bytes = self._written_bytes = 0
        self.is_shared = True
        self.is_congested = False

    # -- what asyncio calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports have the methods, not the base class.
        self._transport = stream = cast("asyncio.Transport", transport)
        stream.set_write_buffer_limits(_HIGH_WATER, _LOW_WATER)
        self._endpoint.connections.add(self)
        self._set_timer(self._limits.open_timeout, stream.abort)

    def data_received(self, data: bytes) -> None:
        self._was_heard = True
        if self._receiver is None and not self._is_closing:
            data = self._receive_handshake(data)
            if not data:
                return
        self._protocol.receive_data(data)
        # Once the handshake is through, all events are frames.
        self._events.extend(self._protocol.events_received())  # type: ignore[arg-type]
        self._push()

    def eof_received(self) -> bool:
        self._protocol.receive_eof()
        self._push()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_open = False
        self._is_closing = True
        self._cancel_timer()
        self._endpoint.connections.discard(self)
        self._events.clear()
        self.is_congested = False
        self._wake()
        if not self._lost.done():
            self._lost.set_result(None)
        self._end()

    def pause_writing(self) -> None:
        self.is_congested = True
        if self._is_open and self._transport is not None and not self._transport.is_closing():
            # A client that does not read gets no more work done.
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_congested = False
        self._wake()
        if self._events:
            self._push()
        if not self.is_congested:
            self._resume_reading()

    # -- handshake ---------------------------------------------------------------------------

    def _receive_handshake(self, data: bytes) -> bytes:
        """Feed the request line by line and answer it; gives what comes after it.

        The library parses on without waiting for the answer: a ping sent too early would be answered before it.
        """
        protocol = self._protocol
        start = 0
        while start < len(data) and protocol.handshake_exc is None:
            end = data.find(b"\n", start) + 1 or len(data)
            protocol.receive_data(data[start:end])
            start = end
            for request in protocol.events_received():
                self._answer(cast("Request", request))
                self._flush()
                return data[start:]
        error = protocol.handshake_exc
        if error is not None:
            # Not HTTP, or a POST: where the library would only hang up, say why.
            text = f"This port speaks WebSocket, and this was no handshake of it: {error.__cause__ or error}.\n"
            self._flush(protocol.reject(400, text).serialize())
        return data[start:]

    def _answer(self, request: Request) -> None:
        protocol = self._protocol
        refusal = self._endpoint.refuse(request)
        if refusal is None:
            response = protocol.accept(request)
            if response.status_code == 426:
                host = request.headers.get("Host")
                text = f"This is an MCP server that speaks WebSocket: connect an MCP client to ws://{host}/mcp.\n"
                response = _reject(protocol, Refusal(426, text, (("Upgrade", "websocket"),)))
        else:
            log.warning("Refused a connection from %s: %d %s", self._peer(), refusal.status, refusal.text.rstrip())
            response = _reject(protocol, refusal)
        if response.status_code == 101:
            try:
                self._receiver = self._endpoint.accept(self)
            except Exception:
                log.exception("A connection could not be set up")
                response = _reject(protocol, Refusal(500, "The server failed to set up the connection; see its log.\n"))
        protocol.send_response(response)
        if self._receiver is not None:
            self._cancel_timer()
            self._is_open = True
            self._keep_alive()

    def _peer(self) -> str:
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) and peer else "a local peer"

    # -- reading -----------------------------------------------------------------------------

    def _push(self) -> None:
        """Hand on what arrived, until it is through or the answers pile up."""
        events = self._events
        self._is_pushing = True
        try:
            while events and not self.is_congested:
                self._take(events.popleft())
        except Exception:
            log.exception("A message could not be taken")
            self._fail(CloseCode.INTERNAL_ERROR, "internal error")
        finally:
            self._is_pushing = False
        self._flush()
        if self._protocol.parser_exc is not None:
            self._end()

    def _take(self, frame: Frame) -> None:
        receiver = self._receiver
        opcode = frame.opcode
        if receiver is None or not self._is_open and opcode is not _CLOSE:
            # Whoever was told that we close, or why, gets nothing more done.
            return
        if opcode is _TEXT:
            if frame.fin:
                data = frame.data
            else:
                self._fragments = bytearray(frame.data)
                return
        elif opcode is _CONTINUATION:
            if self._fragments is None:
                return
            # One buffer, not a list: many small fragments must not cost more than their bytes.
            self._fragments += frame.data
            if not frame.fin:
                return
            data, self._fragments = bytes(self._fragments), None
        elif opcode is _BINARY:
            self._fail(CloseCode.UNSUPPORTED_DATA, "send each JSON-RPC message as a text frame, not a binary one")
            return
        elif opcode is _CLOSE:
            self._end()
            return
        else:
            return
        if not data.isascii():  # type: ignore[union-attr]
            try:
                str(data, "utf-8")
            except UnicodeDecodeError as error:
                # RFC 6455 8.1; messages are UTF-8 (S25-026, S26-043).
                self._fail(CloseCode.INVALID_DATA, f"not UTF-8: {error.reason} at byte {error.start}")
                return
        receiver.receive(data)  # type: ignore[arg-type]

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _end(self) -> None:
        """Tell the receiver, once, that no more will come, and why if it was not said in order."""
        if self._has_ended or self._receiver is None:
            return
        self._has_ended = True
        self._is_open = False
        said, sent = self._protocol.close_rcvd, self._protocol.close_sent
        ended: McpdError | None = None
        if said is None:
            ended = ConnectionLost(f"WebSocket closed by us: {sent}" if sent else "The WebSocket client went away")
        elif said.code not in (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.NO_STATUS_RCVD):
            ended = ConnectionLost(f"The WebSocket client closed: {said}")
        self._receiver.closed(ended)

    # -- writing -----------------------------------------------------------------------------

    def send(self, frame: bytes, about: Id | None = None) -> None:
        """Queue one text frame. All frames of one turn leave in one write."""
        if not self._is_open:
            return
        try:
            self._protocol.send_text(frame)
        except InvalidState:  # its close frame has arrived, and waits behind what is worked on now
            return
        self._unflushed_bytes += len(frame)
        if self._unflushed_bytes > _JOIN_BYTES:
            self._flush()
        elif not self._is_pushing and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self, farewell: bytes = b"") -> None:
        """Write what waits; `farewell` first if nothing is to be written but the end."""
        writes = self._protocol.data_to_send()
        transport = self._transport
        if not writes or transport is None:
            return
        is_last = not writes[-1]
        if is_last and len(writes) == 1:
            writes = [farewell]
        elif len(writes) > 1 and self._unflushed_bytes <= _JOIN_BYTES:
            writes = [b"".join(writes)]
        self._unflushed_bytes = 0
        for part in writes:
            if part:
                self._written_bytes += len(part)
                transport.write(part)
        if is_last or not self._is_closing and self._protocol.close_expected():
            self._begin_closing(transport, is_last)
        elif self.is_congested and transport.get_write_buffer_size() > self._limits.max_queued_bytes:
            most = self._limits.max_queued_bytes
            self._fail(CloseCode.POLICY_VIOLATION, f"reads too slowly: more than {most} bytes wait to be read")

    async def drain(self) -> None:
        """Wait until the client has taken most of what was queued, or is gone."""
        self._flush()
        if self.is_congested:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # -- closing -----------------------------------------------------------------------------

    async def aclose(self, reason: str = "") -> None:
        """Send what is queued and a close frame, and wait for the client's; after the close time-out cut it off."""
        transport = self._transport
        if transport is None:
            return
        if self._protocol.state is OPEN:
            self._events.clear()
            self._protocol.send_close(CloseCode.GOING_AWAY, _shorten(reason or "the server is going away"))
            self._flush()
        elif not self._is_closing:
            transport.abort()
        await asyncio.shield(self._lost)

    def _fail(self, code: CloseCode, reason: str) -> None:
        """Close because of what the client does or does not do; nothing more of it is read."""
        if self._protocol.state is OPEN:
            log.info("Closed the connection from %s: %d %s", self._peer(), code, reason)
            self._protocol.fail(code, _shorten(reason))
            self._events.clear()
            self._flush()
        self._end()

    def _begin_closing(self, transport: asyncio.Transport, is_last: bool) -> None:
        """A close frame, or the refusal of the handshake, was written: wait for the peer, but not for ever."""
        if not self._is_closing:
            self._is_closing = True
            self._is_open = False
            self._set_timer(self._limits.close_timeout, transport.abort)
            # The peer's own close frame or end is still to come, even if it is slow to read.
            self._resume_reading()
        if is_last:
            # Closing here would answer what the peer still sends with a reset, and lose our reason.
            if transport.can_write_eof():
                transport.write_eof()
            else:
                transport.close()

    # -- time --------------------------------------------------------------------------------

    def _set_timer(self, delay: float, action: Callable[[], object]) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(delay, action)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _keep_alive(self) -> None:
        """Every so often: ping a client that was silent, give up one that did not answer.

        Anything that arrives is a sign of life. While we do not read because the client does not, what
        it takes is; its answer to a ping would wait behind that.
        """
        limits, transport = self._limits, self._transport
        if transport is None or not limits.ping_interval or not self._is_open:
            return
        taken = self._written_bytes - transport.get_write_buffer_size()
        if self._was_heard or self.is_congested and taken != self._taken_bytes:
            self._was_heard = self._was_pinged = False
            delay = limits.ping_interval
        elif not self._was_pinged:
            self._was_pinged = True
            self._protocol.send_ping(b"mcpd")
            self._flush()
            delay = limits.ping_timeout
        else:
            self._fail(CloseCode.INTERNAL_ERROR, f"no answer to a ping within {limits.ping_timeout:g} s")
            return
        self._taken_bytes = taken
        self._set_timer(delay, self._keep_alive)


class Listener:
    """Listening sockets and the connections that came of them. `url` is what to give to a client."""

    def __init__(self, endpoint: Endpoint, sockets: list[socket.socket]) -> None:
        self.endpoint = endpoint
        self.url = f"ws://{authority(sockets[0])}/mcp"
        self._sockets = sockets
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Begin to accept."""
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            self._servers.append(await loop.create_server(self.endpoint.connect, sock=listening))

    async def aclose(self) -> None:
        """Accept no more, let what is queued be sent, and close every connection with 1001."""
        for server in self._servers:
            server.close()
        await self.endpoint.aclose("the server is shutting down")


async def listen(
    address: str | Address, accept: Callable[[Channel], Receiver], access: Access = _NO_RULES, limits: Limits = _LIMITS
) -> Listener:
    """Serve WebSocket on `:PORT`, `HOST:PORT` or `[IPV6]:PORT`; `accept` gives the receiver of each connection.

    Raises ConfigurationError for an address that cannot be used, or is open to others without a token (D9).
    """
    if isinstance(address, str):
        address = parse(address)
    guard = Guard(access, address.host)
    listener = Listener(Endpoint(accept, guard, limits), await bind(address, is_guarded=access.is_guarded))
    await listener.start()
    return listener


def _reject(protocol: ServerProtocol, refusal: Refusal) -> Response:
    response = protocol.reject(refusal.status, refusal.text)
    for name, value in refusal.headers:
        response.headers[name] = value
    return response


def _shorten(reason: str) -> str:
    """A close frame has room for 123 bytes of reason."""
    return reason.encode()[:_REASON_BYTES].decode("utf-8", "ignore")
