"""A backplane whose commands are timed. None of them is on the road of a call, so that this may cost something."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

from mcpd.backplane.base import Backplane, BackplaneAway, Item, Receive

T = TypeVar("T")

Commanded: TypeAlias = Callable[[str, float, str], object]
"""Hears of a command: its name, its seconds, and `away` or the class of what it raised, "" if nothing."""


class TimedBackplane:
    """See `Backplane`: asks the one that it is given."""

    def __init__(self, behind: Backplane, commanded: Commanded) -> None:
        self._behind = behind
        self._commanded = commanded

    @property
    def away_since(self) -> float | None:
        """See `Backplane`."""
        return self._behind.away_since

    async def aclose(self) -> None:
        """See `Backplane`."""
        await self._behind.aclose()

    async def _timed(self, command: str, work: Coroutine[Any, Any, T]) -> T:
        began, error = perf_counter(), ""
        try:
            return await work
        except BackplaneAway:
            error = "away"
            raise
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            self._commanded(command, perf_counter() - began, error)

    async def get(self, key: str) -> bytes | None:
        """See `Backplane`."""
        return await self._timed("get", self._behind.get(key))

    async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
        """See `Backplane`."""
        return await self._timed("set", self._behind.set(key, value, ttl, only_new=only_new))

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """See `Backplane`."""
        return await self._timed("swap", self._behind.swap(key, old, new, ttl))

    async def delete(self, key: str) -> None:
        """See `Backplane`."""
        await self._timed("delete", self._behind.delete(key))

    async def append(self, name: str, entries: Sequence[bytes], most: int, ttl: float) -> None:
        """See `Backplane`."""
        await self._timed("append", self._behind.append(name, entries, most, ttl))

    async def read(self, name: str, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """See `Backplane`."""
        return await self._timed("read", self._behind.read(name, after, limit))

    async def publish(self, channel: str, data: bytes) -> int:
        """See `Backplane`."""
        return await self._timed("publish", self._behind.publish(channel, data))

    async def subscribe(self, channel: str, receive: Receive) -> None:
        """See `Backplane`."""
        await self._timed("subscribe", self._behind.subscribe(channel, receive))

    async def unsubscribe(self, channel: str, receive: Receive) -> None:
        """See `Backplane`."""
        await self._timed("unsubscribe", self._behind.unsubscribe(channel, receive))

    def on_gap(self, told: Callable[[], object]) -> None:
        """See `Backplane`."""
        self._behind.on_gap(told)

    async def push(self, name: str, data: bytes, ttl: float) -> None:
        """See `Backplane`."""
        await self._timed("push", self._behind.push(name, data, ttl))

    async def claim(self, name: str, who: str, lease: float) -> Item | None:
        """See `Backplane`."""
        return await self._timed("claim", self._behind.claim(name, who, lease))

    async def renew(self, name: str, who: str, item: Item, lease: float) -> bool:
        """See `Backplane`."""
        return await self._timed("renew", self._behind.renew(name, who, item, lease))

    async def done(self, name: str, who: str, item: Item) -> bool:
        """See `Backplane`."""
        return await self._timed("done", self._behind.done(name, who, item))
