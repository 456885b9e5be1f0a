"""What was found out of tokens: by their SHA-256, bounded, and never beyond the end of a token.

Refused tokens have a place of their own, so that no flood of them pushes an accepted one out.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from time import time
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_MOST_ACCEPTED = 10_000
_MOST_REFUSED = 1_000
_REFUSED_SECONDS = 10.0


class TokenCache(Generic[T, R]):
    """Accepted tokens with what they stand for (T), and refused ones with why (R); `seconds` is what either lasts."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._accepted: dict[bytes, tuple[float, T]] = {}
        self._refused: dict[bytes, tuple[float, R]] = {}

    @staticmethod
    def key(token: bytes) -> bytes:
        """What a token is known by here: the token itself is kept nowhere."""
        return sha256(token).digest()

    def accepted(self, key: bytes) -> T | None:
        """What an accepted token stands for, None if that is not known or no more."""
        found = self._accepted.get(key)
        if found is None:
            return None
        now = self._clock()
        # Not longer from now either: a clock that was set back would make it last for as long besides.
        if now < found[0] <= now + self._seconds:
            return found[1]
        del self._accepted[key]
        return None

    def refused(self, key: bytes) -> R | None:
        """Why a token was refused a moment ago; None if it was not."""
        found = self._refused.get(key)
        if found is None:
            return None
        now = self._clock()
        return found[1] if now < found[0] <= now + _REFUSED_SECONDS else None

    def accept(self, key: bytes, value: T, expires: float | None, seconds: float | None = None) -> None:
        """Keep an accepted token until `expires` (seconds since 1970), and not longer than `seconds`."""
        until = self._clock() + (self._seconds if seconds is None else min(self._seconds, seconds))
        self._accepted.pop(key, None)
        if len(self._accepted) >= _MOST_ACCEPTED:
            del self._accepted[next(iter(self._accepted))]
        self._accepted[key] = (until if expires is None else min(until, expires), value)

    def refuse(self, key: bytes, why: R) -> None:
        """Keep for a moment why a token was refused."""
        self._refused.pop(key, None)
        if len(self._refused) >= _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[key] = (self._clock() + min(_REFUSED_SECONDS, self._seconds), why)

    def forget(self, is_meant: Callable[[T], bool]) -> None:
        """Forget the accepted tokens that stand for something of that kind."""
        for key in [key for key, (_, value) in self._accepted.items() if is_meant(value)]:
            del self._accepted[key]
