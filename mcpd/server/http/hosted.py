"""The application inside other people's ASGI servers: how it begins and ends there.

A server that supports the lifespan protocol starts and stops the application. One that mounts it below another
application, or has no lifespan protocol, only sends requests. Then the first request starts it, and SIGTERM stops it:
the handler of the server runs after the author's lifespan has been closed. If requests are running, the server's
handler runs at once, because servers wait for running requests, and the last of these closes the lifespan before it
ends.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from mcpd.server.http.app import HttpApp
from mcpd.server.http.request import HttpRequest, Receive, Scope, Send
from mcpd.transports.authentication import Refusal

_SERVERS = {"uvicorn.server": "self", "hypercorn.asyncio.run": "servers"}
"""The modules of the coroutines that run a server, and which local variable is the list of listening asyncio servers,
or has it as its `servers`. Gunicorn's workers for uvicorn run uvicorn's."""
_EVERY = 0.25


class ShutdownWatch:
    """Calls `end` when the server that brought the last requests has closed its sockets, and then again and again.

    Again, because a request that was on its way may still open a stream.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._servers: Sequence[Any] = ()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, scope: Scope) -> None:
        """Watch the server of this request or WebSocket, unless one of this event loop is watched already."""
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
        """Watch nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop = self._timer = None
        self._servers = ()


def _find(address: Any) -> Sequence[Any] | None:
    """The listening asyncio servers of the ASGI server that listens at this address of a scope, if it is known."""
    port = address[1] if address else None
    for servers in _running():
        if isinstance(servers, list) and any(_listens(server, port) for server in servers):
            return servers
    return None


def _running() -> Iterator[Any]:
    """The lists of asyncio servers, or None, of all ASGI servers that run in this event loop."""
    for task in asyncio.all_tasks():
        step: Any = task.get_coro()
        while (frame := getattr(step, "cr_frame", None)) is not None:
            name = _SERVERS.get(frame.f_globals.get("__name__", ""))
            # Looking at the variables of a frame keeps their values alive for as long as it: not for any frame.
            if name is not None and name in frame.f_code.co_varnames + frame.f_code.co_cellvars:
                found = frame.f_locals.get(name)
                yield getattr(found, "servers", None) if name == "self" else found
            step = step.cr_await


def _listens(server: Any, port: int | None) -> bool:
    return server.is_serving() and (port is None or any(socket.getsockname()[1] == port for socket in server.sockets))


_ENDING = Refusal(503, "The server is shutting down.\n", (("Retry-After", "5"),))


class HostedApp(HttpApp):
    """What `Server.asgi_app` returns."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._watch = ShutdownWatch(self.end_streams)
        self._starting: asyncio.Future[None] | None = None
        self._has_lifespan_events = False
        self._running = 0
        """Requests and WebSockets that are being served."""
        self._is_ending = False
        self._ending: asyncio.Task[None] | None = None
        self._next_handler: Callable[[int, FrameType | None], Any] | signal.Handlers = signal.SIG_DFL

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, WebSocket, or life of the server. Spec: ASGI 3."""
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
        """Be called on SIGTERM before whoever handles it now."""
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers, and whoever has it stops this thread
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
        """Close everything. A request that comes after it starts the application again."""
        await self.aclose(0)
        if self._lifespan is not None:
            await self._lifespan.let_go(self)
        self._starting = None
