"""Tools with a time limit. A tool without one is a plain `FunctionTool`."""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from msgspec import Raw

from mcpd.protocol.printable import printable
from mcpd.protocol.types.tools import CallToolResult
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.tools import FunctionTool, failed

log = logging.getLogger("mcpd")

T = TypeVar("T")

_left_behind: set[asyncio.Task[CallToolResult]] = set()
"""Tasks that have exceeded their limit and still run; the event loop itself keeps no reference to tasks."""


class TimedTool(FunctionTool):
    """A tool whose caller receives an error after `timeout` seconds, not counting questions to the client.

    A coroutine is cancelled then. A plain function continues in its thread, and its result is dropped. Dependencies
    that a thread still uses are closed later.
    """

    async def run(self, arguments: Raw, exchange: Exchange) -> CallToolResult:
        """Call the tool, and stop waiting when its time is over."""
        limit = asyncio.timeout(self.timeout)
        exchange.clock = _Clock(limit)
        # In its own task, so that the caller has an answer even if the tool takes long to end.
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
                        # Most tasks end within one iteration of the loop. A client that cancelled expects no answer.
                        await asyncio.wait((task,), timeout=0 if limit.expired() else None)
                    raise
            return task.result()
        except TimeoutError:
            log.warning(
                "tool %s (request %s) exceeded its time limit of %g s",
                self.key, printable(exchange.request_id), self.timeout,
            )  # fmt: skip
            return failed(f"The tool {self.key} exceeded its time limit of {self.timeout:g} s")


def _forget(task: asyncio.Task[CallToolResult]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()  # marks the exception as retrieved


class _Clock:
    """The remaining time of a tool. It is paused while the client answers a question."""

    __slots__ = ("_left", "_limit", "_questions")

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._questions = 0
        self._left = 0.0

    def stop(self) -> None:
        self._questions += 1
        when = self._limit.when()
        if self._questions == 1 and when is not None:
            self._left = when - asyncio.get_running_loop().time()
            self._set(None)

    def resume(self) -> None:
        self._questions -= 1
        if not self._questions:
            self._set(asyncio.get_running_loop().time() + self._left)

    def _set(self, when: float | None) -> None:
        try:
            self._limit.reschedule(when)
        except RuntimeError:
            pass  # the call has ended or is ending
