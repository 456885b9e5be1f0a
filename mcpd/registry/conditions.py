"""Conditions: functions that say for one request whether something holds, such as that a backend can be reached.

What depends on one is listed as if the condition did not hold when its function fails or takes too long:
a list is never late or broken for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from mcpd.context.context import Context
from mcpd.context.exchange import Exchange
from mcpd.context.input_required import is_failure
from mcpd.errors import RegistrationError
from mcpd.registry.signature import bind
from mcpd.registry.threads import run_in_thread

log = logging.getLogger("mcpd")

CONDITION_TIMEOUT = 5.0
"""Seconds that a condition gets. The client waits for its list meanwhile."""


class Condition:
    """One condition. `key` stands for it among the active extensions; without the extension `requires` nobody asks."""

    def __init__(self, key: str, function: Callable[..., Any], requires: str, what: str) -> None:
        """`what` is for messages. Raises RegistrationError unless the function takes a Context or nothing."""
        callee = bind(function, context_type=lambda: Context)
        if callee.arguments.__struct_fields__:
            names = ", ".join(callee.arguments.__struct_fields__)
            raise RegistrationError(f"{what} takes nothing or a Context, and this one wants {names}")
        self.key = key
        self.requires = requires
        self.what = what
        self._callee = callee
        self._running: set[object] = set()
        self._overdue: set[object] = set()

    async def holds(self, exchange: Exchange) -> bool:
        """Whether it holds now. Never raises."""
        self._overdue &= self._running
        if self._overdue:
            return False  # a thread that was given up is still at it; a second one would only join it

        token = object()
        try:
            async with asyncio.timeout(CONDITION_TIMEOUT):
                if self._callee.is_async:
                    return bool(await self._callee.call_strings({}, exchange))
                return bool(await run_in_thread(self._call, exchange, token, exchange=exchange))
        except TimeoutError:
            self._overdue.add(token)
            log.warning("%s takes longer than %g seconds, which counts as no", self.what, CONDITION_TIMEOUT)
        except BaseException as error:
            if not is_failure(error):
                raise
            log.warning("%s failed, which counts as no", self.what, exc_info=error)

        return False

    def _call(self, exchange: Exchange, token: object) -> Any:
        self._running.add(token)
        try:
            return self._callee.call_strings({}, exchange)
        finally:
            self._running.discard(token)


async def with_conditions(
    conditions: Iterable[Condition], active: frozenset[str], exchange: Exchange
) -> frozenset[str]:
    """The active extensions, and the keys of those conditions that hold for this request; all are asked at once."""
    asked = [condition for condition in conditions if condition.requires in active]
    answers = await asyncio.gather(*(condition.holds(exchange) for condition in asked))
    return active.union(condition.key for condition, holds in zip(asked, answers, strict=True) if holds)
