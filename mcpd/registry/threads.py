"""Plain functions run in worker threads, so that one that blocks holds up no other call. The one place for that.

Theory of operation. At most `MAX_THREADS` of them run at once for one event loop; each has a place among these. A
place is given back when the waiting task *and* the thread are done with it: a cancelled call leaves a thread behind
that still runs. While a function waits for the client's answer its place is free for another; it then goes on at
once, whoever runs meanwhile, as it holds its thread anyway and could only be done the later.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from types import CoroutineType
from typing import Any
from weakref import WeakKeyDictionary

from ..context.core import this_thread

__all__ = ["run_in_thread"]

MAX_THREADS = 64

_no_limit: Any = None


async def run_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` in a thread of anyio's pool.

    A coroutine that comes back is awaited here: a decorator may hide that its function is async.
    If the waiting task is cancelled, the thread is left to finish by itself: Python cannot stop it.
    """
    global _no_limit
    import anyio.to_thread  # loaded when the first plain function is called: it costs start-up

    if _no_limit is None:
        _no_limit = anyio.CapacityLimiter(float("inf"))  # anyio's own gives a place back while the thread still runs
    loop = asyncio.get_running_loop()
    places = _places_of.get(loop)
    if places is None:
        places = _places_of[loop] = _Places()
    await places.take()
    place = _Place(places, loop)
    try:
        value = await anyio.to_thread.run_sync(place.run, function, args, abandon_on_cancel=True, limiter=_no_limit)
    finally:
        place.leave()
    return await value if value.__class__ is CoroutineType else value


class _Places:
    """How many more functions may begin, and who waits to. Used on the event loop's thread only."""

    __slots__ = ("_free", "_waiting")

    def __init__(self) -> None:
        self._free = MAX_THREADS
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a place, in the order of asking."""
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.give_back()  # its turn came while it was cancelled
            raise

    def take_at_once(self) -> None:
        """Go on beside those that run, be there a place or not."""
        self._free -= 1

    def give_back(self) -> None:
        """One is done, or waits: the next may begin."""
        self._free += 1
        while self._waiting and self._free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                self._free -= 1
                turn.set_result(None)


_places_of: WeakKeyDictionary[asyncio.AbstractEventLoop, _Places] = WeakKeyDictionary()


class _Place:
    """The place of one function. Its task and its thread may end in either order; the last one gives it back."""

    __slots__ = ("_lock", "_loop", "_places", "_users")

    def __init__(self, places: _Places, loop: asyncio.AbstractEventLoop) -> None:
        self._places = places
        self._loop = loop
        self._lock = threading.Lock()
        self._users = 1

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
                self._tell(self._places.give_back)

    def leave(self) -> None:
        """The task waits for the function no longer."""
        if self._is_free():
            self._places.give_back()

    def _is_free(self) -> bool:
        with self._lock:
            self._users -= 1
            return self._users == 0

    def pause(self) -> None:
        """The function, in its thread, begins to wait for the client."""
        self._tell(self._places.give_back)

    def resume(self) -> None:
        """It goes on."""
        self._tell(self._places.take_at_once)

    def _tell(self, step: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError:
            pass  # the loop is closed, and nobody waits for a place
