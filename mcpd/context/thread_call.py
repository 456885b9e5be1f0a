"""What a plain function, in its thread, has done on the event loop's thread, and waits for there.

`asyncio.run_coroutine_threadsafe` leaves a cycle behind for each use (its futures' callbacks hold the futures), which
would keep all that the call had until the garbage collector looks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any


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
