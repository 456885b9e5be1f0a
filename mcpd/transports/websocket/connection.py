"""One WebSocket connection, at either end: one JSON-RPC message per text frame.

The framing is the sans-I/O protocol of the websockets library, fed from an asyncio protocol. The library's own asyncio
server needs a queue, a lock and a task switch per message, which takes 1.75 times as long. Received messages are pushed
into the receiver. All frames that are sent while one read is processed are written together.

The handshakes are in `server.py` and `client.py`. To the specification this is a custom transport, which keeps the
JSON-RPC format and the lifecycle of each version (S25-043, S26-045).

permessage-deflate is never accepted. It uses up to 316 KiB per connection and lets a small frame become a huge message.
It also leaks secrets that are compressed together with text of an attacker.

Close codes: 1000 for a client that is done, 1001 for a server that stops, 1002, 1007 and 1009 for invalid, non-UTF-8
and oversized frames. 1003 is for a binary frame (RFC 6455 7.4.1), 1008 for a client that reads too slowly, 1011 for a
peer that does not answer pings and for internal errors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVarTuple, cast

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import CLOSED, CLOSING, OPEN, Protocol as Framing

from mcpd.errors import McpdError
from mcpd.protocol.budget import OVER, SMALL, Charge, client_of
from mcpd.protocol.channel import Channel, Receiver
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import ANONYMOUS, Origin, Principal
from mcpd.protocol.printable import printable
from mcpd.transports.accepting import ConnectionLimit, CountedConnections, WebSocketLimits
from mcpd.transports.authentication import HandshakeFields, at_expiry
from mcpd.transports.stdio import DelayedResults, Wakeup

log = logging.getLogger("mcpd.websocket")

HIGH_WATER = 1024 * 1024
_LOW_WATER = 256 * 1024
_JOIN_BYTES = 65536
_REASON_BYTES = 123

_TEXT, _CONT, _BINARY = Opcode.TEXT, Opcode.CONT, Opcode.BINARY
_CLOSE, _PONG = Opcode.CLOSE, Opcode.PONG

# Payload prefix of the pings that find out whether everything before them was read; their number follows.
_ASK = b"mcpd-"

A = TypeVarTuple("A")


class Opening(Protocol):
    """The handshake of one end. It receives all data until it calls `opened` or `refuse` of the connection."""

    @property
    def framing(self) -> Framing:
        """The library's protocol object."""

    def begin(self, connection: WebSocketChannel) -> None:
        """The socket is connected."""

    def receive(self, data: bytes) -> None:
        """Process received data."""

    def eof(self) -> None:
        """The peer has closed its sending side."""

    def close(self) -> None:
        """The connection is lost."""


class ConnectionOwner(Protocol):
    """The state that all connections of one server share: see `server.Endpoint`."""

    limits: WebSocketLimits
    connections: CountedConnections[WebSocketChannel]
    connection_limit: ConnectionLimit
    is_closed: bool

    def accept(self, channel: Channel, /) -> Receiver:
        """Return the receiver of a connection's frames, after its handshake."""


