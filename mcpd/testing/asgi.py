"""Connects a client to a server in the same process over Streamable HTTP, without a socket.

Each message is a request to the ASGI application, with the headers that a client must send: session and version for
older protocol versions; `Mcp-Method`, `Mcp-Name` and mirrored arguments for 2026-07-28.
Spec: 2025-11-25 and 2026-07-28 basic/transports, streamable HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping, Sequence
from typing import Any, TypeAlias

from msgspec.json import decode, encode

from mcpd.errors import ConfigurationError
from mcpd.protocol.channel import Receiver
from mcpd.protocol.envelope import NAMES
from mcpd.protocol.jsonrpc import MALFORMED, Id
from mcpd.protocol.principal import Origin
from mcpd.protocol.wire.headers import encode_value
from mcpd.protocol.wire.sse import SseReader
from mcpd.server import Server
from mcpd.transports.guards import Access

_ACCEPT = b"application/json, text/event-stream"
_MAX_EVENT_BYTES = 1 << 30


class AsgiChannel:
    """The client's channel: each message is a POST request; sessions of older versions have a GET stream too."""

    is_congested = False
    is_multiplexed = True

    def __init__(self, server: Server, access: Access, headers: Iterable[tuple[str, str]]) -> None:
        self._server = server
        self._app = server.http_app(access)
        self._fields = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        # Replaced by the response to `initialize`, which a client of 2026-07-28 does not send.
        self._era: _ModernHeaders | _LegacyHeaders = _ModernHeaders(server)
        self._receiver: Receiver
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._writing: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._posts: dict[tuple[type, Id], _Exchange] = {}
        self._is_closed = False

    async def open(self) -> None:
        """Start the server's lifespan. Raises ConfigurationError if that fails."""
        lifespan = self._server.lifespan
        if lifespan is not None:
            lifespan.hold(self)
            try:
                await lifespan.open()
            except ConfigurationError:
                await lifespan.release(self)
                raise

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._writing = asyncio.create_task(self._write())

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        if not self._is_closed:
            self._outbox.put_nowait(frame)

    send_separately = send

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The server at the other end."""
        return Origin("http")

    async def drain(self) -> None:
        """Return at once: messages are sent as fast as the server reads them."""

    async def aclose(self, reason: str = "") -> None:
        """Send queued messages, end the session, abandon waiting requests, and close the application."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._writing is not None:
                await self._outbox.join()
                self._writing.cancel()
            # Spec: 2025-11-25 basic/transports, session management.
            if self._era.session:
                await self._begin("DELETE", b"", [*self._era.session]).over.wait()

            for exchange in list(self._posts.values()):
                exchange.close()
            await self._app.aclose(0)
            if self._running:
                _, left = await asyncio.wait(self._running, timeout=1)
                for task in left:
                    task.cancel()
        finally:
            if self._server.lifespan is not None:
                await self._server.lifespan.release(self)

    async def _write(self) -> None:
        # Each message waits until the application has read the one before, so that the order stays.
        while True:
            frame = await self._outbox.get()
            try:
                await self._post(frame)
            finally:
                self._outbox.task_done()

    async def _post(self, frame: bytes) -> None:
        message = _as_object(frame)
        method, id = message.get("method"), message.get("id")
        cancelled_id = self._era.cancelled_id(message)
        if cancelled_id is not None:
            if (cancelled := self._posts.pop((type(cancelled_id), cancelled_id), None)) is not None:
                cancelled.close()
            return

        head = [(b"content-type", b"application/json"), (b"accept", _ACCEPT), *self._era.headers(message)]
        exchange = self._begin("POST", frame, head)
        if method is None or id is None:
            await exchange.over.wait()
        elif method == "initialize":
            await exchange.over.wait()
            # All further messages belong to the session of this response.
            result = _as_object(exchange.last_message).get("result")
            if isinstance(result, dict):
                self._era = _LegacyHeaders(exchange.headers.get(b"mcp-session-id"), result.get("protocolVersion"))
        else:
            self._posts[type(id), id] = exchange
            self._do(self._wait_for_answer(exchange, id))
            await exchange.received.wait()

        if method == "notifications/initialized" and self._era.session:
            listening = self._begin("GET", b"", [(b"accept", b"text/event-stream"), *self._era.session])
            await listening.begun.wait()
        if exchange.over.is_set():
            self._report_refusal(id, exchange)

    async def _wait_for_answer(self, exchange: _Exchange, id: Id) -> None:
        # If the server closes the stream before the response, the stream is resumed, as clients must do.
        await exchange.over.wait()
        while not exchange.is_closed and not self._is_closed and exchange.events.last_id:
            message = _as_object(exchange.last_message)
            if "method" not in message and message.get("id") == id:
                break
            last = [(b"last-event-id", exchange.events.last_id), (b"accept", b"text/event-stream"), *self._era.session]
            exchange = self._posts[type(id), id] = self._begin("GET", b"", last)
            await exchange.over.wait()
        self._posts.pop((type(id), id), None)
        self._report_refusal(id, exchange)

    def _begin(self, http_method: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> _Exchange:
        fields = [(b"host", b"localhost"), (b"content-length", b"%d" % len(body)), *self._fields, *headers]
        scope: MutableMapping[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": http_method,
            "scheme": "http",
            "path": self._app.settings.path,
            "raw_path": self._app.settings.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": fields,
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }

        exchange = _Exchange(body, self._receiver.receive)
        self._do(exchange.run(self._app, scope))
        return exchange

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _report_refusal(self, id: Any, exchange: _Exchange) -> None:
        # Answer a request whose HTTP response is not JSON-RPC with an error that has its status and first line.
        if exchange.status >= 400 and not exchange.last_message and id is not None:
            text = exchange.body.decode(errors="replace").strip().partition("\n")[0]
            error = {"code": -32000, "message": f"HTTP {exchange.status}: {text}"}
            self._receiver.receive(encode({"jsonrpc": "2.0", "id": id, "error": error}))


def _as_object(frame: bytes) -> dict[str, Any]:
    try:
        return _as_dict(decode(frame))
    except MALFORMED:
        return {}


_Headers = Sequence[tuple[bytes, bytes]]

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class _ModernHeaders:
    """From 2026-07-28: headers repeat the version, method and name of each message. There is no session."""

    session: _Headers = ()

    def __init__(self, server: Server) -> None:
        self._server = server

    def headers(self, message: dict[str, Any]) -> _Headers:
        params = _as_dict(message.get("params"))
        version = _as_dict(params.get("_meta")).get(NAMES["protocol_version"])
        if not isinstance(version, str):
            return ()

        method = str(message.get("method", ""))
        headers = [(b"mcp-protocol-version", version.encode()), (b"mcp-method", method.encode())]
        name = params.get(self._named(method))
        if isinstance(name, str):
            headers.append((b"mcp-name", encode_value(name)))
            if method == "tools/call":
                headers += self._mirrored(name, params.get("arguments"))
        return headers

    def cancelled_id(self, message: dict[str, Any]) -> Any:
        # The id of the request that a message cancels; None for other messages.
        # Spec: 2026-07-28 basic/patterns/cancellation: the response is closed instead.
        if message.get("method") != "notifications/cancelled":
            return None
        return _as_dict(message.get("params")).get("requestId")

    def _named(self, method: str) -> str:
        for extension in self._server.extensions.values():
            if method in extension.requests:
                return extension.requests[method].named or ""
        return _NAMED.get(method, "")

    def _mirrored(self, tool: str, arguments: Any) -> Iterable[tuple[bytes, bytes]]:
        entry = self._server.catalog.tools.find(tool)
        for mirror in () if entry is None else entry.mirrors:
            value = arguments
            for key in mirror.path:
                value = _as_dict(value).get(key)
            if value is not None:
                yield mirror.key, encode_value(value if isinstance(value, str) else encode(value).decode())


class _LegacyHeaders:
    """Up to 2025-11-25: headers repeat the session and version of the response to `initialize`."""

    def __init__(self, session_id: bytes | None, version: Any) -> None:
        self.session: list[tuple[bytes, bytes]] = []
        if session_id is not None:
            self.session.append((b"mcp-session-id", session_id))
        if isinstance(version, str):
            self.session.append((b"mcp-protocol-version", version.encode()))

    def headers(self, message: dict[str, Any]) -> _Headers:
        return self.session

    def cancelled_id(self, message: dict[str, Any]) -> None:
        """None: cancellations are sent as messages, and the response is still awaited."""


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_Message: TypeAlias = MutableMapping[str, Any]
_App: TypeAlias = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Any]


