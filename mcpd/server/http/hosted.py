"""The application inside another ASGI server: how it starts and ends there.

A server that supports the lifespan protocol starts and stops the application. A server without it, or one that mounts
the application below another one, only sends requests. Then the first request starts the application, and SIGTERM stops
it: the server's signal handler runs after the lifespan was closed. If requests are running, the server's handler runs
immediately, because servers wait for running requests, and the last request closes the lifespan.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from mcpd.transports.authentication import unavailable
from .app import HttpApp
from .request import HttpRequest, Receive, Scope, Send

# Modules of the coroutines that run a server, with the local variable that is the list of asyncio servers or has it as
# `servers`. Gunicorn's workers for uvicorn run the coroutine of uvicorn.
_SERVERS = {"uvicorn.server": "self", "hypercorn.asyncio.run": "servers"}
_EVERY = 0.25


class ShutdownWatch:
    """Notices that the ASGI server shuts down, early enough to end the event streams that it waits for.

    Uvicorn and hypercorn stop accepting connections when they are stopped, and then wait for running responses.
    Only afterwards the application receives `lifespan.shutdown`, or nothing if it is mounted in another application.
    An event stream never ends on its own, so that both would wait for each other.

    ASGI has no message for it: `lifespan.shutdown.notice` was proposed and not accepted (django/asgiref 199, 588).
    Uvicorn sent `http.disconnect` for some weeks (Kludex/uvicorn 2829, reverted in 2913), and gives an application no
    access to its `Server.should_exit`. Signals arrive too late or not at all: the program may handle them itself, run
    uvicorn in a thread, or run hypercorn, whose workers receive none. But all servers close their listening sockets
    first. So this class searches the coroutines of the event loop for the server, once, and checks its sockets several
    times a second. This is the only place that reads variables of other programs. Under another server, or after a
    change inside these, streams end when the server disconnects them.

    `end` is called repeatedly, because a request that was already accepted may still open a stream.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._servers: Sequence[Any] = ()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, scope: Scope) -> None:
        """Watch the server of a request or WebSocket, unless a server of this event loop is watched already."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return

        self._loop = loop
        servers = _find(scope.get("server"))
        if servers is not None:
            self._servers = servers
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(_EVERY, self._poll, loop)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        if not any(server.is_serving() for server in self._servers):
            self._loop = None  # the next request may be another server's
            self._end()
        self._timer = loop.call_later(_EVERY, self._poll, loop)

    def leave(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop = self._timer = None
        self._servers = ()


def _find(address: Any) -> Sequence[Any] | None:
    # Return the asyncio servers of the ASGI server with this address, if it is a known one.
    port = address[1] if address else None
    for servers in _running():
        if isinstance(servers, list) and any(_listens(server, port) for server in servers):
            return servers
    return None


def _running() -> Iterator[Any]:
    # Yield the lists of asyncio servers of all ASGI servers in this event loop.
    for task in asyncio.all_tasks():
        step: Any = task.get_coro()
        while (frame := getattr(step, "cr_frame", None)) is not None:
            name = _SERVERS.get(frame.f_globals.get("__name__", ""))
            # Reading the variables of a frame keeps their values alive, so only for the frames of servers.
            if name is not None and name in frame.f_code.co_varnames + frame.f_code.co_cellvars:
                value = frame.f_locals.get(name)
                yield getattr(value, "servers", None) if name == "self" else value
            step = step.cr_await


def _listens(server: Any, port: int | None) -> bool:
    return server.is_serving() and (port is None or any(socket.getsockname()[1] == port for socket in server.sockets))


_ENDING = unavailable("The server is shutting down.\n")


class HostedApp(HttpApp):
    """What `Server.asgi_app` returns."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._watch = ShutdownWatch(self.end_streams)
        self._starting: asyncio.Future[None] | None = None
        self._has_lifespan_events = False
        # The number of running requests and WebSockets.
        self._running = 0
        self._is_ending = False
        self._ending: asyncio.Task[None] | None = None
        self._next_handler: Callable[[int, FrameType | None], Any] | signal.Handlers = signal.SIG_DFL

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, serve one WebSocket, or follow the server's lifespan. Spec: ASGI 3."""
        if scope["type"] == "lifespan":
            self._has_lifespan_events = True
            try:
                await super().__call__(scope, receive, send)
            finally:
                self._has_lifespan_events = False
                self._watch.leave()
            return

        self._watch.watch(scope)
        if self._starting is None or self._starting.get_loop().is_closed():
            self._begin()
            self._is_ending = False
            self._starting = asyncio.ensure_future(self.start())
            if not self._has_lifespan_events:
                self._handle_signal()

        if self._ending is not None and not self._ending.done() and scope["type"] == "http":
            await HttpRequest(scope, receive, send).refuse(_ENDING)
            return

        self._running += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._running -= 1
            if self._is_ending and not self._running:
                await asyncio.shield(self._end())

    def _handle_signal(self) -> None:
        # Install a handler of SIGTERM, which calls the current handler later.
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread can install handlers; it also stops this thread
        handler = signal.getsignal(signal.SIGTERM)
        if handler == self._take_signal or not (callable(handler) or handler == signal.SIG_DFL):
            return

        self._next_handler = handler  # type: ignore[assignment]
        signal.signal(signal.SIGTERM, self._take_signal)

    def _take_signal(self, number: int, frame: FrameType | None) -> None:
        loop = self._loop
        if self._is_ending or loop is None or loop.is_closed():
            self._hand_on(number, frame)
        else:
            self._is_ending = True
            loop.call_soon_threadsafe(self._begin_to_end, number)

    def _begin_to_end(self, number: int) -> None:
        self.end_streams()
        if self._running:
            self._hand_on(number)
        else:
            self._ending = asyncio.ensure_future(self._end())
            self._ending.add_done_callback(lambda _: self._hand_on(number))

    def _hand_on(self, number: int, frame: FrameType | None = None) -> None:
        if callable(self._next_handler):
            self._next_handler(number, frame)
        else:
            signal.signal(number, self._next_handler)
            signal.raise_signal(number)

    async def _end(self) -> None:
        # Close everything. A later request starts the application again.
        await self.aclose(0)
        if self._lifespan is not None:
            await self._lifespan.release(self)
        self._starting = None
