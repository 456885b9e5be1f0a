"""One timer for all open event streams: a comment on each quiet event stream, so that no proxy takes it for dead."""

from __future__ import annotations

import asyncio
from typing import Protocol


class _Member(Protocol):
    """What lasts: a reply or an event stream."""

    @property
    def is_stream(self) -> bool:
        """Whether it is an event stream: a reply becomes one once something is said before the answer."""

    def keep_alive(self) -> None:
        """An interval has passed: send a comment if nothing else was sent meanwhile."""


class KeepAlive:
    """Every `interval` seconds each member is asked to send a comment if it was quiet (0: never).

    `write_timeout` is for how many seconds a client may take nothing while a tool waits for it (0: for ever).
    """

    def __init__(self, interval: float, write_timeout: float = 0) -> None:
        self.write_timeout = write_timeout
        self._interval = interval
        self._members: set[_Member] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, member: _Member) -> None:
        """From now on `keep_alive` is called on it, once in each interval."""
        self._members.add(member)
        if self._timer is None and self._interval > 0:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._tick)

    def discard(self, member: _Member) -> None:
        """It has ended."""
        self._members.discard(member)

    @property
    def streams(self) -> int:
        """How many event streams are open; counted when it is asked."""
        return sum(member.is_stream for member in self._members)

    def _tick(self) -> None:
        self._timer = None
        for member in list(self._members):
            member.keep_alive()
        if self._members:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._tick)

    def stop(self) -> None:
        """Call it on none of them any more."""
        self._members.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
