"""Plain functions run in worker threads, so that one that blocks holds up no other call. The one place for that.

Theory of operation. How many run at once, and whose turn it is, is decided in `thread_places`. A place is given back
when the waiting task *and* the thread are done with it: a cancelled call leaves a thread behind that still runs.
While a function waits for the client's answer its place is free for another; it then goes on at once, in a place or
beside them, as it holds its thread anyway and could only be done the later.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import CoroutineType
from typing import Any
from weakref import WeakKeyDictionary

from ..context.exchange import Exchange, this_thread
from ..serve_options import MAX_THREADS, THREAD_TIMEOUT
from .thread_places import Places, Taker

__all__ = ["limit_threads", "run_in_thread"]

_no_limit: Any = None


async def run_in_thread(function: Callable[..., Any], *args: Any, exchange: Exchange | None = None) -> Any:
    """`function(*args)` in a thread of anyio's pool; `exchange` is the request it runs for, whose client has a share.

    A coroutine that comes back is awaited here: a decorator may hide that its function is async.
    If the waiting task is cancelled, the thread is left to finish by itself: Python cannot stop it.
    Raises ToolError if other functions hold the threads for too long.
    """
    global _no_limit
    import anyio.to_thread  # loaded when the first plain function is called: it costs start-up

    if _no_limit is None:
        _no_limit = anyio.CapacityLimiter(float("inf"))  # anyio's own gives a place back while the thread still runs
    loop = asyncio.get_running_loop()
    places = _places_of.get(loop)
    if places is None:
        places = _places_of[loop] = Places(MAX_THREADS, THREAD_TIMEOUT)
    place = _Place(places, exchange, loop)
    if not places.take_at_once(place):
        await places.take(place)
    try:
        value = await anyio.to_thread.run_sync(place.run, function, args, abandon_on_cancel=True, limiter=_no_limit)
    finally:
        place.leave()
    return await value if value.__class__ is CoroutineType else value


def limit_threads(most: int, wait_seconds: float) -> None:
    """Set for the running event loop how many plain functions run at once; before the first of them."""
    _places_of[asyncio.get_running_loop()] = Places(most, wait_seconds)


_places_of: WeakKeyDictionary[asyncio.AbstractEventLoop, Places] = WeakKeyDictionary()


class _Place(Taker):
    """The place of one function. Its task and its thread may end in either order; the last one gives it back."""

    __slots__ = ("_is_beside", "_is_paused", "_lock", "_loop", "_places", "_users")

    def __init__(self, places: Places, exchange: Exchange | None, loop: asyncio.AbstractEventLoop) -> None:
        self._exchange = exchange
        self._places = places
        self._loop = loop
        self._lock = threading.Lock()
        self._users = 1
        self._is_paused = False
        self._is_beside = False

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call the function, in its thread."""
        with self._lock:
            if self._users == 0:
                return None  # cancelled before it began
            self._users = 2
        this_thread.place = self
        try:
            return function(*args)
        finally:
            this_thread.place = None
            if self._is_free():
                self._tell(self._give_back)

    def leave(self) -> None:
        """The task waits for the function no longer."""
        if self._is_free():
            self._give_back()

    def _is_free(self) -> bool:
        with self._lock:
            self._users -= 1
            return self._users == 0

    def _give_back(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._places.end_paused(self)
        elif self._is_beside:
            self._places.end_beside(self)
        else:
            self._places.give_back(self)

    def pause(self) -> None:
        """The function, in its thread, begins to wait for the client."""
        self._tell(self._pause)

    def _pause(self) -> None:
        if self._users and not self._is_beside:  # else it is over by now
            self._is_paused = self._places.pause(self)

    def resume(self) -> None:
        """It goes on."""
        self._tell(self._resume)

    def _resume(self) -> None:
        if self._users and self._is_paused:
            self._is_paused = False
            self._is_beside = not self._places.resume(self)

    def _tell(self, step: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError:
            pass  # the loop is closed, and nobody waits for a place
