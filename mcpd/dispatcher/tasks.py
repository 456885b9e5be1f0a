"""Makes calls that wait tasks: from Python 3.12 on eager ones, whose first step runs at once.

Most tools answer without waiting, and an eager task that does costs no turn of the event loop. Python 3.11 has none:
there each coroutine is an ordinary task, which begins in the loop's next turn.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from typing import Any

Work = Coroutine[Any, Any, None]


class Resumption:
    """Awaits what is left of a coroutine that took its first step in this very task."""

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
    """A coroutine whose first step is always run, even if its task is cancelled before that.

    A task throws the cancellation into a coroutine that has not begun, whose body then never sees it: nobody
    would answer the call, nor close the coroutine that it was to await.
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
            self._work.send(None)  # what ends here ends with StopIteration, and was not cancelled
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._work.__await__()


class EagerTaskRunner:
    """Starts coroutines on one event loop; `tasks` holds those that wait."""

    __slots__ = ("_loop", "_tasks")

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[Any]]) -> None:
        self._loop = loop
        self._tasks = tasks

    def start(self, work: Work) -> asyncio.Task[Any] | None:
        """Start `work`, which handles its own exceptions; gives its task, None if it is done already.

        Where a task is current, as below an in-process client, the first step comes one turn of the loop later.
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
        # What the work waited for may have raised GeneratorExit, which ends every coroutine on its way, however
        # that one took it. The work has answered; nobody asks for it, so asyncio would log it.
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._loop.call_exception_handler({"message": "a call failed", "exception": error, "task": task})
