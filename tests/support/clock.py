"""Time that a test moves on, where it would otherwise wait for a limit to pass."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable


class Clock:
    """The clock of the running loop, until the loop closes: it goes on by itself, and leaps with `advance`.

    Limits can so be far longer than anything takes on a busy machine, and still be passed at once.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._real = self._loop.time
        self._ahead = 0.0
        self._loop.time = self.time  # type: ignore[method-assign]

    def time(self) -> float:
        """Seconds, as `loop.time()` gives them."""
        return self._real() + self._ahead

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, and what was to happen in it happen; the test's own time limit stands still."""
        self._ahead += seconds
        limit: asyncio.Timeout = self._loop.limit_of_test  # type: ignore[attr-defined]
        when = limit.when()
        assert when is not None
        limit.reschedule(when + seconds)
        await turns()


async def turns(number: int = 10) -> None:
    """Let the loop run what is ready, and what becomes ready by that."""
    for _ in range(number):
        await asyncio.sleep(0)


async def between_looks() -> None:
    """A moment between two looks at what nobody tells of, where a look itself takes the cores from what is awaited."""
    await asyncio.sleep(0.01)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what nobody tells of: look again and again, for a minute at most."""
    async with asyncio.timeout(60):
        for turn in itertools.count():
            if condition():
                return
            await asyncio.sleep(0 if turn < 20 else 0.001)  # most comes with the next turns of the loop
