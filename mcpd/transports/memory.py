"""Two channels joined back to back, for tests, for embedding, and for our own client talking to our own server."""

from __future__ import annotations

import asyncio

from ..channel import Receiver
from ..errors import McpdError
from ..jsonrpc import Id

__all__ = ["MemoryChannel", "pair"]


class MemoryChannel:
    """One end of a pair. What is sent here is received there, on a later turn of the event loop, in order."""

    is_congested = False
    is_shared = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._receiver: Receiver | None = None
        self._waiting: list[bytes] = []
        self._is_scheduled = False
        self._is_closed = False
        self._has_ended = False
        self.other: MemoryChannel = self

    def start(self, receiver: Receiver) -> None:
        """From now on hand what arrives to `receiver`; what arrived before is handed over first."""
        self._receiver = receiver
        self._schedule()

    def send(self, frame: bytes, about: Id | None = None) -> None:
        """Hand a frame to the other end."""
        if not self._is_closed and not self.other._is_closed:
            self.other._waiting.append(frame)
            self.other._schedule()

    async def drain(self) -> None:
        """Nothing to wait for: the other end takes all."""

    async def aclose(self, reason: str = "") -> None:
        """End both directions; what was sent before still arrives at the other end."""
        if not self._is_closed:
            self._is_closed = True
            self._schedule()
            self.other._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled and self._receiver is not None:
            self._is_scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_scheduled = False
        receiver = self._receiver
        if receiver is None:
            return
        frames, self._waiting = self._waiting, []
        for frame in frames:
            receiver.receive(frame)
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
