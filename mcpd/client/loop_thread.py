"""An event loop on a thread of its own, for programs that have none: callers wait while the loop works.

The thread is a daemon, so a program that forgets to close its client still ends. At interpreter exit, open clients are
closed within `CLOSE_SECONDS`. Any thread may call except the loop's own, which would wait for itself.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

from mcpd.errors import ConnectionLost, LocalProtocolError
from mcpd.transports.process import open_process  # noqa: F401 - its exit handler must be registered before ours

log = logging.getLogger("mcpd.client")

T = TypeVar("T")
CLOSE_SECONDS = 10.0
"""Seconds that interpreter exit waits for open clients to close. Child processes are killed after that."""

_MAX_QUEUED_PROGRESS = 1000
"""Progress reports that wait for a slow callback. Further ones are dropped."""


class LoopThread:
    """A thread that runs an event loop between `start` and `stop`. `on_stop` runs last on the loop in any case."""

    def __init__(self, name: str, on_stop: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._owner = 0

    def start(self) -> None:
        """Start the thread. Raises LocalProtocolError if it was started before."""
        running = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(running)), name=self._name, daemon=True)
        with self._lock:
            if self._thread is not None:
                raise LocalProtocolError("a client can be opened only once; create another one")
            self._thread, self._owner = thread, os.getpid()
        thread.start()
        running.wait()
        _running.add(self)

    async def _serve(self, running: threading.Event) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        running.set()
        await self._stopping.wait()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._on_stop()
        except Exception:
            log.exception("a client could not be closed")

    def stop(self, seconds: float = CLOSE_SECONDS) -> None:
        """Stop the thread, and wait for it at most `seconds`. Calls that still wait raise ConnectionLost."""
        _running.discard(self)
        with self._lock:
            loop, stopping, thread = self._loop, self._stopping, self._thread
            self._loop = None
            # Under the lock: earlier calls are scheduled on the loop before it learns that it must stop.
            if loop is not None and stopping is not None and self._owner == os.getpid():
                loop.call_soon_threadsafe(stopping.set)
        if thread is not None and thread is not threading.current_thread() and self._owner == os.getpid():
            thread.join(seconds)

    @property
    def is_running(self) -> bool:
        """Whether the thread runs in this process. A forked child does not have it."""
        return self._loop is not None and self._owner == os.getpid()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work()` on the loop and return its result, or raise its exception.

        If the caller is interrupted (Ctrl-C), the work is cancelled. Raises LocalProtocolError if this thread cannot
        wait for the loop, and ConnectionLost if the loop stops meanwhile.
        """
        return self._result(self._schedule(work()))

    def run_with_progress(
        self, work: Callable[[Callable[..., None]], Coroutine[Any, Any, T]], on_progress: Callable[..., object]
    ) -> T:
        """Like `run`, for work that reports progress. `on_progress` is called on the caller's thread.

        If `on_progress` raises, the work is cancelled and the exception is raised.
        """
        reports: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()

        def report(*progress: Any) -> None:
            if reports.qsize() < _MAX_QUEUED_PROGRESS:
                reports.put(progress)

        future = self._schedule(work(report))
        future.add_done_callback(lambda _: reports.put(None))
        try:
            while (progress := reports.get()) is not None:
                on_progress(*progress)
        except BaseException:
            future.cancel()
            raise
        return self._result(future)

    def _schedule(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        problem = "the client is not open: use it inside `with`"
        with self._lock:
            if self._thread is threading.current_thread():
                problem = "the client works on this thread, which cannot wait for it: call it from another thread"
            elif self._loop is not None and self._owner != os.getpid():
                problem = "the client belongs to the parent of this forked process: create another one here"
            elif self._loop is not None:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise LocalProtocolError(problem)

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except CancelledError:
            raise ConnectionLost("the client is closed") from None
        except BaseException:
            future.cancel()  # has no effect if the work itself raised
            raise


_running: set[LoopThread] = set()


@atexit.register
def _stop_all() -> None:
    """Close clients that the program left open, so that servers are notified and child processes end."""
    for thread in list(_running):
        thread.stop()


async def run_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a plain function on a thread of its own and return its result. The function may block.

    A thread of the loop's executor would delay interpreter exit for as long as the function blocks.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    def run() -> None:
        value: Any = None
        raised: Exception | None = None
        try:
            value = function(*arguments)
        except Exception as error:
            raised = error
        except BaseException as error:  # `sys.exit` must end neither the thread's caller nor the loop
            raised = RuntimeError(f"the callback raised {error!r}")
        try:
            loop.call_soon_threadsafe(settle, value, raised)
        except RuntimeError:
            pass  # the loop has stopped

    context = copy_context()
    threading.Thread(target=context.run, args=(run,), name="mcpd-callback", daemon=True).start()
    return await answer
