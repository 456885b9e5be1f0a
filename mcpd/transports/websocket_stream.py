"""What both ends of a WebSocket do in the same way: frames become messages, messages leave in few writes, it ends.

The framing is websockets' sans-I/O protocol, used as its documentation says. What differs (the handshake, when reading
has to wait, what is said of the end) is in `websocket`, the server's end, and `websocket_client`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import CLOSED, CLOSING, OPEN, Protocol

from ..budget import SMALL
from ..jsonrpc import Id
from .websocket_ending import hang_up, shorten
from .websocket_keep_alive import KeepAlive
from .websocket_owner import WebSocketLimits

__all__ = ["DATA", "HIGH_WATER", "LOW_WATER", "WebSocketStream"]

HIGH_WATER = 1024 * 1024
LOW_WATER = 256 * 1024

_JOIN_BYTES = 65536

_TEXT, _CONT, _CLOSE = Opcode.TEXT, Opcode.CONT, Opcode.CLOSE

DATA = frozenset((_TEXT, _CONT, Opcode.BINARY))
"""The frames that `WebSocketStream._message` is for."""


class WebSocketStream(asyncio.Protocol):
    """One connection. `data_received` is the subclass's."""

    # There may be thousands that wait.
    __slots__ = (
        "__weakref__",
        "_drained",
        "_events",
        "_fragments",
        "_is_agreed",
        "_is_closing",
        "_is_flush_due",
        "_is_leaving",
        "_is_lost",
        "_is_pushing",
        "_keep_alive",
        "_limits",
        "_loop",
        "_lost",
        "_most",
        "_partial_bytes",
        "_protocol",
        "_transport",
        "_unflushed_bytes",
        "_written_bytes",
        "is_congested",
        "is_held",
        "is_open",
        "was_heard",
    )

    is_multiplexed = True

    def __init__(self, protocol: Protocol, limits: WebSocketLimits, max_frame_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._most = max_frame_bytes
        self._protocol = protocol
        self._transport: asyncio.Transport | None = None
        self._keep_alive = KeepAlive(limits, self._loop)
        self._is_lost = False
        self._lost: asyncio.Future[None] | None = None
        """Done when the socket is no more; made when somebody waits for that."""
        self._drained: asyncio.Future[None] | None = None

        self._events: list[Frame] = []
        """What has arrived and was not handed on yet."""
        self._partial_bytes = 0
        """How much has come of a frame that is not whole yet."""
        self._fragments: bytearray | None = None
        self._unflushed_bytes = 0
        self._written_bytes = 0
        self._is_pushing = False
        self._is_flush_due = False

        self.is_open = False
        """The handshake is done, and nothing has ended yet."""
        self._is_leaving = False
        """We have sent a close frame in order, and wait for the peer's."""
        self._is_agreed = False
        """The peer has sent a close frame."""
        self._is_closing = False
        self.is_held = False
        """Nothing is read: nobody takes it."""
        self.was_heard = False
        """Something came since the timer looked."""
        self.is_congested = False

    # -- reading -----------------------------------------------------------------------------

    @abstractmethod
    def data_received(self, data: bytes) -> None:
        """Take what arrived."""

    def _parse(self, data: bytes) -> None:
        """Add what comes of the bytes of an open connection to what has arrived."""
        protocol = self._protocol
        if protocol.state is CLOSED:  # nothing more is read of it
            return

        protocol.receive_data(data)
        # Once the handshake is through, all events are frames.
        frames: list[Frame] = protocol.events_received()  # type: ignore[assignment]
        self._partial_bytes += len(data)
        if frames:
            self._events += frames
            self._is_agreed = frames[-1].opcode is _CLOSE
            if len(data) <= SMALL:
                self._partial_bytes = 0  # or what is too small to be counted
            else:
                whole = sum(map(_size, frames))
                self._partial_bytes = min(len(data), max(0, self._partial_bytes - whole))

    @property
    def _has_failed(self) -> bool:
        """The peer has ended it, by a close frame, by breaking a rule, or by going away."""
        state = self._protocol.state
        return state is CLOSED or (state is CLOSING and not self._is_leaving)

    def _message(self, frame: Frame) -> bytes | None:
        """The message that a frame of DATA is or completes; None if it is not whole, or breaks a rule."""
        part = frame.data
        frame.data = b""  # the library's parser holds its last frame until the next one is whole
        if frame.opcode is _TEXT:
            data = bytes(part)  # not all releases of the library give bytes
            if not frame.fin:
                self._fragments = bytearray(data)
                return None
        elif frame.opcode is _CONT:
            assert self._fragments is not None  # else the library has failed the connection
            # One buffer, not a list: many small fragments must not cost more than their bytes.
            self._fragments += part
            if not frame.fin:
                return None
            data, self._fragments = bytes(self._fragments), None
        else:
            self.fail(CloseCode.UNSUPPORTED_DATA, "send each JSON-RPC message as a text frame, not a binary one")
            return None

        return data if data.isascii() or self._is_text(data) else None

    def _is_text(self, message: bytes) -> bool:
        """Whether it is UTF-8, which messages are (RFC 6455 8.1, S25-026, S26-043); one that is not ends it."""
        try:
            str(message, "utf-8")
        except UnicodeDecodeError as error:
            self.fail(CloseCode.INVALID_DATA, f"not UTF-8: {error.reason} at byte {error.start}")
            return False
        return True

    def _resume_reading(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing() and (self._is_closing or not self.is_held):
            transport.resume_reading()

    # -- writing -----------------------------------------------------------------------------

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one text frame. The frames of one turn leave in one write, unless they are many."""
        protocol = self._protocol
        if not self.is_open or protocol.state is not OPEN:  # its close frame may wait behind what is worked on now
            return

        protocol.send_text(frame)
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
        transport = self._transport
        writes = self._protocol.data_to_send()
        if not writes or transport is None or self._is_lost:  # uvloop's transports raise once they are gone
            return

        is_last = not writes[-1]  # the library's word for the end of our side
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
            hang_up(transport, is_agreed=self._is_agreed)
        elif self._protocol.close_expected():
            self._begin_closing(transport)
        elif self.is_congested:
            self._is_unread(transport.get_write_buffer_size())

    def _is_unread(self, waits: int) -> None:
        """So much waits for a peer that does not take it: for ends that bound it."""

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was queued, or is gone."""
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

    @abstractmethod
    def _end(self) -> None:
        """No more will come: tell the receiver, once, and why."""

    def fail(self, code: CloseCode, reason: str) -> None:
        """Close because of what the peer does or does not do; nothing more of it is read."""
        if self._protocol.state is OPEN:
            self._protocol.fail(code, shorten(reason))
            self._events.clear()
            self._flush()
        self._end()

    def _how_it_ended(self) -> ConnectionClosed:
        """Both close frames, as far as there are any. The library tells of them once nothing more is to be read."""
        protocol = self._protocol
        self._flush()
        protocol.receive_eof()
        protocol.data_to_send()  # who ends the socket first is not changed by that (RFC 6455 7.1.1)
        return protocol.close_exc

    def abort(self) -> None:
        """Cut the connection off."""
        if self._transport is not None:
            self._transport.abort()

    def _begin_closing(self, transport: asyncio.Transport) -> None:
        """A close frame, or the refusal of the handshake, was written: wait for the peer, but not for ever."""
        if not self._is_closing:
            self._is_closing = True
            self.is_open = False
            self._keep_alive.set(self._limits.close_timeout, transport.abort)
            # The peer's own close frame or end is still to come, even if it is slow to read.
            self._resume_reading()

    def _has_gone(self) -> None:
        """The socket is no more."""
        self.is_open = False
        self._is_closing = True
        self._keep_alive.cancel()
        self.is_congested = False
        self._wake()

        self._is_lost = True
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    async def _gone(self) -> None:
        """Wait until the socket is no more."""
        if self._is_lost:
            return

        if self._lost is None:
            self._lost = self._loop.create_future()
        await asyncio.shield(self._lost)

    # -- what the timer asks -----------------------------------------------------------------

    @property
    def taken_bytes(self) -> int | None:
        """How much the peer has taken of what was written; None where the connection is not open."""
        if self._transport is None or not self.is_open:
            return None
        return self._written_bytes - self._transport.get_write_buffer_size()

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._protocol.send_ping(b"mcpd")
        self._flush()


def _size(frame: Frame) -> int:
    """The bytes of a frame that a client has sent, as it is written in the shortest way."""
    size = len(frame.data)
    return size + (6 if size < 126 else 8 if size < 65536 else 14)
