"""When a worker that has died is started again: at once, unless it dies again and again."""

from __future__ import annotations

from collections import deque

_MANY = 3
_WITHIN = 10.0
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 10.0


class Restarts:
    """The deaths in one place. Three within 10 s slow it down: 1 s, then twice as long each time, 10 s at most."""

    def __init__(self) -> None:
        self.count = 0
        self._deaths: deque[float] = deque(maxlen=_MANY)
        self._wait = 0.0

    def died(self, now: float) -> float:
        """One has died, at that time in seconds; gives for how long to wait before the next is started."""
        self.count += 1
        if self._deaths and now - self._deaths[-1] > _WITHIN + self._wait:
            self._deaths.clear()
            self._wait = 0.0
        self._deaths.append(now)
        if self._wait:
            self._wait = min(2 * self._wait, _LONGEST_WAIT)
        elif len(self._deaths) == _MANY and now - self._deaths[0] <= _WITHIN:
            self._wait = _FIRST_WAIT
        return self._wait
