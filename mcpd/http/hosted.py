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
from collections.abc import Callable
from types import FrameType
from typing import Any

from mcpd.http.app import HttpApp
from mcpd.http.request import HttpRequest, Receive, Scope, Send
from mcpd.http.shutdown_watch import ShutdownWatch
from mcpd.transports.authentication import Refusal

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
