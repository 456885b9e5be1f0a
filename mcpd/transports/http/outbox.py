"""What waits to be written to one client through an ASGI server: in order, and as fast as the client reads.

Whoever has something to say puts it in and goes on; a task that lives only while there is something to write
hands it to the server. An idle client costs no task.
"""

from __future__ import annotations

import asyncio

__all__ = ["Outbox"]

_HIGH_WATER = 1024 * 1024
_MOST_WAITING = 64 * 1024 * 1024


class Outbox:
    """`close` is for a client that is gone, or is to be. How what waits is written is a subclass's `_hand_on`."""

    __slots__ = ("_drained", "_waiting", "_waiting_bytes", "_writer", "is_open")

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self.is_open = True

    @property
    def is_congested(self) -> bool:
        """More waits than a client that reads would leave waiting."""
        return self._waiting_bytes > _HIGH_WATER

    async def drain(self) -> None:
        """Wait until the client has taken most of what waits, or is gone."""
        while self.is_open and self.is_congested:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    def close(self) -> None:
        """Write nothing more."""
        self.is_open = False
        self._waiting.clear()
        self._waiting_bytes = 0
        self._wake()
        if self._writer is not None:
            self._writer.cancel()

    # -- for what writes ---------------------------------------------------------------------

    def _put(self, data: bytes) -> None:
        if self._waiting_bytes > _MOST_WAITING:
            self.close()  # it does not read, and could hold any amount of memory
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _hand_on(self) -> None:
        """Write all that waits, and say so by `_taken`."""
        raise NotImplementedError

    def _taken(self, waiting_bytes: int) -> None:
        """The server has taken something; so much waits still."""
        self._waiting_bytes = waiting_bytes
        self._wake()

    async def _write(self) -> None:
        try:
            await self._hand_on()
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
