"""The limit of connections per process, and listening sockets that pause while it is reached.

Each connection needs a file descriptor, and so does each file, pipe and child process of a tool. The limit follows from
`ulimit -n`. While it is reached, new clients wait in the kernel's queue: accepting them would fail for lack of
descriptors, and so would the tools of other clients.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct

from mcpd.protocol.defaults import MAX_FRAME_BYTES
from mcpd.protocol.printable import printable

resource: Any
try:
    import resource
except ImportError:  # Windows
    resource = None

log = logging.getLogger("mcpd")

T = TypeVar("T")

_MOST_DESCRIPTORS = 65_536
_RESERVE = 256
_BACKLOG = 512
# The most connections that asyncio accepts in one iteration of the loop.
_AT_ONCE = 8
# The number of iterations in which asyncio accepts before it reports the connections of the first one.
_UNCOUNTED_TURNS = 3
_LOG_EVERY = 60.0


def _limits() -> tuple[int, int] | None:
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    return _MOST_DESCRIPTORS if soft == endless else soft, _MOST_DESCRIPTORS if hard == endless else hard


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard limit. Only for processes that mcpd itself started."""
    limits = _limits()
    if resource is not None and limits is not None and limits[0] < limits[1]:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with suppress(OSError, ValueError):  # keep the current limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(limits[1], _MOST_DESCRIPTORS)), hard))


def _open_now() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return 32


def is_tls(data: bytes, peer: str) -> bool:
    """Return whether a connection starts with a TLS handshake, and log it: the port serves without TLS."""
    has_tls = data.startswith(b"\x16\x03")
    if has_tls:
        log.warning(
            "%s used TLS on a port without TLS: use http:// or ws:// in the URL, or the address of the proxy that "
            "terminates TLS",
            printable(peer),
        )
    return has_tls


