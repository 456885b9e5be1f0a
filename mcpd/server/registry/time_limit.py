"""Tools that may take so long and no longer. A tool without a limit is a `FunctionTool`, and knows nothing of this."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from msgspec import Raw

from mcpd.protocol.printable import printable
from mcpd.protocol.types.tools import CallToolResult
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.tools import FunctionTool, failed

log = logging.getLogger("mcpd")

T = TypeVar("T")

_left_behind: set[asyncio.Task[CallToolResult]] = set()
"""What nobody waits for any more and has not ended yet: the event loop itself holds no task."""


class TimedTool(FunctionTool):
    """A tool whose caller gets an error after `timeout` seconds; not counted is the time in which the client is asked.

    A coroutine is cancelled then. A plain function cannot be: its thread goes on by itself, and what it gives is
    dropped. What takes long to end, such as a dependency that a thread still uses, ends by itself too.
    """

    async def run(self, arguments: Raw, exchange: Exchange) -> CallToolResult:
        """Call the tool, and stop waiting for it when its time is over."""
        limit = asyncio.timeout(self.timeout)
        exchange.clock = _Clock(limit)
        # In a task of its own: the caller has an answer though this one may not end for long.
        task = asyncio.ensure_future(super().run(arguments, exchange))
        try:
            async with limit:
                try:
                    await asyncio.wait((task,))
                except BaseException as error:
                    task.cancel()
                    _left_behind.add(task)
                    task.add_done_callback(_forget)
                    if isinstance(error, asyncio.CancelledError):
                        # One loop's turn is what most need; a client that gave up has no answer to wait for.
                        await asyncio.wait((task,), timeout=0 if limit.expired() else None)
                    raise
            return task.result()
        except TimeoutError:
            log.warning(
                "tool %s (request %s) has not ended within %g s: its caller has an error",
                self.key, printable(exchange.request_id), self.timeout,
            )  # fmt: skip
            return failed(f"The tool {self.key} has not ended within {self.timeout:g} s, which is its time limit")


def _forget(task: asyncio.Task[CallToolResult]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()  # seen: a failure is a result by now, and a question comes too late


class _Clock:
    """The time that a tool has left; it stands still while its client is asked something."""

    __slots__ = ("_left", "_limit", "_questions")

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._questions = 0
        self._left = 0.0

    def stopped(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The question `work`, during which no time passes."""
        return _Question(self, work)

    def stop(self) -> None:
        """A question begins."""
        self._questions += 1
        when = self._limit.when()
        if self._questions == 1 and when is not None:
            self._left = when - asyncio.get_running_loop().time()
            self._set(None)

    def go_on(self) -> None:
        """A question has ended."""
        self._questions -= 1
        if not self._questions:
            self._set(asyncio.get_running_loop().time() + self._left)

    def _set(self, when: float | None) -> None:
        try:
            self._limit.reschedule(when)
        except RuntimeError:
            pass  # the call is over, or is being ended


class _Question(Coroutine[Any, Any, T]):
    """A coroutine that stops the clock while it runs; closed before that, it closes what is inside."""

    __slots__ = ("_clock", "_is_running", "_work")

    def __init__(self, clock: _Clock, work: Coroutine[Any, Any, T]) -> None:
        self._clock = clock
        self._work = work
        self._is_running = False

    def send(self, value: Any) -> Any:
        self._begin()
        try:
            return self._work.send(value)
        except BaseException:
            self._end()
            raise

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        self._begin()
        try:
            return self._work.throw(error)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        self._work.close()
        self._end()

    def __await__(self) -> Generator[Any, Any, T]:
        self._begin()
        try:
            return (yield from self._work.__await__())
        finally:
            self._end()

    def _begin(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._clock.stop()

    def _end(self) -> None:
        if self._is_running:
            self._is_running = False
            self._clock.go_on()
