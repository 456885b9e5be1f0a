"""One request on a connection of our HTTP server, and its response: the `receive` and `send` of ASGI.

`Exchange` writes heads and bodies as HTTP/1.1. Its connection, in `http1`, decides when. Here are also the rules of
HTTP/1.1 for the end of a request.
Spec: ASGI 3, RFC 9112.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextvars import copy_context
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from mcpd.transports.accepting import ConnectionLimit, CountedConnections
from mcpd.transports.authentication import Refusal
from .request import Departure, Header, Receive, Scope, Send

Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def wishes_for_websocket(fields: dict[bytes, bytes]) -> bool:
    """Whether the headers request a WebSocket."""
    named = [token.strip() for token in fields.get(b"connection", b"").lower().split(b",")]
    return b"upgrade" in named and fields.get(b"upgrade", b"").lower() == b"websocket"


def without_upgrade(method: bytes, url: bytes, version: str, headers: list[Header]) -> bytes:
    """Return a head without the request for another protocol."""
    kept = []
    for name, value in headers:
        if name == b"connection":
            tokens = value.split(b",")
            value = b",".join(one for one in tokens if one.strip().lower() not in (b"upgrade", b"http2-settings"))
        if name not in (b"upgrade", b"http2-settings"):
            kept.append((name, value))
    return head_bytes(method, url, version, kept)


def head_bytes(method: bytes, url: bytes, version: str, headers: list[Header]) -> bytes:
    """Return the bytes of a head."""
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"".join((b"%b %b HTTP/%b\r\n" % (method, url, version.encode()), *lines, b"\r\n"))


def least_size(method: bytes, url: bytes, headers: list[Header]) -> int:
    """Return the least size of a head in bytes, without spaces around the values."""
    line = len(method) + len(url) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(":\r\n") for name, value in headers) + len("\r\n")


def bad_framing(headers: list[Header], version: str) -> Refusal | None:
    """Return the refusal of a request with a transfer coding, unless the coding is `chunked`.

    A proxy may decode another coding differently, and see another request after this one. Spec: RFC 9112 6.1: an
    unknown coding is 501, `chunked` comes once and last, HTTP/1.0 has no codings; 6.3: no Content-Length beside it.
    """
    codings = b",".join(value for name, value in headers if name == b"transfer-encoding").lower()
    named = [coding.strip(b" \t") for coding in codings.split(b",")]
    if version != "1.1" or any(name == b"content-length" for name, _ in headers):
        return Refusal(400, "Transfer-Encoding requires HTTP/1.1, and excludes Content-Length.\n")
    if any(coding != b"chunked" for coding in named):
        return Refusal(501, "Only the transfer coding chunked is supported.\n")
    return None if len(named) == 1 else Refusal(400, "A body can be chunked only once.\n")


def refusal_bytes(refusal: Refusal, headers: Iterable[Header]) -> bytes:
    """Return the response that refuses a request and ends the connection; `headers` are those received so far."""
    accept = b",".join(value for name, value in headers if name == b"accept")
    kind, body = refusal.body(accept.decode("latin-1"))
    fields = {
        "content-type": kind,
        "content-length": str(len(body)),
        "connection": "close",
        **{name.lower(): value for name, value in refusal.headers},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return STATUS_LINES[refusal.status] + lines.encode("latin-1") + b"\r\n" + body


def address_of(found: Any) -> tuple[str, int | None] | None:
    """Return the address of a socket in the form of ASGI scopes."""
    if isinstance(found, tuple):
        return str(found[0]), int(found[1])
    return (found, None) if found and isinstance(found, str) else None


log = logging.getLogger("mcpd.http")

# Bytes from which a body is written separately from its head, because a copy would cost more than a second write.
_MOST_JOINED = 64 * 1024
_HEADER = re.compile(rb'[^\x00-\x20\x7f()<>@,;:\[\]={}\\"/?]*: [^\x00-\x08\x0a-\x1f\x7f]*\r\n')
_FAILED = ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"21"), (b"connection", b"close"))


@lru_cache(maxsize=8)  # most responses have the same few headers
def _line_of(name: bytes, value: bytes) -> tuple[bytes, bool, bool]:
    # Return the line of a header, whether it gives the length of the body, and whether it ends the connection.
    line = b"%b: %b\r\n" % (name, value)
    if _HEADER.fullmatch(line) is None:
        raise RuntimeError(f"{name!r}: {value!r} is not a valid header")
    name = name.lower()
    says_close = name == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]
    return line, name == b"content-length", says_close


class HttpState:
    """State that the connections of one listener share."""

    def __init__(self, connection_limit: ConnectionLimit | None = None) -> None:
        self.connection_limit = ConnectionLimit() if connection_limit is None else connection_limit
        self.connections: CountedConnections[Any] = CountedConnections(self.connection_limit)
        self.context = copy_context()
        """Each request starts in a copy of this context, so that none sees the context variables of another."""
        self.tasks: dict[Exchange, asyncio.Task[None]] = {}
        """The tasks that answer requests."""
        self.is_draining = False
        """Each connection ends with its next response."""
        self.lingering: set[asyncio.Protocol] = set()
        """While draining: the connections on which another request may arrive."""
        self.settled = asyncio.Event()
        """Set when `lingering` becomes empty."""
        self._second = 0
        self._date = b""

    def date(self) -> bytes:
        """Return the header `Date`, which is created once a second."""
        now = int(time.time())
        if now != self._second:
            self._second, self._date = now, b"date: " + formatdate(now, usegmt=True).encode() + b"\r\n"
        return self._date


class Connection(Protocol):
    """The part of a connection that an exchange uses."""

    state: HttpState
    transport: asyncio.Transport
    paused: asyncio.Event | None
    is_reading_paused: bool

    def write(self, data: bytes) -> None:
        """Write a part of a response."""

    def answered(self, exchange: Exchange) -> None:
        """The response of an exchange is complete."""

    def close(self) -> None:
        """Close after the written data was sent."""

    def resume_reading(self) -> None:
        """Continue to read: the application consumes the body."""


class Exchange(Struct, eq=False):
    """One request and its response, with the `receive` and `send` of ASGI."""

    _connection: Connection
    scope: dict[str, Any]
    keep_alive: bool
    waits_to_continue: bool
    """The client sends its body only after `100 Continue` (RFC 9110 10.1.1)."""
    body: bytearray = bytearray()
    """The part of the body that the application has not received yet."""
    more_body: bool = True
    is_gone: bool = False
    """The client has left, or the connection itself has answered: nothing more is written."""
    is_begun: bool = False
    """The application has received the request."""
    is_started: bool = False
    is_complete: bool = False
    departure: Departure | None = None
    has_news: bool = False
    """Something has arrived since the last `receive`."""
    # Created when the application waits: most requests arrive whole.
    _event: asyncio.Event | None = None
    _head: bytes = b""
    _is_chunked: bool = False

    @property
    def has_left(self) -> bool:
        """Whether nothing that is written reaches the client. Over TLS that is known before the connection is lost."""
        return self.is_gone or self._connection.transport.is_closing()

    def notify(self) -> None:
        """Wake the application: more of the body arrived, the client has left, or the response is complete."""
        self.has_news = True
        if self._event is not None:
            self._event.set()
        if self.departure is not None:
            self.departure.set()

    async def run(self, app: Application) -> None:
        """Let the application answer the request."""
        try:
            await app(self.scope, self.receive, self.send)
            if self.is_complete or self.is_gone:
                return
            log.error("The application returned without a complete response")
        except Exception:
            log.exception("The application failed")
        finally:
            self._connection.state.tasks.pop(self, None)

        if self.is_started or self.is_gone:
            self._connection.close()
            return
        await self.send({"type": "http.response.start", "status": 500, "headers": _FAILED})
        await self.send({"type": "http.response.body", "body": b"Internal Server Error"})

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the part of the body since the last call, or `http.disconnect` once the client has left."""
        connection = self._connection
        if self.waits_to_continue and not connection.transport.is_closing():
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waits_to_continue = False

        if not (self.is_gone or self.is_complete):
            if connection.is_reading_paused:
                connection.resume_reading()
            if not self.has_news:
                if self._event is None:
                    self._event = asyncio.Event()
                self._event.clear()
                await self._event.wait()
            self.has_news = False

        if self.is_gone or self.is_complete:
            return {"type": "http.disconnect"}
        body = bytes(self.body)
        self.body.clear()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Write the head, or a part of the body. Raises RuntimeError for messages in a wrong order."""
        paused = self._connection.paused
        if paused is not None:
            await paused.wait()
        if self.is_gone:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self.is_started:
            self.is_started = True
            if self.waits_to_continue and self.more_body and not self.body:
                self.keep_alive = False  # the body may follow now, or the next request
            self.waits_to_continue = False
            self._head = self._head_of(message["status"], message.get("headers", ()))
        elif kind == "http.response.body" and self.is_started and not self.is_complete:
            self._write(message.get("body", b""), bool(message.get("more_body")))
        else:
            raise RuntimeError(f"unexpected {kind}: a response is one http.response.start, followed by its body")

    def _head_of(self, status: int, headers: Iterable[Header]) -> bytes:
        lines = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, self._connection.state.date()]
        has_length = says_close = False
        for name, value in headers:
            line, is_length, is_close = _line_of(name, value)
            lines.append(line)
            has_length, says_close = has_length or is_length, says_close or is_close

        if says_close:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        has_body = self.scope["method"] != "HEAD" and status not in (204, 304)
        if has_body and not has_length and self.scope["http_version"] != "1.0":
            # HTTP/1.0 has no chunks (RFC 9112 6.1): a body without a length ends with the connection.
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")

        lines.append(b"\r\n")
        return b"".join(lines)

    def _write(self, body: bytes, more: bool) -> None:
        head, self._head = self._head, b""
        if self.scope["method"] == "HEAD":
            body = b""
        elif self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body = body if more else body + b"0\r\n\r\n"

        # One write: the system call is the most expensive part of a response.
        if head and len(body) >= _MOST_JOINED:
            self._connection.write(head)
            head = b""
        self._connection.write(head + body)
        if not more:
            self.is_complete = True
            if self._event is not None or self.departure is not None:
                self.notify()
            self._connection.answered(self)
