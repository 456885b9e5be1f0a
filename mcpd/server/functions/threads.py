"""Plain functions run in worker threads, so that a blocking function holds up no other call.

Theory of operation. `thread_slots` decides how many run at once, and in which order. A slot is released when both the
waiting task and the thread have finished with it: a cancelled call leaves a thread that still runs. While a function
waits for its client's answer, another function may use its slot. After the answer the function continues at once, with
or without a slot, because it holds its thread anyway.
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

from mcpd.protocol.defaults import MAX_THREADS, THREAD_TIMEOUT
from mcpd.server.functions.thread_slots import Job, RunsFor, ThreadSlots


class _ThisThread(threading.local):
    slot: _Slot | None = None
    """The slot of the plain function that runs in this thread."""


this_thread = _ThisThread()


class StepsFor(RunsFor, Protocol):
    """The request that a `ThreadStep` belongs to."""

    def end(self) -> None:
        """End the request: its unanswered questions are given up."""


async def run_in_thread(function: Callable[..., Any], *args: Any, exchange: RunsFor | None = None) -> Any:
    """Return `function(*args)`, run in a thread. `exchange` is the request, whose client has a share of the threads.

    A returned coroutine is awaited here, since a decorator may hide that its function is async. If the waiting task is
    cancelled, the thread finishes on its own, because Python cannot stop it. Raises ThreadsBusy if other functions hold
    the threads for too long.
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
        context.run(
            sniffio.current_async_library_cvar.set, None
        )  # no event loop runs in the thread, whatever the variable says

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
    """Set the number of plain functions that run at once in this event loop, before the first one runs."""
    for loop in [loop for loop in _slots_of if loop.is_closed()]:
        # A function that was running when its loop was closed keeps the loop and its slots alive.
        _slots_of.pop(loop).close_pool()
    loop = asyncio.get_running_loop()
    slots = ThreadSlots(most, wait_seconds)
    if loop in _slots_of:
        slots.take_pool(_slots_of[loop])
    _slots_of[loop] = slots
    return slots


_slots_of: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadSlots] = WeakKeyDictionary()


class ThreadStep:
    """One step of an object that is opened, used and closed in threads; a call's cancellation is delayed.

    A step that has begun is awaited even if its call is cancelled, because the object is closed after it. A step that
    `has_to_run` takes no slot, which others may hold for long, and runs even if it was cancelled before it began.
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
        """Return `function(*args, **options)`, or None if it `has_to_run`. Raises its exception, or CancelledError
        after it.
        """
        if self._has_to_run:
            await self._run_surely(function, options, args)
            return None
        try:
            return await run_in_thread(self._run, function, options, args, exchange=self._exchange)
        except asyncio.CancelledError:
            with self._lock:
                self._is_given_up = not self._has_begun
            if self._has_begun:
                self._exchange.end()  # its questions to the client are no longer answered
                await self._ended.wait()
            raise

    async def _run_surely(self, function: Callable[..., Any], options: dict[str, Any], args: tuple[Any, ...]) -> None:
        import anyio.to_thread

        # In its own task, because a cancelled task would not begin.
        work = anyio.to_thread.run_sync(self._run_caught, function, options, args, limiter=anyio.CapacityLimiter(1))
        task = asyncio.ensure_future(work)
        try:
            error = await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])  # its exception is dropped in favour of the cancellation
            raise
        try:
            if error is not None:
                raise error
        finally:
            del error  # avoids a cycle with the traceback

    def _run_caught(
        self, function: Callable[..., Any], options: dict[str, Any], args: tuple[Any, ...]
    ) -> BaseException | None:
        """Return the exception instead of raising it: a task that raises SystemExit ends the event loop."""
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
            except RuntimeError:  # the loop is closed, and nothing waits
                pass


class _Slot(Job, eq=False):
    """The slot of one function, and the function as a job. Released when the function has ended, or will never begin.

    A struct, because one is made for each call.
    """

    slots: ThreadSlots
    function: Callable[..., Any]
    args: tuple[Any, ...]
    context: Context
    ended: asyncio.Future[None]
    claim: list[bool]
    """The thread or the task takes its one item, and so decides whether the function runs or never will."""
    value: Any = None
    error: BaseException | None = None
    is_over: bool = False
    is_asking: bool = False
    is_without_slot: bool = False

    # -- the job -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Submit the function. Raises RuntimeError if no thread can be started."""
        pool = self.slots.pool
        assert pool is not None
        try:
            pool.submit(self.run)
        except RuntimeError:
            if not self.slots.is_open:
                raise
            # Pools refuse work while Python waits for its last threads. This loop may run in one of them.
            threading.Thread(target=self.run, name="mcpd-function").start()

    def run(self) -> None:
        try:
            self.claim.pop()
        except IndexError:
            return  # cancelled before the function began
        this_thread.slot = self
        try:
            self.value = self.context.run(self.function, *self.args)
        except BaseException as error:
            self.error = error
        finally:
            this_thread.slot = None
        self.slots.end_soon(self)

    def end(self) -> None:
        """Release the slot and let the waiting task continue."""
        self._release()
        if self.ended.done():  # the task was cancelled
            self.drop()
        else:
            self.ended.set_result(None)

    def drop(self) -> None:
        """Drop the value or the error. An error would keep itself alive through the frame of `run` in its traceback."""
        self.value = self.error = None

    def give_up(self) -> None:
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
        """Called by the function's thread before it waits for the client."""
        self._call_soon(self._release_while_asking)

    def _release_while_asking(self) -> None:
        if not self.is_over and not self.is_without_slot:
            self.is_asking = self.slots.release_while_asking(self)

    def reacquire(self) -> None:
        """Called by the function's thread after the client's answer."""
        self._call_soon(self._reacquire)

    def _reacquire(self) -> None:
        if not self.is_over and self.is_asking:
            self.is_asking = False
            self.is_without_slot = not self.slots.reacquire(self)

    def _call_soon(self, step: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(step)
        except RuntimeError:
            pass  # the loop is closed, and nothing waits for a slot


class ThreadCall:
    """A coroutine that runs as a task of `loop`, for a thread that waits for it in `result`.

    `asyncio.run_coroutine_threadsafe` leaves a reference cycle after each use, which would keep everything that the
    call used until the garbage collector runs.

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
        self._done.acquire()  # released at the end: the cheapest way to wait

        try:
            loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            work.close()
            raise

    def result(self) -> Any:
        """Wait for the coroutine's result. Raises its exception, or concurrent.futures.CancelledError."""
        self._done.acquire()
        if self._error is None:
            return self._value
        try:
            raise self._error
        finally:
            self._error = None  # the traceback refers to this frame, and the frame to this object

    def cancel(self) -> None:
        """Cancel the coroutine. Safe from any thread."""
        self._is_cancelled = True
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            pass  # the loop is closed, and nothing runs in it

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
