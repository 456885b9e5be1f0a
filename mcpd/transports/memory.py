"""Two channels joined back to back, for tests, for embedding, and for our own client talking to our own server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from mcpd.errors import McpdError
from mcpd.protocol.channel import Receiver
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import Origin

_HIGH_WATER = 1024 * 1024


class MemoryChannel:
    """One end of a pair. What is sent here is received there, on a later turn of the event loop, in order."""

    is_multiplexed = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._receiver: Receiver | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._taken: asyncio.Future[None] | None = None
        self._is_paused = False
        self._is_scheduled = False
        self._is_closed = False
        self._has_ended = False
        self.other: MemoryChannel = self
        self.after_close: Callable[[], Awaitable[None]] | None = None
        """Awaited at the end of `aclose`: what has to end together with the connection."""

    def start(self, receiver: Receiver) -> None:
        """From now on hand what arrives to `receiver`; what arrived before is handed over first."""
        self._receiver = receiver
        self._schedule()

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Hand a frame to the other end."""
        if not self._is_closed and not self.other._is_closed:
            self.other._waiting.append(frame)
            self.other._waiting_bytes += len(frame)
            self.other._schedule()

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """The same: each frame is handed over by itself."""
        self.send(frame, related_request_id, method)

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The program that the other end is in."""
        return Origin("memory")

    async def drain(self) -> None:
        """Wait until the other end has taken most of what was sent, or one of them is closed."""
        other = self.other
        while self.is_congested and not self._is_closed and not other._is_closed:
            if other._taken is None:
                other._taken = self._loop.create_future()
            await asyncio.shield(other._taken)

    @property
    def is_congested(self) -> bool:
        """More than 1 MiB waits for the other end."""
        return self.other._waiting_bytes > _HIGH_WATER

    def pause(self) -> None:
        """Take nothing until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Take what waits."""
        self._is_paused = False
        self._schedule()

    async def aclose(self, reason: str = "") -> None:
        """End both directions; what was sent before still arrives at the other end."""
        if not self._is_closed:
            self._is_closed = True
            self._is_paused = False
            self._schedule()
            self._wake()
            self.other._wake()
            self.other._schedule()
            if self.after_close is not None:
                await self.after_close()

    def _schedule(self) -> None:
        if not self._is_scheduled and self._receiver is not None:
            self._is_scheduled = True
            self._loop.call_soon(self._deliver)

    def _wake(self) -> None:
        """Whoever waits to send may look again."""
        taken, self._taken = self._taken, None
        if taken is not None and not taken.done():
            taken.set_result(None)

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

        self._wake()
        if self._is_paused:
            return

        if (self.other._is_closed or self._is_closed) and not self._waiting and not self._has_ended:
            self._has_ended = True
            ended: McpdError | None = None
            receiver.closed(ended)


def pair() -> tuple[MemoryChannel, MemoryChannel]:
    """Two joined channels. Call it where the event loop runs."""
    loop = asyncio.get_running_loop()
    near, far = MemoryChannel(loop), MemoryChannel(loop)
    near.other, far.other = far, near
    return near, far
