"""Sends a result a moment after the last notification of its request, for clients that reorder them.

The TypeScript clients hand a notification on a microtask later than a result: of what they read in one piece, the
last progress of a call comes after its end, and is dropped. Two writes are no help while the peer does not read,
since a pipe joins them. So such a result waits until what was sent before it was read, but never for long.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import deque
from collections.abc import Callable

_TICK = 0.001
_TIMEOUT = 1.0
_MOST_BYTES = 1024 * 1024


class Apart:
    """Holds frames back until `is_read` says that the peer has taken all before them, or for a second at most.

    Without `is_read` it is told by `release`. More than 1 MiB is not held: what waits here is counted nowhere else.
    """

    __slots__ = ("_bytes", "_held", "_is_read", "_loop", "_send", "_settled", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, send: Callable[[bytes], None], is_read: Callable[[], bool] | None = None
    ) -> None:
        self._loop = loop
        self._send = send
        self._is_read = is_read
        self._held: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._settled: asyncio.Future[None] | None = None

    def hold(self, frame: bytes) -> None:
        """Send a frame a moment later, behind those that are held already."""
        self._held.append((self._loop.time() + _TIMEOUT, frame))
        self._bytes += len(frame)
        if self._bytes > _MOST_BYTES:
            self.release()
        elif self._timer is None:
            self._set_timer()

    def release(self, leaving: int = 0) -> None:
        """Send all that is held but the last so many."""
        while len(self._held) > leaving:
            _, frame = self._held.popleft()
            self._bytes -= len(frame)
            self._send(frame)
        if not self._held:
            self._wake()

    def _wake(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
        self._settled = None

    def _set_timer(self) -> None:
        self._timer = self._loop.call_later(_TIMEOUT if self._is_read is None else _TICK, self._poll)

    def _poll(self) -> None:
        self._timer = None
        if self._held and self._is_read is not None and self._is_read():
            self.release()
        now = self._loop.time()
        self.release(leaving=sum(deadline > now for deadline, _ in self._held))
        if self._held:
            self._set_timer()

    async def settle(self) -> None:
        """Wait until nothing is held."""
        if self._held:
            if self._settled is None:
                self._settled = self._loop.create_future()
            await asyncio.shield(self._settled)

    def close(self) -> None:
        """Drop what is held."""
        self._held.clear()
        self._wake()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def unread(descriptor: int) -> int:
    """More than 0 while the other end has not read all that was written to this pipe or socket; 0 if that is unknown.

    For a socket that is no local one it is what has not arrived there.
    """
    try:
        # For the first result that follows a notification: they cost start-up.
        import fcntl
        import termios
    except ImportError:  # Windows
        return 0

    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode):
            what = termios.FIONREAD
        elif stat.S_ISSOCK(mode):
            what = termios.TIOCOUTQ
        else:
            return 0
        return int.from_bytes(fcntl.ioctl(descriptor, what, bytes(4)), sys.byteorder)
    except OSError:
        return 0
