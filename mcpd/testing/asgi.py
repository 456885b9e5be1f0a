"""A server in this process over Streamable HTTP, without a socket: each message is a request to the ASGI application.

What a client has to say in headers is said: the session and version of older versions, `Mcp-Method`, `Mcp-Name` and
mirrored arguments of 2026-07-28. Spec: 2025-11-25 and 2026-07-28 basic/transports, streamable HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, MutableMapping
from typing import Any

from msgspec.json import decode, encode

from mcpd.errors import ConfigurationError
from mcpd.protocol.channel import Receiver
from mcpd.protocol.jsonrpc import MALFORMED, Id
from mcpd.protocol.principal import Origin
from mcpd.server import Server
from mcpd.testing.asgi_eras import Legacy, Modern, as_dict
from mcpd.testing.asgi_exchange import Exchange
from mcpd.testing.caller import Caller, access_of

_BOTH = b"application/json, text/event-stream"


class AsgiChannel:
    """The client's end: each message is a POST, and a session of an older version has a GET stream."""

    is_congested = False
    is_multiplexed = True

    def __init__(self, server: Server, caller: Caller) -> None:
        self._server = server
        self._app = server.http_app(access_of(server, caller))
        self._fields = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in caller.headers]
        self._era: Modern | Legacy = Modern(server)
        """Chosen once, by the answer to `initialize`: a client of 2026-07-28 never sends that."""
        self._receiver: Receiver | None = None
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._writing: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._posts: dict[tuple[type, Id], Exchange] = {}
        self._is_closed = False

    async def open(self) -> None:
        """Start the server's lifespan. Raises ConfigurationError if that fails."""
        lifespan = self._server.lifespan
        if lifespan is not None:
            lifespan.hold(self)
            try:
                await lifespan.open()
            except ConfigurationError:
                await lifespan.let_go(self)
                raise

    def start(self, receiver: Receiver) -> None:
        """Begin to send."""
        self._receiver = receiver
        self._writing = asyncio.create_task(self._write())

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one message."""
        if not self._is_closed:
            self._outbox.put_nowait(frame)

    send_apart = send

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The server at the other end."""
        return Origin("http")

    async def drain(self) -> None:
        """What is queued is sent as fast as the server takes it."""

    async def aclose(self, reason: str = "") -> None:
        """Send what is queued, end the session, give up what still waits, and end the application."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._writing is not None:
                await self._outbox.join()
                self._writing.cancel()
            if self._era.session:
                await self._begin("DELETE", b"", []).over.wait()
            for exchange in list(self._posts.values()):
                exchange.leave()
            await self._app.aclose(0)
            if self._running:
                _, left = await asyncio.wait(self._running, timeout=1)
                for task in left:
                    task.cancel()
        finally:
            if self._server.lifespan is not None:
                await self._server.lifespan.let_go(self)

    # -- sending -----------------------------------------------------------------------------

    async def _write(self) -> None:
        """One message after the other, each when the application has all of the one before."""
        while True:
            frame = await self._outbox.get()
            try:
                await self._post(frame)
            finally:
                self._outbox.task_done()

    async def _post(self, frame: bytes) -> None:
        message = _as_object(frame)
        method, id = message.get("method"), message.get("id")
        given_up = self._era.given_up(message)
        if given_up is not None:
            exchange = self._posts.pop((type(given_up), given_up), None)
            if exchange is not None:
                exchange.leave()
            return

        head = [(b"content-type", b"application/json"), (b"accept", _BOTH), *self._era.headers(message)]
        exchange = self._begin("POST", frame, head)
        if method is None or id is None:
            await exchange.over.wait()
        elif method == "initialize":
            await exchange.over.wait()
            self._choose(exchange)
        else:
            self._posts[type(id), id] = exchange
            self._do(self._wait_for_answer(exchange, id))
            await exchange.taken.wait()

        if method == "notifications/initialized" and self._era.session:
            listening = self._begin("GET", b"", [(b"accept", b"text/event-stream"), *self._era.session])
            await listening.begun.wait()
        if exchange.over.is_set() and exchange.status >= 400 and not exchange.has_answered:
            self._refuse(id, exchange)

    async def _wait_for_answer(self, exchange: Exchange, id: Id) -> None:
        """The server may let go of a stream before it has answered: the client comes back for the rest."""
        await exchange.over.wait()
        while _is_unfinished(exchange, id) and not exchange.has_left and not self._is_closed:
            last = [(b"last-event-id", exchange.last_event_id), (b"accept", b"text/event-stream"), *self._era.session]
            exchange = self._posts[type(id), id] = self._begin("GET", b"", last)
            await exchange.over.wait()
        self._posts.pop((type(id), id), None)
        if exchange.status >= 400 and not exchange.has_answered:
            self._refuse(id, exchange)

    def _begin(self, http_method: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> Exchange:
        assert self._receiver is not None
        if http_method == "DELETE":
            headers = [*headers, *self._era.session]
        fields = [(b"host", b"localhost"), *self._fields, *headers]
        if body:
            fields.append((b"content-length", b"%d" % len(body)))
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
        exchange = Exchange(body, self._receiver.receive)
        self._do(exchange.run(self._app, scope))
        return exchange

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _choose(self, exchange: Exchange) -> None:
        """An answer to `initialize` says what all that follows is sent with."""
        result = _as_object(exchange.last_message).get("result")
        if isinstance(result, dict):
            self._era = Legacy(exchange.headers.get(b"mcp-session-id"), result.get("protocolVersion"))

    def _refuse(self, id: Any, exchange: Exchange) -> None:
        """An answer that is no JSON-RPC: who waits hears of its status, and in what words it was refused."""
        if id is not None and self._receiver is not None:
            said = exchange.body.decode(errors="replace").strip().partition("\n")[0]
            error = {"code": -32000, "message": f"HTTP {exchange.status}: {said}"}
            self._receiver.receive(encode({"jsonrpc": "2.0", "id": id, "error": error}))


def _is_unfinished(exchange: Exchange, id: Id) -> bool:
    """Whether an event stream that can be resumed has ended without the answer to this request."""
    message = _as_object(exchange.last_message)
    return bool(exchange.last_event_id) and ("method" in message or message.get("id") != id)


def _as_object(frame: bytes) -> dict[str, Any]:
    """A message; nothing for what is none, which is sent as it is."""
    try:
        return as_dict(decode(frame))
    except MALFORMED:
        return {}
