"""The application on sockets of our own, inside the event loop that is running.

Uvicorn's server (signals, reload, a tick ten times a second) stays out: what stops us is `serving`, and it always
ends. WebSocket upgrades go to `transports.websocket`, with their connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Iterable
from typing import Any

from ..channel import Channel, Receiver
from ..errors import ConfigurationError
from ..listener import Ending
from ..transports.accepting import Acceptor, ConnectionLimit
from ..transports.address import Address, authority, bind, parse
from ..transports.guards import Access
from ..transports.websocket_server import Endpoint, WebSocketLimits
from .application import Application
from .http1 import LINGER, Http1Protocol, HttpState, new_config

__all__ = ["HttpListener"]

_BACKLOG = 512
_DEFAULT_ACCESS = Access()


class HttpListener:
    """The application on `:PORT`, `HOST:PORT`, `[IPV6]:PORT` or `unix:/PATH`, and WebSocket on the same.

    `url` is what to give to a client, once it has started; `connection_limit` counts all connections of the process.
    """

    def __init__(
        self,
        app: Application,
        address: str | Address,
        access: Access = _DEFAULT_ACCESS,
        connection_limit: ConnectionLimit | None = None,
    ) -> None:
        self.app = app
        self.url = ""
        self._address = parse(address) if isinstance(address, str) else address
        self._access = access
        self._connection_limit = ConnectionLimit() if connection_limit is None else connection_limit
        self._state = HttpState(self._connection_limit)
        self._acceptor: Acceptor | None = None
        self._websockets: Endpoint
        self._timer: asyncio.TimerHandle | None = None
        self.config = new_config(app, self._upgrade)

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
        sockets = [_bind_unix(path)] if path else await bind(self._address, is_guarded=self._access.is_guarded)
        self._websockets = app.new_endpoint(accept, limits, self._connection_limit)
        self._connection_limit.check(limits.max_connections)
        endpoint = app.settings.path
        self.url = f"unix:{path} (http://localhost{endpoint})" if path else f"http://{authority(sockets[0])}{endpoint}"
        self._acceptor = Acceptor(self._connection_limit, sockets, self._connect)
        await self._acceptor.start()
        self._close_idle()

    def _connect(self) -> asyncio.Protocol:
        return Http1Protocol(self.config, self._state, {}, _loop=asyncio.get_running_loop())

    def _close_idle(self) -> None:
        """Now and then close connections that nobody uses any more."""
        loop = asyncio.get_running_loop()
        for connection in list(self._state.connections):
            if isinstance(connection, Http1Protocol):
                connection.close_idle(loop.time() - self.app.settings.idle_timeout)
        self._timer = loop.call_later(self.app.settings.idle_timeout / 4, self._close_idle)

    def _upgrade(self, **_uvicorn: Any) -> asyncio.BaseProtocol:
        return self._websockets.connect()

    def pause(self) -> None:
        """Accept no more, and close what is idle; calls that run may still be answered. `aclose` comes next."""
        self.app.drain()
        if self._acceptor is None:
            return

        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        self._acceptor.close()
        if self._address.path:
            try:
                os.unlink(self._address.path)
            except OSError:
                pass  # gone already

        self._websockets.pause()
        for connection in list(self._state.connections):
            connection.shutdown()

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


def _bind_unix(path: str) -> socket.socket:
    """A socket that listens on a path, for this user only; one left behind by a server that is gone is replaced."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_left_behind(path):
            os.unlink(path)
        listening.bind(path)
        os.chmod(path, 0o600)  # nobody can connect before it listens
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"Cannot listen on unix:{path}: {error.strerror or error}") from None
    return listening


def _is_left_behind(path: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
    except OSError:
        return False

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
    return False
