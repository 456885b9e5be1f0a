"""Serving a `Server` over its transports until it is told to stop, and then always ending (decision D11).

EOF on stdin, SIGTERM or Ctrl-C: nothing more is read, running calls get `grace` seconds, the rest is
cancelled. A second signal does not wait.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..channel import Channel, Receiver
from ..dispatcher import Connection

if TYPE_CHECKING:
    from .app import Server

__all__ = ["Settings", "run", "serve"]


class Settings(Struct, kw_only=True):
    """How to serve. `descriptors` are (in, out) if stdio was claimed already; `grace` is in seconds."""

    stdio: bool = False
    ws: str | None = None
    descriptors: tuple[int, int] | None = None
    grace: float = 5.0
    token: str | None = None
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    announce: Callable[[str], None] | None = None
    """Told the address of each listening transport, once it listens."""


def run(server: Server, settings: Settings) -> None:
    """`serve` in an event loop of its own; blocks. Ends the process if threads of tools are still running after it."""
    if settings.stdio and settings.descriptors is None:
        from ..transports.stdio import claim

        settings.descriptors = claim()
    asyncio.run(serve(server, settings))


async def serve(server: Server, settings: Settings) -> None:
    """Serve until a signal, or the end of stdin if that is served. Raises ConfigurationError for a bad address."""
    stop = _Stop(asyncio.get_running_loop())
    connections: set[Connection] = set()
    pausers: list[Callable[[], None]] = []
    closers: list[Callable[[], Awaitable[None]]] = []
    try:
        if settings.ws is not None:
            from ..transports.guards import Access
            from ..transports.websocket_server import listen

            def accept(channel: Channel) -> Receiver:
                connection = server.connect(channel)
                connections.add(connection)
                connection.ended.add_done_callback(lambda _: _leave(connection, connections))
                return connection

            access = Access(
                token=settings.token,
                insecure=settings.insecure,
                hosts=settings.allowed_hosts,
                origins=settings.allowed_origins,
            )
            listener = await listen(settings.ws, accept, access)
            pausers.append(listener.pause)
            closers.append(listener.aclose)
            if settings.announce is not None:
                settings.announce(listener.url)
        if settings.stdio:
            from ..transports.stdio import StdioChannel, claim

            channel = StdioChannel(*(settings.descriptors or claim()))
            connection = server.connect(channel)
            connections.add(connection)
            connection.ended.add_done_callback(lambda _: stop.set())
            channel.start(connection)
            closers.append(channel.aclose)
        await stop.wait()
        for pause in pausers:
            pause()
        await _finish(connections, settings.grace, stop)
    finally:
        for close in closers:
            await close()
        stop.restore()


def _leave(connection: Connection, connections: set[Connection]) -> None:
    """A client of a listening transport is gone: nobody wants its answers."""
    connections.discard(connection)
    connection.abort()


async def _finish(connections: set[Connection], grace: float, stop: _Stop) -> None:
    """Let all calls end by themselves for `grace` seconds, or until the second wish to stop; then cancel them."""
    finishing: asyncio.Future[Any] = asyncio.gather(*(connection.finish(grace) for connection in list(connections)))
    hurry: asyncio.Future[Any] = asyncio.ensure_future(stop.wait_again())
    await asyncio.wait([finishing, hurry], return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not finishing.done():
        for connection in list(connections):
            connection.abort()
    await asyncio.wait([finishing], timeout=2)


class _Stop:
    """The wish to stop: from a signal, or from the end of the input; a second one is a wish to hurry."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._first = asyncio.Event()
        self._second = asyncio.Event()
        self._loop = loop
        self._signals: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, self.set)
                self._signals.append(number)
            except (NotImplementedError, RuntimeError, ValueError):
                # Not the main thread, or Windows: whoever embeds us has its own way to stop.
                pass

    def set(self) -> None:
        (self._second if self._first.is_set() else self._first).set()

    async def wait(self) -> None:
        await self._first.wait()

    async def wait_again(self) -> None:
        await self._second.wait()

    def restore(self) -> None:
        for number in self._signals:
            self._loop.remove_signal_handler(number)
