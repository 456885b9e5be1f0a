"""Work that a thread and the event loop share: steps that run in threads, coroutines that a thread waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, Protocol

from .annotations import Function, Values
from .threads import RunsFor, run_in_thread


class StepsFor(RunsFor, Protocol):
    """The request that a `ThreadStep` belongs to."""

    def end(self) -> None:
        """End the request: its unanswered questions are given up."""


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

    async def run(self, function: Function, options: Values, /, *args: Any) -> Any:
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

    async def _run_surely(self, function: Function, options: Values, args: tuple[Any, ...]) -> None:
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

    def _run_caught(self, function: Function, options: Values, args: tuple[Any, ...]) -> BaseException | None:
        # Return the exception instead of raising it: a task that raises SystemExit ends the event loop.
        try:
            self._run(function, options, args)
        except BaseException as error:
            return error
        return None

    def _run(self, function: Function, options: Values, args: tuple[Any, ...]) -> Any:
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
