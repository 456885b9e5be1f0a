"""The backplane of one process, `memory://`, and what the others share: the bus inside a process, and `Remote`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from time import monotonic

from msgspec import Struct

from mcpd.protocol.printable import printable
from .base import BackplaneAway, Receive

log = logging.getLogger("mcpd")


class LocalBus(Struct, eq=False):
    """The subscribers of one process by channel."""

    _receivers: dict[str, list[Receive]] = {}
    _gaps: list[Callable[[], object]] = []

    @property
    def channels(self) -> list[str]:
        """The channels that have subscribers."""
        return list(self._receivers)

    def add(self, channel: str, receive: Receive) -> bool:
        """Add a subscriber. Returns whether it is the first of its channel."""
        receivers = self._receivers.setdefault(channel, [])
        receivers.append(receive)
        return len(receivers) == 1

    def remove(self, channel: str, receive: Receive) -> bool:
        """Remove a subscriber. Returns whether it was the last of its channel."""
        receivers = self._receivers.get(channel)
        if receivers is None or receive not in receivers:
            return False
        receivers.remove(receive)
        if receivers:
            return False
        del self._receivers[channel]
        return True

    def deliver(self, channel: str, data: bytes) -> int:
        """Call all subscribers of a channel in the next iteration of the event loop. Returns their number."""
        receivers = self._receivers.get(channel, ())
        loop = asyncio.get_running_loop()
        for receive in receivers:
            loop.call_soon(self._receive, channel, receive, data)
        return len(receivers)

    def _receive(self, channel: str, receive: Receive, data: bytes) -> None:
        if receive not in self._receivers.get(channel, ()):
            return  # it has unsubscribed meanwhile
        try:
            receive(data)
        except Exception:
            log.exception("a message of the backplane could not be handled")

    def on_gap(self, callback: Callable[[], object]) -> None:
        self._gaps.append(callback)

    def report_gap(self) -> None:
        """Call all functions given to `on_gap`."""
        for callback in self._gaps:
            try:
                callback()
            except Exception:
                log.exception("the loss of messages of the backplane could not be handled")


class OwnBus:
    """The bus of a backplane whose messages stay inside this process, so that none is ever lost."""

    def __init__(self) -> None:
        self.bus = LocalBus()

    async def publish(self, channel: str, data: bytes) -> int:
        return self.bus.deliver(channel, data)

    async def subscribe(self, channel: str, receive: Receive) -> None:
        self.bus.add(channel, receive)

    async def unsubscribe(self, channel: str, receive: Receive) -> None:
        self.bus.remove(channel, receive)

    def on_gap(self, callback: Callable[[], object]) -> None:
        self.bus.on_gap(callback)


# While a backplane is away, one command per this many seconds is sent to find out whether it is back.
_PROBE_EVERY = 0.25


class Remote:
    """The part of a backplane outside this process that remembers whether it can be reached."""

    def __init__(self) -> None:
        self.away_since: float | None = None
        self._probe_at = 0.0

    def check_reachable(self, *, has_room: bool) -> None:
        """Raise BackplaneAway if no command should be sent now."""
        if self.away_since is not None:
            now = asyncio.get_running_loop().time()
            if now < self._probe_at:
                raise BackplaneAway("the backplane is away")
            self._probe_at = now + _PROBE_EVERY
        if not has_room:
            raise BackplaneAway("too many commands wait for the backplane")

    def lost(self, why: object) -> None:
        """The backplane does not respond."""
        now = asyncio.get_running_loop().time()
        self._probe_at = now + _PROBE_EVERY
        if self.away_since is None:
            self.away_since = now
            log.warning("the backplane is away: %s", printable(why))

    def reached(self) -> None:
        """The backplane has responded."""
        if self.away_since is not None:
            away = asyncio.get_running_loop().time() - self.away_since
            self.away_since = None
            log.warning("the backplane is back after %.1f s", away)


_MOST_BYTES = 64 * 1024 * 1024
# Bytes that a key costs besides its data.
_PER_KEY = 200


class _Lives(Struct, eq=False):
    # When the data of each name expires. A renewed name leaves its older entry in the heap for a while.
    _heap: list[tuple[float, str]] = []
    _ends: dict[str, float] = {}

    def set(self, name: str, ttl: float) -> None:
        # Let a name expire in `ttl` seconds.
        self._ends[name] = end = monotonic() + ttl
        heappush(self._heap, (end, name))
        if len(self._heap) > 2 * len(self._ends) + 64:
            self._heap = [(end, name) for name, end in self._ends.items()]
            heapify(self._heap)

    def forget(self, name: str) -> None:
        # Forget the expiry of a name that was deleted.
        self._ends.pop(name, None)

    def take_ended(self) -> list[str]:
        # Remove and return the names that have expired.
        found, now = [], monotonic()
        while self._heap and self._heap[0][0] <= now:
            end, name = heappop(self._heap)
            if self._ends.get(name) == end:
                del self._ends[name]
                found.append(name)
        return found

    def next_to_end(self) -> str:
        # Return the name that expires first.
        return min(self._ends, key=self._ends.__getitem__)


class MemoryBackplane(OwnBus):
    """See `Backplane`. Above `most_bytes` the data that expires first is dropped."""

    away_since: float | None = None

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        super().__init__()
        self._bytes = 0
        self._last = 0
        self._values: dict[str, bytes] = {}
        self._logs: dict[str, deque[tuple[int, bytes]]] = {}
        # Names have a prefix for their kind: "k" for keys, "l" for logs.
        self._lives = _Lives()

    def __len__(self) -> int:
        """The number of names that have data."""
        self._expire()
        return len(self._values) + len(self._logs)

    async def aclose(self) -> None:
        """See `Backplane`: there is nothing to close."""

    def _expire(self) -> None:
        for name in self._lives.take_ended():
            self._forget(name)

    def _forget(self, name: str) -> None:
        kind, key = name[0], name[1:]
        size = _PER_KEY
        if kind == "k":
            size += len(self._values.pop(key))
        else:
            size += sum(len(entry) for _, entry in self._logs.pop(key))
        self._bytes -= size

    def _grow(self, size: int, besides: str) -> None:
        # Account for `size` more bytes, and drop other data above the limit.
        self._bytes += size
        while self._bytes > self.most_bytes:
            name = self._lives.next_to_end()
            if name == besides:
                return  # the data written last stays, whatever its size
            self._lives.forget(name)
            self._forget(name)

    # -- values ------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        self._expire()
        return self._values.get(key)

    async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
        self._expire()
        if only_new and key in self._values:
            return False
        self._put(key, value, ttl)
        return True

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        self._expire()
        if self._values.get(key) != old:
            return False
        self._put(key, new, ttl)
        return True

    def _put(self, key: str, value: bytes, ttl: float) -> None:
        before = self._values.get(key)
        self._values[key] = value
        self._lives.set("k" + key, ttl)
        self._grow(len(value) + (_PER_KEY if before is None else -len(before)), "k" + key)

    async def delete(self, key: str) -> None:
        self._expire()
        if key in self._values:
            self._lives.forget("k" + key)
            self._forget("k" + key)

    # -- logs --------------------------------------------------------------------------------

    async def append(self, name: str, entries: Sequence[bytes], most: int, ttl: float) -> None:
        self._expire()
        size = 0
        if name not in self._logs:
            self._logs[name] = deque()
            size = _PER_KEY

        kept = self._logs[name]
        for entry in entries:
            self._last += 1
            kept.append((self._last, entry))
            size += len(entry)

        while len(kept) > most:
            size -= len(kept.popleft()[1])

        self._lives.set("l" + name, ttl)
        self._grow(size, "l" + name)

    async def read(self, name: str, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        self._expire()
        first = int(after.partition("-")[0]) if after else 0  # clients may send positions of another backplane
        behind = [(str(number), entry) for number, entry in self._logs.get(name, ()) if number > first]
        return behind[:limit]
