"""Noticing that the ASGI server around us shuts down, early enough to end the event streams that it waits for.

Uvicorn and hypercorn take no new connections once they are told to stop, and wait for the answers that are being
given; only then the application gets `lifespan.shutdown`, or nothing at all if it is mounted in another. An event
stream that listens has no end of its own, so that they would wait for each other.

ASGI has no message for it: `lifespan.shutdown.notice` was proposed and not taken (django/asgiref 199; 588 asks again).
Uvicorn sent `http.disconnect` for some weeks (Kludex/uvicorn 2829, taken back in 2913), and gives an application no
way to its `Server`, whose `should_exit` says it. Signals tell it too late or not at all: the program may handle them
itself, and the workers of hypercorn get none. What all these servers have in common is that they close their listening
sockets first. So the coroutines of the event loop are searched for the server, once, and its sockets looked at a few
times a second: the one place that looks into another program's variables. Under a server that is not known, or that
has changed inside, streams end when it cuts them off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mcpd.http.request import Scope

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
