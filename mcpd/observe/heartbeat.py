"""Whether the event loop turns, and how late it comes to what it is asked for.

Asked by a thread: a timer in the loop itself would cost each turn of it, and so each call, more than counting may.
"""

from __future__ import annotations

import asyncio
from time import monotonic

STUCK_SECONDS = 10.0
"""A loop that has not turned for so long is not healthy (OBS-13)."""

_WINDOW = 30.0


class Heartbeat:
    """Of the loop that it is made for. `beat` is called now and then on another thread, all else on any."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: float | None = None
        # The worst of the window that runs, and of the one before: a reader sees the last 30 to 60 seconds.
        self._worst = self._before = 0.0
        self._since = monotonic()

    def beat(self) -> None:
        """Ask the loop to say that it is there; nothing while it still owes the last answer."""
        if self._asked is None:
            self._asked = monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # closed
                self._asked = None

    def _answer(self) -> None:
        now = monotonic()
        if now - self._since > _WINDOW:
            self._before, self._worst, self._since = self._worst, 0.0, now
        if self._asked is not None:
            self._worst = max(self._worst, now - self._asked)
        self._asked = None

    @property
    def late(self) -> float:
        """For how many seconds it owes an answer; 0.0 if it owes none."""
        asked = self._asked
        return 0.0 if asked is None else monotonic() - asked

    @property
    def lag(self) -> float:
        """The longest that it took to answer, in the last half minute to minute, in seconds."""
        return max(self._worst, self._before, self.late)
