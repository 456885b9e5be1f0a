"""Serves a `Server` over its transports until it is stopped, and then always ends (decision D11).

The end of stdin, SIGTERM and Ctrl-C stop it: new calls are refused, running calls get `grace` seconds, then they are
cancelled. A second signal ends the wait. Code that does not stop even then, or blocks the event loop, ends with the
process (`shutdown`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.budget import BUDGET
from mcpd.protocol.defaults import MAX_THREADS, THREAD_TIMEOUT
from mcpd.protocol.session import Opening
from mcpd.server.extensions.base import Extension
from .dispatcher import ServerConnection
from .settings import Settings
from .shutdown import ENDING_SECONDS, HURRY_SECONDS, ExitDeadline, LoopWatch, StdinWatchdog, Stop, end_if_hung

if TYPE_CHECKING:
    from mcpd.protocol.channel import Channel, Ending, Listener, Receiver, Watcher
    from .core import ServerCore
    from .lifespan import Lifespan

__all__ = ["Settings", "run", "serve", "serve_here"]

log = logging.getLogger("mcpd")

# On stdio a host has received its first answers by then.
_SETTLED_SECONDS = 2.0

_TRACE_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")


def run(server: ServerCore, settings: Settings) -> None:
    """Run `serve` in its own event loop; blocks. Ends the process if tools still run after it.

    Raises RuntimeError if an event loop is running in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError(
            "run() needs its own event loop, but one is running in this thread; "
            "use: await mcpd.server.serving.serve(server, Settings(stdio=True))"
        )

    older = threading.enumerate()
    _take_process(settings)
    exit_deadline = ExitDeadline()
    try:
        is_on_sockets = settings.http is not None or settings.ws is not None
        with asyncio.Runner(loop_factory=_fast_loop() if is_on_sockets else None) as runner:
            runner.run(serve(server, settings, exit_deadline))
            # The runner waits for tasks that refuse to be cancelled, and for the loop's threads.
            exit_deadline.arm(HURRY_SECONDS)
    finally:
        exit_deadline.disarm()

    end_if_hung(older=older)


async def serve_here(server: ServerCore, settings: Settings) -> None:
    """Run `serve` for a program with an event loop that only serves until it is stopped."""
    _take_process(settings)
    exit_deadline = ExitDeadline()
    try:
        await serve(server, settings, exit_deadline)
    finally:
        exit_deadline.disarm()


def _take_process(settings: Settings) -> None:
    if settings.ws is not None or settings.http is not None or settings.listeners:
        from mcpd.transports.accepting import raise_descriptor_limit

        raise_descriptor_limit()

    from mcpd.transports.stdio import claim, fill_gaps

    if settings.announce is None:
        settings.announce = lambda url: _print_hint(f"listening on {url} (Ctrl-C stops it)")
        if settings.stdio and sys.stdin is not None and sys.stdin.isatty():
            _print_hint("serving on stdio: expecting an MCP client on stdin. Press Ctrl-C to stop.")
    if not settings.stdio:
        fill_gaps()
    elif settings.descriptors is None:
        settings.descriptors = claim()


def _print_hint(text: str) -> None:
    # Write to the terminal of a program that starts a server; `mcpd serve` has its own output.
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"mcpd: {text}\n")


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    # Return uvloop's factory if it is installed; it is faster with sockets.
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def serve(server: ServerCore, settings: Settings, exit_deadline: ExitDeadline | None = None) -> None:
    """Serve until a signal, or until the end of stdin if that is served. Raises ConfigurationError for a bad address.

    Signals that the program handles itself stay with it; it stops serving by cancelling this coroutine. `exit_deadline`
    ends the process if tools do not stop; without it they are left running.
    """
    stop = Stop(asyncio.get_running_loop(), settings.grace, exit_deadline)
    clients = _Clients(server, stop)
    stdin_watchdog: StdinWatchdog | None = None
    loop_watch = None if exit_deadline is None else LoopWatch()
    lifespan = server.lifespan

    _apply(server, settings)
    try:
        _use_service_manager(settings, stop)
        if _is_watched(settings):
            await clients.watch(settings)
        if _is_traced(os.environ):
            clients.trace()
        if settings.wire_log is not None:
            clients.write_wire_log(settings.wire_log)
        listeners: list[Listener] = []
        if settings.ws is not None or settings.http is not None or settings.listeners:
            from .listening import listeners_of

            listeners = listeners_of(server, settings)
        if listeners and lifespan is not None and not await _open(lifespan, stop):
            return
        for listener in listeners:
            await clients.listen(listener)
        for listener in listeners:
            if settings.announce is not None and listener.url:
                settings.announce(listener.url)

        if settings.stdio:
            from mcpd.transports.stdio import StdioListener, claim

            fd_in, fd_out, received = *(settings.descriptors or claim()), getattr(settings, "received", None)
            await clients.listen(StdioListener(fd_in, fd_out, settings.max_frame_bytes, received))
            if settings.after_start is not None and not listeners:
                asyncio.get_running_loop().call_later(_SETTLED_SECONDS, settings.after_start)
            if exit_deadline is not None:
                stdin_watchdog = StdinWatchdog(fd_in, settings.grace + ENDING_SECONDS, exit_deadline)
            if lifespan is not None:
                await _open(lifespan, stop)

        clients.on_state = settings.on_state
        await clients.are_served()
        await stop.wait()
        clients.pause()
        await _finish(clients, settings.grace, stop)
    finally:
        await clients.aclose()
        if lifespan is not None:
            await _close(lifespan, stop, settings.grace)
        if stdin_watchdog is not None:
            stdin_watchdog.stop()
        if loop_watch is not None:
            loop_watch.stop()
        stop.restore()


