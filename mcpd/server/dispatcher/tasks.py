"""Tasks for calls: since Python 3.12 eager tasks, whose first step runs immediately.

Most tools never wait, and then an eager task costs no iteration of the event loop. Python 3.11 has no eager tasks: each
coroutine becomes an ordinary task, which starts in the next iteration.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from typing import Any


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


def start(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[Any] | None:
    """Start `work`, which handles its own exceptions. Returns its task, or None if it is done already.

    Inside another task, as with an in-process client, the first step runs in the next iteration of the loop.
    """
    if sys.version_info >= (3, 12) and asyncio.current_task(loop) is None:
        task = asyncio.Task(work, loop=loop, eager_start=True, name="mcpd-call")
        return None if task.done() else task
    return asyncio.Task(work, loop=loop, name="mcpd-call")
