"""One WebSocket connection: one JSON-RPC message per text frame.

The framing is websockets' sans-I/O protocol, fed straight from an asyncio protocol: its asyncio server
costs a queue, a lock and a task's wake-up for each message (measured: 0.57 of the time without them).
What arrives is pushed into the receiver; all that is sent while one read is worked on leaves in one write.
What a client's end does in the same way is in `websocket_stream`. Nothing of listening lives here (that is
`websocket_server`), of the handshake (`websocket_handshake`), of pings and timers (`websocket_keep_alive`), and of how
a connection ends (`websocket_ending`). No MCP rule does either: to the specification this is a custom transport, which
keeps the JSON-RPC format and each version's lifecycle (S25-043, S26-045).

permessage-deflate is never accepted: on the loopback, where most of this runs, it only costs; elsewhere it
holds up to 316 KiB for each connection, lets a small frame become a huge message, and leaks secrets that
are compressed together with what an attacker chose.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN, SERVER, Protocol

from ..budget import OVER, SMALL, Charge, client_of
from ..channel import Receiver
from ..jsonrpc import Id
from ..principal import Principal
from ..printable import printable
from .apart import Apart
from .expiring import at_expiry
from .websocket_ending import shorten, why_it_ended
from .websocket_handshake import Handshake, HandshakeFields, WebSocketProtocol
from .websocket_keep_alive import ASK, unread_asks
from .websocket_owner import ConnectionOwner
from .websocket_peer import WebSocketPeer
from .websocket_stream import DATA, HIGH_WATER, LOW_WATER, WebSocketStream
from .wire_log import wire_log

__all__ = ["WebSocketChannel"]

log = logging.getLogger("mcpd.websocket")

_CLOSE, _PONG = Opcode.CLOSE, Opcode.PONG


class WebSocketChannel(WebSocketPeer, WebSocketStream):
    """One connection, from the handshake's first byte on. It knows nothing of listening: feed it any transport.

    Handshake, open, closing and lost follow each other; each phase but the last has one timer.
    """

    __slots__ = (
        "_apart",
        "_asked",
        "_charge",
        "_endpoint",
        "_fields",
        "_handshake",
        "_has_ended",
        "_expiry",
        "_receiver",
        "_unread",
    )

    def __init__(self, endpoint: ConnectionOwner) -> None:
        limits = endpoint.limits
        protocol = WebSocketProtocol(max_size=limits.max_frame_bytes, logger=wire_log)
        super().__init__(protocol, limits, limits.max_frame_bytes)
        self._endpoint = endpoint
        self._receiver: Receiver | None = None
        self._charge: Charge | None = None
        """What came of a message that is not whole yet."""
        self._unread: Charge | None = None
        """What waits for a client that reads slowly."""
        self._has_ended = False
        self._apart: Apart | None = None
        self._asked = 0
        """How many pings were sent to learn whether all before them was read."""

        self._handshake: Handshake | None = Handshake(endpoint, protocol, self)
        """Takes what arrives until it is answered."""
        self._fields: HandshakeFields | None = None
        self._expiry: asyncio.TimerHandle | None = None
        """Closes it when the token that it was opened with ends."""

    # -- what asyncio calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports have the methods, not the base class.
        self._transport = stream = cast("asyncio.Transport", transport)
        stream.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
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

        self._parse(data)
        self._push()
        if self._partial_bytes or self._fragments is not None or self._charge is not None:
            self._count()

    def _count(self) -> None:
        """What came of a message that is not whole yet takes of the budget."""
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

    def eof_received(self) -> bool:
        if self._handshake is not None and self._handshake.is_authenticating:
            self.abort()  # nobody is there to hear what came of its handshake
            return False
        self._protocol.receive_eof()
        self._push()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._handshake is not None:
            self._handshake.close()
            self._handshake = None

        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

        # What waits takes of the memory of all: it goes back before anybody hears of the end.
        self._endpoint.connections.discard(self)
        self._charge = self._unread = self._fragments = None
        self._events.clear()
        if self._apart is not None:
            self._apart.close()
        self._has_gone()
        self._end()

    def pause_writing(self) -> None:
        self.is_congested = True
        if self.is_open and self._transport is not None and not self._transport.is_closing():
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
        if fields.user.expires is not None:
            self._expiry = at_expiry(fields.user, lambda: self.fail(CloseCode.POLICY_VIOLATION, "token expired"))

    def end_handshake(self, rest: bytes = b"", *, farewell: bytes = b"") -> None:
        """The answer is to be written; `rest` came behind the handshake. `farewell` is for what was none."""
        self._handshake = None
        self._flush(farewell)
        if self._receiver is not None:
            self._keep_alive.cancel()
            # Of the library's protocol of a handshake some 3 KiB would stay.
            self._protocol = Protocol(SERVER, max_size=self._most, logger=wire_log)
            self.is_open = True
            self._keep_alive.look(self)

        if rest:
            self.data_received(rest)

    def turn_out(self, is_meant: Callable[[Principal], bool]) -> None:
        """Close it, if it was opened by one of these principals."""
        if self._fields is not None and is_meant(self._fields.user):
            self.fail(CloseCode.POLICY_VIOLATION, "token revoked")

    # -- reading -----------------------------------------------------------------------------

    def _push(self) -> None:
        """Hand on what arrived, until it is through or the answers pile up."""
        if self._is_pushing:
            return

        self._is_pushing = True
        events, taken = self._events, 0
        try:
            for frame in events:  # whoever ends it in between clears them
                if self.is_congested:
                    break
                taken += 1
                self._take(frame)
        except Exception:
            log.exception("A message could not be taken")
            self.fail(CloseCode.INTERNAL_ERROR, "internal error")
        finally:
            self._is_pushing = False
            del events[:taken]

        self._flush()
        if self._protocol.state is not OPEN and self._has_failed:
            self._end()

    def _take(self, frame: Frame) -> None:
        opcode = frame.opcode
        if not self.is_open and opcode is not _CLOSE:
            # Once a client was told that we close, or why, nothing more is done for it.
            return

        if opcode in DATA:
            message = self._message(frame)
            if message is not None:
                self._receiver.receive(message)  # type: ignore[union-attr]  # there is one, as it is open
        elif opcode is _CLOSE:
            self._end()
        elif opcode is _PONG and self._apart is not None and bytes(frame.data).startswith(ASK):
            self._apart.release(leaving=unread_asks(self._asked, bytes(frame.data)))
        elif opcode is _PONG:
            self._keep_alive.answered(self)

    def pause(self) -> None:
        """Read nothing more and start nothing more; what runs may still be answered. `aclose` comes next."""
        if self._is_closing:
            return
        self.is_held = True
        self._events.clear()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _end(self) -> None:
        """Tell the receiver, once, that no more will come, and why if it was not said in order."""
        if self._has_ended or self._receiver is None:
            return
        self._has_ended = True
        self.is_open = False
        ended = why_it_ended(self._how_it_ended())
        if ended is not None:
            log.info("%s: %s", printable(self.peer or "a local peer"), printable(ended))
        try:
            self._receiver.closed(ended)
        except Exception:
            log.exception("The end of a connection could not be taken")

    # -- writing -----------------------------------------------------------------------------

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one text frame that the client reads by itself: it leaves when a ping behind the others is answered."""
        if not self.is_open or self._protocol.state is not OPEN:
            return
        if self._apart is None:
            self._apart = Apart(self._loop, self.send)
        self._asked += 1
        self._protocol.send_ping(ASK + b"%d" % self._asked)
        self._flush()
        self._apart.hold(frame)

    def _is_unread(self, waits: int) -> None:
        most = self._limits.max_queued_bytes
        if self._unread is None:
            self._unread = Charge(id(self), client_of(self.peer))
        if waits > most:
            self.fail(CloseCode.POLICY_VIOLATION, f"reads too slowly: more than {most} bytes wait to be read")
        elif not self._unread.set(waits):
            self.fail(CloseCode.POLICY_VIOLATION, "reads too slowly: no memory is left for what waits to be read")

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
            self._is_leaving = True
            self._protocol.send_close(CloseCode.GOING_AWAY, shorten(reason or "the server is going away"))
            self._flush()
        elif not self._is_closing:
            transport.abort()

        await self._gone()