class WebSocketChannel(asyncio.Protocol):
    """One connection, from the first byte of its handshake.

    The phases are handshake, open, closing and lost; each but the last has one timer. A server's end has an `owner`. A
    client's end delivers frames after `start`. `why` converts the close frames and the system's error into the error
    that the receiver gets.
    """

    # Slots, because thousands of connections may be idle.
    __slots__ = (
        "__weakref__", "_apart", "_asked", "_charge", "_drained", "_ended", "_events", "_expiry", "_fields",
        "_fragments", "_framing", "_handshake", "_has_ended", "_has_reported", "_is_agreed", "_is_closing",
        "_is_flush_due", "_is_leaving", "_is_lost", "_is_pushing", "_limits", "_loop", "_lost", "_owner",
        "_partial_bytes", "_receiver", "_taken_bytes", "_timer", "_transport", "_unflushed_bytes", "_unread",
        "_was_heard", "_was_open", "_was_pinged", "_why", "_written_bytes", "is_congested", "is_held", "is_open",
    )  # fmt: skip

    is_multiplexed = True

    def __init__(
        self,
        handshake: Opening,
        limits: WebSocketLimits,
        why: Callable[[ConnectionClosed, str], McpdError | None],
        owner: ConnectionOwner | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        # Receives all data until the handshake is done.
        self._handshake: Opening | None = handshake
        self._framing = handshake.framing
        self._why = why
        self._fields: HandshakeFields | None = None
        # Closes the connection when its token expires.
        self._expiry: asyncio.TimerHandle | None = None
        # The timer of the handshake, then of pings, then of closing.
        self._timer: asyncio.TimerHandle | None = None

        self._events: list[Frame] = []
        # The received bytes of an incomplete frame.
        self._partial_bytes = 0
        self._fragments: bytearray | None = None
        # Counts the bytes of an incomplete message.
        self._charge: Charge | None = None
        # Counts the bytes that wait for a slow client.
        self._unread: Charge | None = None
        self._unflushed_bytes = self._written_bytes = 0
        self._is_pushing = self._is_flush_due = False
        self._apart: DelayedResults | None = None
        # The number of pings sent to find out whether everything before them was read.
        self._asked = 0

        # Whether the handshake is done and the connection is not closing.
        self.is_open = self._was_open = False
        self.is_held = owner is None
        self.is_congested = False
        # Whether data has arrived since the last ping timer.
        self._was_heard = False
        self._was_pinged = False
        # The bytes that the peer had read at the last ping timer.
        self._taken_bytes = 0

        # Whether a close frame was sent, and the peer's is awaited.
        self._is_leaving = False
        # Whether the peer has also sent a close frame.
        self._is_agreed = False
        self._ended: McpdError | None = None
        self._is_closing = self._has_ended = self._has_reported = self._is_lost = False
        # Done when the socket is closed; created on demand.
        self._lost = Wakeup()
        self._drained = Wakeup()

    # -- who is at the other end -------------------------------------------------------------

    @property
    def path(self) -> str:
        """The requested path with its query; empty until the handshake is accepted."""
        return "" if self._fields is None else self._fields.path

    @property
    def user(self) -> Principal:
        return ANONYMOUS if self._fields is None else self._fields.user

    @property
    def peer(self) -> str:
        """The address of the peer, "" if there is no address."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) and name else ""

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return Origin("websocket") if self._fields is None else self._fields.origin()

    # -- what asyncio calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports have the methods, not the base class.
        self._transport = stream = cast("asyncio.Transport", transport)
        stream.set_write_buffer_limits(HIGH_WATER, _LOW_WATER)
        owner = self._owner
        if owner is not None:
            owner.connections.add(self)
            self._set_timer(self._limits.open_timeout, stream.abort)
            if owner.is_closed or owner.connection_limit.is_exceeded:
                # Accepted just before the listening socket was closed.
                stream.abort()
                return

        if self._handshake is not None:
            self._handshake.begin(self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._was_heard = True
        if self._handshake is not None:
            self._handshake.receive(data)
            return

        framing = self._framing
        if framing.state is CLOSED:  # no more of its data is read
            return
        framing.receive_data(data)
        self._partial_bytes += len(data)
        # Once the handshake is through, all events are frames.
        frames: list[Frame] = framing.events_received()  # type: ignore[assignment]
        if frames:
            self._take_frames(frames, len(data))
        self._push()
        if self._owner is not None and (self._partial_bytes or self._fragments is not None or self._charge is not None):
            self._count()

    def eof_received(self) -> bool:
        if self._handshake is not None:
            self._handshake.eof()
        else:
            self._framing.receive_eof()
            self._push()
        self._flush()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._handshake is not None:
            self._handshake.close()
            self._handshake = None
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

        # Waiting frames are counted in the budget. They are released before the owner is notified.
        if self._owner is not None:
            self._owner.connections.discard(self)
        self._charge = self._unread = None
        if self._apart is not None:
            self._apart.close()

        self.is_open = False
        self._is_closing = self._is_lost = True
        self._cancel_timer()
        self.is_congested = False
        self._drained.wake()
        self._lost.wake()
        self._end(getattr(exc, "strerror", None) or "")

    def pause_writing(self) -> None:
        self.is_congested = True
        transport = self._transport
        if self._owner is not None and self.is_open and transport is not None and not transport.is_closing():
            # A client that does not read its responses must not start more work.
            transport.pause_reading()

    def resume_writing(self) -> None:
        self._unread = None
        self.is_congested = False
        self._drained.wake()
        if self._owner is None:
            return

        if self._events:
            self._push()
        if not self.is_congested:
            self._resume_reading()

    # -- handshake ---------------------------------------------------------------------------

    def begin_authenticating(self) -> None:
        """The handshake has arrived; authentication has its own timeout."""
        self._cancel_timer()

    def accept(self, fields: HandshakeFields) -> None:
        """Create the receiver of a server's frames. May raise anything."""
        assert self._owner is not None
        self._fields = fields
        self._receiver = self._owner.accept(self)
        if fields.user.expires is not None:
            self._expiry = at_expiry(fields.user, lambda: self.fail(CloseCode.POLICY_VIOLATION, "token expired"))

    def opened(self, framing: Framing, frames: Sequence[Frame] = (), rest: bytes = b"") -> None:
        """The handshake is done. Data that arrived behind it is in `frames` or in `rest`."""
        self._flush()
        self._handshake = None
        self._framing = framing
        self.is_open = self._was_open = True
        self._cancel_timer()
        self._check_alive()
        if self.is_held:
            self.pause()
        if frames:
            self._take_frames(frames, 0)
            self._push()
        if rest:
            self.data_received(rest)

    def refuse(self, farewell: bytes = b"") -> None:
        """The handshake has failed; `farewell` is the answer, if the library has not written one."""
        self._handshake = None
        self._flush(farewell)

    def turn_out(self, is_meant: Callable[[Principal], bool]) -> None:
        """Close the connection if its principal matches."""
        if self._fields is not None and is_meant(self._fields.user):
            self.fail(CloseCode.POLICY_VIOLATION, "token revoked")

    # -- reading -----------------------------------------------------------------------------

    def start(self, receiver: Receiver) -> None:
        """Deliver frames to `receiver`, starting with those that have already arrived."""
        self._receiver = receiver
        self.resume()

    def pause(self) -> None:
        """Stop reading until `resume`. Running calls can still be answered."""
        self.is_held = True
        if not self._is_closing and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        self.is_held = False
        self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self.is_held:
            self._push()
            self._resume_reading()
            self._report_end()

    def _resume_reading(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing() and (self._is_closing or not self.is_held):
            transport.resume_reading()

    def _take_frames(self, frames: Sequence[Frame], read: int) -> None:
        self._events += frames
        self._is_agreed = frames[-1].opcode is _CLOSE
        if read <= SMALL:
            self._partial_bytes = 0  # or data too small to be counted
            return

        for frame in frames:  # the header of a client's frame, in its shortest form
            size = len(frame.data)
            self._partial_bytes -= size + (6 if size < 126 else 8 if size < 65536 else 14)
        self._partial_bytes = min(read, max(0, self._partial_bytes))

    def _count(self) -> None:
        waits = self._partial_bytes + (0 if self._fragments is None else len(self._fragments))
        if waits <= SMALL or self._has_ended:
            self._charge = None
            return

        if self._charge is None:
            self._charge = Charge(id(self), client_of(self.peer))
        if not self._charge.set(waits):
            self._charge = None
            self._fragments = None
            self.fail(CloseCode.TRY_AGAIN_LATER, OVER)

    def _push(self) -> None:
        # Deliver the received frames, until the receiver pauses or the answers of a server pile up.
        if self._is_pushing:
            return

        self._is_pushing = True
        events, taken, is_server = self._events, 0, self._owner is not None
        try:
            for frame in events:  # closing the connection in between clears the frames
                if self.is_held or (self.is_congested and is_server):
                    break
                taken += 1
                self._take(frame)
        except Exception:
            log.exception("A message could not be processed")
            self.fail(CloseCode.INTERNAL_ERROR, "internal error")
        finally:
            self._is_pushing = False
            del events[:taken]

        self._flush()
        state = self._framing.state
        if state is CLOSED or (state is CLOSING and not self._is_leaving):
            self._end()  # the peer has closed it, has broken a rule, or is gone

    def _take(self, frame: Frame) -> None:
        receiver, opcode, part = self._receiver, frame.opcode, frame.data
        frame.data = b""  # the library keeps its last frame until the next one is complete
        if receiver is None or self._has_reported or (self._is_leaving and opcode is not _CLOSE):
            return

        if opcode is _TEXT:
            data = bytes(part)  # some releases of the library return other types than bytes
            if not frame.fin:
                self._fragments = bytearray(data)
                return
        elif opcode is _CONT:
            assert self._fragments is not None  # otherwise the library has already failed the connection
            # One buffer, not a list: many small fragments must not cost more than their bytes.
            self._fragments += part
            if not frame.fin:
                return
            data, self._fragments = bytes(self._fragments), None
        else:
            self._take_control(opcode, bytes(part))
            return

        if data.isascii() or self._is_text(data):
            receiver.receive(data)

    def _take_control(self, opcode: Opcode, data: bytes) -> None:
        # Process a frame that is not text; a binary frame ends the connection.
        if opcode is _BINARY:
            self.fail(CloseCode.UNSUPPORTED_DATA, "send each JSON-RPC message as a text frame, not a binary one")
        elif opcode is _CLOSE:
            self._end()
        elif opcode is _PONG and self._apart is not None and data.startswith(_ASK):
            self._apart.release(leaving=_unread_asks(self._asked, data))
        elif opcode is _PONG and self._was_pinged:
            self._was_pinged = self._was_heard = False
            self._set_timer(self._limits.ping_interval, self._check_alive)

    def _is_text(self, message: bytes) -> bool:
        # Return whether a message is UTF-8 (RFC 6455 8.1, S25-026, S26-043); otherwise end the connection.
        try:
            str(message, "utf-8")
        except UnicodeDecodeError as error:
            self.fail(CloseCode.INVALID_DATA, f"not UTF-8: {error.reason} at byte {error.start}")
            return False
        return True

    # -- writing -----------------------------------------------------------------------------

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one text frame. The frames of one iteration are written together, unless they are many."""
        framing = self._framing
        if not self.is_open or framing.state is not OPEN:  # its close frame may come next
            return

        framing.send_text(frame)
        self._unflushed_bytes += len(frame)
        if self._unflushed_bytes > _JOIN_BYTES:
            self._flush()
        elif not self._is_pushing and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_later)

    def send_separately(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one text frame that is sent after the peer has answered a ping behind the frames before it."""
        if self._owner is None:
            self.send(frame, related_request_id, method)
            return
        if not self.is_open or self._framing.state is not OPEN:
            return

        if self._apart is None:
            self._apart = DelayedResults(self._loop, self.send)
        self._asked += 1
        self._framing.send_ping(_ASK + b"%d" % self._asked)
        self._flush()
        self._apart.hold(frame)

    def _flush_later(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self, farewell: bytes = b"") -> None:
        # Write the queue; `farewell` first, if only the end is left to be written.
        transport = self._transport
        writes = self._framing.data_to_send()
        if not writes or transport is None or self._is_lost:  # uvloop's transports raise after they were closed
            return

        is_last = not writes[-1]  # the library marks the end of our side with an empty piece
        if is_last and len(writes) == 1:
            writes = [farewell]
        elif len(writes) > 1 and self._unflushed_bytes <= _JOIN_BYTES:
            writes = [b"".join(writes)]
        self._unflushed_bytes = 0
        for part in writes:
            if part:
                self._written_bytes += len(part)
                transport.write(part)

        if is_last:
            self._begin_closing(transport)
            _hang_up(transport, is_agreed=self._is_agreed)
        elif self._framing.close_expected():
            self._begin_closing(transport)
        elif self.is_congested and self._owner is not None:
            self._bound_unread(transport.get_write_buffer_size())

    def _bound_unread(self, waits: int) -> None:
        most = self._limits.max_queued_bytes
        if self._unread is None:
            self._unread = Charge(id(self), client_of(self.peer))
        if waits > most:
            self.fail(CloseCode.POLICY_VIOLATION, f"reads too slowly: more than {most} bytes wait to be read")
        elif not self._unread.set(waits):
            self.fail(CloseCode.POLICY_VIOLATION, "reads too slowly: no memory is left for what waits to be read")

    async def drain(self) -> None:
        """Wait until the peer has read most of the queue, or has disconnected."""
        self._flush()
        if self.is_congested:
            await self._drained.wait()

    # -- the timer ---------------------------------------------------------------------------

    def _set_timer(self, delay: float, action: Callable[[*A], object], *arguments: *A) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(delay, action, *arguments)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_alive(self) -> None:
        limits, transport = self._limits, self._transport
        if transport is None or not self.is_open or not limits.ping_interval:
            return

        taken = self._written_bytes - transport.get_write_buffer_size()
        takes = self.is_congested and taken != self._taken_bytes
        if self._was_heard or self.is_held or takes:
            self._was_heard = self._was_pinged = False
            delay = limits.ping_interval
        elif not self._was_pinged:
            self._was_pinged = True
            self._framing.send_ping(b"mcpd")
            self._flush()
            delay = limits.ping_timeout
        else:
            self.fail(CloseCode.INTERNAL_ERROR, f"no answer to a ping within {limits.ping_timeout:g} s")
            return

        self._taken_bytes = taken
        self._set_timer(delay, self._check_alive)

    # -- closing -----------------------------------------------------------------------------

    def fail(self, code: CloseCode, reason: str) -> None:
        """Close because the peer broke a rule or does not answer; stop reading."""
        if self._framing.state is OPEN:
            self._framing.fail(code, _shorten(reason))
            self._flush()
        self._events.clear()
        self._end()

    def abort(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    async def aclose(self, reason: str = "") -> None:
        """Send the queue and a close frame, and wait for the peer's close frame until the close timeout."""
        transport = self._transport
        if transport is None:
            return

        if self._apart is not None and not self.is_held:
            await self._apart.settle()
        if self._framing.state is OPEN:
            if self._apart is not None:
                self._apart.release()
            self._is_leaving = True
            if self._owner is None:
                self._framing.send_close(CloseCode.NORMAL_CLOSURE, _shorten(reason))
            else:
                self._framing.send_close(CloseCode.GOING_AWAY, _shorten(reason or "the server is going away"))
            self._flush()
        elif not self._is_closing:
            transport.abort()

        self._events.clear()
        self.is_held = False
        try:
            if not self._is_lost:
                await self._lost.wait()
        except asyncio.CancelledError:
            transport.abort()
            raise

    def _begin_closing(self, transport: asyncio.Transport) -> None:
        # A close frame or a refusal was written: wait for the peer until the timeout.
        if not self._is_closing:
            self._is_closing = True
            self.is_open = False
            self._set_timer(self._limits.close_timeout, transport.abort)
            # The peer's own close frame or end is still to come, even if it is slow to read.
            self._resume_reading()

    def _end(self, cause: str = "") -> None:
        self.is_open = False
        if not self._was_open:
            return

        if not self._has_ended:
            self._has_ended = True
            self._flush()
            # The library reports both close frames only after the end of the input. This does not change which side
            # closes the socket first (RFC 6455 7.1.1).
            self._framing.receive_eof()
            self._framing.data_to_send()
            self._ended = self._why(self._framing.close_exc, cause)
            if self._ended is not None and self._owner is not None:
                log.info("%s: %s", printable(self.peer or "a local peer"), printable(self._ended))

        if self._owner is not None:  # no more work is done for its client
            self._events.clear()
            self._fragments = None
            self.is_held = False
        self._report_end()

    def _report_end(self) -> None:
        # Notify the receiver of the end, once, after all received frames.
        receiver = self._receiver
        if not self._has_ended or receiver is None or self._has_reported:
            return
        if self._is_pushing or self.is_held or self._events:
            return

        self._has_reported = True
        try:
            receiver.closed(self._ended)
        except Exception:
            log.exception("The end of a connection could not be processed")


def _unread_asks(asked: int, pong: bytes) -> int:
    # Return how many pings are still unanswered after this pong, which may answer several.
    number = pong[len(_ASK) :]
    return max(0, asked - int(number)) if number.isdigit() and len(number) < 10 else asked


def _hang_up(transport: asyncio.Transport, *, is_agreed: bool) -> None:
    # Close the sending side after everything is written. `is_agreed` means that the peer closes, too.
    if is_agreed or not transport.can_write_eof():
        transport.close()
        return
    # Closing the socket here would reset the connection if the peer still sends, and our reason would be lost.
    try:
        transport.write_eof()
    except OSError:  # the peer has reset it
        transport.abort()


def _shorten(reason: str) -> str:
    # A close frame has room for 123 bytes of reason.
    return reason.encode()[:_REASON_BYTES].decode("utf-8", "ignore")
