"""A server at a `ws` or `wss` URL: the client's end of a WebSocket, one JSON-RPC message per text frame.

After the handshake, `connection.py` takes over, as at the server's end. The subprotocol `mcp` is offered, but a server
need not accept it. Compression is not offered. Redirects are not followed, because the headers may contain secrets for
the named server only.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket as sockets
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode, Frame
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from mcpd.errors import CannotConnect, ConfigurationError, ConnectionLost, HttpError, TransportError
from mcpd.protocol.defaults import MAX_FRAME_BYTES
from mcpd.protocol.printable import printable
from mcpd.transports.accepting import WebSocketLimits
from mcpd.transports.address import is_loopback
from mcpd.transports.challenge import advice_on, said_in
from .connection import WebSocketChannel
from .server import wire_log

if TYPE_CHECKING:
    from ssl import SSLContext


_PORTS = {"ws": 80, "wss": 443}
_MOST_HEAD = 64 * 1024
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_REFUSED = ("Connection refused", "No such file or directory")


class Dialed(Struct, frozen=True):
    """A `ws` or `wss` URL and how to connect to it. `name` is its name in error messages."""

    url: SplitResult
    name: str
    socket: str | None = None
    ca_file: str | None = None

    @property
    def host(self) -> str:
        """The host of the URL, without brackets."""
        return self.url.hostname or ""

    @property
    def port(self) -> int:
        """The port of the URL, or the default port of its scheme."""
        return self.url.port or _PORTS[self.url.scheme]

    @property
    def is_secure(self) -> bool:
        return self.url.scheme == "wss"

    @property
    def authority(self) -> str:
        """Host and port, as written in CONNECT requests."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def dial(to: Dialed, factory: Callable[[], asyncio.Protocol]) -> None:
    """Connect a protocol that `factory` creates. Raises TransportError; ConfigurationError for a file or proxy."""
    loop = asyncio.get_running_loop()
    context = _tls(to) if to.is_secure else None
    proxy = None if to.socket is not None else _proxy(to)
    hostname = to.host if context is not None else None
    place = f"unix:{to.socket}" if to.socket is not None else to.authority

    try:
        if to.socket is not None:
            await loop.create_unix_connection(factory, to.socket, ssl=context, server_hostname=hostname)
        elif proxy is None:
            await loop.create_connection(factory, to.host, to.port, ssl=context, server_hostname=hostname)
        else:
            place = f"the proxy {proxy.hostname}:{proxy.port or 80}"
            await _tunnel(to, proxy, factory, context)
    except OSError as error:
        raise _failed(to, place, error) from None


def _failed(to: Dialed, place: str, error: OSError) -> TransportError:
    if isinstance(error, sockets.gaierror):
        return CannotConnect(f"{to.name}: the name in {place} is not known ({error.strerror}); look at the URL")
    verify = getattr(error, "verify_message", None)
    if verify is not None:
        return TransportError(
            f"{to.name}: the certificate of {place} is not trusted: {verify}; give the file of its authority (ca_file)"
        )
    reason = getattr(error, "reason", None)
    if reason is not None:
        return TransportError(f"{to.name}: TLS with {place} failed: {printable(str(reason), 200)}; does it speak wss?")

    number = error.errno or next(map(int, _ERRNO.findall(str(error))), 0)
    text = os.strerror(number) if number else printable(str(error), 200)
    hint = "; does the server run?" if text in _REFUSED else ""
    return CannotConnect(f"{to.name}: cannot connect to {place}: {text}{hint}")


def _tls(to: Dialed) -> SSLContext:
    from ssl import SSLError, create_default_context  # local servers need no TLS

    try:
        return create_default_context(cafile=to.ca_file)
    except (OSError, SSLError) as error:
        raise ConfigurationError(
            f"{to.ca_file}: it contains no readable certificates: {error.strerror or error}"
        ) from None


def _proxy(to: Dialed) -> SplitResult | None:
    if is_loopback(to.host):
        return None
    from urllib.request import getproxies, proxy_bypass  # it loads an HTTP client

    if proxy_bypass(f"{to.host}:{to.port}"):
        return None
    known = getproxies()
    schemes = ("wss", "https", "all") if to.is_secure else ("ws", "http", "all")
    url = next((known[scheme] for scheme in schemes if known.get(scheme)), None)
    if url is None:
        return None

    proxy = urlsplit(url if "://" in url else f"http://{url}")
    try:
        is_good = proxy.scheme == "http" and proxy.hostname and (proxy.port or 80)
    except ValueError:
        is_good = False
    if not is_good:
        raise ConfigurationError(
            f"{to.name}: the environment names the proxy {proxy.scheme}://{proxy.hostname or ''}, and a WebSocket goes "
            "through http:// proxies only; set ws_proxy or wss_proxy to one, or add the host to no_proxy"
        )
    return proxy


async def _tunnel(
    to: Dialed, proxy: SplitResult, factory: Callable[[], asyncio.Protocol], context: SSLContext | None
) -> None:
    # Open a tunnel through the proxy, with TLS inside it for `wss`.
    loop = asyncio.get_running_loop()
    transport, connect = await loop.create_connection(
        lambda: _Connect(to, proxy), proxy.hostname or "", proxy.port or 80
    )
    try:
        rest = await connect.answered
        protocol = factory()
        transport.set_protocol(protocol)
        below: asyncio.BaseTransport = transport
        if context is not None:
            secured = await loop.start_tls(transport, protocol, context, server_hostname=to.host)
            assert secured is not None
            below = secured
        protocol.connection_made(below)
    except BaseException:
        transport.abort()
        raise

    if rest:
        protocol.data_received(rest)


