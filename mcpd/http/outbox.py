"""What waits to be written to one client through an ASGI server: in order, and as fast as the client reads.

Senders queue and go on; a task that lives only while something waits hands it to the server. An idle client costs
no task.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from mcpd.protocol.budget import SMALL, Charge, client_of

log = logging.getLogger("mcpd")

_HIGH_WATER = 1024 * 1024
_MOST_WAITING = 64 * 1024 * 1024


class Outbox(ABC):
    """The queue of one client. A subclass writes it, in `_hand_on`; `close` drops it.

    A tool that waits in `drain` may hold a thread: if the client takes nothing for `write_timeout` seconds meanwhile,
    the queue closes (0: never).
    """

    __slots__ = ("_charge", "_drained", "_peer", "_waiting", "_waiting_bytes", "_write_timeout", "_writer", "is_open")

    def __init__(self, peer: str, write_timeout: float = 0) -> None:
        self._peer = peer
        self._write_timeout = write_timeout
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._charge: Charge | None = None
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
            if self._write_timeout <= 0:
                await asyncio.shield(self._drained)
            elif not (await asyncio.wait([self._drained], timeout=self._write_timeout))[0] and self.is_open:
                log.info("A client took nothing of what waits for it for %g s: its stream ends", self._write_timeout)
                self.close()

    def close(self) -> None:
        """Write nothing more."""
        self.is_open = False
        self._waiting.clear()
        self._waiting_bytes = 0
        self._charge = None
        self._wake()
        if self._writer is not None:
            self._writer.cancel()

    # -- for what writes ---------------------------------------------------------------------

    def _put(self, data: bytes) -> None:
        if self._waiting_bytes > _MOST_WAITING:
            self.close()  # it does not read, and could hold any amount of memory
            return

        self._waiting_bytes += len(data)
        if self._waiting_bytes > SMALL and not self._count():
            self.close()  # there is no memory left for what it does not read
            return

        self._waiting.append(data)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def _count(self) -> bool:
        """Take of the budget what waits; False if that is not to be had."""
        if self._waiting_bytes <= SMALL:
            self._charge = None
            return True
        if self._charge is None:
            self._charge = Charge(id(self), client_of(self._peer))
        return self._charge.set(self._waiting_bytes)

    @abstractmethod
    async def _hand_on(self) -> None:
        """Write all that waits, and say so by `_taken`."""

    def _taken(self, waiting_bytes: int) -> None:
        """The server has taken something; so much waits still."""
        self._waiting_bytes = waiting_bytes
        if self._charge is not None:
            self._count()
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
