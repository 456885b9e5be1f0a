"""Pairs of in-memory channels, for tests, for embedding, and for a client and a server in one process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from mcpd.protocol.channel import Receiver
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import Origin
from .stdio import Wakeup

_HIGH_WATER = 1024 * 1024


class MemoryChannel:
    """One end of a pair. A frame sent at one end is received at the other in a later iteration of the event loop."""

    is_multiplexed = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._receiver: Receiver | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._taken = Wakeup()
        self._is_paused = False
        self._is_scheduled = False
        self._is_closed = False
        self._has_ended = False
        self.other: MemoryChannel = self
        self.after_close: Callable[[], Awaitable[None]] | None = None

    def start(self, receiver: Receiver) -> None:
        """Pass frames to `receiver`, starting with those that arrived before."""
        self._receiver = receiver
        self._schedule()

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Send a frame to the other end."""
        if not self._is_closed and not self.other._is_closed:
            self.other._waiting.append(frame)
            self.other._waiting_bytes += len(frame)
            self.other._schedule()

    def send_separately(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Send a frame as `send` does: frames are always delivered one by one."""
        self.send(frame, related_request_id, method)

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return Origin("memory")

    async def drain(self) -> None:
        """Wait until the other end has received most of the queue, or one end is closed."""
        other = self.other
        while self.is_congested and not self._is_closed and not other._is_closed:
            await other._taken.wait()

    @property
    def is_congested(self) -> bool:
        """Whether more than 1 MiB waits for the other end."""
        return self.other._waiting_bytes > _HIGH_WATER

    def pause(self) -> None:
        """Deliver no frames until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._schedule()

    async def aclose(self, reason: str = "") -> None:
        """Close both directions. Frames that were sent before still arrive."""
        if not self._is_closed:
            self._is_closed = True
            self._is_paused = False
            self._schedule()
            self._taken.wake()
            self.other._taken.wake()
            self.other._schedule()
            if self.after_close is not None:
                await self.after_close()

    def _schedule(self) -> None:
        if not self._is_scheduled and self._receiver is not None:
            self._is_scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_scheduled = False
        receiver = self._receiver
        if receiver is None:
            return

        for _ in range(len(self._waiting)):
            if self._is_paused:
                break
            frame = self._waiting.popleft()
            self._waiting_bytes -= len(frame)
            receiver.receive(frame)

        self._taken.wake()
        if self._is_paused:
            return

        if (self.other._is_closed or self._is_closed) and not self._waiting and not self._has_ended:
            self._has_ended = True
            receiver.closed()


def pair() -> tuple[MemoryChannel, MemoryChannel]:
    """Return two connected channels. Must be called while the event loop runs."""
    loop = asyncio.get_running_loop()
    near, far = MemoryChannel(loop), MemoryChannel(loop)
    near.other, far.other = far, near
    return near, far