class _Connect(asyncio.Protocol):
    """A CONNECT request and its response; `answered` returns the data behind the head of the response."""

    def __init__(self, to: Dialed, proxy: SplitResult) -> None:
        self._to = to
        self._proxy = proxy
        self._head = b""
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        lines = [f"CONNECT {self._to.authority} HTTP/1.1", f"Host: {self._to.authority}"]
        if self._proxy.username is not None:
            secret = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {b64encode(secret.encode()).decode()}")
        cast("asyncio.Transport", transport).write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def data_received(self, data: bytes) -> None:
        if self.answered.done():
            return
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end and len(self._head) <= _MOST_HEAD:
            return
        line = head.partition(b"\r\n")[0].decode("latin-1")
        version, _, status = line.partition(" ")
        if end and version.startswith("HTTP/1.") and status[:1] == "2":
            self.answered.set_result(rest)
        else:
            self._fail(f"answered {printable(status, 100) or 'nothing'} to CONNECT {self._to.authority}")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answered.done():
            self._fail("closed the connection without an answer")

    def _fail(self, what: str) -> None:
        place = f"{self._proxy.hostname}:{self._proxy.port or 80}"
        self.answered.set_exception(CannotConnect(f"{self._to.name}: the proxy {place} {what}"))


# Seconds that connecting and the handshake may take together.
OPEN_SECONDS = 10.0
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
    """Connect to a `ws` or `wss` URL and return the channel after the handshake.

    Args:
        url: The URL.
        headers: Further headers of the handshake.
        socket: The path of a unix socket to connect to, instead of the URL's host.
        ca_file: A PEM file of certificate authorities, instead of the system's.
        name: The name of the server in error messages.
        max_frame_bytes: The largest message; a larger one ends the connection.

    Raises:
        CannotConnect: The server cannot be reached.
        HttpError: The server refuses the handshake.
        TransportError: The connection failed.
        ConfigurationError: An argument is invalid.
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
        if not value.isprintable() or max(value, default="") > "\xff":
            raise ConfigurationError(f"{name}: the value of the header {field} must be a single line of plain text")
    return dict(headers)


class RefusedHandshake(HttpError):
    """The server has answered with a status other than 101."""

    def __init__(self, message: str, status: int, headers: Mapping[str, str], challenges: tuple[str, ...]) -> None:
        self.headers = headers
        self.challenges = challenges
        super().__init__(message, status)


class ClientHandshake:
    """The opening handshake of a client's end: the request, and the server's response."""

    def __init__(
        self, to: Dialed, url: str, headers: Mapping[str, str], max_frame_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self.framing = ClientProtocol(
            parse_uri(url), subprotocols=[_SUBPROTOCOL], max_size=max_frame_bytes, logger=wire_log
        )
        self._to = to
        self._headers = headers
        self._most = max_frame_bytes
        # Done when the handshake is complete, or failed with the reason.
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.channel = WebSocketChannel(self, LIMITS, self._why)

    def begin(self, connection: WebSocketChannel) -> None:
        request = self.framing.connect()
        for name, value in self._headers.items():
            if name in request.headers:
                del request.headers[name]
            request.headers[name] = value
        self.framing.send_request(request)

    def receive(self, data: bytes) -> None:
        """Process received data: the response, and frames behind it."""
        self.framing.receive_data(data)
        self._take_events()

    def eof(self) -> None:
        """The server closed the connection before the response was complete."""
        self.framing.receive_eof()
        self._take_events()

    def close(self) -> None:
        if self.framing.handshake_exc is None:
            self.eof()
        self._fail(CannotConnect(f"{self._to.name}: the connection was cut during the handshake"))

    def _take_events(self) -> None:
        events = self.framing.events_received()
        if self.framing.handshake_exc is not None:
            self._fail(self._refused(self.framing.handshake_exc))
            self.channel.abort()
        elif events:  # the response, and frames
            self.channel.opened(self.framing, cast("list[Frame]", events[1:]))
            if self.opened.done():
                self.channel.abort()  # the caller has given up
            else:
                self.opened.set_result(None)

    def _fail(self, error: TransportError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # the caller may have given up

    def _refused(self, error: Exception) -> TransportError:
        name = self._to.name
        if not isinstance(error, InvalidStatus):
            cause = error.__cause__ or error
            kind = CannotConnect if isinstance(cause, EOFError) else TransportError
            return kind(f"{name}: the server does not speak WebSocket: {printable(str(cause), 200)}")

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
            refusal_text = said_in(bytes(response.body or b""))
            has_token = any(name.lower() == "authorization" for name in self._headers)
            advice = _ADVICE.get(status) or advice_on(status, challenges, refusal_text, has_token=has_token)
            text += (f": {refusal_text}" if refusal_text else "") + (f"; {advice}" if advice else "")
        return RefusedHandshake(text, status, dict(response.headers.raw_items()), challenges)

    def _why(self, ended: ConnectionClosed, cause: str) -> ConnectionLost:
        return ConnectionLost(f"{self._to.name}: {self._how_it_ended(ended, cause)}")

    def _how_it_ended(self, ended: ConnectionClosed, cause: str) -> str:
        received, sent = ended.rcvd, ended.sent
        if sent is not None and not ended.rcvd_then_sent:
            if sent.code == CloseCode.MESSAGE_TOO_BIG:
                return f"the server sent a message of more than {self._most} bytes (ClientLimits.message_bytes)"
            return f"we closed the WebSocket: {printable(str(sent), 200)}"
        if received is not None:
            return f"the server closed the WebSocket: {printable(str(received), 200)}"
        return f"the connection was cut{f': {cause}' if cause else ''}"


_ADVICE = {
    200: "is this the URL of a WebSocket? For Streamable HTTP write http",
    404: "look at the path of the URL",
    405: "is this the URL of a WebSocket? For Streamable HTTP write http",
}
