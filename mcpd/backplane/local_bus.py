"""Who listens to which channel in this process, and how they are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mcpd.backplane.base import Receive

log = logging.getLogger("mcpd")


class LocalBus:
    """The listeners of one process: all of a bus that goes no further, else what a connection's messages go to."""

    def __init__(self) -> None:
        self._receivers: dict[str, list[Receive]] = {}
        self._gaps: list[Callable[[], object]] = []

    @property
    def channels(self) -> list[str]:
        """All that somebody listens to."""
        return list(self._receivers)

    def add(self, channel: str, receive: Receive) -> bool:
        """Somebody listens; gives whether nobody did before."""
        receivers = self._receivers.setdefault(channel, [])
        receivers.append(receive)
        return len(receivers) == 1

    def remove(self, channel: str, receive: Receive) -> bool:
        """Not any more; gives whether nobody is left who does."""
        receivers = self._receivers.get(channel)
        if receivers is None or receive not in receivers:
            return False
        receivers.remove(receive)
        if receivers:
            return False
        del self._receivers[channel]
        return True

    def tell(self, channel: str, data: bytes) -> int:
        """Tell all of a channel, in the next turn of the event loop: nobody is told before the caller goes on."""
        receivers = self._receivers.get(channel, ())
        loop = asyncio.get_running_loop()
        for receive in receivers:
            loop.call_soon(self._receive, channel, receive, data)
        return len(receivers)

    def _receive(self, channel: str, receive: Receive, data: bytes) -> None:
        if receive not in self._receivers.get(channel, ()):
            return  # it left meanwhile
        try:
            receive(data)
        except Exception:
            log.exception("what came over the backplane could not be dealt with")

    def on_gap(self, told: Callable[[], object]) -> None:
        """See `Backplane`."""
        self._gaps.append(told)

    def tell_gap(self) -> None:
        """Something may have been missed."""
        for told in self._gaps:
            try:
                told()
            except Exception:
                log.exception("a gap in what the backplane says could not be dealt with")


class OwnBus:
    """The bus of a backplane whose messages reach this process alone, so that none is ever missed."""

    def __init__(self) -> None:
        self.bus = LocalBus()

    async def publish(self, channel: str, data: bytes) -> int:
        """See `Backplane`."""
        return self.bus.tell(channel, data)

    async def subscribe(self, channel: str, receive: Receive) -> None:
        """See `Backplane`."""
        self.bus.add(channel, receive)

    async def unsubscribe(self, channel: str, receive: Receive) -> None:
        """See `Backplane`."""
        self.bus.remove(channel, receive)

    def on_gap(self, told: Callable[[], object]) -> None:
        """See `Backplane`."""
        self.bus.on_gap(told)
