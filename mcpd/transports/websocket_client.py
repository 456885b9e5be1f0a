"""A server at a `ws` or `wss` URL: the client's end of a WebSocket, one JSON-RPC message per text frame.

What follows the handshake is in `websocket`, as for the server's end. The subprotocol `mcp` is offered, and a server
that takes none is taken too; compression never is. Redirects are not followed: the headers of the handshake are
secrets, and whom they go to was said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode, Frame
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from mcpd.errors import CannotConnect, ConfigurationError, ConnectionLost, HttpError, TransportError
from mcpd.protocol.printable import printable
from mcpd.serve_defaults import MAX_FRAME_BYTES
from mcpd.transports.accepting import WebSocketLimits
from mcpd.transports.authorization import advice_on, said_in
from mcpd.transports.websocket import WebSocketChannel
from mcpd.transports.websocket_dial import Dialed, dial
from mcpd.transports.wire_log import wire_log

OPEN_SECONDS = 10.0
"""How long connecting and the handshake may take together."""
CLOSE_SECONDS = 2.0
LIMITS = WebSocketLimits(close_timeout=CLOSE_SECONDS)

_SUBPROTOCOL = Subprotocol("mcp")
_OURS = ("host", "connection", "upgrade", "content-length", "transfer-encoding")


async def open_websocket(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    socket: str | None = None,
    ca_file: str | None = None,
    name: str = "",
    max_frame_bytes: int = MAX_FRAME_BYTES,
) -> WebSocketChannel:
    """Connect to a `ws` or `wss` URL: the channel, its handshake done. `name` is what errors call the server.

    `headers` go with the handshake, `socket` is the path of a unix socket that is connected to in place of the URL's
    host, `ca_file` a PEM file of authorities in place of the system's. A larger message than `max_frame_bytes` ends the
    connection. Raises CannotConnect if there is no server, HttpError if it refuses;
    TransportError, ConfigurationError.
    """
    parts = urlsplit(url)
    to = Dialed(parts, name or url.partition("?")[0], socket, ca_file)
    fields = _checked(headers or {}, to.name)
    handshake = ClientHandshake(to, url, fields, max_frame_bytes)
    channel = handshake.channel
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await dial(to, lambda: channel)
            await handshake.opened
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


class ClientHandshake:
    """The opening handshake of a client's end, `channel`: a request of ours, and the server's answer."""

    def __init__(
        self, to: Dialed, url: str, headers: Mapping[str, str], max_frame_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self.framing = ClientProtocol(
            parse_uri(url), subprotocols=[_SUBPROTOCOL], max_size=max_frame_bytes, logger=wire_log
        )
        self._to = to
        self._headers = headers
        self._most = max_frame_bytes
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the handshake is; its exception says why there was none."""
        self.channel = WebSocketChannel(self, LIMITS, self._why)

    def begin(self, connection: WebSocketChannel) -> None:
        """Send the request."""
        request = self.framing.connect()
        for name, value in self._headers.items():
            if name in request.headers:
                del request.headers[name]
            request.headers[name] = value
        self.framing.send_request(request)

    def receive(self, data: bytes) -> None:
        """Take what arrived: the answer, and frames behind it."""
        self.framing.receive_data(data)
        self._take_events()

    def eof(self) -> None:
        """The server sends no more: that was no answer."""
        self.framing.receive_eof()
        self._take_events()

    def close(self) -> None:
        """The connection is lost."""
        if self.framing.handshake_exc is None:
            self.eof()
        self._fail(CannotConnect(f"{self._to.name}: the connection was cut during the handshake"))

    def _take_events(self) -> None:
        events = self.framing.events_received()
        if self.framing.handshake_exc is not None:
            self._fail(self._refused(self.framing.handshake_exc))
            self.channel.abort()
        elif events:  # the answer, and frames
            self.channel.opened(self.framing, cast("list[Frame]", events[1:]))
            if self.opened.done():
                self.channel.abort()  # whoever wanted it has given up
            else:
                self.opened.set_result(None)

    def _fail(self, error: TransportError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # who opened it may have given up

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
            place = ", ".join(response.headers.get_all("Location")) or "nowhere"
            text = (
                f"{text}; it redirects to {printable(place, 200)}, which is not followed: give that URL if you trust it"
            )
        else:
            said = said_in(bytes(response.body or b""))
            has_token = any(name.lower() == "authorization" for name in self._headers)
            advice = _ADVICE.get(status) or advice_on(status, challenges, said, has_token=has_token)
            text += (f": {said}" if said else "") + (f"; {advice}" if advice else "")
        return RefusedHandshake(text, status, dict(response.headers.raw_items()), challenges)

    def _why(self, ended: ConnectionClosed, cause: str) -> ConnectionLost:
        """What the receiver hears of the end of a connection that was open."""
        return ConnectionLost(f"{self._to.name}: {self._how_it_ended(ended, cause)}")

    def _how_it_ended(self, ended: ConnectionClosed, cause: str) -> str:
        said, sent = ended.rcvd, ended.sent
        if sent is not None and not ended.rcvd_then_sent:
            if sent.code == CloseCode.MESSAGE_TOO_BIG:
                return f"the server sent a message of more than {self._most} bytes (ClientLimits.message_bytes)"
            return f"we closed the WebSocket: {printable(str(sent), 200)}"
        if said is not None:
            return f"the server closed the WebSocket: {printable(str(said), 200)}"
        return f"the connection was cut{f': {cause}' if cause else ''}"


_ADVICE = {
    200: "is this the URL of a WebSocket? For Streamable HTTP write http",
    404: "look at the path of the URL",
    405: "is this the URL of a WebSocket? For Streamable HTTP write http",
}
