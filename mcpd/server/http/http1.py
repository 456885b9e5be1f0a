"""One HTTP/1.1 connection on httptools: limits of size and time, pipelining, upgrades to WebSocket, and its end.

Each request is an `exchange.Exchange`. Spec: RFC 9110, RFC 9112.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from mcpd.errors import missing_extra
from mcpd.protocol.budget import SMALL, Charge, client_of
from mcpd.transports.accepting import is_tls
from mcpd.transports.authentication import Refusal, unavailable
from . import exchange as framing
from .exchange import Exchange, HttpState
from .request import FIELDS, Header

try:
    import httptools
except ModuleNotFoundError as error:
    raise missing_extra(error, "serving HTTP", "http") from None

if TYPE_CHECKING:
    from .app import HttpApp
    from .pages import PageApp

log = logging.getLogger("mcpd.http")

LINGER = 1.0
"""Seconds that ending a connection may take."""

# Requests that may wait behind the current one; then the connection stops reading.
_MOST_PIPELINED = 16
# Bytes of a body that may wait for the application; then the connection stops reading.
_MOST_UNREAD = 64 * 1024
# Sent by old clients after a body; not the beginning of a request (RFC 9112 2.2).
_LINE_ENDS = b"\r\n"
_TOO_LARGE = Refusal(431, "The head of the request is too large (setting max_head_bytes).\n")


@lru_cache(maxsize=8)  # most requests have the same target
def _target_of(target: bytes) -> tuple[str, bytes, bytes]:
    # Return the path, the path as it was sent, and the query.
    url = httptools.parse_url(target)
    raw_path = url.path or b"/"  # RFC 9110 4.2.3
    return unquote(raw_path.decode("ascii")), raw_path, url.query or b""


class _StopParsing(Exception):
    """Stops the parser inside a callback."""


class Http1Protocol(asyncio.Protocol):
    """One connection. `_head_bytes` counts the bytes of an incomplete head, and is -1 while a body arrives."""

    transport: asyncio.Transport

    def __init__(self, app: HttpApp | PageApp, state: HttpState, upgrade: Callable[[], asyncio.BaseProtocol]) -> None:
        """`upgrade` creates the protocol that takes over the connection of a WebSocket."""
        self.state = state
        self._app = app
        self._settings = app.settings
        self._upgrade = upgrade
        self._loop = asyncio.get_running_loop()
        self._parser: httptools.HttpRequestParser | None = None  # an idle connection needs no parser
        self._url = b""
        self._headers: list[Header] = []
        # The request that is read now, or was read last.
        self._newest: Exchange | None = None
        self._answering: Exchange | None = None
        # The requests that wait for the current one, the next one first.
        self._queue: list[Exchange] = []
        self._head_bytes = 0
        # Bytes since the last part of a body: chunk headers and trailers.
        self._beside_bytes = 0
        # The head began in the same data as an earlier request, so `_head_bytes` does not count all of it.
        self._is_behind = False
        # The data that is parsed now.
        self._data = b""
        self._has_other_upgrade = False
        self.is_reading_paused = False
        self.paused: asyncio.Event | None = None
        """Exists while the client does not read; set when it continues."""
        # The share of the memory budget that unread responses take.
        self._unread: Charge | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        # Further data is ignored.
        self._ignores_input = False
        # The last response was written: later requests are not answered.
        self._is_over = False
        # The connection ends with the next response.
        self._ends_next = False
        self._idle_since = 0.0

    # -- what asyncio calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transport has another base class
        transport = self.transport
        self._server = framing.address_of(transport.get_extra_info("sockname"))
        self._client = framing.address_of(transport.get_extra_info("peername"))
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self.state.connections.add(self)
        if self.state.connection_limit.is_exceeded:
            transport.abort()  # a refusal that the client does not read would keep the descriptor
        elif len(self.state.connections) > self._settings.max_connections:
            self._refuse(
                unavailable(f"All {self._settings.max_connections} connections are in use; try again later.\n")
            )
        elif self.state.is_draining:
            self.drain()  # the connection waited in the queue of the socket
        else:
            # A connection without a complete request is closed.
            self._set_timer(self._settings.head_timeout)

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        if self._head_bytes > 0 or (self._head_bytes == 0 and data.strip(_LINE_ENDS)):
            self._head_bytes += len(data)
        elif self._head_bytes < 0:
            self._beside_bytes += len(data)

        while data:
            data = self._parse(data)
        if self._head_bytes == 0:
            self._parser = None
        if self._answering is not None:
            self._begin(self._answering)  # after all data that came with the head is parsed

        if self._head_bytes == 0 or self._ignores_input:
            return  # most requests arrive whole, and need no timer
        if self._head_bytes > self._settings.max_head_bytes or self._beside_bytes > self._settings.max_head_bytes:
            self._refuse(_TOO_LARGE)
        elif self._head_bytes > 0 and self._answering is not None:
            pass  # the time limit of the next request starts after the current response
        elif self._timer is None:
            # The application itself answers a late body, once it has begun to read.
            settings = self._settings
            self._set_timer(settings.head_timeout if self._head_bytes > 0 else settings.body_timeout + 1)

    def pause_writing(self) -> None:
        self.paused = asyncio.Event()
        if self._settings.write_timeout > 0:
            self._watch_writing()
        self._loop.call_soon(self._count_unread)  # data that the client reads immediately is not charged

    def resume_writing(self) -> None:
        self._unread = None
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        if self.paused is not None:
            self.paused.set()
            self.paused = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.state.connections.discard(self)
        self._cancel_timer()
        self.resume_writing()
        self._is_over = self._ignores_input = True
        if self._ends_next:
            self._leave()

        answering, self._answering, self._newest, self._parser = self._answering, None, None, None
        if answering is not None:
            answering.is_gone = True
            answering.notify()
        self._queue.clear()

    # -- what the parser calls -----------------------------------------------------------

    def _parse(self, data: bytes) -> bytes:
        # Feed the parser. Returns the bytes to feed again, without the request for an upgrade that stopped it.
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
            # Data after a request with `Connection: close` is ignored here, once that request is answered.
            self._parser.set_dangerous_leniencies(lenient_data_after_close=True)

        self._data = data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            if self._has_other_upgrade and not self._ignores_input:
                return self._without_upgrade(data[stop.args[0] :])
            if not self._ignores_input:
                self._hand_over(data[stop.args[0] :])
        except httptools.HttpParserError:
            if not self._ignores_input:
                is_tls(data, self._client[0] if self._client else "a client")
                self._refuse(Refusal(400, "Invalid HTTP request received.\n"))

        self._data = b""
        return b""

    def on_message_begin(self) -> None:
        """Start a request."""
        if self._head_bytes == 0:
            # The head begins after another request in the same data, and is incomplete.
            self._head_bytes = 1
            self._is_behind = True
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        """Receive a part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Trailers are ignored (RFC 9110 6.5.1): headers must not change after they were checked."""
        name = name.lower()
        if self._head_bytes >= 0:
            self._headers.append((name, value))
        elif name in (b"connection", b"proxy-connection"):
            raise _StopParsing  # the parser would obey it, and drop the next request

    def on_headers_complete(self) -> None:
        """Refuse the request, or create its exchange."""
        parser, headers = self._parser, self._headers
        assert parser is not None
        version = parser.get_http_version()
        may_be_large, self._is_behind = self._is_behind or self._head_bytes > self._settings.max_head_bytes, False
        if may_be_large and framing.least_size(parser.get_method(), self._url, headers) > self._settings.max_head_bytes:
            self._stop(_TOO_LARGE)
        fields = dict(headers)
        if b"transfer-encoding" in fields and (bad := framing.bad_framing(headers, version)):
            self._stop(bad)

        if parser.should_upgrade():
            # RFC 9110 7.8: Upgrade is ignored in HTTP/1.0. RFC 6455 4.1: a handshake is a GET.
            is_handshake = parser.get_method() == b"GET" and framing.wishes_for_websocket(fields)
            self._has_other_upgrade = version == "1.0" or not is_handshake
            return

        path, raw_path, query = _target_of(self._url)
        self._head_bytes, self._beside_bytes = -1, 0
        if self._timer is not None:
            self._cancel_timer()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "method": parser.get_method().decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": headers,
            FIELDS: fields,
            "state": {},
        }
        self._newest = Exchange(
            self,
            scope,
            keep_alive=version != "1.0" and parser.should_keep_alive() and not self._ends_next,
            waits_to_continue=version != "1.0" and fields.get(b"expect", b"").lower() == b"100-continue",
        )
        if self._answering is None:
            self._answering = self._newest
            return
        self._queue.append(self._newest)
        if len(self._queue) >= _MOST_PIPELINED:
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body."""
        self._beside_bytes = 0
        exchange = self._newest
        if exchange is None or exchange.is_complete:
            return  # the application has answered without the body
        exchange.body += body
        if len(exchange.body) > _MOST_UNREAD:
            self._pause_reading()
        if exchange.is_begun:
            exchange.notify()

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._head_bytes >= 0:
            return  # it asks for an upgrade
        self._head_bytes = 0
        if self._timer is not None:
            self._cancel_timer()
        exchange = self._newest
        if exchange is not None and not exchange.is_complete:
            exchange.more_body = False
            if exchange.is_begun:
                exchange.notify()

    def _stop(self, refusal: Refusal) -> None:
        self._refuse(refusal)
        raise _StopParsing

    def _without_upgrade(self, rest: bytes) -> bytes:
        # Return the data to parse instead of a head that requests another protocol. RFC 9110 7.8 allows us to ignore
        # it, and some clients send it with every request. The parser has stopped before the body.
        parser, self._parser = self._parser, None
        self._has_other_upgrade = False
        assert parser is not None
        method = parser.get_method()
        if method == b"CONNECT":
            self._refuse(Refusal(405, "This server is not a proxy.\n"))
            return b""

        data = framing.without_upgrade(method, self._url, parser.get_http_version(), self._headers) + rest
        self._head_bytes = len(data)
        return data

    def _hand_over(self, rest: bytes) -> None:
        # Pass the connection to the WebSocket protocol, with the head of the handshake.
        if self._answering is not None:
            # WebSocket frames would mix with the outstanding responses.
            self._refuse(Refusal(400, "Wait for all responses before you open a WebSocket.\n"))
            return

        self._cancel_timer()
        self.resume_writing()  # the other protocol watches what waits to be written
        if self._ends_next:
            self._leave()
        self._ignores_input = True
        self.state.connections.discard(self)
        protocol: Any = self._upgrade()
        protocol.connection_made(self.transport)
        protocol.data_received(framing.head_bytes(b"GET", self._url, "1.1", self._headers) + rest)
        self.transport.set_protocol(protocol)

    # -- responses -----------------------------------------------------------------------

    def _begin(self, exchange: Exchange) -> None:
        # Start a request in a new context, unless data that arrived meanwhile has started or refused it.
        if exchange.is_begun or exchange.is_gone:
            return
        exchange.is_begun = True
        exchange.has_news = bool(exchange.body) or not exchange.more_body
        answer, context = exchange.run(self._app), self.state.context
        if sys.version_info >= (3, 12):
            task = asyncio.Task(answer, loop=self._loop, eager_start=True, context=context.copy(), name="mcpd-request")
            if task.done():
                return
        else:
            task = context.run(asyncio.Task, answer, loop=self._loop, name="mcpd-request")

        self.state.tasks[exchange] = task

    def write(self, data: bytes) -> None:
        """Write a part of a response."""
        if not self._is_over:
            self.transport.write(data)

    def answered(self, exchange: Exchange) -> None:
        """The response is complete: start the next request."""
        if not exchange.keep_alive:
            self.close()
        if self._is_over or self.transport.is_closing():
            # Requests after `Connection: close` are ignored (RFC 9112 9.6), and could not be answered.
            self._queue.clear()
            self._answering = None
            return

        self._answering = self._queue.pop(0) if self._queue else None
        if self.is_reading_paused:
            self.resume_reading()
        if self._answering is not None:
            # Not inside the task of this request: one read may bring thousands of requests, which would be nested.
            self._loop.call_soon(self._begin, self._answering)
            return
        self._idle_since = self._loop.time()
        if self._head_bytes == 0:
            self._newest = None  # an idle connection does not keep its last request
            self._url, self._headers = b"", []
        elif self._head_bytes > 0 and self._timer is None:
            self._set_timer(self._settings.head_timeout)

    def close(self) -> None:
        """Close after the written data; if the client still sends, let it read the response first.

        Closing while data is arriving would reset the connection, and the client might lose the response.
        """
        transport = self.transport
        if not self._head_bytes or transport.is_closing() or not transport.can_write_eof():
            transport.close()
            return

        self._ignores_input = self._is_over = True
        try:
            transport.write_eof()
        except OSError:  # the client has reset it
            transport.close()
            return

        self.resume_reading()
        self._cancel_timer()
        self._set_timer(LINGER)

    def shutdown(self) -> None:
        """Close now, or after the current response."""
        if self._answering is None:
            self.transport.close()
        else:
            (self._queue[-1] if self._queue else self._answering).keep_alive = False

    def close_idle(self, since: float) -> None:
        """Close the connection if its last response was sent before `since`, and no request has arrived."""
        if self._answering is None and self._head_bytes == 0 and 0 < self._idle_since < since:
            self.transport.close()

    def drain(self) -> None:
        """Close soon: after the current response, or after the next one if another request may be arriving.

        A proxy with persistent connections may send a request before it notices the end of the connection. It cannot
        know whether the request was read, and does not repeat a POST.
        """
        if self._answering is not None:
            self.shutdown()
        elif self._idle_since and not self._head_bytes and self._loop.time() - self._idle_since > LINGER:
            self.transport.close()
        else:
            self._ends_next = True
            self.state.lingering.add(self)
            self._cancel_timer()
            self._set_timer(LINGER)

    def _leave(self) -> None:
        self.state.lingering.discard(self)
        if not self.state.lingering:
            self.state.settled.set()

    def _refuse(self, refusal: Refusal) -> None:
        # Refuse further data, and end the connection after the current response.
        if self._ignores_input:
            return

        self._app.refused(refusal.status)
        if self._answering is not None:
            exchange = self._queue[-1] if self._queue else self._answering
            if self._queue and exchange.more_body:
                # Earlier requests are answered first, then the connection ends.
                self._queue.pop()
                exchange = self._queue[-1] if self._queue else self._answering
            if exchange.is_started or not exchange.more_body:
                self._ignores_input = True
                exchange.keep_alive = False
                return
            # The refusal is the response of this request: its task sees a client that has left.
            exchange.is_gone = exchange.is_begun = True
            exchange.notify()
        elif self._head_bytes < 0:
            # The request was answered already, and its body still arrives.
            self.close()
            self._ignores_input = True
            return

        self.transport.write(framing.refusal_bytes(refusal, self._headers))
        self._head_bytes = -1
        self.close()
        self._ignores_input = True

    # -- flow and time -------------------------------------------------------------------

    def _pause_reading(self) -> None:
        if not self.is_reading_paused:
            self.is_reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read: the application consumes the body."""
        if self.is_reading_paused and len(self._queue) < _MOST_PIPELINED:
            self.is_reading_paused = False
            self.transport.resume_reading()

    def _set_timer(self, delay: float) -> None:
        self._timer = self._loop.call_later(delay, self.transport.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_writing(self, before: int = -1) -> None:
        # Disconnect a client that reads nothing for `write_timeout`: its call may hold a thread.
        waits = self.transport.get_write_buffer_size()
        if 0 <= before <= waits:
            log.info("A client read nothing for %g s: its connection ends", self._settings.write_timeout)
            self.transport.abort()
            return
        self._write_timer = self._loop.call_later(self._settings.write_timeout, self._watch_writing, waits)

    def _count_unread(self) -> None:
        # Charge unread data to the memory budget, or disconnect the client if the budget is used up.
        waits = self.transport.get_write_buffer_size()
        if waits <= SMALL:
            return
        self._unread = Charge(id(self), client_of(self._client[0] if self._client else ""))
        if not self._unread.set(waits):
            self._unread = None
            self.transport.abort()
