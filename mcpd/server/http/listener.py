"""The application on sockets of our own, inside the event loop that is running.

What stops us is `serving`, and it always ends. WebSocket upgrades go to `transports.websocket`, with their connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context

from mcpd.errors import ConfigurationError
from mcpd.protocol.channel import Channel, Ending, Receiver
from mcpd.server.http.exchange import Application, HttpState
from mcpd.server.http.http1 import LINGER, Http1Protocol
from mcpd.transports.accepting import Acceptor, ConnectionLimit
from mcpd.transports.address import Address, authority, bind, bind_unix, check_guarded, close, is_local, parse
from mcpd.transports.guards import Access
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits

_DEFAULT_ACCESS = Access()


class HttpListener:
    """The application on `:PORT`, `HOST:PORT`, `[IPV6]:PORT` or `unix:/PATH`, and WebSocket on the same.

    `url` is what to give to a client, once it has started; `connection_limit` counts all connections of the process.
    `sockets` are bound to that address already, by somebody who keeps it: then they are listened on. `is_last_on_them`
    says, at the end, whether nobody else does.
    """

    def __init__(
        self,
        app: Application,
        address: str | Address,
        access: Access = _DEFAULT_ACCESS,
        connection_limit: ConnectionLimit | None = None,
        sockets: Sequence[socket.socket] = (),
        is_last_on_them: Callable[[], bool] = lambda: False,
        socket_mode: str = "600",
    ) -> None:
        self.app = app
        self.url = ""
        self._address = parse(address) if isinstance(address, str) else address
        self._access = access
        self._given = list(sockets)
        self._is_last_on_given = is_last_on_them
        self._socket_mode = socket_mode
        self._connection_limit = ConnectionLimit() if connection_limit is None else connection_limit
        self._state = HttpState(self._connection_limit)
        self._acceptor: Acceptor | None = None
        self._websockets: Endpoint
        self._timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> Iterable[Ending]:
        """All that may have calls running, and the routes."""
        return self.app.endings

    async def start(self, accept: Callable[[Channel], Receiver]) -> None:
        """Begin to accept; `accept` gives the receiver of a WebSocket's frames.

        Raises ConfigurationError for an address that cannot be used, or that is open to others without a token (D9).
        """
        app, path = self.app, self._address.path
        limits = WebSocketLimits(
            max_frame_bytes=app.settings.max_body_bytes, max_connections=app.settings.max_connections
        )
        sockets = await self._sockets()
        self._websockets = app.new_endpoint(accept, limits, self._connection_limit)
        self._connection_limit.check(limits.max_connections)
        endpoint = app.settings.path
        self.url = f"unix:{path} (http://localhost{endpoint})" if path else f"http://{authority(sockets[0])}{endpoint}"
        try:
            self._access.locate(app.settings.public_url, self.url, is_local=not path and is_local(sockets))
        except ConfigurationError:
            close(sockets)
            raise
        self._acceptor = Acceptor(self._connection_limit, sockets, self._connect)
        await app.start()
        self._state.context = copy_context()
        await self._acceptor.start()
        self._close_idle()

    async def _sockets(self) -> list[socket.socket]:
        is_guarded = self._access.is_guarded
        if self._given:
            if not is_guarded:
                check_guarded(self._address, self._given)
            return self._given
        if self._address.path:
            return [bind_unix(self._address.path, self._socket_mode)]
        return await bind(self._address, is_guarded=is_guarded)

    def _connect(self) -> asyncio.Protocol:
        return Http1Protocol(self.app, self._state, lambda: self._websockets.connect())

    def _close_idle(self) -> None:
        """Now and then close connections that nobody uses any more."""
        loop = asyncio.get_running_loop()
        for connection in list(self._state.connections):
            connection.close_idle(loop.time() - self.app.settings.idle_timeout)
        self._timer = loop.call_later(self.app.settings.idle_timeout / 4, self._close_idle)

    def pause(self) -> None:
        """Accept no more, and close what is idle; calls that run may be answered. `linger` or `aclose` comes next.

        Who waits in the queue of the socket is taken in first, unless that is somebody else's who goes on listening.
        """
        self.app.drain()
        if self._acceptor is None:
            return

        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        is_first = not self._state.is_draining
        self._state.is_draining = True
        self._acceptor.close(takes_waiting=is_first and (not self._given or self._is_last_on_given()))
        if self._address.path and not self._given:
            try:
                os.unlink(self._address.path)
            except OSError:
                pass  # gone already

        self._websockets.pause()
        for connection in list(self._state.connections):
            if is_first:
                connection.drain()
            else:
                connection.shutdown()

    async def linger(self) -> None:
        """After `pause` answer what was on its way, on connections that were in use; a second at most."""
        if self._acceptor is not None:
            await self._acceptor.taken()
        if self._state.lingering:
            self._state.settled.clear()
            await asyncio.wait([asyncio.ensure_future(self._state.settled.wait())], timeout=LINGER)

    async def aclose(self) -> None:
        """End what is still open, answers that are being written last, and cut off what does not end by itself."""
        self.pause()
        await self.app.aclose()
        if self._acceptor is None:
            return

        await self._websockets.aclose("the server is shutting down")
        connections = self._state.connections
        for connection in list(connections):
            connection.shutdown()
        await self._settle()
        for connection in list(self._state.connections):
            # Whose client does not read, or never sent all of its request: for its task the client is gone now.
            connection.transport.abort()

        await self._settle()
        for task in list(self._state.tasks):
            task.cancel()
        await self._settle()

    async def _settle(self) -> None:
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=LINGER)
