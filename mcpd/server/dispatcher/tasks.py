"""Tasks for calls: since Python 3.12 eager tasks, whose first step runs immediately.

Most tools never wait, and then an eager task costs no iteration of the event loop. Python 3.11 has no eager tasks: each
coroutine becomes an ordinary task, which starts in the next iteration.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from typing import Any

Work = Coroutine[Any, Any, None]


class Resumption:
    """Awaits the rest of a coroutine whose first step was run in the same task."""

    __slots__ = ("_waits_for", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        work, waits_for = self._work, self._waits_for
        try:
            while True:
                try:
                    value = yield waits_for
                except BaseException as error:
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(value)
        except StopIteration as done:
            return done.value


class FirstStepAlways(Coroutine[Any, Any, None]):
    """A coroutine whose first step is always run, even if its task is cancelled before.

    A task that is cancelled before it starts throws the cancellation into a coroutine whose body never sees it. The
    call would not be answered, and coroutines that it holds would never be awaited.
    """

    __slots__ = ("_has_begun", "_work")

    def __init__(self, work: Work) -> None:
        self._work = work
        self._has_begun = False

    def send(self, value: Any) -> Any:
        self._has_begun = True
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        if not self._has_begun:
            self._has_begun = True
            self._work.send(None)  # if it ends here, with StopIteration, it was not cancelled
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._work.__await__()


class EagerTaskRunner:
    """Starts coroutines on one event loop. `tasks` contains the tasks that are not done."""

    __slots__ = ("_loop", "_tasks")

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[Any]]) -> None:
        self._loop = loop
        self._tasks = tasks

    def start(self, work: Work) -> asyncio.Task[Any] | None:
        """Start `work`, which handles its own exceptions. Returns its task, or None if it is done already.

        Inside another task, as with an in-process client, the first step runs in the next iteration of the loop.
        """
        loop = self._loop
        if sys.version_info >= (3, 12) and asyncio.current_task(loop) is None:
            task = asyncio.Task(work, loop=loop, eager_start=True, name="mcpd-call")
            if task.done():
                if not task.cancelled():
                    task.result()
                return None
        else:
            task = loop.create_task(FirstStepAlways(work), name="mcpd-call")

        self._tasks.add(task)
        task.add_done_callback(self._discard)
        return task

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # GeneratorExit, raised by something that the work waited for, ends every coroutine on its way. The work has
        # sent its response, and asyncio would log an exception that nobody retrieves.
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._loop.call_exception_handler({"message": "a call failed", "exception": error, "task": task})
