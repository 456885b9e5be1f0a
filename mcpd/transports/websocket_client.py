"""A server at a `ws` or `wss` URL: the client's end of a WebSocket, one JSON-RPC message per text frame.

The framing is websockets' sans-I/O protocol, as in `websocket`, the server's end. To the specification this is a custom
transport (S25-043, S26-045). The subprotocol `mcp` is offered, and a server that takes none is taken too; compression
never is. Redirects are not followed: the headers of the handshake are secrets, and whom they go to was said.

Back-pressure in both directions: while `pause` is in force nothing is read of the socket, and the server has to wait in
the end; `is_congested` and `drain` tell of what the server does not take.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from ..channel import Receiver
from ..errors import CannotConnect, ConfigurationError, ConnectionLost, HttpError, TransportError
from ..jsonrpc import Id
from ..principal import Origin
from ..printable import printable
from ..serve_defaults import MAX_FRAME_BYTES
from .authorization import advice_on, said_in
from .websocket_dial import Dialed, dial
from .websocket_ending import shorten
from .websocket_owner import WebSocketLimits
from .websocket_stream import DATA, HIGH_WATER, LOW_WATER, WebSocketStream
from .wire_log import wire_log

__all__ = ["RefusedHandshake", "WebSocketClientChannel", "open_websocket"]

log = logging.getLogger("mcpd.client")

OPEN_SECONDS = 10.0
"""How long connecting and the handshake may take together."""
CLOSE_SECONDS = 2.0
LIMITS = WebSocketLimits(close_timeout=CLOSE_SECONDS)

_SUBPROTOCOL = Subprotocol("mcp")
_OURS = ("host", "connection", "upgrade", "content-length", "transfer-encoding")

_CLOSE, _PONG = Opcode.CLOSE, Opcode.PONG


async def open_websocket(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    socket: str | None = None,
    ca_file: str | None = None,
    name: str = "",
    max_frame_bytes: int = MAX_FRAME_BYTES,
) -> WebSocketClientChannel:
    """Connect to a `ws` or `wss` URL: the channel, its handshake done. `name` is what errors call the server.

    `headers` go with the handshake, `socket` is the path of a unix socket that is connected to in place of the URL's
    host, `ca_file` a PEM file of authorities in place of the system's. A larger message than `max_frame_bytes` ends the
    connection. Raises CannotConnect if there is no server, HttpError if it refuses;
    TransportError, ConfigurationError.
    """
    parts = urlsplit(url)
    to = Dialed(parts, name or url.partition("?")[0], socket, ca_file)
    fields = _checked(headers or {}, to.name)
    channel = WebSocketClientChannel(to, url, fields, max_frame_bytes)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await dial(to, lambda: channel)
            await channel.opened
    except BaseException as error:
        channel.abort()
        if isinstance(error, TimeoutError):
            raise CannotConnect(f"{to.name}: no answer within {OPEN_SECONDS:g} s") from None
        raise
    return channel


def _checked(headers: Mapping[str, str], name: str) -> dict[str, str]:
    for field, value in headers.items():
        is_token = field.isascii() and field.replace("-", "").replace("_", "").replace(".", "").isalnum()
        if not is_token or field.lower() in _OURS or field.lower().startswith("sec-websocket-"):
            raise ConfigurationError(f"{name}: the header {printable(field, 100)} cannot be set; leave it out")
        if not value.isprintable() or not _is_latin(value):
            raise ConfigurationError(f"{name}: the value of the header {field} is no single line of plain text")
    return dict(headers)


def _is_latin(text: str) -> bool:
    return all(ord(c) < 256 for c in text)


class RefusedHandshake(HttpError):
    """The server answered the handshake by a status: with what it says of how to be let in."""

    def __init__(self, message: str, status: int, headers: Mapping[str, str], challenges: tuple[str, ...]) -> None:
        self.headers = headers
        self.challenges = challenges
        super().__init__(message, status)


class WebSocketClientChannel(WebSocketStream):
    """One connection, from the handshake's first byte on. `start` begins to deliver what arrives."""

    __slots__ = ("_end_reason", "_has_begun", "_has_told", "_headers", "_receiver", "_to", "opened")

    _protocol: ClientProtocol

    def __init__(
        self, to: Dialed, url: str, headers: Mapping[str, str], max_frame_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        super().__init__(
            ClientProtocol(parse_uri(url), subprotocols=[_SUBPROTOCOL], max_size=max_frame_bytes, logger=wire_log),
            LIMITS,
            max_frame_bytes,
        )
        self._to = to
        self._headers = headers
        self.opened: asyncio.Future[None] = self._loop.create_future()
        """Done when the handshake is; its exception says why there was none."""
        self._receiver: Receiver | None = None
        self._end_reason: ConnectionLost | None = None
        self._has_told = False
        self._has_begun = False
        self.is_held = True  # nobody takes it yet

    # -- what asyncio calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast("asyncio.Transport", transport)
        stream.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
        request = self._protocol.connect()
        for name, value in self._headers.items():
            if name in request.headers:
                del request.headers[name]
            request.headers[name] = value
        self._protocol.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.was_heard = True
        if self._has_begun:
            self._parse(data)
            self._push()
        else:
            self._protocol.receive_data(data)
            self._take_events()

    def eof_received(self) -> bool:
        self._protocol.receive_eof()
        self._take_events()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._protocol.handshake_exc is None and not self.opened.done():
            self._protocol.receive_eof()
            self._take_events()
        if not self.opened.done():
            self.opened.set_exception(CannotConnect(f"{self._to.name}: the connection was cut during the handshake"))
            self.opened.exception()  # who opened it may have given up
        self._has_gone()
        self._end(getattr(exc, "strerror", None) or "")

    def pause_writing(self) -> None:
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False
        self._wake()

    # -- handshake ---------------------------------------------------------------------------

    def _take_events(self) -> None:
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._events.append(event)
            elif isinstance(event, Response) and self._protocol.handshake_exc is None:
                self._accepted()
        if self._protocol.handshake_exc is not None and not self.opened.done():
            self.opened.set_exception(self._refused(self._protocol.handshake_exc))
            self.opened.exception()
            self.abort()
            return
        self._push()

    def _accepted(self) -> None:
        self._has_begun = True
        self.is_open = True
        self._keep_alive.look(self)
        if self.opened.done():
            self.abort()  # whoever wanted it has given up
            return
        self.opened.set_result(None)
        if self._receiver is None and self._transport is not None:
            self._transport.pause_reading()

    def _refused(self, error: Exception) -> TransportError:
        """What a handshake that failed says: the status, and the first line of the body."""
        name = self._to.name
        if not isinstance(error, InvalidStatus):
            cause = error.__cause__ or error
            kind = CannotConnect if isinstance(cause, EOFError) else TransportError
            return kind(f"{name}: what answered speaks no WebSocket: {printable(str(cause), 200)}")

        response = error.response
        challenges = tuple(response.headers.get_all("WWW-Authenticate"))
        status = response.status_code
        text = f"{name}: the server refused the WebSocket: {status} {printable(response.reason_phrase, 100)}".rstrip()
        if 300 <= status < 400:
            place = response.headers.get("Location", "nowhere")
            text = (
                f"{text}; it redirects to {printable(place, 200)}, which is not followed: give that URL if you trust it"
            )
        else:
            said = said_in(bytes(response.body or b""))
            has_token = any(name.lower() == "authorization" for name in self._headers)
            advice = _ADVICE.get(status) or advice_on(status, challenges, said, has_token=has_token)
            text += (f": {said}" if said else "") + (f"; {advice}" if advice else "")
        return RefusedHandshake(text, status, dict(response.headers.raw_items()), challenges)

    # -- reading -----------------------------------------------------------------------------

    def start(self, receiver: Receiver) -> None:
        """From now on hand what arrives to `receiver`; what has arrived is handed over soon."""
        self._receiver = receiver
        self.resume()

    def pause(self) -> None:
        """Read nothing until `resume`: what the server sends waits with it."""
        self.is_held = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self.is_held = False
        self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self.is_held:
            self._push()
            self._resume_reading()
            self._tell()

    def _push(self) -> None:
        """Hand on what arrived, until it is through or the receiver has enough."""
        if self._is_pushing:
            return

        self._is_pushing = True
        events, taken = self._events, 0
        try:
            for frame in events:  # whoever ends it in between clears them
                if self.is_held:
                    break
                taken += 1
                self._take(frame)
        except Exception:
            log.exception("A message of the server could not be taken")
            self.fail(CloseCode.INTERNAL_ERROR, "internal error")
        finally:
            self._is_pushing = False
            del events[:taken]

        self._flush()
        if self._protocol.state is not OPEN and self._has_failed:
            self._end()

    def _take(self, frame: Frame) -> None:
        receiver = self._receiver
        if receiver is None or self._has_told:
            return

        if frame.opcode in DATA:
            message = self._message(frame)
            if message is not None:
                receiver.receive(message)
        elif frame.opcode is _CLOSE:
            self._end()
        elif frame.opcode is _PONG:
            self._keep_alive.answered(self)

    def _end(self, cause: str = "") -> None:
        """No more will come: say why, behind what has come before."""
        self.is_open = False
        if self._end_reason is None:
            self._end_reason = ConnectionLost(f"{self._to.name}: {self._why(cause)}")
        if self._is_pushing:
            self._loop.call_soon(self._tell)
        else:
            self._tell()

    def _why(self, cause: str) -> str:
        ended = self._how_it_ended()
        said, sent = ended.rcvd, ended.sent
        if sent is not None and not ended.rcvd_then_sent:
            if sent.code == CloseCode.MESSAGE_TOO_BIG:
                return f"the server sent a message of more than {self._most} bytes (ClientLimits.message_bytes)"
            return f"we closed the WebSocket: {printable(str(sent), 200)}"
        if said is not None:
            return f"the server closed the WebSocket: {printable(str(said), 200)}"
        return f"the connection was cut{f': {cause}' if cause else ''}"

    def _tell(self) -> None:
        reason, receiver = self._end_reason, self._receiver
        if reason is None or receiver is None or self._has_told or self.is_held or self._events:
            return
        self._has_told = True
        try:
            receiver.closed(reason)
        except Exception:
            log.exception("The end of a connection could not be taken")

    # -- writing -----------------------------------------------------------------------------

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one text frame."""
        self.send(frame, related_request_id, method)

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The server's end."""
        return Origin("websocket")

    # -- closing -----------------------------------------------------------------------------

    async def aclose(self, reason: str = "") -> None:
        """Send what is queued and a close frame, and wait for the server's; after 2 s cut it off."""
        transport = self._transport
        if transport is None:
            return

        self._events.clear()
        self.is_held = False
        if self._protocol.state is OPEN:
            self._is_leaving = True
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE, shorten(reason))
            self._flush()
        elif not self._is_closing:
            transport.abort()

        try:
            await self._gone()
        except asyncio.CancelledError:
            transport.abort()
            raise

    def abort(self) -> None:
        """Cut the connection off."""
        self.is_open = False
        super().abort()


_ADVICE = {
    200: "is this the URL of a WebSocket? For Streamable HTTP write http",
    404: "look at the path of the URL",
    405: "is this the URL of a WebSocket? For Streamable HTTP write http",
}
