"""Plain functions run in worker threads, so that one that blocks holds up no other call. Nothing else
starts threads for them.

Theory of operation. How many run at once, and whose turn it is, is decided in `thread_slots`. A slot is released
when the waiting task *and* the thread are done with it: a cancelled call leaves a thread behind that still runs.
While a function waits for its client's answer, another may have its slot. With the answer it goes on at once, whether
it gets a slot again or not: it holds its thread anyway, and would only be done the later.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import CoroutineType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ..context.exchange import this_thread
from ..serve_defaults import MAX_THREADS, THREAD_TIMEOUT
from .thread_slots import Borrower, RunsFor, ThreadSlots

__all__ = ["StepsFor", "ThreadStep", "limit_threads", "run_in_thread"]

_no_limit: Any = None


class StepsFor(RunsFor, Protocol):
    """The request that a `ThreadStep` is part of."""

    def end(self) -> None:
        """It is over: what it still waits for will not come."""


async def run_in_thread(function: Callable[..., Any], *args: Any, exchange: RunsFor | None = None) -> Any:
    """`function(*args)` in a thread of anyio's pool; `exchange` is the request it runs for, whose client has a share.

    A coroutine that comes back is awaited here: a decorator may hide that its function is async.
    If the waiting task is cancelled, the thread is left to finish by itself: Python cannot stop it.
    Raises ThreadsBusy if other functions hold the threads for too long.
    """
    global _no_limit
    import anyio.to_thread  # loaded when the first plain function is called: it costs start-up

    if _no_limit is None:
        _no_limit = anyio.CapacityLimiter(float("inf"))  # anyio's own gives a slot back while the thread still runs
    loop = asyncio.get_running_loop()
    slots = _slots_of.get(loop)
    if slots is None:
        slots = limit_threads(MAX_THREADS, THREAD_TIMEOUT)
    slot = _Slot(slots, exchange, loop)
    if not slots.try_acquire(slot):
        await slots.acquire(slot)
    try:
        value = await anyio.to_thread.run_sync(slot.run, function, args, abandon_on_cancel=True, limiter=_no_limit)
    finally:
        slot.leave()
    return await value if value.__class__ is CoroutineType else value


def limit_threads(most: int, wait_seconds: float) -> ThreadSlots:
    """Set for the running event loop how many plain functions run at once; before the first of them."""
    for loop in [loop for loop in _slots_of if loop.is_closed()]:
        # A function that was running when its loop was closed holds the loop, and so its slots would stay for ever.
        del _slots_of[loop]
    slots = _slots_of[asyncio.get_running_loop()] = ThreadSlots(most, wait_seconds)
    return slots


_slots_of: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadSlots] = WeakKeyDictionary()


class ThreadStep:
    """One step of something that is opened, used and closed, in a thread, with a call's cancellation put off.

    A step that has begun is waited for, though its call is cancelled: what it uses is closed after it. One that
    `has_to_run` takes no slot, which others may hold for long, and runs although it was cancelled before it began.
    """

    def __init__(self, exchange: StepsFor, *, has_to_run: bool = False) -> None:
        self._exchange = exchange
        self._has_to_run = has_to_run
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._has_begun = False
        self._is_given_up = False
        self._ended = asyncio.Event()

    async def run(self, function: Callable[..., Any], options: dict[str, Any], /, *args: Any) -> Any:
        """`function(*args, **options)`, None if it `has_to_run`. Raises what it raises, or CancelledError after it."""
        if self._has_to_run:
            await self._run_surely(function, options, args)
            return None
        try:
            return await run_in_thread(self._run, function, options, args, exchange=self._exchange)
        except asyncio.CancelledError:
            with self._lock:
                self._is_given_up = not self._has_begun
            if self._has_begun:
                self._exchange.end()  # what it asks of the client meanwhile is not answered any more
                await self._ended.wait()
            raise

    async def _run_surely(self, function: Callable[..., Any], options: dict[str, Any], args: tuple[Any, ...]) -> None:
        import anyio.to_thread

        # In a task of its own: cancelled, it would not begin.
        work = anyio.to_thread.run_sync(self._run_caught, function, options, args, limiter=anyio.CapacityLimiter(1))
        task = asyncio.ensure_future(work)
        try:
            error = await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])  # what it raises is not told: that the call was cancelled says more
            raise
        try:
            if error is not None:
                raise error
        finally:
            del error  # this frame is in its traceback

    def _run_caught(
        self, function: Callable[..., Any], options: dict[str, Any], args: tuple[Any, ...]
    ) -> BaseException | None:
        """What it raised. A task that raises SystemExit ends the event loop, whoever waits for it."""
        try:
            self._run(function, options, args)
        except BaseException as error:
            return error
        return None

    def _run(self, function: Callable[..., Any], options: dict[str, Any], args: tuple[Any, ...]) -> Any:
        with self._lock:
            if self._is_given_up:
                return None
            self._has_begun = True
        try:
            return function(*args, **options)
        finally:
            try:
                self._loop.call_soon_threadsafe(self._ended.set)
            except RuntimeError:  # the loop is closed, and nobody waits
                pass


class _Slot(Borrower):
    """The slot of one function. Its task and its thread may end in either order; the last one gives it back."""

    __slots__ = ("_is_asking", "_is_without_slot", "_lock", "_loop", "_slots", "_users")

    def __init__(self, slots: ThreadSlots, exchange: RunsFor | None, loop: asyncio.AbstractEventLoop) -> None:
        self._exchange = exchange
        self._slots = slots
        self._loop = loop
        self._lock = threading.Lock()
        self._users = 1
        self._is_asking = False
        self._is_without_slot = False

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call the function, in its thread."""
        with self._lock:
            if self._users == 0:
                return None  # cancelled before it began
            self._users = 2
        this_thread.slot = self
        try:
            return function(*args)
        finally:
            this_thread.slot = None
            if self._is_free() and not self._tell(self._release):
                # What is left of a loop that is closed, and of its calls, is kept by nothing else than this.
                self._slots.forget(self)

    def leave(self) -> None:
        """The task waits for the function no longer."""
        if self._is_free():
            self._release()

    def _is_free(self) -> bool:
        with self._lock:
            self._users -= 1
            return self._users == 0

    def _release(self) -> None:
        if self._is_asking:
            self._is_asking = False
            self._slots.end_while_asking(self)
        elif self._is_without_slot:
            self._slots.end_without_slot(self)
        else:
            self._slots.release(self)

    def release(self) -> None:
        """The function, in its thread, begins to wait for the client."""
        self._tell(self._release_while_asking)

    def _release_while_asking(self) -> None:
        if self._users and not self._is_without_slot:  # else it is over by now
            self._is_asking = self._slots.release_while_asking(self)

    def reacquire(self) -> None:
        """It goes on."""
        self._tell(self._reacquire)

    def _reacquire(self) -> None:
        if self._users and self._is_asking:
            self._is_asking = False
            self._is_without_slot = not self._slots.reacquire(self)

    def _tell(self, step: Callable[[], None]) -> bool:
        """Have something done on the event loop's thread; False if the loop is closed, and nobody waits for a slot."""
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError:
            return False
        return True
