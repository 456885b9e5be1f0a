"""Serving a `Server` over its transports until it is told to stop, and then always ending (decision D11).

EOF on stdin, SIGTERM or Ctrl-C: no new call is taken, those that run get `grace` seconds, the rest is
cancelled. A second signal does not wait. What does not stop even then ends with the process (`ending`), and so
does what blocks the event loop.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, structs

from ..channel import Channel, Receiver
from ..dispatcher import Connection
from ..errors import McpdError
from .ending import HangUp, LastResort, end_if_hung

if TYPE_CHECKING:
    from ..transports.guards import Access
    from ..transports.http.listener import HttpListener
    from .app import Server

__all__ = ["Settings", "run", "serve"]


class Settings(Struct, kw_only=True):
    """How to serve. `descriptors` are (in, out) if stdio was claimed already; `grace` is in seconds.

    A message of more than `max_frame_bytes` is refused, over whichever transport; None for the transport's own
    limit, 64 MiB if nothing else was set.
    """

    stdio: bool = False
    ws: str | None = None
    http: str | None = None
    http_settings: Any = None
    """The details of HTTP, an `HttpSettings`; None for the defaults."""
    ws_limits: Any = None
    """What one WebSocket client may use, a `transports.websocket_server.Limits`; None for the defaults."""
    descriptors: tuple[int, int] | None = None
    grace: float = 5.0
    max_frame_bytes: int | None = None
    token: str | None = None
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    announce: Callable[[str], None] | None = None
    """Told the address of each listening transport, once it listens."""


# Beyond the grace time: for what was cancelled to come to its end, and for the last answers to be written.
_ENDING_SECONDS = 3.0
_HURRY_SECONDS = 1.5


def run(server: Server, settings: Settings) -> None:
    """`serve` in an event loop of its own; blocks. Ends the process if tools still run after it.

    Raises RuntimeError if an event loop runs in this thread already.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError(
            "run() makes an event loop of its own, and one runs here already; "
            "in it write: await mcpd.server.serving.serve(server, Settings(stdio=True))"
        )
    older = threading.enumerate()
    if settings.stdio and settings.descriptors is None:
        from ..transports.stdio import claim

        settings.descriptors = claim()
    last_resort = LastResort()
    try:
        with asyncio.Runner(loop_factory=_fast_loop() if settings.http else None) as runner:
            runner.run(serve(server, settings, last_resort))
            # The runner waits for what does not let itself be cancelled, and for the loop's threads.
            last_resort.arm(_HURRY_SECONDS)
    finally:
        last_resort.disarm()
    end_if_hung(older=older)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes uvloop's event loop, where that is installed: over sockets it is the faster one."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def serve(server: Server, settings: Settings, last_resort: LastResort | None = None) -> None:
    """Serve until a signal, or the end of stdin if that is served. Raises ConfigurationError for a bad address.

    `last_resort` ends the process should tools not stop; without it they are left behind.
    """
    stop = _Stop(asyncio.get_running_loop(), settings.grace, last_resort)
    connections: set[Connection] = set()
    listeners: list[_Listening] = []
    closers: list[Callable[[], Awaitable[None]]] = []
    hang_up: HangUp | None = None

    def accept(channel: Channel) -> Receiver:
        connection = server.connect(channel)
        connections.add(connection)
        connection.ended.add_done_callback(lambda _: _leave(connection, connections))
        return connection

    try:
        if settings.ws is not None:
            listeners.append(await _listen_websocket(settings, accept))
            closers.append(listeners[-1].aclose)
        http = None
        if settings.http is not None:
            http = await _listen_http(server, settings, accept)
            listeners.append(http)
            closers.append(http.aclose)
        if settings.announce is not None:
            for listener in listeners:
                settings.announce(listener.url)
        if settings.stdio:
            from ..transports.stdio import MAX_FRAME_BYTES, StdioChannel, claim

            fd_in, fd_out = settings.descriptors or claim()
            channel = StdioChannel(fd_in, fd_out, max_frame_bytes=settings.max_frame_bytes or MAX_FRAME_BYTES)
            connection = server.connect(channel)
            connections.add(connection)

            def ended(end: asyncio.Future[McpdError | None]) -> None:
                if end.result() is not None:
                    connection.abort()  # nobody reads what is still answered
                stop.set()

            connection.ended.add_done_callback(ended)
            channel.start(connection)
            closers.append(channel.aclose)
            if last_resort is not None:
                hang_up = HangUp(fd_in, settings.grace + _ENDING_SECONDS, last_resort)
        await stop.wait()
        for listener in listeners:
            listener.pause()
        await _finish([*connections, *(http.app.connections if http is not None else ())], settings.grace, stop)
    finally:
        for close in closers:
            await close()
        if hang_up is not None:
            hang_up.stop()
        stop.restore()


