"""One HTTP/1.1 connection: uvicorn's protocol on httptools, with limits, and with one write for each answer.

Added: limits for the head of a request, in bytes and in time, and for the number of connections; refusals that
arrive although a body is still on its way; wishes for HTTP/2 that are passed over.
Relies on the attributes of uvicorn's classes that are used here, and on nothing else of it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from ..budget import SMALL, Charge, client_of
from ..errors import ConfigurationError
from ..transports.accepting import ConnectionLimit, CountedConnections
from ..transports.authentication import Refusal
from .application import Application
from .request import ANSWER_AT_ONCE
from .response_writer import ResponseWriter, answer_at_once

try:
    import httptools
    from uvicorn import Config
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
    from uvicorn.server import ServerState
except ImportError as error:
    raise ConfigurationError(
        f"HTTP needs the package {error.name}: install mcpd with its extra http, pip install 'mcpd-server[http]'"
    ) from None

__all__ = ["LINGER", "Http1Protocol", "HttpState", "new_config"]

log = logging.getLogger("mcpd.http")

LINGER = 1.0
"""How long what is being ended may take, in seconds."""

_TOO_LARGE = Refusal(431, "The head of the request is too large (setting max_head_bytes).\n")
_MOST_PIPELINED = 16
"""With so many requests behind the one that is answered, nothing more is read."""
_TRANSFER = b"transfer-encoding"
_BLANK = (b"\r\n", b"\n")
"""What old clients send behind a body, and no beginning of a request (RFC 9112 2.2)."""


def new_config(app: Application, upgrade: Callable[..., asyncio.BaseProtocol]) -> Config:
    """What uvicorn's connections ask of their server; `upgrade` makes what takes a WebSocket's connection over."""
    config = Config(
        app,
        http=Http1Protocol,
        ws="none",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        # False would take the handlers from uvicorn's log of accesses, which a program may use for a server of its own.
        access_log=True,
        log_config=None,
    )
    config.load()
    # Not what `load` makes of them: the application as it is, and our own framing.
    config.loaded_app = app
    config.ws_protocol_class = upgrade  # type: ignore[assignment]
    return config


class _AnyLength(int):
    """As the length of a body that is still to come: any may come, and it may end at any time."""

    def __sub__(self, other: int) -> _AnyLength:
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


_ANY_LENGTH = _AnyLength(sys.maxsize)


class _StopParsing(Exception):
    """Stops the parser in the middle of what it parses."""


class HttpState(ServerState):
    """What uvicorn's connections share; the `Date` of each answer is made when it is needed."""

    def __init__(self, connection_limit: ConnectionLimit | None = None) -> None:
        self._second = 0
        self._headers: list[tuple[bytes, bytes]] = []
        super().__init__()
        self.connection_limit = ConnectionLimit() if connection_limit is None else connection_limit
        self.connections = CountedConnections(self.connection_limit)
        self.is_draining = False
        """Each connection ends with its next answer."""
        self.lingering: set[Http1Protocol] = set()
        """Those on which a request may be on its way, while it is draining."""
        self.settled = asyncio.Event()
        """None of them is left."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._headers = [(b"date", formatdate(now, usegmt=True).encode())]
        return self._headers

    @default_headers.setter
    def default_headers(self, value: list[tuple[bytes, bytes]]) -> None:
        """Uvicorn sets an empty list when it begins."""


class Http1Protocol(HttpToolsProtocol):
    """One connection. `_head_bytes` counts what came of a head that is not whole, and is -1 while a body comes."""

    config: Config
    _head_bytes = 0
    _beside_bytes = 0
    """How much came since the last piece of a body: chunk headers and trailers."""
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unread: Charge | None = None
    """What the answer takes that waits to be read."""
    _running: RequestResponseCycle | None = None
    """The request that is answered, if others wait behind it."""
    _ignores_input = False
    """What still comes is not listened to."""
    _has_other_upgrade = False
    _idle_since = 0.0
    _data = b""
    _again = b""
    """What is to be parsed once more, without the wish that stopped the parser."""
    _is_again = False
    _ends_next = False
    """It ends with its next answer."""
    _writer: ResponseWriter

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], **more: Any) -> None:
        super().__init__(config, server_state, app_state, **more)
        self.access_log = False
        app: Application = config.app  # type: ignore[assignment]
        self._settings = app.settings
        self._refused = app.refused
        self._most_head_bytes = app.settings.max_head_bytes

    # -- what asyncio calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._writer = self.transport = ResponseWriter(transport, self.linger)  # type: ignore[assignment]
        if self.server_state.connection_limit.is_exceeded:  # type: ignore[attr-defined]
            transport.abort()  # nothing can be said to it: an answer that is not read keeps the descriptor
            return

        if len(self.connections) > self._settings.max_connections:
            text = f"All {self._settings.max_connections} connections are in use; try again later.\n"
            self._refuse(Refusal(503, text, (("Retry-After", "5"),)))
            return

        if self.server_state.is_draining:  # type: ignore[attr-defined]
            self.drain()  # it waited in the queue of the socket
        else:
            # A connection that says nothing, or never comes to the point, is given up.
            self._set_timer(self._settings.head_timeout)

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        if self._head_bytes > 0 or (self._head_bytes == 0 and data not in _BLANK):
            self._head_bytes += len(data)
        elif self._head_bytes < 0:
            self._beside_bytes += len(data)

        self._data = data
        super().data_received(data)
        if self._again and not self._is_again:
            self._parse_again()
        if self._head_bytes == 0:
            return  # most requests come whole, and cost no timer

        if self._head_bytes > self._most_head_bytes or self._beside_bytes > self._most_head_bytes:
            self._refuse(_TOO_LARGE)
        elif self._head_bytes > 0 and self._is_answering:
            pass  # the time for the next request begins with the end of this one's answer
        elif self._timer is None:
            # A body that is late is told so by the application, if it has begun to read it.
            settings = self._settings
            self._set_timer(settings.head_timeout if self._head_bytes > 0 else settings.body_timeout + 1)

    def _parse_again(self) -> None:
        # Not one inside the other: a client may write a wish for another protocol into each of many requests.
        self._is_again = True
        while self._again:
            again, self._again = self._again, b""
            self.data_received(again)
        self._is_again = False

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._settings.write_timeout > 0:
            self._watch_writing()
        self.loop.call_soon(self._count_unread)  # what the client takes at once does not wait

    def resume_writing(self) -> None:
        self._unread = None
        self._cancel_write_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self._cancel_write_timer()
        self._unread = None
        self._writer.is_over = True
        if self._ends_next:
            self._leave()

        running = self._running
        if running is not None and not running.response_complete:
            # Uvicorn tells only the newest request, which waits behind this one.
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    # -- what the parser calls -----------------------------------------------------------

    def on_headers_complete(self) -> None:
        if self._head_bytes > self._most_head_bytes and _size(self.headers) > self._most_head_bytes:
            self._refuse(_TOO_LARGE)
            raise _StopParsing
        # As a dict, for its speed.
        if _TRANSFER in dict(self.headers) and (refusal := _bad_framing(self.headers, self.parser.get_http_version())):
            self._refuse(refusal)
            raise _StopParsing

        if self.parser.should_upgrade() and not self._should_upgrade():
            self._has_other_upgrade = True
        else:
            self._head_bytes = -1
            self._beside_bytes = 0
            if self._timer is not None:
                self._cancel_timer()

            running = self.cycle
            super().on_headers_complete()
            if self._ends_next:
                self.cycle.keep_alive = False
            self.scope[ANSWER_AT_ONCE] = answer_at_once  # type: ignore[literal-required]
            if not self.pipeline:
                self._running = None
            elif len(self.pipeline) == 1:
                self._running = running

            if 0 < len(self.pipeline) < _MOST_PIPELINED:
                # Uvicorn would read nothing until it is their turn, and not see that the client has left.
                self.flow.resume_reading()
            if self.scope["http_version"] == "1.0":
                # Chunks are not known there (RFC 9112 6.1): what has no length ends with the connection.
                self.cycle.chunked_encoding = False
                self.cycle.expected_content_length = _ANY_LENGTH
            if not self.parser.should_upgrade():
                # Trailers are no headers (RFC 9110 6.5.1): what is checked must not change while the body comes.
                self.headers = []

    def on_message_complete(self) -> None:
        if not self._has_other_upgrade:
            self._head_bytes = 0
            if self._timer is not None:
                self._cancel_timer()
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._beside_bytes = 0
        super().on_body(body)

    def _should_upgrade(self) -> bool:
        # RFC 9110 7.8: such a wish is ignored in HTTP/1.0.
        return self.parser.get_http_version() != "1.0" and super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        if self._is_answering:
            # Its frames would stand among the answers that are still to come.
            self._refuse(Refusal(400, "Wait for the answers before you begin a WebSocket.\n"))
            return
        self.transport = self._writer.transport
        super().handle_websocket_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """Ignore a wish for another protocol, as RFC 9110 7.8 allows: some clients send it with every request.

        The parser has stopped before the body: what it read is put together again without that wish.
        """
        stopped = sys.exception()
        if self._ignores_input or not self._has_other_upgrade or stopped is None:
            return

        self._has_other_upgrade = False
        if self.parser.get_method() == b"CONNECT":
            self._refuse(Refusal(405, "This is no proxy.\n"))
            return

        head = _without_upgrade(self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self._head_bytes = 0
        self._again = head + self._data[stopped.args[0] :]

    # -- answers -------------------------------------------------------------------------

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal(400, msg + "\n"))

    def on_response_complete(self) -> None:
        self._writer.complete()
        if self.pipeline and (self._writer.is_over or self.transport.is_closing()):
            # What came behind a wish to close is not for us (RFC 9112 9.6), and nobody would get its answer.
            self.pipeline.clear()

        if self.pipeline:
            self._running = self.pipeline[-1][0]
            super().on_response_complete()
            return

        # As uvicorn does it, but for its timer: `close_idle` has one for all connections.
        self.server_state.total_requests += 1
        if not self._writer.transport.is_closing():
            self.flow.resume_reading()
            self._idle_since = self.loop.time()
            if self._head_bytes > 0 and self._timer is None:
                self._set_timer(self._settings.head_timeout)

    def close_idle(self, since: float) -> None:
        """Close a connection that was answered before that time, and has asked for nothing since."""
        is_idle = self._head_bytes == 0 and self.cycle is not None and self.cycle.response_complete  # type: ignore[redundant-expr]
        if is_idle and self._idle_since < since and not self.transport.is_closing():
            self.transport.close()

    def drain(self) -> None:
        """End soon: with the answer that is given, or the next one, if a request may be on its way.

        A proxy that keeps connections may send the next request before it sees that one has ended; then it cannot
        know whether the request was read, and does not send a POST again.
        """
        if self._is_answering:
            self.shutdown()
        elif self.cycle is not None and not self._head_bytes and self.loop.time() - self._idle_since > LINGER:  # type: ignore[redundant-expr]
            self.transport.close()
        else:
            self._ends_next = True
            self.server_state.lingering.add(self)  # type: ignore[attr-defined]
            self._cancel_timer()
            self._set_timer(LINGER)

    def _leave(self) -> None:
        state: HttpState = self.server_state  # type: ignore[assignment]
        state.lingering.discard(self)
        if not state.lingering:
            state.settled.set()

    def linger(self) -> bool:
        """Instead of closing after what was written let the client read that first, if it still sends.

        Closing with unread data on the way would answer that with a reset, and the client might see nothing else.
        """
        transport = self._writer.transport
        if not self._head_bytes or transport.is_closing() or not transport.can_write_eof():
            return False

        self._ignores_input = self._writer.is_over = True
        try:
            transport.write_eof()
        except OSError:  # the client has reset it
            return False

        transport.resume_reading()
        self._cancel_timer()
        self._set_timer(LINGER)
        return True

    def _refuse(self, refusal: Refusal) -> None:
        """Refuse what comes, and end the connection: after the answer that is being given, if there is one."""
        if self._ignores_input:
            return

        self._refused(refusal.status)
        if self._is_answering:
            cycle = self.cycle
            if self.pipeline and cycle.more_body and self._running is not None:
                # It stands behind others, whose answers come first; then the connection ends.
                self.pipeline.popleft()
                cycle = self.cycle = self.pipeline[0][0] if self.pipeline else self._running
            if cycle.response_started or not cycle.more_body:
                self._ignores_input = True
                cycle.keep_alive = False
                return
            # What we say now is its answer: for its task the client is gone.
            cycle.disconnected = True
            cycle.message_event.set()

        if self._head_bytes < 0 and not self._is_answering:
            # It was answered already, and goes on sending.
            self._writer.close()
            self._ignores_input = True
            return

        self._writer.complete()
        self._writer.transport.write(_answer(refusal, self.scope["headers"] if self.scope else ()))  # type: ignore[redundant-expr]
        self._head_bytes = -1
        self._writer.close()
        self._ignores_input = True

    # -- time ----------------------------------------------------------------------------

    def _set_timer(self, delay: float) -> None:
        self._timer = self.loop.call_later(delay, self._writer.transport.abort)

    def _watch_writing(self, before: int = -1) -> None:
        """Cut off a client that takes nothing of what waits for it: what it asked for may hold a thread meanwhile."""
        waits = self._writer.transport.get_write_buffer_size()
        if 0 <= before <= waits:
            log.info("A client took nothing of its answer for %g s: its connection ends", self._settings.write_timeout)
            self._writer.transport.abort()
            return
        self._write_timer = self.loop.call_later(self._settings.write_timeout, self._watch_writing, waits)

    def _count_unread(self) -> None:
        """Take of the budget what waits for the client, or cut it off: what does not fit nobody may have waiting."""
        waits = self._writer.transport.get_write_buffer_size()
        if waits <= SMALL:
            return
        self._unread = Charge(id(self), client_of(self.client[0] if self.client else ""))
        if not self._unread.set(waits):
            self._unread = None
            self._writer.transport.abort()

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _without_upgrade(method: bytes, url: bytes, version: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    for name, value in headers:
        if name == b"connection":
            value = b", ".join(
                token for token in value.split(b",") if token.strip().lower() not in (b"upgrade", b"http2-settings")
            )

        if name not in (b"upgrade", b"http2-settings"):
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _answer(refusal: Refusal, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A refusal of a request with these headers, as far as they came; the connection ends after it."""
    accept = b",".join(value for name, value in headers if name == b"accept")
    kind, body = refusal.body(accept.decode("latin-1"))
    status = HTTPStatus(refusal.status)
    fields = {
        "content-type": kind,
        "content-length": str(len(body)),
        "connection": "close",
        **{name.lower(): value for name, value in refusal.headers},
    }
    head = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def _bad_framing(headers: list[tuple[bytes, bytes]], version: str) -> Refusal | None:
    """Why a request that names a transfer coding cannot be read: only `chunked` is known here.

    What stands before us may read another coding differently, and find another request behind this one. Spec: RFC
    9112 6.1: an unknown coding is 501, `chunked` comes once and last, HTTP/1.0 has none; 6.3: no length beside it.
    """
    codings = b",".join(value for name, value in headers if name == _TRANSFER).lower()
    named = [coding.strip(b" \t") for coding in codings.split(b",")]
    if version != "1.1" or any(name == b"content-length" for name, _ in headers):
        return Refusal(400, "Transfer-Encoding is for HTTP/1.1, and not beside a Content-Length.\n")
    if any(coding != b"chunked" for coding in named):
        return Refusal(501, "Of the transfer codings only chunked is known here.\n")
    return None if len(named) == 1 else Refusal(400, "A body can be chunked only once.\n")


def _size(headers: list[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers)
