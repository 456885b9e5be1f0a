"""One WebSocket connection: one JSON-RPC message per text frame.

The framing is websockets' sans-I/O protocol, fed straight from an asyncio protocol: its asyncio server
costs a queue, a lock and a task's wake-up for each message (measured: 0.57 of the time without them).
What arrives is pushed into the receiver; all that is sent while one read is worked on leaves in one write.
Nothing of listening lives here (that is `websocket_server`), of the handshake (`websocket_handshake`), of pings and
timers (`websocket_keep_alive`), and of how a connection ends (`websocket_ending`). No MCP rule does either: to the
specification this is a custom transport, which keeps the JSON-RPC format and each version's lifecycle (S25-043,
S26-045).

permessage-deflate is never accepted: on the loopback, where most of this runs, it only costs; elsewhere it
holds up to 316 KiB for each connection, lets a small frame become a huge message, and leaks secrets that
are compressed together with what an attacker chose.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import cast

from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN

from ..budget import OVER, SMALL, Charge, client_of
from ..channel import Receiver
from ..jsonrpc import Id
from ..printable import printable
from .apart import Apart
from .websocket_ending import hang_up, shorten, why_it_ended
from .websocket_handshake import Handshake, HandshakeFields, WebSocketProtocol
from .websocket_keep_alive import ASK, KeepAlive, unread_asks
from .websocket_owner import ConnectionOwner
from .websocket_peer import WebSocketPeer
from .wire_log import wire_log

__all__ = ["WebSocketChannel"]

log = logging.getLogger("mcpd.websocket")

_JOIN_BYTES = 65536
_HIGH_WATER = 1024 * 1024
_LOW_WATER = 256 * 1024

_TEXT, _CONTINUATION, _BINARY, _CLOSE, _PONG = Opcode.TEXT, Opcode.CONT, Opcode.BINARY, Opcode.CLOSE, Opcode.PONG


class WebSocketChannel(WebSocketPeer, asyncio.Protocol):
    """One connection, from the handshake's first byte on. It knows nothing of listening: feed it any transport.

    Handshake, open, closing and lost follow each other; each phase but the last has one timer.
    """

    is_multiplexed = True

    def __init__(self, endpoint: ConnectionOwner) -> None:
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._loop = asyncio.get_running_loop()
        self._protocol = WebSocketProtocol(max_size=endpoint.limits.max_frame_bytes, logger=wire_log)
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._keep_alive = KeepAlive(endpoint.limits, self._loop)
        self._lost: asyncio.Future[None] = self._loop.create_future()

        self._drained: asyncio.Future[None] | None = None
        self._events: deque[Frame] = deque()
        self._fragments: bytearray | None = None
        self._charge: Charge | None = None
        """What came of a message that is not whole yet."""
        self._unread: Charge | None = None
        """What waits for a client that reads slowly."""
        self._unflushed_bytes = 0
        self._is_pushing = False
        self._is_flush_due = False

        self._is_open = False
        self._is_closing = False
        self.is_held = False
        """Nothing more is read."""
        self._has_ended = False
        self.was_heard = False
        """Something came since the timer looked."""
        self._written_bytes = 0
        self._apart: Apart | None = None
        self._asked = 0
        """How many pings were sent to learn whether all before them was read."""
        self.is_congested = False

        self._handshake: Handshake | None = Handshake(endpoint, self._protocol, self)
        """Takes what arrives until it is answered."""
        self._fields: HandshakeFields | None = None

    # -- what asyncio calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports have the methods, not the base class.
        self._transport = stream = cast("asyncio.Transport", transport)
        stream.set_write_buffer_limits(_HIGH_WATER, _LOW_WATER)
        self._endpoint.connections.add(self)
        self._keep_alive.set(self._limits.open_timeout, stream.abort)

        if self._endpoint.is_closed or self._endpoint.connection_limit.is_exceeded:
            # Accepted in the last moment before the listening socket was closed.
            stream.abort()

    def data_received(self, data: bytes) -> None:
        self.was_heard = True
        if self._handshake is not None:
            self._handshake.receive(data)
            return

        self._protocol.receive_data(data)
        # Once the handshake is through, all events are frames.
        self._events.extend(self._protocol.events_received())  # type: ignore[arg-type]
        self._push()
        waits = len(self._protocol.reader.buffer) + (0 if self._fragments is None else len(self._fragments))
        if waits > SMALL or self._charge is not None:
            self._count(waits)

    def _count(self, waits: int) -> None:
        """What came of a message that is not whole yet takes of the budget."""
        if waits <= SMALL:
            self._charge = None
            return
        if self._charge is None:
            self._charge = Charge(id(self), client_of(self.peer))
        if not self._charge.set(waits):
            self._charge = None
            self._fragments = None
            self.fail(CloseCode.TRY_AGAIN_LATER, OVER)

    def eof_received(self) -> bool:
        if self._handshake is not None and self._handshake.is_authenticating:
            self.abort()  # nobody is there to hear what came of its handshake
            return False
        self._protocol.receive_eof()
        self._push()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_open = False
        self._is_closing = True
        if self._handshake is not None:
            self._handshake.close()
            self._handshake = None
        self._keep_alive.cancel()

        # What waits takes of the memory of all: it goes back before anybody hears of the end.
        self._endpoint.connections.discard(self)
        self._charge = self._unread = self._fragments = None
        self._events.clear()
        if self._apart is not None:
            self._apart.close()
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
        self._unread = None
        self.is_congested = False
        self._wake()
        if self._events:
            self._push()
        if not self.is_congested:
            self._resume_reading()

    # -- handshake ---------------------------------------------------------------------------

    def begin_authenticating(self) -> None:
        """The handshake has come; to find out who sends it has a time-out of its own."""
        self._keep_alive.cancel()

    def accept(self, fields: HandshakeFields) -> None:
        """Make the receiver of the connection's frames. May raise anything."""
        self._fields = fields
        self._receiver = self._endpoint.accept(self)

    def end_handshake(self, rest: bytes = b"", *, farewell: bytes = b"") -> None:
        """The answer is to be written; `rest` came behind the handshake. `farewell` is for what was none."""
        self._handshake = None
        if self._receiver is not None:
            self._keep_alive.cancel()
            self._is_open = True
            self._keep_alive.look(self)
        self._flush(farewell)
        if rest:
            self.data_received(rest)

    def abort(self) -> None:
        """Cut the connection off."""
        if self._transport is not None:
            self._transport.abort()

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
            self.fail(CloseCode.INTERNAL_ERROR, "internal error")
        finally:
            self._is_pushing = False
        self._flush()
        if self._protocol.parser_exc is not None:
            self._end()

    def _take(self, frame: Frame) -> None:
        receiver = self._receiver
        opcode = frame.opcode
        if receiver is None or not self._is_open and opcode is not _CLOSE:
            # Once a client was told that we close, or why, nothing more is done for it.
            return

        if opcode is _TEXT:
            if frame.fin:
                data = frame.data
            else:
                self._fragments = bytearray(frame.data)
                return
        elif opcode is _CONTINUATION:
            assert self._fragments is not None  # else the library has failed the connection
            # One buffer, not a list: many small fragments must not cost more than their bytes.
            self._fragments += frame.data
            if not frame.fin:
                return
            data, self._fragments = bytes(self._fragments), None
        elif opcode is _BINARY:
            self.fail(CloseCode.UNSUPPORTED_DATA, "send each JSON-RPC message as a text frame, not a binary one")
            return
        else:
            if opcode is _CLOSE:
                self._end()
            elif opcode is _PONG and self._apart is not None and bytes(frame.data).startswith(ASK):
                self._apart.release(leaving=unread_asks(self._asked, bytes(frame.data)))
            elif opcode is _PONG:
                self._keep_alive.answered(self)
            return

        if not data.isascii():  # type: ignore[union-attr]
            try:
                str(data, "utf-8")
            except UnicodeDecodeError as error:
                # RFC 6455 8.1; messages are UTF-8 (S25-026, S26-043).
                self.fail(CloseCode.INVALID_DATA, f"not UTF-8: {error.reason} at byte {error.start}")
                return
        receiver.receive(data)  # type: ignore[arg-type]

    def pause(self) -> None:
        """Read nothing more and start nothing more; what runs may still be answered. `aclose` comes next."""
        if self._is_closing:
            return
        self.is_held = True
        self._events.clear()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing() and (self._is_closing or not self.is_held):
            transport.resume_reading()

    def _end(self) -> None:
        """Tell the receiver, once, that no more will come, and why if it was not said in order."""
        if self._has_ended or self._receiver is None:
            return
        self._has_ended = True
        self._is_open = False
        ended = why_it_ended(self._protocol)
        if ended is not None:
            log.info("%s: %s", printable(self.peer or "a local peer"), printable(ended))
        try:
            self._receiver.closed(ended)
        except Exception:
            log.exception("The end of a connection could not be taken")

    # -- writing -----------------------------------------------------------------------------

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
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

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one text frame that the client reads by itself: it leaves when a ping behind the others is answered."""
        if not self._is_open or self._protocol.state is not OPEN:
            return
        if self._apart is None:
            self._apart = Apart(self._loop, self.send)
        self._asked += 1
        self._protocol.send_ping(ASK + b"%d" % self._asked)
        self._flush()
        self._apart.hold(frame)

    def _flush_later(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self, farewell: bytes = b"") -> None:
        """Write what waits; `farewell` first if nothing is to be written but the end."""
        writes = self._protocol.data_to_send()
        transport = self._transport
        if not writes or transport is None or self._lost.done():  # uvloop's transports raise once they are gone
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
        elif self.is_congested:
            self._check_unread(transport.get_write_buffer_size())

    def _check_unread(self, waits: int) -> None:
        most = self._limits.max_queued_bytes
        if self._unread is None:
            self._unread = Charge(id(self), client_of(self.peer))
        if waits > most:
            self.fail(CloseCode.POLICY_VIOLATION, f"reads too slowly: more than {most} bytes wait to be read")
        elif not self._unread.set(waits):
            self.fail(CloseCode.POLICY_VIOLATION, "reads too slowly: no memory is left for what waits to be read")

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
        if self._apart is not None and not self.is_held:
            await self._apart.settle()
        if self._protocol.state is OPEN:
            if self._apart is not None:
                self._apart.release()
            self._events.clear()
            self._protocol.send_close(CloseCode.GOING_AWAY, shorten(reason or "the server is going away"))
            self._flush()
        elif not self._is_closing:
            transport.abort()
        await asyncio.shield(self._lost)

    def fail(self, code: CloseCode, reason: str) -> None:
        """Close because of what the client does or does not do; nothing more of it is read."""
        if self._protocol.state is OPEN:
            self._protocol.fail(code, shorten(reason))
            self._events.clear()
            self._flush()
        self._end()

    def _begin_closing(self, transport: asyncio.Transport, is_last: bool) -> None:
        """A close frame, or the refusal of the handshake, was written: wait for the peer, but not for ever."""
        if not self._is_closing:
            self._is_closing = True
            self._is_open = False
            self._keep_alive.set(self._limits.close_timeout, transport.abort)
            # The peer's own close frame or end is still to come, even if it is slow to read.
            self._resume_reading()
        if is_last:
            hang_up(transport, is_agreed=self._protocol.close_rcvd is not None)

    # -- what the timer asks -----------------------------------------------------------------

    @property
    def taken_bytes(self) -> int | None:
        """How much the client has taken of what was written; None where the connection is not open."""
        if self._transport is None or not self._is_open:
            return None
        return self._written_bytes - self._transport.get_write_buffer_size()

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._protocol.send_ping(b"mcpd")
        self._flush()
