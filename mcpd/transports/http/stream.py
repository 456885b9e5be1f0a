"""An event stream on its way to one client: written in order, as fast as the client reads.

Whoever has something to say pushes it and goes on; a task that lives only while there is something to
write hands it to the ASGI server, all that waits in one piece. An idle stream costs no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ...wire.sse import KEEP_ALIVE
from .visit import EVENT_STREAM, Header, Send, Visit

__all__ = ["HEADERS", "EventStream"]

HEADERS: tuple[Header, ...] = (
    EVENT_STREAM,
    # no-transform: a proxy that compresses would hold events back. X-Accel-Buffering says the same to nginx.
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)

_HIGH_WATER = 1024 * 1024
_MOST_WAITING = 64 * 1024 * 1024


class EventStream:
    """The body of one answer. `close` is for a client that is gone, `end` for a stream that is complete."""

    __slots__ = ("_drained", "_has_begun", "_is_ending", "_send", "_visit", "_waiting", "_waiting_bytes", "_writer",
                 "is_open", "is_quiet")  # fmt: skip

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._send: Send | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._has_begun = False
        self._is_ending = False
        self.is_open = True
        self.is_quiet = False
        """Nothing was pushed since this was last set."""

    @property
    def is_congested(self) -> bool:
        """More waits than a client that reads would leave waiting."""
        return self._waiting_bytes > _HIGH_WATER

    def push(self, data: bytes) -> None:
        """Queue the bytes of an event, or nothing to have the stream begin."""
        if not self.is_open or self._is_ending:
            return
        self.is_quiet = False
        if self._waiting_bytes > _MOST_WAITING:
            # It asked for a stream and does not read it: what it misses it can ask for again on another.
            self.close()
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def beat(self) -> None:
        """Push a comment if nothing else was said since the last time."""
        if self.is_quiet and not self._waiting:
            self.push(KEEP_ALIVE)
        self.is_quiet = True

    async def drain(self) -> None:
        """Wait until the client has taken most of what waits, or is gone."""
        while self.is_open and self.is_congested:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    async def end(self, last: Iterable[bytes] = ()) -> None:
        """Write what waits and `last`, and complete the answer. Nothing can be pushed after it."""
        if self.is_open and not self._is_ending:
            self._waiting.extend(last)
            self._is_ending = True
            if self._writer is None:
                await self._write()
        if self._writer is not None:
            # Not cancelled with whoever waits here: the client would see half an event.
            await asyncio.wait([self._writer])

    def close(self) -> None:
        """The client is gone, or is to be: write nothing more."""
        self.is_open = False
        self._waiting.clear()
        self._waiting_bytes = 0
        self._wake()
        if self._writer is not None:
            self._writer.cancel()

    async def _write(self) -> None:
        """Hand on all that waits, then if the stream is ending complete it."""
        try:
            if not self._has_begun:
                self._has_begun = True
                self._send = await self._visit.begin(HEADERS)
            send = self._send
            assert send is not None
            while True:
                # Even if there is nothing yet: some servers hold the head back until something of the body comes.
                body = b"".join(self._waiting) if len(self._waiting) > 1 else self._waiting[0] if self._waiting else b""
                self._waiting.clear()
                is_last = self._is_ending
                await send({"type": "http.response.body", "body": body, "more_body": not is_last})
                # What is being written counts as waiting until the server has taken it.
                self._waiting_bytes = sum(map(len, self._waiting))
                self._wake()
                if is_last or not (self._waiting or self._is_ending):
                    break
            if is_last:
                self.is_open = False
        except Exception:
            # Whatever a server raises when it cannot send: for us the client is gone.
            self._writer = None
            self.close()
        finally:
            self._writer = None

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
