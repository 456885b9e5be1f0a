"""WebSocket through another ASGI server, which does the framing; guards and session are as in `transports.websocket`.

`mcpd serve --http` handles upgrades on its own; this module is for applications in other ASGI servers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mcpd.errors import ConnectionLost, FrameTooLarge
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import Origin
from mcpd.transports.authentication import at_expiry
from mcpd.transports.guards import Refusal
from mcpd.transports.stdio import DelayedResults
from .core import Core
from .event_stream import Outbox
from .request import HttpRequest, Send


async def serve_websocket(core: Core, request: HttpRequest, send: Send, refusal: Refusal | None) -> None:
    """Serve one WebSocket from its handshake to its end, or send the refusal."""
    scope, receive = request.scope, request.receive
    await receive()  # websocket.connect
    if refusal is not None:
        if "websocket.http.response" in scope.get("extensions", {}):
            body, headers = request.written(refusal)
            await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": body})
        else:
            await send({"type": "websocket.close", "code": 1008})
        return

    await send({"type": "websocket.accept", "subprotocol": "mcp" if "mcp" in scope.get("subprotocols", ()) else None})
    await AsgiWebSocket(send, request, core.settings.write_timeout).run(core, request)


class AsgiWebSocket(Outbox):
    """One connection as a channel."""

    is_multiplexed = True

    def __init__(self, send: Send, request: HttpRequest, write_timeout: float = 0) -> None:
        super().__init__(request.peer, write_timeout)
        self._request = request
        self._send = send
        self._apart: DelayedResults | None = None
        self._was_handed_on = False

    async def run(self, core: Core, request: HttpRequest) -> None:
        """Pass received messages to the connection until the client leaves."""
        most = core.settings.max_body_bytes
        connection = core.connect(self, core.opening(request))
        core.open.add(connection)
        core.sockets[self] = connection
        expiry = at_expiry(request.user, lambda: core.spawn(self._close(1008, "token expired")))
        lost: ConnectionLost | None = None
        try:
            while True:
                message = await request.receive()
                if message["type"] == "websocket.disconnect":
                    if message.get("code", 1005) not in (1000, 1001, 1005):
                        lost = ConnectionLost("The WebSocket client went away")
                    break
                if not self.is_open:
                    break  # the token has expired, or the client does not read: what it sends has no effect

                text = message.get("text")
                if text is None:
                    await self._close(1003, "send each JSON-RPC message as a text frame, not a binary one")
                    break

                # A lone surrogate in the text must not fail here: the decoder reports it.
                frame = text.encode("utf-8", "surrogatepass")
                if len(frame) > most:
                    connection.receive_error(FrameTooLarge(f"Message too large: the limit is {most} bytes"))
                else:
                    connection.receive(frame)

                if self.is_congested:
                    # No more requests are read from a client that does not read responses.
                    await self.drain()
        finally:
            if expiry is not None:
                expiry.cancel()
            self.close()
            if self._apart is not None:
                self._apart.close()
            core.sockets.pop(self, None)
            core.open.discard(connection)
            connection.abort()
            connection.closed(lost)

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one text frame."""
        if self.is_open:
            self._put(frame)

    def send_separately(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one text frame a moment later: ASGI cannot report whether earlier frames were read."""
        if self._apart is None:
            self._apart = DelayedResults(asyncio.get_running_loop(), self.send, self._is_handed_on)
        self._apart.hold(frame)

    def _is_handed_on(self) -> bool:
        was, self._was_handed_on = self._was_handed_on, not self._waiting and self._writer is None
        return was and self._was_handed_on

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The origin of the handshake."""
        return self._request.origin()

    async def aclose(self, reason: str = "") -> None:
        """Send queued frames, and close."""
        if self._apart is not None:
            await self._apart.settle()
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=2)
        await self._close(1001, reason or "the server is going away")

    async def _close(self, code: int, reason: str) -> None:
        if self.is_open:
            self.close()
            await self._send_close(code, reason)

    async def _tell_end(self) -> None:
        await self._send_close(1008, "reads too slowly")

    async def _send_close(self, code: int, reason: str) -> None:
        with suppress(Exception):  # closed already
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _hand_on(self) -> None:
        while self._waiting:
            frames, self._waiting = self._waiting, []
            for frame in frames:
                await self._send({"type": "websocket.send", "text": frame.decode()})
                self._taken(self._waiting_bytes - len(frame))