class ConnectionLimit:
    """Counts all connections of the process. `most` is the limit that its descriptors allow."""

    def __init__(self) -> None:
        limits = _limits()
        soft = sys.maxsize if limits is None else limits[0]
        # Descriptors for the files, pipes and child processes of tools.
        reserve = min(_RESERVE, soft // 4)
        self.most = max(1, soft - reserve - (0 if limits is None else _open_now()))
        # The connections that one acceptor may accept per iteration: uncounted ones may use half of the reserve.
        self.at_once = max(1, min(_AT_ONCE, reserve // (2 * _UNCOUNTED_TURNS)))
        self.count = 0
        self._descriptors = soft
        # These pause while the limit is reached.
        self.acceptors: set[Acceptor] = set()
        self._logged = -_LOG_EVERY

    def check(self, configured: int) -> None:
        """Log a warning if the configured number of connections cannot be reached."""
        if self.most < configured:
            log.warning(
                "At most %d connections are possible, not %d (max_connections): the process may open %d files; "
                "raise the limit with ulimit -n",
                self.most, configured, self._descriptors,
            )  # fmt: skip

    def opened(self) -> None:
        self.count += 1
        if self.count >= self.most:
            for acceptor in self.acceptors:
                acceptor.pause()
            now = asyncio.get_running_loop().time()
            if now - self._logged >= _LOG_EVERY:
                self._logged = now
                log.warning("All %d connections are in use; new clients wait until one ends", self.most)

    @property
    def is_exceeded(self) -> bool:
        """Whether more connections were accepted than allowed, so that the newest must be closed."""
        return self.count > self.most + self.at_once

    def ended(self) -> None:
        self.count -= 1
        if self.count < self.most:
            for acceptor in self.acceptors:
                acceptor.resume()


class WebSocketLimits(Struct, frozen=True, kw_only=True):
    """Limits of WebSocket connections. Times are in seconds."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    """The largest message in bytes."""
    max_queued_bytes: int = 256 * 1024 * 1024
    """The most bytes that may wait for a client that does not read. Reading from it already stops at 1 MiB."""
    max_connections: int = 1000
    """The most connections together, including those in their handshake."""
    max_authenticating: int = 256
    """The most connections whose users are still being authenticated."""
    open_timeout: float = 10.0
    close_timeout: float = 2.0
    ping_interval: float = 20.0
    """0 sends no pings."""
    ping_timeout: float = 20.0


class CountedConnections(set[T]):
    """A set of connections that are counted in a `ConnectionLimit`."""

    def __init__(self, connection_limit: ConnectionLimit) -> None:
        super().__init__()
        self.connection_limit = connection_limit

    def add(self, connection: T) -> None:
        if connection not in self:
            super().add(connection)
            self.connection_limit.opened()

    def discard(self, connection: object) -> None:
        if connection in self:
            super().discard(connection)
            self.connection_limit.ended()


class Acceptor:
    """Listening sockets that accept connections while the limit is not reached. `close` closes them for good."""

    def __init__(
        self,
        connection_limit: ConnectionLimit,
        sockets: list[socket.socket],
        connect: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._connection_limit = connection_limit
        self._sockets = sockets
        self._connect = connect
        self._servers: list[Any] = []
        self._is_paused = False
        self._is_closed = False
        self._opening: asyncio.Task[None] | None = None
        self._taking: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Start accepting. The sockets are closed if that fails."""
        self._connection_limit.acceptors.add(self)
        try:
            await self._open()
        except BaseException:
            self.close()
            raise

    async def _open(self) -> None:
        for listening in self._sockets:
            # Pausing closes the copy, while the queue of waiting clients stays with the original.
            copy = listening.dup()
            try:
                server = await _serve(self._connect, copy, self._connection_limit.at_once)
            except BaseException:
                copy.close()
                raise

            if self._is_closed or self._is_paused:
                server.close()
                return

            self._servers.append(server)
            listening.listen(_BACKLOG)  # asyncio's own backlog would also limit the accepts per iteration

    def pause(self) -> None:
        if self._is_paused or self._is_closed:
            return
        self._is_paused = True
        # Later, because the event loop may be accepting right now.
        asyncio.get_running_loop().call_soon(self._stop)

    def _stop(self) -> None:
        if self._is_paused:
            self._close_servers()

    def resume(self) -> None:
        if self._is_paused and not self._is_closed:
            self._is_paused = False
            if not self._servers and (self._opening is None or self._opening.done()):
                self._opening = asyncio.get_running_loop().create_task(self._open())

    def close(self, *, takes_waiting: bool = False) -> None:
        """Stop accepting and close the sockets.

        With `takes_waiting`, the connections in the kernel's queues are accepted first: their clients are connected
        and may have sent a request.
        """
        self._is_closed = True
        self._connection_limit.acceptors.discard(self)
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        self._close_servers()
        for listening in self._sockets:
            if takes_waiting:
                self._take_waiting(listening)
            listening.close()

    def _take_waiting(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        limit = self._connection_limit
        listening.setblocking(False)
        while limit.count + len(self._taking) < limit.most:
            try:
                connection, _ = listening.accept()
            except OSError:
                return  # the queue is empty

            connection.setblocking(False)
            self._taking.add(loop.create_task(loop.connect_accepted_socket(self._connect, connection)))

    async def taken(self) -> None:
        """Wait until the connections from the queues are set up."""
        taking, self._taking = self._taking, set()
        if taking:
            await asyncio.wait(taking)

    def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()


async def _serve(connect: Callable[[], asyncio.BaseProtocol], listening: socket.socket, at_once: int) -> Any:
    loop = asyncio.get_running_loop()
    if listening.family != getattr(socket, "AF_UNIX", None):
        return await loop.create_server(connect, sock=listening, backlog=at_once)
    # The path must stay while the acceptor pauses. uvloop has this argument, too.
    more: Any = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
    return await loop.create_unix_server(connect, sock=listening, backlog=at_once, **more)
