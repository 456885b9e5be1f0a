"""How many connections the process takes, and listening sockets that rest while it has so many.

Each connection is a descriptor, and so is each file, pipe and child process of a tool. At the limit that follows from
`ulimit -n` no more are accepted, until one ends: new clients wait in the kernel's queue meanwhile. An
accept that fails for want of descriptors would fail again at once, and calls would fail with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from mcpd.protocol.printable import printable
from mcpd.serve_defaults import MAX_FRAME_BYTES

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
_AT_ONCE = 8
"""How many asyncio accepts in one turn of the loop, at most."""
_UNCOUNTED_TURNS = 3
"""asyncio accepts in so many turns before it tells of those it took in the first, and so before anybody can stop it."""
_LOG_EVERY = 60.0


def _limits() -> tuple[int, int] | None:
    """How many descriptors the process may have open, now and at most; None where nobody counts them."""
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    return _MOST_DESCRIPTORS if soft == endless else soft, _MOST_DESCRIPTORS if hard == endless else hard


def raise_descriptor_limit() -> None:
    """Let this process open as many descriptors as it may; for processes that are ours."""
    limits = _limits()
    if resource is not None and limits is not None and limits[0] < limits[1]:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(limits[1], _MOST_DESCRIPTORS)), hard))
        except (OSError, ValueError):
            pass  # it has to do with what it has


def _open_now() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return 32


def is_tls(data: bytes, peer: str) -> bool:
    """Whether the first bytes of a connection begin a TLS handshake, which is logged: the port serves without TLS."""
    found = data.startswith(b"\x16\x03")
    if found:
        log.warning(
            "%s spoke TLS to a port that serves without it: use http:// or ws:// in the URL, or the address of the "
            "proxy that ends TLS",
            printable(peer),
        )
    return found


class ConnectionLimit:
    """Counts all connections of the process; `most` is how many its descriptors leave room for."""

    def __init__(self) -> None:
        limits = _limits()
        soft = sys.maxsize if limits is None else limits[0]
        # For files, pipes and children of tools; where there is little, it is shared evenly.
        reserve = min(_RESERVE, soft // 4)
        self.most = max(1, soft - reserve - (0 if limits is None else _open_now()))
        self.at_once = max(1, min(_AT_ONCE, reserve // (2 * _UNCOUNTED_TURNS)))
        """How many an acceptor may accept in one turn of the loop: those not yet counted get half of the reserve."""
        self.count = 0
        self._descriptors = soft
        self._acceptors: set[Acceptor] = set()
        self._logged = -_LOG_EVERY

    def check(self, configured: int) -> None:
        """Say so if a setting promises more connections than there can be."""
        if self.most < configured:
            log.warning(
                "At most %d connections are taken, not %d (max_connections): the process may open %d files; "
                "raise that with ulimit -n",
                self.most, configured, self._descriptors,
            )  # fmt: skip

    def opened(self) -> None:
        """One more connection."""
        self.count += 1
        if self.count >= self.most:
            for acceptor in self._acceptors:
                acceptor.pause()
            now = asyncio.get_running_loop().time()
            if now - self._logged >= _LOG_EVERY:
                self._logged = now
                log.warning("All %d connections are in use; who comes now waits until one ends", self.most)

    @property
    def is_exceeded(self) -> bool:
        """More came in one turn than there is room for: the newest are to be closed at once."""
        return self.count > self.most + self.at_once

    def ended(self) -> None:
        """One connection less."""
        self.count -= 1
        if self.count < self.most:
            for acceptor in self._acceptors:
                acceptor.resume()

    def add(self, acceptor: Acceptor) -> None:
        """From now on this one accepts nothing while the limit is reached."""
        self._acceptors.add(acceptor)

    def discard(self, acceptor: Acceptor) -> None:
        """It accepts no more anyway."""
        self._acceptors.discard(acceptor)


class WebSocketLimits(Struct, frozen=True, kw_only=True):
    """What one client may use. Times are in seconds; a `ping_interval` of 0 sends no pings.

    Reading stops while more than 1 MiB waits for a client; `max_queued_bytes` is for what calls that run
    already still answer, and bounds the memory that a client which does not read can hold.
    `max_connections` is for all of them together, those in their handshake too; `max_authenticating` for those of
    whom it is not known yet who they are.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    max_queued_bytes: int = 256 * 1024 * 1024
    max_connections: int = 1000
    max_authenticating: int = 256
    open_timeout: float = 10.0
    close_timeout: float = 2.0
    ping_interval: float = 20.0
    ping_timeout: float = 20.0


class CountedConnections(set[T]):
    """A set of connections that counts towards the limit."""

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
    """Listening sockets, which accept while the limit is not reached. Once closed, they are gone."""

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
        """Begin to accept. If that fails the sockets are closed."""
        self._connection_limit.add(self)
        try:
            await self._open()
        except BaseException:
            self.close()
            raise

    async def _open(self) -> None:
        for listening in self._sockets:
            # A copy: what stops to accept is closed, and the queue of those that wait stays with the original.
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
            listening.listen(_BACKLOG)  # as asyncio's own limit is for both the queue and what it accepts at once

    def pause(self) -> None:
        """Accept nobody for now."""
        if self._is_paused or self._is_closed:
            return
        self._is_paused = True
        # Not while the event loop is accepting.
        asyncio.get_running_loop().call_soon(self._stop)

    def _stop(self) -> None:
        if self._is_paused:
            self._close_servers()

    def resume(self) -> None:
        """There is room again."""
        if self._is_paused and not self._is_closed:
            self._is_paused = False
            if not self._servers and (self._opening is None or self._opening.done()):
                self._opening = asyncio.get_running_loop().create_task(self._open())

    def close(self, *, takes_waiting: bool = False) -> None:
        """Accept nobody any more. With `takes_waiting` those first who wait in the queues, which end with the sockets:
        their clients are connected, and may have sent a request."""
        self._is_closed = True
        self._connection_limit.discard(self)
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
                return  # nobody more

            connection.setblocking(False)
            self._taking.add(loop.create_task(loop.connect_accepted_socket(self._connect, connection)))

    async def taken(self) -> None:
        """Those who waited are connected."""
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
    # The path is for the whole life of the server, or the manager's. uvloop knows this word as well.
    more: Any = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
    return await loop.create_unix_server(connect, sock=listening, backlog=at_once, **more)
