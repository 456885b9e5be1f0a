"""How often one may try: passwords, and what else is guessed. AUTH-147."""

from __future__ import annotations

from collections.abc import Callable

_MOST = 20_000


class Throttle:
    """Counts failures by key; of those in the last `seconds` there may be `most`. In this process's memory."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._failures: dict[str, tuple[int, float]] = {}

    def wait(self, key: str) -> float:
        """For how many seconds this key has to wait; 0 if it may try."""
        count, since = self._failures.get(key, (0, 0.0))
        left = since + self._seconds - self._clock()
        return left if count >= self._most and left > 0 else 0.0

    def failed(self, key: str) -> None:
        """One failure more. The time begins with the first."""
        now = self._clock()
        count, since = self._failures.pop(key, (0, now))
        if since + self._seconds <= now:
            count, since = 0, now
        self._failures[key] = (count + 1, since)
        if len(self._failures) > _MOST:
            # The one that failed longest ago: who fills this forgets their own failures first.
            del self._failures[next(iter(self._failures))]

    def succeeded(self, key: str) -> None:
        """Forget its failures."""
        self._failures.pop(key, None)
