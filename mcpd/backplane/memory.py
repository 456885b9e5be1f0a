"""All of it in the memory of one process, which is enough where one process serves all clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from math import inf
from threading import Lock
from time import monotonic
from weakref import WeakSet

from ..budget import SMALL, Charge
from .base import Kind, Subscriber

__all__ = ["MemoryChangeBus", "MemoryEventStore", "MemorySessionStore"]


class MemoryChangeBus:
    """Between the servers of one process."""

    def __init__(self) -> None:
        self._subscribers: WeakSet[Subscriber] = WeakSet()
        self._lock = Lock()

    def subscribe(self, subscriber: Subscriber) -> None:
        """See `ChangeBus`."""
        with self._lock:
            self._subscribers.add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """See `ChangeBus`."""
        with self._lock:
            self._subscribers.discard(subscriber)

    def publish(self, kind: Kind, uri: str | None, by: Subscriber) -> None:
        """See `ChangeBus`."""
        with self._lock:
            subscribers = [subscriber for subscriber in self._subscribers if subscriber is not by]
        for subscriber in subscribers:
            subscriber.notify(kind, uri)


class MemorySessionStore:
    """Between the applications of one process: at most so many records, of which the oldest is forgotten first.

    What is over is forgotten with the next that is kept.
    """

    def __init__(self, most_records: int = 100_000) -> None:
        self.most_records = most_records
        self._records: dict[str, tuple[bytes, float]] = {}
        self._deleted: list[Callable[[str], None]] = []
        self._lock = Lock()

    async def put(self, session_id: str, record: bytes, life: float) -> None:
        """See `SessionStore`."""
        now = monotonic()
        with self._lock:
            self._records.pop(session_id, None)
            # Those that end first are those that came first, if they all live as long: no more is looked at.
            for oldest, (_, end) in list(islice(self._records.items(), 2)):
                if end <= now or len(self._records) >= self.most_records:
                    del self._records[oldest]
            self._records[session_id] = record, now + life if life else inf

    async def get(self, session_id: str) -> bytes | None:
        """See `SessionStore`."""
        record, end = self._records.get(session_id, (None, 0.0))
        return record if end > monotonic() else None

    async def delete(self, session_id: str) -> None:
        """See `SessionStore`."""
        with self._lock:
            self._records.pop(session_id, None)
            watching = list(self._deleted)
        for deleted in watching:
            deleted(session_id)

    def watch(self, deleted: Callable[[str], None]) -> Callable[[], None]:
        """See `SessionStore`."""
        with self._lock:
            self._deleted.append(deleted)

        def unwatch() -> None:
            with self._lock:
                if deleted in self._deleted:
                    self._deleted.remove(deleted)

        return unwatch


class MemoryEventStore:
    """At most so many events of a session, and so many bytes of them, as far as the budget has memory for them."""

    __slots__ = ("_bytes", "_charge", "_events", "_of_stream", "most_bytes", "most_events")

    def __init__(self, most_events: int, most_bytes: int) -> None:
        self.most_events = most_events
        self.most_bytes = most_bytes
        self._events: deque[tuple[int, int, bytes]] = deque()
        self._of_stream: dict[int, int] = {}
        """How many events of each stream are kept."""
        self._bytes = 0
        self._charge: Charge | None = None

    def add(self, stream: int, number: int, data: bytes) -> Iterable[int]:
        """See `EventStore`."""
        events = self._events
        events.append((stream, number, data))
        counts = self._of_stream
        counts[stream] = counts.get(stream, 0) + 1
        self._bytes += len(data)

        forgotten: list[int] = []
        while events and (self._is_over() or not self._has_memory()):
            oldest, _, gone = events.popleft()
            self._bytes -= len(gone)
            counts[oldest] -= 1
            if not counts[oldest]:
                del counts[oldest]
                forgotten.append(oldest)
        return forgotten

    def _is_over(self) -> bool:
        """Whether there are more than this session may have; its newest it may have in any case."""
        return len(self._events) > 1 and (len(self._events) > self.most_events or self._bytes > self.most_bytes)

    def _has_memory(self) -> bool:
        """Take of the budget what is kept; False if that is not to be had."""
        pages = self._bytes // SMALL
        if not pages:
            self._charge = None
            return True
        if self._charge is None:
            self._charge = Charge("events")  # all stores together leave half to what is asked now
        # In pages, so that most events change nothing there.
        size = (pages + 1) * SMALL
        return size == self._charge.size or self._charge.set(size)

    async def after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
        """See `EventStore`."""
        return [(position, data) for kept, position, data in self._events if kept == stream and position > number]

    def clear(self) -> None:
        """See `EventStore`."""
        self._events.clear()
        self._of_stream.clear()
        self._bytes = 0
        self._charge = None