class _Listening(Protocol):
    """Listening sockets, of whichever transport."""

    url: str

    def pause(self) -> None:
        """Accept nobody more; calls that run may still be answered."""

    async def aclose(self) -> None:
        """Close everything."""


def _access(settings: Settings) -> Access:
    from ..transports.guards import Access

    return Access(
        token=settings.token,
        insecure=settings.insecure,
        hosts=settings.allowed_hosts,
        origins=settings.allowed_origins,
    )


async def _listen_websocket(settings: Settings, accept: Callable[[Channel], Receiver]) -> _Listening:
    from ..transports.websocket_server import Limits, listen

    assert settings.ws is not None
    limits = settings.ws_limits or Limits()
    if settings.max_frame_bytes is not None:
        limits = structs.replace(limits, max_frame_bytes=settings.max_frame_bytes)
    return await listen(settings.ws, accept, _access(settings), limits)


async def _listen_http(server: Server, settings: Settings, accept: Callable[[Channel], Receiver]) -> HttpListener:
    from ..transports.address import parse
    from ..transports.http import HttpSettings
    from ..transports.http.listener import listen

    assert settings.http is not None
    address = parse(settings.http)
    access = _access(settings)
    details = settings.http_settings or HttpSettings()
    if settings.max_frame_bytes is not None:
        details = structs.replace(details, max_body_bytes=settings.max_frame_bytes)
    return await listen(server.http_app(access, details, bound=address.host), address, accept, access)


class _Finishing(Protocol):
    """A connection, as far as its end goes."""

    async def finish(self, grace: float) -> None:
        """Let running calls answer for so long, then stop the rest."""

    def abort(self) -> None:
        """Stop all running calls now."""


def _leave(connection: Connection, connections: set[Connection]) -> None:
    """A client of a listening transport is gone: nobody wants its answers."""
    connections.discard(connection)
    connection.abort()


async def _finish(connections: Sequence[_Finishing], grace: float, stop: _Stop) -> None:
    """Let all calls end by themselves for `grace` seconds, or until the second wish to stop; then cancel them."""
    finishing: asyncio.Future[Any] = asyncio.gather(*(connection.finish(grace) for connection in connections))
    hurry: asyncio.Future[Any] = asyncio.ensure_future(stop.wait_again())
    await asyncio.wait([finishing, hurry], return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not finishing.done():
        for connection in connections:
            connection.abort()
    await asyncio.wait([finishing], timeout=2)


class _Stop:
    """The wish to stop: from a signal, or from the end of the input; a second one is a wish to hurry.

    The event loop hears of a signal when it comes around to it. Python's own handler is called at once, even
    while a tool blocks the loop, and sees to it that the process ends.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, grace: float, last_resort: LastResort | None) -> None:
        self._first = asyncio.Event()
        self._second = asyncio.Event()
        self._loop = loop
        self._grace = grace
        self._last_resort = last_resort
        self._is_asked = False
        self._before: dict[int, Any] = {}
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            try:
                loop.add_signal_handler(number, self.set)
            except (NotImplementedError, RuntimeError, ValueError):
                # Not the main thread, or Windows: whoever embeds us has its own way to stop.
                continue
            # The loop is woken all the same: it had itself told of signals through a descriptor.
            signal.signal(number, self._arm)
            self._before[number] = before

    def _arm(self, number: int = 0, frame: object = None) -> None:
        if self._last_resort is not None:
            self._last_resort.arm(_HURRY_SECONDS if self._is_asked else self._grace + _ENDING_SECONDS)
        self._is_asked = True

    def set(self) -> None:
        if not self._is_asked:
            self._arm()
        (self._second if self._first.is_set() else self._first).set()

    async def wait(self) -> None:
        await self._first.wait()

    async def wait_again(self) -> None:
        await self._second.wait()

    def restore(self) -> None:
        for number, before in self._before.items():
            self._loop.remove_signal_handler(number)
            signal.signal(number, before)
