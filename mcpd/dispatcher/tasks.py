"""Starting a task with its first step run at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from ..session import Call

__all__ = ["start_task"]

if sys.version_info >= (3, 12):

    def start_task(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], call: Call, tasks: set[asyncio.Task[Any]]
    ) -> None:
        """Run `work` as a task, its first step now; `tasks` holds it while it waits, `call.task` names it."""
        task = asyncio.Task(work, loop=loop, eager_start=True)
        if not task.done():
            call.task = task
            tasks.add(task)
            task.add_done_callback(tasks.discard)

else:

    def start_task(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], call: Call, tasks: set[asyncio.Task[Any]]
    ) -> None:
        """Run `work` as a task, its first step now; `tasks` holds it while it waits, `call.task` names it.

        Python 3.11 has no eager start. A new task has just queued its first step as the last entry of the
        loop's ready queue: taking that entry out and running it is an eager start by hand, with the task
        current and its context entered. Loops without that queue (uvloop), and callers that are
        themselves inside a task, start it the ordinary way, one turn later.
        """
        task = asyncio.Task(work, loop=loop)
        ready = getattr(loop, "_ready", None)
        if ready and asyncio.current_task(loop) is None:
            ready.pop()._run()
            if task.done():
                return
        call.task = task
        tasks.add(task)
        task.add_done_callback(tasks.discard)
