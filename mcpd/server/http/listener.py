"""The application on sockets of our own, inside the running event loop.

`serving` starts and stops the listener. WebSocket upgrades go to `transports.websocket`, with their connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING

from mcpd.errors import ConfigurationError
from mcpd.protocol.channel import Channel, Ending, Receiver
from mcpd.transports.accepting import Acceptor, ConnectionLimit
from mcpd.transports.address import Address, authority, bind, bind_unix, check_guarded, close, is_local, parse
from mcpd.transports.guards import Access
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits
from .exchange import HttpState
from .http1 import LINGER, Http1Protocol

if TYPE_CHECKING:
    from .app import HttpApp
    from .pages import PageApp

_DEFAULT_ACCESS = Access()


class HttpListener:
    """The application on `:PORT`, `HOST:PORT`, `[IPV6]:PORT` or `unix:/PATH`, and WebSocket on the same address.

    After `start`, `url` is the URL for clients. `connection_limit` counts all connections of the process. `sockets` are
    bound to the address already, by a parent process; at the end `is_last_on_them` returns whether no other process
    listens on them.
    """

    def __init__(
        self,
        app: HttpApp | PageApp,
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
        """All connections that may have running calls, and the routes."""
        return self.app.endings

    async def start(self, accept: Callable[[Channel], Receiver]) -> None:
        """Start accepting; `accept` returns the receiver of a WebSocket's frames.

        Raises ConfigurationError for an address that cannot be used, or that other machines reach without a token (D9).
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
        # Close idle connections, and schedule the next check.
        loop = asyncio.get_running_loop()
        for connection in list(self._state.connections):
            connection.close_idle(loop.time() - self.app.settings.idle_timeout)
        self._timer = loop.call_later(self.app.settings.idle_timeout / 4, self._close_idle)

    def pause(self) -> None:
        """Stop accepting, and close idle connections; running calls may be answered.

        Call `serve_late_requests` or `aclose` next. Clients that wait in the queue of the socket are accepted first,
        unless another process continues to listen.
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
            with suppress(OSError):  # closed already
                os.unlink(self._address.path)

        self._websockets.pause()
        for connection in list(self._state.connections):
            if is_first:
                connection.drain()
            else:
                connection.shutdown()

    async def serve_late_requests(self) -> None:
        """After `pause`, answer requests that were already sent on connections in use; at most one second."""
        if self._acceptor is not None:
            await self._acceptor.taken()
        if self._state.lingering:
            self._state.settled.clear()
            await asyncio.wait([asyncio.ensure_future(self._state.settled.wait())], timeout=LINGER)

    async def aclose(self) -> None:
        """End all connections after their current responses, and abort those that do not end in time."""
        self.pause()
        await self.app.aclose()
        if self._acceptor is None:
            return

        await self._websockets.aclose("the server is shutting down")
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._settle()
        for connection in list(self._state.connections):
            # Clients that do not read, or have not sent a complete request: their tasks see that the client left.
            connection.transport.abort()

        await self._settle()
        for task in self._state.tasks.values():
            task.cancel()
        await self._settle()

    async def _settle(self) -> None:
        if self._state.tasks:
            await asyncio.wait(self._state.tasks.values(), timeout=LINGER)
