"""One HTTP/1.1 connection: uvicorn's protocol on httptools, with limits, and with one write for each answer.

Added: limits for the head of a request, in bytes and in time, and for the number of connections; refusals that
arrive although a body is still on its way; wishes for HTTP/2 that are passed over.
Relies on the attributes of uvicorn's classes that are used here, and on nothing else of it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from ..budget import SMALL, Charge, client_of
from ..errors import ConfigurationError
from ..transports.accepting import is_tls
from ..transports.authentication import Refusal
from .application import Application
from .departure import when_gone
from .framing import ANY_LENGTH, TRANSFER, bad_framing, least_head_size, refuse_bytes, without_upgrade
from .request import ANSWER_AT_ONCE, WHEN_GONE, WHOLE_BODY
from .response_writer import ResponseWriter, answer_at_once

try:
    from uvicorn import Config
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from .http1_slots import Pipeline, SlottedProtocol
    from .http1_state import HttpState
    from .known_head import ANSWERED, Flow, KnownHead, WholeCycle
except ImportError as error:
    raise ConfigurationError(
        f"HTTP needs the package {error.name}: install mcpd with its extra http, pip install 'mcpd-server[http]'"
    ) from None

__all__ = ["LINGER", "Http1Protocol"]

log = logging.getLogger("mcpd.http")

LINGER = 1.0
"""How long what is being ended may take, in seconds."""

_TOO_LARGE = Refusal(431, "The head of the request is too large (setting max_head_bytes).\n")
_MOST_PIPELINED = 16
"""With so many requests behind the one that is answered, nothing more is read."""
_LINE_ENDS = b"\r\n"
"""What old clients send behind a body, and no beginning of a request (RFC 9112 2.2)."""
_LEARNED = 4
_NONE: list[tuple[bytes, bytes]] = []


class _StopParsing(Exception):
    """Stops the parser in the middle of what it parses."""


class Http1Protocol(SlottedProtocol):
    """One connection. `_head_bytes` counts what came of a head that is not whole, and is -1 while a body comes."""

    __slots__ = ("_again", "_begun", "_beside_bytes", "_data", "_ends_next", "_has_other_upgrade",
                 "_head_bytes", "_idle_since", "_ignores_input", "_is_again", "_is_behind", "_is_in_head",
                 "_known", "_most_head_bytes", "_running", "_settings", "_start", "_timer", "_to_learn",
                 "_unread", "_write_timer", "_writer")  # fmt: skip

    config: Config
    _writer: ResponseWriter
    _start: Callable[[Coroutine[Any, Any, None]], object]
    """Runs the first step of an answer at once."""

    def __init__(self, config: Config, server_state: HttpState, app_state: dict[str, Any], **more: Any) -> None:
        super().__init__(config, server_state, app_state, **more)
        self.access_log = False
        self.pipeline = Pipeline()  # type: ignore[assignment]
        app: Application = config.app  # type: ignore[assignment]
        self._settings = app.settings
        self._most_head_bytes = app.settings.max_head_bytes
        self._head_bytes = 0
        self._beside_bytes = 0
        """How much came since the last piece of a body: chunk headers and trailers."""
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unread: Charge | None = None
        """What the answer takes that waits to be read."""
        self._running: RequestResponseCycle | None = None
        """The request that is answered, if others wait behind it."""
        self._ignores_input = False
        """What still comes is not listened to."""
        self._has_other_upgrade = False
        self._is_behind = False
        """A head is read of which `_head_bytes` does not know how much came."""
        self._idle_since = 0.0
        self._data = b""
        """What is being parsed."""
        self._again = b""
        """What is to be parsed once more, without the wish that stopped the parser."""
        self._is_again = False
        self._ends_next = False
        """It ends with its next answer."""
        self._begun: RequestResponseCycle | None = None
        """The request that is to be answered as soon as what came with its head is parsed, too."""
        self._is_in_head = False
        self._known: KnownHead | None = None
        """The last head that the parser has read, if it may be known again."""
        self._to_learn = _LEARNED
        """How many heads more are looked at before one comes again: some clients never write the same twice."""

    # -- what asyncio calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._writer = self.transport = ResponseWriter(transport, self)  # type: ignore[assignment]
        self.flow = Flow(transport)
        self.server = self.server_state.shared(self.server)  # type: ignore[attr-defined]
        if self.client is not None:
            self.client = self.server_state.shared(self.client[0]), self.client[1]  # type: ignore[attr-defined]
        self._start = self.server_state.starter(self.loop)  # type: ignore[attr-defined]
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
        cycle = self.cycle
        is_first = self._head_bytes == 0 and (cycle is None or cycle.response_complete)  # type: ignore[redundant-expr]
        if is_first and self._known is not None and (scope := self._known.read(data)) is not None:
            # A request with a head that is known, all of which is here.
            if self._timer is not None:
                self._cancel_timer()
            self._to_learn = _LEARNED
            scope["client"], scope["server"], scope["state"] = self.client, self.server, {}
            self.scope = scope  # type: ignore[assignment]
            self._answer_whole(scope)
            return
        if self._head_bytes > 0 or (self._head_bytes == 0 and data.strip(_LINE_ENDS)):
            self._head_bytes += len(data)
        elif self._head_bytes < 0:
            self._beside_bytes += len(data)

        self._data = data
        if self.parser is None:
            self.parser = self.new_parser()
        super().data_received(data)
        self._data = b""
        if self._begun is not None:
            if is_first and self._head_bytes == 0 and self._to_learn and self._is_simple:
                self._learn(data)
            begun, self._begun = self._begun, None
            if is_first and self._head_bytes == 0 and self._is_simple:
                self.scope[WHOLE_BODY] = bytes(begun.body)  # type: ignore[literal-required]
                self._answer_whole(self.scope)
                if not self.cycle.response_complete:
                    self.parser = None  # it may wait for hours
            else:
                self._start(begun.run_asgi(self.app))
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

    def _learn(self, data: bytes) -> None:
        """Keep the head of a request that was just read, if all of these bytes are that one request."""
        self._to_learn -= 1
        head = KnownHead.learn(data, self.scope, self._most_head_bytes)
        if head is not None:
            self._known = known = self.server_state.heads.setdefault(head.key, head)  # type: ignore[attr-defined]
            if known is not head:
                known.share(self.scope)

    @property
    def _is_simple(self) -> bool:
        """Whether of the request that was just read no more is to come, and nothing but its answer is to be done."""
        return self.cycle.keep_alive and not (self.expect_100_continue or self.pipeline or self._again)

    def _answer_whole(self, scope: Any) -> None:
        """Answer a request whose body is in its scope."""
        keep_alive = not self._ends_next
        self._running = None
        dated = self.server_state.default_headers
        self.cycle = cycle = WholeCycle(scope, self.transport, self.flow, dated, self.on_response_complete, keep_alive)
        self._start(cycle.run_asgi(self.app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._is_in_head:
            self._begun = cycle  # not before all that came with its head is parsed
        else:
            super()._start_asgi_task(cycle, app)

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
        self._writer.end()
        if self._ends_next:
            self._leave()

        running = self._running
        if running is not None and not running.response_complete:
            # Uvicorn tells only the newest request, which waits behind this one.
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    # -- what the parser calls -----------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._head_bytes == 0:
            # Its head stands behind another request in what is parsed: nobody knows where, only that it is not whole.
            self._head_bytes = 1
            self._is_behind = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        may_be_large = self._is_behind or self._head_bytes > self._most_head_bytes
        self._is_behind = False
        if may_be_large:
            method = self.parser.get_method()
            if least_head_size(method, self.url, self.headers) > self._most_head_bytes:
                self._refuse(_TOO_LARGE)
                raise _StopParsing
        # As a dict, for its speed.
        if TRANSFER in dict(self.headers) and (refusal := bad_framing(self.headers, self.parser.get_http_version())):
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
            self._is_in_head = True
            try:
                super().on_headers_complete()
            finally:
                self._is_in_head = False
            if self._ends_next:
                self.cycle.keep_alive = False
            self.scope[ANSWER_AT_ONCE] = answer_at_once  # type: ignore[literal-required]
            self.scope[WHEN_GONE] = when_gone  # type: ignore[literal-required]
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
                self.cycle.expected_content_length = ANY_LENGTH
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

        head = without_upgrade(self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers)
        self.parser = self.new_parser()
        self._head_bytes = 0
        self._again = head + self._data[stopped.args[0] :]

    # -- answers -------------------------------------------------------------------------

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def send_400_response(self, msg: str) -> None:
        is_tls(self._data, self.client[0] if self.client else "a client")
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
            if self._head_bytes == 0:
                # A connection that waits does not keep its last request, and what that was made of.
                self.cycle, self.scope = ANSWERED, None  # type: ignore[assignment]
                self.headers, self.url = _NONE, b""
                if self._known is not None:
                    self.parser = None  # the next head will be that one
            if self._head_bytes > 0 and self._timer is None:
                self._set_timer(self._settings.head_timeout)

    def close_idle(self, since: float) -> None:
        """Close a connection that was answered before that time, and has asked for nothing since.

        One that waits for more than `LINGER` seconds lets go of its last head, which may hold a token.
        """
        is_idle = self._head_bytes == 0 and self.cycle is not None and self.cycle.response_complete  # type: ignore[redundant-expr]
        if is_idle and not self.transport.is_closing():
            if self._idle_since < since:
                self.transport.close()
            elif self._idle_since < self.loop.time() - LINGER:
                self._known = self.parser = None
                self._to_learn = _LEARNED

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

        self.app.refused(refusal.status)
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
        self._writer.transport.write(refuse_bytes(refusal, self.scope["headers"] if self.scope else ()))  # type: ignore[redundant-expr]
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