def _use_service_manager(settings: Settings, stop: Stop) -> None:
    # Take sockets from a service manager and notify it when ready; let a parent process stop this one.
    # Raises ConfigurationError.
    if settings.overseer is not None:
        settings.overseer.take_stop(partial(stop.ask, "the parent process requested it"))
    if any(each is not None and each.startswith("fd:") for each in (settings.http, settings.ws, settings.metrics)):
        from .listening import take_handed_over

        take_handed_over(settings)
    if settings.on_state is None and os.environ.get("NOTIFY_SOCKET"):
        from mcpd.transports.systemd import notify

        settings.on_state = lambda state: notify(f"{state.upper()}=1")


def _is_traced(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(map(environment.get, _TRACE_VARIABLES)) or "opentelemetry.sdk.trace" in sys.modules


def _is_watched(settings: Settings) -> bool:
    # Return whether metrics or the control socket are enabled; otherwise their modules are not loaded.
    has_clients = settings.http is not None or settings.ws is not None or bool(settings.listeners)
    return settings.metrics is not None or settings.control == "always" or (settings.control == "auto" and has_clients)


def _apply(server: ServerCore, settings: Settings) -> None:
    if (settings.max_threads, settings.thread_timeout) != (MAX_THREADS, THREAD_TIMEOUT):
        # Otherwise the first plain function loads it, with these values.
        from mcpd.server.functions.threads import limit_threads

        limit_threads(settings.max_threads, settings.thread_timeout)
    if settings.extensions:
        from mcpd.server.extensions.serving import configure

        configure(server.extensions, settings.extensions)
    if settings.tool_search != "off" or settings.resources_as_tools:
        from mcpd.server.extensions.catalogue import Catalogue

        search, has_resources = settings.tool_search, settings.resources_as_tools
        server.add_extension(Catalogue(tool_search=search, resources_as_tools=has_resources))
    server.heartbeat = settings.heartbeat
    if settings.max_memory is not None:
        BUDGET.most = settings.max_memory
    if settings.max_frame_bytes is not None:
        server.allow_frames(settings.max_frame_bytes)


class _Clients:
    # All listeners of one server, and the connections of their clients.
    def __init__(self, server: ServerCore, stop: Stop) -> None:
        self._server = server
        self._stop = stop
        self.on_state: Callable[[Literal["ready", "stopping"]], None] | None = None
        self._listeners: list[Listener] = []
        self._accepted: set[ServerConnection] = set()
        self._leaving = self._leave  # one bound method for all connections
        self._is_paused = False
        self._watching: Watcher | None = None
        # Ends metrics, traces and the wire log.
        self._observers = ExitStack()

    async def watch(self, settings: Settings) -> None:
        # Start metrics and the control socket, before the first client. Raises ConfigurationError.
        if settings.overseer is not None:
            self._watching = settings.overseer.new_watcher(self._server, lambda: self.connections)
        else:
            from mcpd.server.observe.watching import Watching

            self._watching = Watching(self._server, settings, lambda: self.connections)
        self._observers.callback(self._watching.stop)
        await self._watching.start()

    def trace(self) -> None:
        from mcpd.server.observe.tracing import Tracing

        tracing = Tracing.begin(self._server)
        if tracing is not None:
            self._observers.callback(tracing.stop)

    def write_wire_log(self, path: str) -> None:
        # Record each frame. Raises ConfigurationError for a file that cannot be written.
        from mcpd.transports.recorder import WireLog

        wire_log = WireLog(path)
        self._server.add_observer(wire_log)
        self._observers.callback(wire_log.close)

    async def are_served(self) -> None:
        for extension in self._server.extensions.values():
            await extension.start()
        if self._watching is not None:
            self._watching.ready([listener.url for listener in self._listeners if listener.url])
        if self.on_state is not None:
            self.on_state("ready")

    async def listen(self, listener: Listener) -> None:
        await listener.start(self._accept)
        self._listeners.append(listener)
        if self._watching is not None:
            self._watching.add(listener)

    def pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            for listener in self._listeners:
                listener.pause()
            if self._watching is not None:
                self._watching.stopping()
            if self.on_state is not None:
                self.on_state("stopping")

    async def serve_late_requests(self) -> None:
        serving = [getattr(listener, "serve_late_requests", None) for listener in self._listeners]
        await asyncio.gather(*(serve() for serve in serving if serve is not None))

    @property
    def connections(self) -> list[Ending]:
        # An HTTP listener creates its connections itself.
        others: list[Iterable[Ending]] = [getattr(listener, "connections", ()) for listener in self._listeners]
        return [*self._accepted, *chain.from_iterable(others)]

    @property
    def endings(self) -> list[Ending]:
        # Everything whose work has to end: connections, and extensions with work that goes on without a call.
        works = [extension.work for extension in self._server.extensions.values()]
        return [*self.connections, *filter(None, works)]

    async def aclose(self) -> None:
        self.pause()
        for listener in self._listeners:
            await listener.aclose()
        for extension in self._server.extensions.values():
            await extension.aclose()
        self._observers.close()

    def _accept(self, channel: Channel, *, is_only: bool = False) -> Receiver:
        # Return a connection for a client; see `channel.Accept`.
        opening = Opening(principal=channel.origin().user.id, peer=getattr(channel, "peer", ""))
        connection = self._server.connect(channel, opening)
        self._accepted.add(connection)
        if is_only:
            connection.ended.add_done_callback(partial(self._end, connection))
        else:
            connection.on_closed(self._leaving)
        return connection

    def _leave(self, connection: ServerConnection) -> None:
        # One of many clients has left: cancel its calls.
        self._accepted.discard(connection)
        connection.abort()

    def _end(self, connection: ServerConnection, ended: asyncio.Future[McpdError | None]) -> None:
        # The only client has closed its end: answer its calls, unless the connection was lost.
        if ended.result() is not None:
            connection.abort()
        log.debug("stopping: the client has closed the connection")
        self._stop.set()


async def _open(lifespan: Lifespan, stop: Stop) -> bool:
    # Open the lifespan. Returns False if the server was stopped before that.
    # On stdio calls are read meanwhile, and wait, because only reading shows the end of the input. Raises
    # ConfigurationError.
    lifespan.hold(stop)
    opening = asyncio.ensure_future(lifespan.open())
    try:
        if not await _ends_before(opening, stop.wait()):
            return False
        await opening
        return True
    finally:
        opening.cancel()


async def _ends_before(
    work: asyncio.Future[Any], event: Coroutine[Any, Any, None], seconds: float | None = None
) -> bool:
    # Wait for the end of work, but only until an event or for some seconds. Returns whether the work has ended.
    waiting = asyncio.ensure_future(event)
    try:
        await asyncio.wait([work, waiting], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return work.done()


async def _close(lifespan: Lifespan, stop: Stop, grace: float) -> None:
    # Close the lifespan after all calls; cancelled after `grace` seconds or a second stop.
    closing = asyncio.ensure_future(lifespan.release(stop))
    if not await _ends_before(closing, stop.wait_again(), grace):
        lifespan.cancel()
        await asyncio.wait([closing], timeout=1)


async def _finish(clients: _Clients, grace: float, stop: Stop) -> None:
    # Let calls end for `grace` seconds, or until the second stop; then cancel them.
    loop = asyncio.get_running_loop()
    end = loop.time() + grace
    lingering = asyncio.ensure_future(clients.serve_late_requests())
    await _ends_before(lingering, stop.wait_again(), grace)
    lingering.cancel()

    connections = clients.endings
    grace = max(0.0, end - loop.time())

    finishing: asyncio.Future[Any] = asyncio.gather(*(connection.finish(grace) for connection in connections))
    if not await _ends_before(finishing, stop.wait_again()):
        for connection in connections:
            connection.abort()

    await asyncio.wait([finishing], timeout=2)


def settings_for(
    *, stdio: bool, ws: str | None, http: str | None, installed: Iterable[Extension] = (), **others: Any
) -> Settings:
    """Return the settings for the options of `Server.run`, including options of `installed` extensions.

    Raises TypeError for an unknown option, ConfigurationError for a bad address.
    """
    of_extensions = {name: others[name] for name in others if name not in Settings.__struct_fields__}
    if of_extensions:
        from mcpd.server.extensions.serving import by_extension

        by_id = by_extension(installed, of_extensions)
        others = {name: value for name, value in others.items() if not any(name in values for values in by_id.values())}
        # Options given in both ways go to the same extension.
        both: Mapping[str, Mapping[str, Any]] = others.get("extensions", {})
        others["extensions"] = {**both, **{id: {**both.get(id, {}), **values} for id, values in by_id.items()}}

    unknown = [name for name in others if name not in Settings.__struct_fields__]
    if unknown:
        ways = 'choose transports with stdio=True, ws=":8080" or http=":8080"'
        known = ", ".join(name for name in Settings.__struct_fields__ if name not in ("stdio", "ws", "http"))
        raise TypeError(f"run() has no option {unknown[0]}; {ways}; the other options are {known}")

    for name, address in (("ws", ws), ("http", http)):
        if address is not None and not isinstance(address, str):
            raise ConfigurationError(f'{name}={address!r} is not an address; use a str such as ":8080"')

    has_others = ws is not None or http is not None or bool(others.get("listeners"))
    return Settings(stdio=stdio or not has_others, ws=ws, http=http, **others)
