"""One HTTP/1.1 connection, on httptools: limits in bytes and in time, requests that wait behind another, upgrades to
WebSocket, and how it ends. Each request is an `exchange.Exchange`. Spec: RFC 9110, RFC 9112.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote

from mcpd.errors import missing_extra
from mcpd.protocol.budget import SMALL, Charge, client_of
from mcpd.server.http import exchange as framing
from mcpd.server.http.exchange import Application, Exchange, HttpState
from mcpd.server.http.request import WHEN_GONE, Header, when_gone
from mcpd.transports.accepting import is_tls
from mcpd.transports.authentication import Refusal

try:
    import httptools
except ModuleNotFoundError as error:
    raise missing_extra(error, "serving HTTP", "http") from None

log = logging.getLogger("mcpd.http")

LINGER = 1.0
"""How long what is being ended may take, in seconds."""

_MOST_PIPELINED = 16
"""How many requests may wait behind the one that is answered; then the connection stops reading."""
_MOST_UNREAD = 64 * 1024
"""How many bytes of a body may wait for the application; then the connection stops reading."""
_LINE_ENDS = b"\r\n"
"""What old clients send behind a body, and no beginning of a request (RFC 9112 2.2)."""
_TOO_LARGE = Refusal(431, "The head of the request is too large (setting max_head_bytes).\n")


class _StopParsing(Exception):
    """Stops the parser in the middle of what it parses."""


class Http1Protocol(asyncio.Protocol):
    """One connection. `_head_bytes` counts what came of a head that is not whole, and is -1 while a body comes."""

    transport: asyncio.Transport

    def __init__(self, app: Application, state: HttpState, upgrade: Callable[[], asyncio.BaseProtocol]) -> None:
        """`upgrade` makes the protocol that takes a WebSocket's connection over."""
        self.state = state
        self._app = app
        self._settings = app.settings
        self._upgrade = upgrade
        self._loop = asyncio.get_running_loop()
        self._parser: httptools.HttpRequestParser | None = None  # most of the time there is nothing to parse
        self._url = b""
        self._headers: list[Header] = []
        self._newest: Exchange | None = None
        """The request that is being read, or was read last."""
        self._answering: Exchange | None = None
        self._queue: list[Exchange] = []
        """Those that wait behind it, the next one first."""
        self._head_bytes = 0
        self._beside_bytes = 0
        """How much came since the last piece of a body: chunk headers and trailers."""
        self._is_behind = False
        """The head that is read began behind another request, so `_head_bytes` does not count all of it."""
        self._data = b""
        """The bytes that are parsed now."""
        self._has_other_upgrade = False
        self._is_reading_paused = False
        self.paused: asyncio.Event | None = None
        """Set when the client takes more, while it does not."""
        self._unread: Charge | None = None
        """The part of the memory budget that unread answers take."""
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._ignores_input = False
        """What still comes is not listened to."""
        self._is_over = False
        """The last was written: what is still answered, to a request that came behind it, is for nobody."""
        self._ends_next = False
        """It ends with its next answer."""
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
            transport.abort()  # nothing can be said to it: an answer that is not read keeps the descriptor
        elif len(self.state.connections) > self._settings.max_connections:
            text = f"All {self._settings.max_connections} connections are in use; try again later.\n"
            self._refuse(Refusal(503, text, (("Retry-After", "5"),)))
        elif self.state.is_draining:
            self.drain()  # it waited in the queue of the socket
        else:
            # A connection that says nothing, or never comes to the point, is given up.
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
        if self._answering is not None and not self._answering.is_begun:
            self._begin(self._answering)  # not before all that came with its head is parsed, too

        if self._head_bytes == 0 or self._ignores_input:
            return  # most requests come whole, and cost no timer
        if self._head_bytes > self._settings.max_head_bytes or self._beside_bytes > self._settings.max_head_bytes:
            self._refuse(_TOO_LARGE)
        elif self._head_bytes > 0 and self._answering is not None:
            pass  # the time for the next request begins with the end of this one's answer
        elif self._timer is None:
            # The application answers a late body itself, once it has begun to read it.
            settings = self._settings
            self._set_timer(settings.head_timeout if self._head_bytes > 0 else settings.body_timeout + 1)

    def pause_writing(self) -> None:
        self.paused = asyncio.Event()
        if self._settings.write_timeout > 0:
            self._watch_writing()
        self._loop.call_soon(self._count_unread)  # data that the client takes at once needs no budget

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
            answering.tell()
        self._queue.clear()

    # -- what the parser calls -----------------------------------------------------------

    def _parse(self, data: bytes) -> bytes:
        """Feed the parser. Return the bytes to feed once more, without the wish for an upgrade that stopped it."""
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
            # A request behind one that wishes to close is ours to pass over, once that is answered.
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
        """Begin with a request."""
        if self._head_bytes == 0:
            # Its head begins somewhere behind another request in the same data, and is not whole yet.
            self._head_bytes = 1
            self._is_behind = True
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        """Take a piece of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Trailers are ignored (RFC 9110 6.5.1): headers that were checked must not change."""
        name = name.lower()
        if self._head_bytes >= 0:
            self._headers.append((name, value))
        elif name in (b"connection", b"proxy-connection"):
            raise _StopParsing  # the parser obeys this one, and would drop the next request

    def on_headers_complete(self) -> None:
        """Refuse the request for its head, or make an exchange of it."""
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
            # RFC 9110 7.8: such a wish is ignored in HTTP/1.0.
            self._has_other_upgrade = version == "1.0" or not framing.wishes_for_websocket(fields)
            return

        url = httptools.parse_url(self._url)
        raw_path = url.path or b"/"  # RFC 9110 4.2.3
        path = raw_path.decode("ascii")
        self._head_bytes, self._beside_bytes = -1, 0
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
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "headers": headers,
            "state": {},
            WHEN_GONE: when_gone,
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
        """Take a piece of the body."""
        self._beside_bytes = 0
        exchange = self._newest
        if exchange is None or exchange.is_complete:
            return  # it was answered without it
        exchange.body += body
        if len(exchange.body) > _MOST_UNREAD:
            self._pause_reading()
        exchange.tell()

    def on_message_complete(self) -> None:
        """The request is whole."""
        assert self._parser is not None
        if self._parser.should_upgrade():
            return
        self._head_bytes = 0
        self._cancel_timer()
        if self._newest is not None and not self._newest.is_complete:
            self._newest.more_body = False
            self._newest.tell()

    def _stop(self, refusal: Refusal) -> None:
        self._refuse(refusal)
        raise _StopParsing

    def _without_upgrade(self, rest: bytes) -> bytes:
        """What to read in the place of a head that wishes for another protocol, which RFC 9110 7.8 lets us ignore:
        some clients send it with every request. The parser has stopped before the body."""
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
        """Give the connection to the protocol of WebSockets, with the head of the handshake."""
        if self._answering is not None:
            # Its frames would stand among the answers that are still to come.
            self._refuse(Refusal(400, "Wait for the answers before you begin a WebSocket.\n"))
            return
        self._cancel_timer()
        if self._ends_next:
            self._leave()
        self._ignores_input = True
        self.state.connections.discard(self)
        protocol: Any = self._upgrade()
        protocol.connection_made(self.transport)
        protocol.data_received(framing.head_bytes(b"GET", self._url, "1.1", self._headers) + rest)
        self.transport.set_protocol(protocol)

    # -- answers -------------------------------------------------------------------------

    def _begin(self, exchange: Exchange) -> None:
        """Have a request answered. The task that ends another answer, or let the connection read on, may be the one
        that calls this: its variables are not for this request."""
        exchange.is_begun = True
        answer, context = exchange.run(self._app), self.state.context
        if sys.version_info >= (3, 12):
            task = asyncio.Task(answer, loop=self._loop, eager_start=True, context=context.copy())
            if task.done():
                return
        else:
            task = context.run(self._loop.create_task, answer)
        self.state.tasks.add(task)
        task.add_done_callback(self.state.tasks.discard)

    def write(self, data: bytes) -> None:
        """Write a part of an answer."""
        if not self._is_over:
            self.transport.write(data)

    def answered(self, exchange: Exchange) -> None:
        """This one's answer is complete: the next request may come."""
        if not exchange.keep_alive:
            self.close()
        if self._is_over or self.transport.is_closing():
            # What came behind a wish to close is not for us (RFC 9112 9.6), and nobody would get its answer.
            self._queue.clear()
            self._answering = None
            return

        self._answering = self._queue.pop(0) if self._queue else None
        self.resume_reading()
        if self._answering is not None:
            self._begin(self._answering)
            return
        self._idle_since = self._loop.time()
        if self._head_bytes == 0:
            self._newest = None  # a connection that waits does not keep its last request
            self._url, self._headers = b"", []
        elif self._head_bytes > 0 and self._timer is None:
            self._set_timer(self._settings.head_timeout)

    def close(self) -> None:
        """Close after what was written; if the client still sends, let it read that first.

        Closing while data is on its way would answer it with a reset, and the client might miss the answer.
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
        """End now, or with the answer that is given."""
        if self._answering is None:
            self.transport.close()
        else:
            (self._queue[-1] if self._queue else self._answering).keep_alive = False

    def close_idle(self, since: float) -> None:
        """Close a connection that was answered before that time, and has asked for nothing since."""
        if self._answering is None and self._head_bytes == 0 and 0 < self._idle_since < since:
            self.transport.close()

    def drain(self) -> None:
        """End soon: with the answer that is given, or the next one, if a request may be on its way.

        A proxy that keeps connections may send the next request before it sees that one has ended; then it cannot
        know whether the request was read, and does not send a POST again.
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
        """Refuse what comes, and end the connection: after the answer that is being given, if there is one."""
        if self._ignores_input:
            return

        self._app.refused(refusal.status)
        if self._answering is not None:
            exchange = self._queue[-1] if self._queue else self._answering
            if self._queue and exchange.more_body:
                # Other requests are before it: their answers come first, then the connection ends.
                self._queue.pop()
                exchange = self._queue[-1] if self._queue else self._answering
            if exchange.is_started or not exchange.more_body:
                self._ignores_input = True
                exchange.keep_alive = False
                return
            # What we say now is its answer: for its task the client is gone.
            exchange.is_gone = exchange.is_begun = True
            exchange.tell()
        elif self._head_bytes < 0:
            # It was answered already, and goes on sending.
            self.close()
            self._ignores_input = True
            return

        self.transport.write(framing.refusal_bytes(refusal, self._headers))
        self._head_bytes = -1
        self.close()
        self._ignores_input = True

    # -- flow and time -------------------------------------------------------------------

    def _pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading: the application takes what comes."""
        if self._is_reading_paused and len(self._queue) < _MOST_PIPELINED:
            self._is_reading_paused = False
            self.transport.resume_reading()

    def _set_timer(self, delay: float) -> None:
        self._timer = self._loop.call_later(delay, self.transport.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_writing(self, before: int = -1) -> None:
        """Cut off a client that takes nothing of what waits for it: what it asked for may hold a thread meanwhile."""
        waits = self.transport.get_write_buffer_size()
        if 0 <= before <= waits:
            log.info("A client took nothing of its answer for %g s: its connection ends", self._settings.write_timeout)
            self.transport.abort()
            return
        self._write_timer = self._loop.call_later(self._settings.write_timeout, self._watch_writing, waits)

    def _count_unread(self) -> None:
        """Take of the budget what waits for the client, or cut it off: what does not fit nobody may have waiting."""
        waits = self.transport.get_write_buffer_size()
        if waits <= SMALL:
            return
        self._unread = Charge(id(self), client_of(self._client[0] if self._client else ""))
        if not self._unread.set(waits):
            self._unread = None
            self.transport.abort()
