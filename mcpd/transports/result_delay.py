"""Delay a result after the last notification of its request, for clients that reorder them.

TypeScript clients dispatch a notification one microtask later than a result. If both arrive in one piece, the last
progress of a call comes after its result and is dropped. Two writes do not help while the peer is not reading, because
a pipe joins them. So such a result waits until the peer has read everything before it, but for one second at most.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import deque
from collections.abc import Callable

from msgspec import Struct, field

_TICK = 0.001
_TIMEOUT = 1.0
_MOST_BYTES = 1024 * 1024


class DelayedResults(Struct, eq=False):
    """Holds frames until the peer has read everything before them, for one second and 1 MiB at most.

    `is_read` returns whether that is so; without it, the owner calls `release`.
    """

    _loop: asyncio.AbstractEventLoop
    _send: Callable[[bytes], None]
    _is_read: Callable[[], bool] | None = None
    _held: deque[tuple[float, bytes]] = field(default_factory=deque)
    _bytes: int = 0
    _timer: asyncio.TimerHandle | None = None
    _settled: asyncio.Future[None] | None = None

    def hold(self, frame: bytes) -> None:
        """Hold a frame, behind those that are held already."""
        self._held.append((self._loop.time() + _TIMEOUT, frame))
        self._bytes += len(frame)
        if self._bytes > _MOST_BYTES:
            self.release()
        elif self._timer is None:
            self._set_timer()

    def release(self, leaving: int = 0) -> None:
        """Send all held frames but the last `leaving`."""
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
        """Wait until no frame is held."""
        if self._held:
            if self._settled is None:
                self._settled = self._loop.create_future()
            await asyncio.shield(self._settled)

    def close(self) -> None:
        """Drop the held frames."""
        self._held.clear()
        self._wake()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def unread(descriptor: int) -> int:
    """Return the bytes in a pipe or socket that the peer has not read yet, or for TCP not received; 0 if unknown."""
    try:
        # Imported with the first delayed result.
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
