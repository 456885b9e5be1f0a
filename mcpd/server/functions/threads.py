"""Plain functions run in worker threads, so that one that blocks holds up no other call. Nothing else
starts threads for them.

Theory of operation. How many run at once, and whose turn it is, is decided in `thread_slots`. A slot is released
when the waiting task *and* the thread are done with it: a cancelled call leaves a thread behind that still runs.
While a function waits for its client's answer, another may have its slot. With the answer it goes on at once, whether
it gets a slot again or not: it holds its thread anyway, and would only be done the later.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from mcpd.serve_defaults import MAX_THREADS, THREAD_TIMEOUT
from mcpd.server.functions.thread_slots import Job, RunsFor, ThreadSlots


class _ThisThread(threading.local):
    slot: _Slot | None = None
    """The slot of the plain function that runs in this thread."""


this_thread = _ThisThread()


class StepsFor(RunsFor, Protocol):
    """The request that a `ThreadStep` is part of."""

    def end(self) -> None:
        """It is over: what it still waits for will not come."""


async def run_in_thread(function: Callable[..., Any], *args: Any, exchange: RunsFor | None = None) -> Any:
    """`function(*args)` in a thread; `exchange` is the request it runs for, whose client has a share of them.

    A coroutine that comes back is awaited here: a decorator may hide that its function is async.
    If the waiting task is cancelled, the thread is left to finish by itself: Python cannot stop it.
    Raises ThreadsBusy if other functions hold the threads for too long.
    """
    loop = asyncio.get_running_loop()
    slots = _slots_of.get(loop)
    if slots is None:
        slots = limit_threads(MAX_THREADS, THREAD_TIMEOUT)
    if slots.pool is None:
        await slots.open_pool()

    context = copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None and sniffio.current_async_library_cvar in context:
        context.run(sniffio.current_async_library_cvar.set, None)  # in the thread no loop runs, whatever says so here

    slot = _Slot(exchange, loop, slots, function, args, context, loop.create_future(), [True])
    if not slots.try_acquire(slot):
        await slots.acquire(slot)
    try:
        slot.begin()
        await slot.ended
    except (asyncio.CancelledError, RuntimeError):
        slot.give_up()
        raise
    error = slot.error
    if error is not None:
        try:
            raise error
        finally:
            slot.error = error = None
    value = slot.value
    return await value if value.__class__ is CoroutineType else value


def limit_threads(most: int, wait_seconds: float) -> ThreadSlots:
    """Set for the running event loop how many plain functions run at once; before the first of them."""
    for loop in [loop for loop in _slots_of if loop.is_closed()]:
        # A function that was running when its loop was closed holds the loop, and so its slots would stay for ever.
        _slots_of.pop(loop).close_pool()
    loop = asyncio.get_running_loop()
    slots = ThreadSlots(most, wait_seconds)
    if loop in _slots_of:
        slots.take_pool(_slots_of[loop])
    _slots_of[loop] = slots
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


class _Slot(Job, eq=False):
    """The slot of one function, and the function as a job. Given back when the function has ended, or will never begin.

    A struct because these are made in C, one for each call.
    """

    slots: ThreadSlots
    function: Callable[..., Any]
    args: tuple[Any, ...]
    context: Context
    ended: asyncio.Future[None]
    claim: list[bool]
    """Whoever takes its one item decides: the thread that it runs, or the task that it never will."""
    value: Any = None
    error: BaseException | None = None
    is_over: bool = False
    is_asking: bool = False
    is_without_slot: bool = False

    # -- the job -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Have it run. Raises RuntimeError if there is no thread for it."""
        pool = self.slots.pool
        assert pool is not None
        try:
            pool.submit(self.run)
        except RuntimeError:
            if not self.slots.is_open:
                raise
            # Pools take nothing any more while Python waits for its last threads, of which this loop's may be one.
            threading.Thread(target=self.run, name="mcpd-function").start()

    def run(self) -> None:
        """Call the function, in its thread."""
        try:
            self.claim.pop()
        except IndexError:
            return  # cancelled before it began
        this_thread.slot = self
        try:
            self.value = self.context.run(self.function, *self.args)
        except BaseException as error:
            self.error = error
        finally:
            this_thread.slot = None
        self.slots.end_soon(self)

    def end(self) -> None:
        """It has ended: the slot is free, and the task that waits goes on."""
        self._release()
        if self.ended.done():  # the task was cancelled meanwhile
            self.drop()
        else:
            self.ended.set_result(None)

    def drop(self) -> None:
        """Nobody takes what came of it; an error would keep itself, by the frame of `run` in its traceback."""
        self.value = self.error = None

    def give_up(self) -> None:
        """The task waits for the function no longer."""
        try:
            self.claim.pop()
        except IndexError:
            if self.is_over:
                self.drop()
            return
        self._release()

    def _release(self) -> None:
        self.is_over = True
        if self.is_asking:
            self.is_asking = False
            self.slots.end_while_asking(self)
        elif self.is_without_slot:
            self.slots.end_without_slot(self)
        else:
            self.slots.release(self)

    # -- while it asks the client ------------------------------------------------------------

    def release(self) -> None:
        """The function, in its thread, begins to wait for the client."""
        self._tell(self._release_while_asking)

    def _release_while_asking(self) -> None:
        if not self.is_over and not self.is_without_slot:
            self.is_asking = self.slots.release_while_asking(self)

    def reacquire(self) -> None:
        """It goes on."""
        self._tell(self._reacquire)

    def _reacquire(self) -> None:
        if not self.is_over and self.is_asking:
            self.is_asking = False
            self.is_without_slot = not self.slots.reacquire(self)

    def _tell(self, step: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(step)
        except RuntimeError:
            pass  # the loop is closed, and nobody waits for a slot


class ThreadCall:
    """One coroutine that runs as a task of `loop`; the thread that made this waits for it in `result`.

    Raises RuntimeError if the loop is closed.
    """

    __slots__ = ("_done", "_error", "_is_cancelled", "_loop", "_task", "_value", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: Coroutine[Any, Any, Any] | None = work
        self._task: asyncio.Task[Any] | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self._is_cancelled = False
        self._done = threading.Lock()
        self._done.acquire()  # released when it is done: the cheapest thing to wait for

        try:
            loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            work.close()
            raise

    def result(self) -> Any:
        """Wait for what the coroutine returns. Raises what it raises, or concurrent.futures.CancelledError."""
        self._done.acquire()
        if self._error is None:
            return self._value
        try:
            raise self._error
        finally:
            self._error = None  # else it would hold its traceback, that this frame, and this frame us

    def cancel(self) -> None:
        """Give it up. Safe from any thread."""
        self._is_cancelled = True
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            pass  # the loop is closed, and nothing of it runs any more

    # -- on the event loop's thread ----------------------------------------------------------

    def _begin(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        if self._is_cancelled:
            work.close()
            self._error = CancelledError()
            self._done.release()
            return
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._task = None
        if task.cancelled():
            self._error = CancelledError()
        else:
            self._error = task.exception()
            if self._error is None:
                self._value = task.result()
        self._done.release()
