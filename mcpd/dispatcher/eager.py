"""Runs the first step of a coroutine at once, with the eager tasks that the standard library has since Python 3.12.

It is what `tasks.py` does by hand for Python 3.11, with a task for each coroutine, also for one that does not wait:
that costs a tenth of a microsecond a call, and saves each connection its spare task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from .tasks import FirstStepAlways

__all__ = ["EagerTaskRunner"]

Work = Coroutine[Any, Any, None]


class EagerTaskRunner:
    """Starts coroutines on one event loop; `tasks` holds those that wait."""

    __slots__ = ("_loop", "_tasks")

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[Any]]) -> None:
        self._loop = loop
        self._tasks = tasks

    def start(self, work: Work) -> asyncio.Task[Any] | None:
        """Run the first step of `work` now; gives its task if it waits, None if it is done.

        Where a task is current already, as below an in-process client, the first step comes one turn of the loop
        later. `work` handles its own exceptions.
        """
        loop = self._loop
        if asyncio.current_task(loop) is not None:
            task = loop.create_task(FirstStepAlways(work), name="mcpd-call")
        else:
            task = asyncio.Task(work, loop=loop, eager_start=True, name="mcpd-call")  # type: ignore[call-arg]
            if task.done():
                if not task.cancelled():
                    task.result()
                return None

        self._tasks.add(task)
        task.add_done_callback(self._discard)
        return task

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # What the work waited for may have raised GeneratorExit, which ends every coroutine on its way, however
        # that one took it. The work has answered; nobody asks for it, so asyncio would log it.
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._loop.call_exception_handler({"message": "a call failed", "exception": error, "task": task})

    def close(self) -> None:
        """Nothing waits here that would have to be let go."""