class _Exchange:
    """A request and its response, which is JSON, events or plain text; JSON-RPC messages go to `deliver`."""

    def __init__(self, body: bytes, deliver: Callable[[bytes], None]) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        # The body of a response that is not an event stream.
        self.body = b""
        # The last JSON-RPC message.
        self.last_message = b""
        # Has the id at which the stream can be resumed.
        self.events = SseReader(_MAX_EVENT_BYTES)
        # Set once the application has read the request, and has done everything that it does immediately.
        self.received = asyncio.Event()
        # Set once the response has started.
        self.begun = asyncio.Event()
        # Set once the response is complete, or the client has closed the connection.
        self.over = asyncio.Event()
        self._left = asyncio.Event()
        self._to_send: bytes | None = body
        self._deliver = deliver

    @property
    def is_closed(self) -> bool:
        return self._left.is_set()

    def close(self) -> None:
        self._left.set()
        self.over.set()

    async def run(self, app: _App, scope: _Message) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            # Even if the application fails, no task must wait forever.
            for event in (self.received, self.begun, self.over, self._left):
                event.set()

    async def _receive(self) -> _Message:
        if self._to_send is not None:
            body, self._to_send = self._to_send, None
            asyncio.get_running_loop().call_soon(self.received.set)
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: _Message) -> None:
        if self.is_closed:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {bytes(name).lower(): bytes(value) for name, value in message.get("headers", ())}
            self.begun.set()
            return

        self._take(bytes(message.get("body", b"")), is_last=not message.get("more_body", False))

    def _take(self, chunk: bytes, *, is_last: bool) -> None:
        kind = self.headers.get(b"content-type", b"")
        if kind.startswith(b"text/event-stream"):
            for event in self.events.feed(chunk):
                self._receive_message(event.data)
        else:
            self.body += chunk
            if is_last and kind.startswith(b"application/json") and b'"jsonrpc"' in self.body:
                self._receive_message(self.body)

        if is_last:
            self.over.set()
            self._left.set()

    def _receive_message(self, message: bytes) -> None:
        self.last_message = message
        self._deliver(message)
