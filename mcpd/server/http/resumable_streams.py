"""The event streams of a session, which clients resume after a lost connection, and the store of their events.

An event's id is `stream-number`, which is unique in the session (S25-038). A client that returns with the last id it
received gets the following events of that stream, and none of another stream (S25-039).
Spec: 2025-11-25 basic/transports, resumability and redelivery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from mcpd.protocol.budget import SMALL, Charge
from mcpd.protocol.wire.sse import event, priming
from mcpd.server.backplane.base import EventStore
from .event_stream import EventStreamResponse

_MOST_LEFT = 16


class MemoryEventStore:
    """Stores the events of one session, limited by their number, their bytes and the memory budget."""

    __slots__ = ("_bytes", "_charge", "_events", "_of_stream", "most_bytes", "most_events")

    def __init__(self, most_events: int, most_bytes: int) -> None:
        self.most_events = most_events
        self.most_bytes = most_bytes
        # A list, although the oldest events are dropped: most sessions store few, and an empty deque takes 760 bytes.
        self._events: list[tuple[int, int, bytes]] = []
        # The number of stored events of each stream.
        self._of_stream: dict[int, int] = {}
        self._bytes = 0
        self._charge: Charge | None = None

    def add(self, stream: int, number: int, data: bytes) -> Iterable[int]:
        events = self._events
        events.append((stream, number, data))
        self._of_stream[stream] = self._of_stream.get(stream, 0) + 1
        self._bytes += len(data)

        forgotten: list[int] = []
        while events:
            is_over = len(events) > self.most_events or self._bytes > self.most_bytes
            if not (is_over and len(events) > 1) and self._has_memory():  # the newest event is always kept
                break
            oldest, _, dropped = events.pop(0)
            self._bytes -= len(dropped)
            self._of_stream[oldest] -= 1
            if not self._of_stream[oldest]:
                del self._of_stream[oldest]
                forgotten.append(oldest)

        return forgotten

    def _has_memory(self) -> bool:
        # Charge the stored bytes to the memory budget. Returns False if it is used up.
        pages = self._bytes // SMALL
        if not pages:
            self._charge = None
            return True
        if self._charge is None:
            self._charge = Charge("events")  # all stores together leave half of the budget to requests
        # In pages, so that most events do not change the charge.
        size = (pages + 1) * SMALL
        return size == self._charge.size or self._charge.set(size)

    async def after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
        return [(position, data) for kept, position, data in self._events if kept == stream and position > number]

    def clear(self) -> None:
        self._events.clear()
        self._of_stream.clear()
        self._bytes = 0
        self._charge = None


class Relay(Protocol):
    """Passes the events of a stream to another node, where a client may resume it."""

    def add(self, number: int, data: bytes) -> None:
        """Pass on an event."""

    def end(self) -> None:
        """Report the end of the stream."""

    @property
    def is_followed(self) -> bool:
        """Whether a client reads the stream on another node."""


class ResumableStreams(Struct, eq=False):
    """The streams of one session that can be resumed, by number. `make_store` returns the store for a session's id.

    A stream that is not over can be resumed even if none of its events is stored.
    """

    _session_id: str
    _make_store: Callable[[str], EventStore]
    retry_ms: int
    node: str = ""
    """The node that sends the events, with which their ids begin; empty for a single process."""
    on_lost: Callable[[ResumableStream], object] | None = None
    """Called when a stream loses its connection before its end."""
    _by_number: dict[int, ResumableStream] = {}
    _left: tuple[ResumableStream, ...] = ()
    _store: EventStore | None = None

    @property
    def has_unread(self) -> bool:
        """Whether clients may return for events of its streams."""
        return any(not stream.was_sent_whole for stream in self._by_number.values())

    def get(self, number: int) -> ResumableStream | None:
        """Return the stream with this number."""
        return self._by_number.get(number)

    def add(self, stream: ResumableStream, number: int, data: bytes) -> None:
        """Store an event."""
        stream.is_kept = True
        self._by_number[stream.number] = stream
        if self._store is None:
            self._store = self._make_store(self._session_id)  # most sessions never have an event stream
        for forgotten in self._store.add(stream.number, number, data):
            other = self._by_number.get(forgotten)
            if other is not None:
                other.is_kept = False
                self.release(other)

    def prefix(self, number: int, *, is_listening: bool = False) -> bytes:
        """Return the beginning of the ids of a stream's events.

        With several nodes it includes the node, and a "g" if the stream continues on another node after a crash.
        """
        return (
            b"%s.%s%d-" % (self.node.encode(), b"g" if is_listening else b"", number) if self.node else b"%d-" % number
        )

    async def after(self, stream: ResumableStream, number: int) -> list[tuple[int, bytes]]:
        """Return the stored events of a stream after that number."""
        return [] if self._store is None else await self._store.after(stream.number, number)

    def release(self, stream: ResumableStream) -> None:
        """Drop a stream that is over, once none of its events is stored."""
        if stream.is_over and not stream.is_kept:
            self._by_number.pop(stream.number, None)

    def leave(self, stream: ResumableStream) -> None:
        """Keep a GET stream that lost its connection; some can be resumed even without a missed event."""
        self._left = (*(each for each in self._left if each is not stream), stream)
        if len(self._left) > _MOST_LEFT:
            oldest, *left = self._left
            self._left = tuple(left)
            if oldest.response is None:
                oldest.is_over = True
                self.release(oldest)

    def clear(self) -> None:
        """Drop all streams, because the session has ended."""
        self.on_lost = None  # it refers to the session, which refers to this object
        self._by_number.clear()
        self._left = ()
        if self._store is not None:
            self._store.clear()


class ResumableStream:
    """One event stream of a session, which may outlive several connections.

    `response` is the connection that carries it now. Without `streams` its events have no ids and are not stored.
    """

    response: EventStreamResponse | None = None
    is_complete = False
    """The response was sent: a client that resumes the stream gets the missing events, and its end."""
    is_over = False
    """No more events follow: the stream is complete, or a GET stream that the client has replaced by others."""
    is_kept = False
    """Whether the store has some of its events."""
    was_sent_whole = False
    """Whether one response had all its events, so that few clients return for them."""
    relay: Relay | None = None
    """Passes events to other nodes, where a client may resume the stream."""
    _last = 0

    def __init__(
        self,
        number: int = 0,
        streams: ResumableStreams | None = None,
        *,
        primes: bool = False,
        is_listening: bool = False,
    ) -> None:
        self.number = number
        self.is_listening = is_listening
        """Whether it is a GET stream, for messages that belong to no request."""
        self._streams = streams
        self._primes = primes
        if streams is not None:
            self._prefix = streams.prefix(number, is_listening=is_listening)

    def priming(self) -> bytes:
        """Return the first event, after which a client can resume (2025-11-25); b"" in older versions."""
        if self._streams is None or not self._primes:
            return b""
        self._last += 1
        data = priming(b"%b%d" % (self._prefix, self._last), self._streams.retry_ms)
        self._streams.add(self, self._last, data)
        return data

    def write(self, frame: bytes) -> bytes:
        """Store the next event, and return its bytes."""
        if self._streams is None:
            return event(frame)
        self._last += 1
        data = event(frame, b"%b%d" % (self._prefix, self._last))
        self._streams.add(self, self._last, data)
        return data

    def push(self, frame: bytes) -> None:
        """Send an event on the current connection, and store it for a client that resumes."""
        data = self.write(frame)
        if self.response is not None:
            self.response.push(data)
        if self.relay is not None:
            self.relay.add(self._last, data)

    @property
    def is_away(self) -> bool:
        """Whether no client reads the stream, on any node."""
        return self.response is None and (self.relay is None or not self.relay.is_followed)

    def lost(self) -> None:
        """Report that the connection has ended before the stream."""
        if self._streams is not None and self._streams.on_lost is not None and not self.is_complete:
            self._streams.on_lost(self)

    async def since(self, number: int) -> list[bytes] | None:
        """Return the stored events after that number; None if the number was never sent."""
        missed = await self.numbered_since(number)
        return None if missed is None else [data for _, data in missed]

    async def numbered_since(self, number: int) -> list[tuple[int, bytes]] | None:
        """Return the stored events after that number with their numbers; None if the number was never sent.

        If the client was away for long, some events may be lost. The others, above all the response, are still useful.
        """
        assert self._streams is not None
        if not 0 < number <= self._last:
            return None

        missed: list[tuple[int, bytes]] = []
        position = number
        while position < self._last:
            # More events may be sent while the store is read: the result must include them.
            last = self._last
            events = await self._streams.after(self, position)
            missed += events
            position = max(last, events[-1][0] if events else 0)

        return missed

    def complete(self) -> None:
        """End the stream."""
        self.is_complete = self.is_over = True
        if self.relay is not None:
            self.relay.end()
        if self._streams is not None:
            self._streams.release(self)
