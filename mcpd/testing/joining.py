"""Connects a client to a server in the same process: in memory, over pipes as on stdio, or over a WebSocket.

Closing the client's channel also ends the server's side, after its running calls.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from mcpd.client.limits import ClientLimits
from mcpd.client.target import connect
from mcpd.client.targets.named import UrlTarget
from mcpd.protocol.channel import Channel, Receiver
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import ANONYMOUS, Origin, Principal, Transport
from mcpd.protocol.session import Opening
from mcpd.server import Server
from mcpd.transports.guards import Access
from mcpd.transports.memory import MemoryChannel
from mcpd.transports.stdio import StdioChannel

if TYPE_CHECKING:
    from mcpd.client.channels import StartableChannel
    from mcpd.server.dispatcher.connection import ServerConnection

TRANSPORTS: tuple[Transport, ...] = ("memory", "stdio", "websocket", "http")
"""The transports, the fastest first."""

assert set(TRANSPORTS) == set(get_args(Transport))

_CALLS_SECONDS = 5.0


class Caller(NamedTuple):
    """The user who sends the requests, None if the server must authenticate them, and the headers of the requests."""

    user: Principal | None
    headers: tuple[tuple[str, str], ...]

    def origin(self, transport: Transport) -> Origin:
        """The origin of requests over a transport without authentication."""
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]
        return Origin(transport, ANONYMOUS if self.user is None else self.user, fields)


def access_of(server: Server, caller: Caller) -> Access:
    """The access rules: `caller.user` if it is given, otherwise the server's own authenticator."""
    user = caller.user
    if user is None:
        return Access(authenticate=server.authenticate, authenticate_timeout=server.authenticate_timeout)
    return Access(authenticate=lambda headers: user)


async def join(
    server: Server | Sequence[str], transport: Transport, caller: Caller, limits: ClientLimits
) -> StartableChannel:
    """Open a channel to a server. Raises ConfigurationError, TransportError."""
    if not isinstance(server, Server):
        return await connect(server, limits)
    if transport == "memory":
        loop = asyncio.get_running_loop()
        client_end, server_end = MemoryChannel(loop), _ServerEnd(loop, caller.origin("memory"))
        client_end.other, server_end.other = server_end, client_end
        return server.connect_memory((client_end, server_end))
    if transport == "stdio":
        return _PipesChannel(server, caller)
    if transport == "websocket":
        return await _join_by_websocket(server, caller, limits)
    from .asgi import AsgiChannel  # loads all of HTTP

    channel = AsgiChannel(server, access_of(server, caller), caller.headers)
    await channel.open()
    return channel


async def _end(server: Server, connection: ServerConnection) -> None:
    # Running calls may still answer for a while after the client has closed.
    try:
        await connection.finish(_CALLS_SECONDS)
    finally:
        if server.lifespan is not None:
            await server.lifespan.release(connection)


class _ServerEnd(MemoryChannel):
    def __init__(self, loop: asyncio.AbstractEventLoop, origin: Origin) -> None:
        super().__init__(loop)
        self._origin = origin

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return self._origin


class _StdioServerEnd(StdioChannel):
    caller: Origin

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return self.caller


class _PipesChannel(StdioChannel):
    """The client's end of two pipes to a server in this process; both ends use the framing of stdio."""

    def __init__(self, server: Server, caller: Caller) -> None:
        server_in, client_out = os.pipe()
        client_in, server_out = os.pipe()
        self._client_fds = [client_in, client_out]
        self._server_fds = [server_in, server_out]
        super().__init__(client_in, client_out, always_reads=True)

        self._server = server
        self._server_end = _StdioServerEnd(server_in, server_out)
        self._server_end.caller = caller.origin("stdio")
        self._connection = server.connect(self._server_end, Opening(principal=self._server_end.caller.user.id))
        if server.lifespan is not None:
            server.lifespan.hold(self._connection)
        self._server_end.start(self._connection)

    async def aclose(self, reason: str = "") -> None:
        if not self._client_fds:
            return
        client_in, client_out = self._client_fds
        self._client_fds = []
        try:
            await super().aclose(reason)
            # The server ends when its input ends.
            os.close(client_out)
            await _end(self._server, self._connection)
            await self._server_end.aclose()
        finally:
            for descriptor in (client_in, *self._server_fds):
                os.close(descriptor)


async def _join_by_websocket(server: Server, caller: Caller, limits: ClientLimits) -> StartableChannel:
    from mcpd.transports.websocket.server import WebSocketListener

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
        channel = await connect(UrlTarget(listener.url, headers=dict(caller.headers)), limits)
    except BaseException:
        await end()
        raise
    return cast("StartableChannel", _EndingChannel(channel, end))


class _EndingChannel:
    """A client's channel that also ends the server when it is closed."""

    def __init__(self, channel: StartableChannel, end: Callable[[], Awaitable[None]]) -> None:
        self._channel = channel
        self._end = end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    async def aclose(self, reason: str = "") -> None:
        try:
            await self._channel.aclose(reason)
        finally:
            await self._end()
