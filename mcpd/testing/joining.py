"""A server in this process joined to a client in it: by memory, by pipes as on stdio, or by a WebSocket.

Each way gives the client's end, a channel whose `aclose` ends the server's side too, calls that run last.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from mcpd.client.limits import ClientLimits
from mcpd.client.target import connect
from mcpd.errors import ConnectionLost, McpdError, TransportError
from mcpd.protocol.channel import Channel, Receiver
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import Origin, Transport
from mcpd.protocol.session import Opening
from mcpd.server import Server
from mcpd.testing.caller import Caller, access_of
from mcpd.transports.memory import MemoryChannel
from mcpd.transports.stdio import StdioChannel

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from mcpd.client.channels import StartableChannel
    from mcpd.server.dispatcher import ServerConnection

_CALLS_SECONDS = 5.0


async def join(
    server: Server | Sequence[str], transport: Transport, caller: Caller, limits: ClientLimits
) -> StartableChannel:
    """Open the way to a server. Raises ConfigurationError, TransportError."""
    if not isinstance(server, Server):
        return await connect(server, limits)
    if transport == "memory":
        return _join_by_memory(server, caller)
    if transport == "stdio":
        return _PipesChannel(server, caller)
    if transport == "websocket":
        return await _join_by_websocket(server, caller, limits)

    from mcpd.testing.asgi import AsgiChannel  # noqa: PLC0415 - HTTP is much that others need not load

    channel = AsgiChannel(server, caller)
    await channel.open()
    return channel


async def _end(server: Server, connection: ServerConnection) -> None:
    """The client has closed its end: let calls that run answer for a while, then end the connection."""
    try:
        await connection.finish(_CALLS_SECONDS)
    finally:
        if server.lifespan is not None:
            await server.lifespan.let_go(connection)


# ------------------------------------------------------------------------------------- in memory


def _join_by_memory(server: Server, caller: Caller) -> MemoryChannel:
    loop = asyncio.get_running_loop()
    near, far = MemoryChannel(loop), _FarEnd(loop, caller.origin("memory"))
    near.other, far.other = far, near
    return server.connect_memory((near, far))


class _FarEnd(MemoryChannel):
    """The server's end: it knows who the client is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, origin: Origin) -> None:
        super().__init__(loop)
        self._origin = origin

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return self._origin


# ----------------------------------------------------------------------------------- over pipes


class _StdioOfCaller(StdioChannel):
    """The server's end of two pipes: it knows who the client is."""

    caller: Origin

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return self.caller


class _PipesChannel(StdioChannel):
    """The client's end of two pipes to a server in this process, with stdio's framing on both of them."""

    def __init__(self, server: Server, caller: Caller) -> None:
        server_in, near_out = os.pipe()
        near_in, server_out = os.pipe()
        self._ours = [near_in, near_out]
        self._theirs = [server_in, server_out]
        super().__init__(near_in, near_out, always_reads=True)

        self._server = server
        self._far = _StdioOfCaller(server_in, server_out)
        self._far.caller = caller.origin("stdio")
        self._connection = server.connect(self._far, Opening(principal=self._far.caller.user.id))
        if server.lifespan is not None:
            server.lifespan.hold(self._connection)
        self._far.start(self._connection)

    async def aclose(self, reason: str = "") -> None:
        """Close the server's input, let it end, and close all that is left."""
        if not self._ours:
            return
        near_in, near_out = self._ours
        self._ours = []
        try:
            await super().aclose(reason)
            os.close(near_out)
            await _end(self._server, self._connection)
            await self._far.aclose()
        finally:
            for descriptor in (near_in, *self._theirs):
                os.close(descriptor)


# ------------------------------------------------------------------------------ over a WebSocket


async def _join_by_websocket(server: Server, caller: Caller, limits: ClientLimits) -> StartableChannel:
    from websockets.asyncio.client import connect as connect_websocket  # noqa: PLC0415
    from websockets.exceptions import InvalidStatus  # noqa: PLC0415

    from mcpd.transports.websocket.server import WebSocketListener  # noqa: PLC0415

    connections: list[ServerConnection] = []

    def accept(channel: Channel) -> Receiver:
        connection = server.connect(channel, Opening(principal=channel.origin().user.id))
        if server.lifespan is not None:
            server.lifespan.hold(connection)
        connections.append(connection)
        return connection

    listener = WebSocketListener("127.0.0.1:0", access_of(server, caller))
    await listener.start(accept)

    async def end() -> None:
        listener.pause()
        for connection in connections:
            await _end(server, connection)
        await listener.aclose()

    try:
        websocket = await connect_websocket(
            listener.url,
            additional_headers=list(caller.headers),
            compression=None,
            proxy=None,
            max_size=limits.message_bytes,
        )
    except InvalidStatus as refused:
        await end()
        body = (refused.response.body or b"").decode(errors="replace").strip()
        raise TransportError(
            f"the server refused the WebSocket with HTTP {refused.response.status_code}: {body}"
        ) from None
    except BaseException:
        await end()
        raise
    return _WebSocketChannel(websocket, end)


class _WebSocketChannel:
    """The client's end of a WebSocket: a message is a text frame."""

    is_congested = False
    is_multiplexed = True

    def __init__(self, websocket: ClientConnection, end: Callable[[], Awaitable[None]]) -> None:
        self._websocket = websocket
        self._end = end
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self, receiver: Receiver) -> None:
        """Begin to read and to write."""
        self._reading = asyncio.create_task(self._read(receiver))
        self._writing = asyncio.create_task(self._write())

    async def _read(self, receiver: Receiver) -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

        ended: McpdError | None = None
        try:
            while True:
                receiver.receive(await self._websocket.recv(decode=False))
        except ConnectionClosed as closed:
            ended = ConnectionLost(f"the server closed the WebSocket: {closed}")
        receiver.closed(ended)

    async def _write(self) -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

        try:
            while True:
                await self._websocket.send(await self._outbox.get(), text=True)
                self._outbox.task_done()
        except ConnectionClosed:
            pass  # who reads hears of it

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one text frame."""
        self._outbox.put_nowait(frame)

    send_apart = send

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The server at the other end."""
        return Origin("websocket")

    async def drain(self) -> None:
        """What is queued is written as fast as the server takes it."""

    async def aclose(self, reason: str = "") -> None:
        """Send what is queued, close the WebSocket, and end the server's side."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._writing is not None and not self._writing.done():
                written = asyncio.ensure_future(self._outbox.join())
                await asyncio.wait([written, self._writing], return_when=asyncio.FIRST_COMPLETED)
                written.cancel()
            await self._websocket.close()
        finally:
            for task in (self._reading, self._writing):
                if task is not None and task is not asyncio.current_task():
                    task.cancel()
            await self._end()
