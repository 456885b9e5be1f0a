"""WebSocket through an ASGI server: frames, guards and session as in `transports.websocket`, the server's framing.

`mcpd serve --http` takes upgrades with its own framing; this is for applications that are mounted elsewhere.
"""

from __future__ import annotations

import asyncio

from ...errors import ConnectionLost, FrameTooLarge
from ...jsonrpc import Id
from ..guards import Refusal
from .core import Core
from .visit import Send, Visit

__all__ = ["AsgiWebSocket", "serve_websocket"]

_HIGH_WATER = 1024 * 1024
_MOST_WAITING = 64 * 1024 * 1024


async def serve_websocket(core: Core, visit: Visit, send: Send, refusal: Refusal | None) -> None:
    """Serve one WebSocket, from its handshake to its end; with a `refusal` that is all it gets."""
    scope, receive = visit.scope, visit.receive
    await receive()  # websocket.connect
    if refusal is not None:
        if "websocket.http.response" in scope.get("extensions", {}):
            headers = [(name.lower().encode(), value.encode()) for name, value in refusal.headers]
            await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": refusal.text.encode()})
        else:
            await send({"type": "websocket.close", "code": 1008})
        return
    await send({"type": "websocket.accept", "subprotocol": "mcp" if "mcp" in scope.get("subprotocols", ()) else None})
    await AsgiWebSocket(send).run(core, visit)


class AsgiWebSocket:
    """One connection as a channel."""

    is_shared = True

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_open = True

    async def run(self, core: Core, visit: Visit) -> None:
        """Hand on what arrives until the client leaves."""
        most = core.settings.max_body_bytes
        connection = core.connect(self, hears_changes=True)
        connection.session.principal = core.principal(visit)
        core.open.add(connection)
        core.sockets.add(self)
        lost: ConnectionLost | None = None
        try:
            while True:
                message = await visit.receive()
                if message["type"] == "websocket.disconnect":
                    if message.get("code", 1005) not in (1000, 1001, 1005):
                        lost = ConnectionLost("The WebSocket client went away")
                    break
                text = message.get("text")
                if text is None:
                    await self._close(1003, "send each JSON-RPC message as a text frame, not a binary one")
                    break
                frame = text.encode("utf-8", "surrogatepass")
                if len(frame) > most:
                    connection.receive_error(FrameTooLarge(f"Message too large: at most {most} bytes are taken"))
                else:
                    connection.receive(frame)
                if self.is_congested:
                    # A client that does not read gets no more work done.
                    await self.drain()
        finally:
            self._end()
            core.sockets.discard(self)
            core.open.discard(connection)
            connection.abort()
            connection.closed(lost)

    @property
    def is_congested(self) -> bool:
        """Whether the client is behind with reading."""
        return self._waiting_bytes > _HIGH_WATER

    def send(self, frame: bytes, about: Id | None = None) -> None:
        """Queue one text frame."""
        if not self._is_open:
            return
        if self._waiting_bytes > _MOST_WAITING:
            self._end()
            return
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def drain(self) -> None:
        """Wait until the client has taken most of what was queued, or is gone."""
        while self._is_open and self.is_congested:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    async def aclose(self, reason: str = "") -> None:
        """Send what is queued, and close."""
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=2)
        await self._close(1001, reason or "the server is going away")

    async def _close(self, code: int, reason: str) -> None:
        if self._is_open:
            self._end()
            try:
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
            except Exception:
                pass  # gone already

    def _end(self) -> None:
        self._is_open = False
        self._waiting.clear()
        self._waiting_bytes = 0
        self._wake()
        if self._writer is not None:
            self._writer.cancel()

    async def _write(self) -> None:
        try:
            while self._waiting:
                frames, self._waiting = self._waiting, []
                for frame in frames:
                    await self._send({"type": "websocket.send", "text": frame.decode()})
                    self._waiting_bytes -= len(frame)
                self._wake()
        except Exception:
            # Whatever a server raises when it cannot send: for us the client is gone.
            self._writer = None
            self._end()
        finally:
            self._writer = None

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
