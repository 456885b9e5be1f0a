"""A `Wire` whose messages travel over HTTP, each as a POST of its own, as a client of its version would send it.

    async with http_wire(server) as wire:
        await wire.open("2025-06-18")

A legacy connection becomes a session with a GET stream, opened once it is initialized. A modern request gets its
headers from its body, and giving it up (`notifications/cancelled` on other transports) closes its connection. The
next message is sent when the one before has reached the application, so that they arrive in the order in which
they were sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.http_peer import BOTH, MODERN, Peer, Port, request, serving
from support.wires import META, TIMEOUT, Wire

from mcpd import Server
from mcpd.protocol.wire.headers import encode_value
from mcpd.server.http.request import Receive, Scope, Send

__all__ = ["HttpWire", "http_wire"]

_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_NAMES |= dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")


class HttpWire(Wire):
    """The client's end; `statuses` are those of the answers, in the order in which their heads came."""

    def __init__(self, port: Port, server: Server) -> None:
        super().__init__(self._queue)
        self.statuses: list[int] = []
        self._port = port
        self._server = server
        self._app = port.app
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._taken = asyncio.Event()
        self._session: list[tuple[str, str]] = []
        self._is_modern = False
        self._open_posts: dict[tuple[type, Any], tuple[Peer, asyncio.Task[None]]] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._writer = asyncio.create_task(self._write())

    # -- towards the server ------------------------------------------------------------------

    def _queue(self, frame: bytes) -> None:
        self._outbox.put_nowait(frame)

    async def _write(self) -> None:
        while (frame := await self._outbox.get()) is not None:
            try:
                message = json.loads(frame)
            except (ValueError, RecursionError):
                message = None
            if self._is_modern and isinstance(message, dict) and message.get("method") == "notifications/cancelled":
                await self._give_up(message)
            else:
                await self._post(frame, message)

    async def _post(self, frame: bytes, message: Any) -> None:
        peer = await self._port.connect()
        headers = [("Content-Type", "application/json"), ("Accept", BOTH), *self._headers(message)]
        self._taken.clear()
        peer.send(request("POST", "/mcp", headers, frame))
        method = message.get("method") if isinstance(message, dict) else None
        reading = asyncio.create_task(self._read(peer))
        self._readers.add(reading)
        if method in ("initialize", "notifications/initialized"):
            # What comes next is sent with the session's id, and hears the answers to all on its stream.
            await reading
            if method == "notifications/initialized" and self._session and not self._is_modern:
                await self._listen()
            return
        if method is not None and "id" in message:
            self._open_posts[type(message["id"]), message["id"]] = peer, reading
        async with asyncio.timeout(TIMEOUT):
            await self._taken.wait()

    async def _give_up(self, message: Any) -> None:
        """2026-07-28 basic/patterns/cancellation: closing the response stream is the signal."""
        request_id = message.get("params", {}).get("requestId")
        found = self._open_posts.pop((type(request_id), request_id), None)
        if found is not None:
            peer, reading = found
            reading.cancel()
            peer.abort()

    def _headers(self, message: Any) -> list[tuple[str, str]]:
        params = message.get("params") if isinstance(message, dict) else None
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        version = meta.get(f"{META}protocolVersion") if isinstance(meta, dict) else None
        if not isinstance(version, str) and not (self._is_modern and not self._session):
            return self._session
        self._is_modern = self._is_modern or not self._session
        method = str(message.get("method", "")) if isinstance(message, dict) else ""
        headers = {"MCP-Protocol-Version": version if isinstance(version, str) else MODERN, "Mcp-Method": method}
        name = params.get(_NAMES.get(method, ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = encode_value(name).decode()
            if method == "tools/call":
                headers.update(self._mirrored(name, params.get("arguments")))
        return list(headers.items())

    def _mirrored(self, tool: str, arguments: Any) -> dict[str, str]:
        entry = self._server.catalog.tools.find(tool)
        headers = {}
        for mirror in entry.mirrors if entry is not None else ():
            value = arguments
            for key in mirror.path:
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                text = value if isinstance(value, str) else json.dumps(value)
                headers[mirror.header] = encode_value(text).decode()
        return headers

    # -- from the server ---------------------------------------------------------------------

    async def _read(self, peer: Peer) -> None:
        """One answer, be it JSON, a stream, or nothing."""
        answer = await peer.head()
        self.statuses.append(answer.status)
        if "mcp-session-id" in answer:
            self._session = [("Mcp-Session-Id", answer["mcp-session-id"])]
        if "content-type" in answer and answer["content-type"] == "text/event-stream":
            if "content-length" in answer:
                body = await peer.reader.readexactly(int(answer["content-length"]))
                for line in body.split(b"\n"):
                    self._event(line)
            else:
                await self._stream(peer)
        elif int(answer["content-length"]):
            self.arrived(await peer.reader.readexactly(int(answer["content-length"])))

    async def _stream(self, peer: Peer) -> None:
        while (event := await peer.event(timeout=None)) is not None:
            if event.get("data"):
                self.arrived(event["data"].encode())

    def _event(self, line: bytes) -> None:
        if line.startswith(b"data: ") and len(line) > len(b"data: "):
            self.arrived(line[len(b"data: ") :])

    async def _listen(self) -> None:
        peer = await self._port.connect()
        peer.send(request("GET", "/mcp", [("Accept", "text/event-stream"), *self._session]))
        await peer.head()
        self._readers.add(asyncio.create_task(self._stream(peer)))

    async def aclose(self) -> None:
        """End both directions."""
        self._outbox.put_nowait(None)
        await self._writer
        for reader in self._readers:
            reader.cancel()
        await asyncio.wait(self._readers)
        for reader in self._readers:
            if not reader.cancelled() and reader.exception() is not None:
                raise reader.exception()  # type: ignore[misc]

    # -- between the two ---------------------------------------------------------------------

    async def passing(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, which says when it has all of a request: what it does at once with it is done then."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def receive_and_tell() -> Any:
            message = await receive()
            if not message.get("more_body"):
                asyncio.get_running_loop().call_soon(self._taken.set)
            return message

        await self._app(scope, receive_and_tell, send)


class Passing:
    """An application whose requests pass through something else."""

    def __init__(self, app: Any, call: Any) -> None:
        self._app, self._call = app, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._call(scope, receive, send)


@asynccontextmanager
async def http_wire(server: Server, version: str | None = None, **opening: Any) -> AsyncIterator[HttpWire]:
    """A wire to `server` over HTTP on the loopback, in this process."""
    async with serving(server) as port:
        wire = HttpWire(port, server)
        port.listener.app = Passing(port.listener.app, wire.passing)  # type: ignore[assignment]
        if version is not None:
            await wire.open(version, **opening)
        yield wire
        await wire.aclose()
    wire.check()
