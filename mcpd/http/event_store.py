"""The events of a session's streams, kept within bounds for clients that lose a connection and resume.

An event's id is `stream-number`: it names its stream, and is unique in the session (S25-038). A client that
comes back with the last id it saw gets what followed on that stream, and nothing of another (S25-039).
Spec: 2025-11-25 basic/transports, resumability and redelivery.
"""

from __future__ import annotations

from collections import deque

from ..budget import SMALL, Charge
from ..wire.sse import event, priming
from .event_stream import EventStreamResponse

__all__ = ["EventStore", "ResumableStream"]


_MOST_LEFT = 16


class EventStore:
    """The events of one session that may still be asked for, oldest first.

    Over `most_events` or `most_bytes`, or without memory for them, the oldest are forgotten; the newest is kept
    whatever its size. A stream that is not over can be resumed even when none of its events is kept.
    """

    __slots__ = ("_bytes", "_charge", "_events", "_left", "most_bytes", "most_events", "retry_ms", "streams")

    def __init__(self, most_events: int, most_bytes: int, retry_ms: int) -> None:
        self.most_events = most_events
        self.most_bytes = most_bytes
        self.retry_ms = retry_ms
        self.streams: dict[int, ResumableStream] = {}
        """The streams that can be resumed, by number."""
        self._events: deque[tuple[ResumableStream, int, bytes]] | None = None
        self._left: list[ResumableStream] = []
        self._bytes = 0
        self._charge: Charge | None = None

    def add(self, stream: ResumableStream, number: int, data: bytes) -> None:
        """Keep an event."""
        events = self._events
        if events is None:
            # Most sessions never have an event stream: an empty deque takes 600 bytes of each.
            events = self._events = deque()
        events.append((stream, number, data))
        stream.kept += 1
        self.streams[stream.number] = stream
        self._bytes += len(data)
        while len(events) > 1 and (
            len(events) > self.most_events or self._bytes > self.most_bytes or not self._has_memory()
        ):
            forgotten, _, gone = events.popleft()
            self._bytes -= len(gone)
            forgotten.kept -= 1
            self.release(forgotten)

    def _has_memory(self) -> bool:
        """Take of the budget what is kept; False if that is not to be had."""
        if self._bytes <= SMALL:
            self._charge = None
            return True
        if self._charge is None:
            self._charge = Charge("events")  # all stores together leave half to what is asked now
        return self._charge.set(self._bytes)

    def after(self, stream: ResumableStream, number: int) -> list[bytes]:
        """The events of a stream that follow that number, as far as they are kept."""
        return [data for kept, position, data in self._events or () if kept is stream and position > number]

    def release(self, stream: ResumableStream) -> None:
        """Forget a stream that is over, once none of its events is kept."""
        if stream.is_over and not stream.kept:
            self.streams.pop(stream.number, None)

    def leave(self, stream: ResumableStream) -> None:
        """A GET stream lost its connection. A few such can be resumed even if no event was missed meanwhile."""
        if stream in self._left:
            self._left.remove(stream)
        self._left.append(stream)
        if len(self._left) > _MOST_LEFT:
            oldest = self._left.pop(0)
            if oldest.response is None:
                oldest.is_over = True
                self.release(oldest)


class ResumableStream:
    """One event stream of a session as the protocol sees it: it outlives the connections that carry it.

    `response` is the connection that carries it now. Without a `store` events have no ids, and nothing is kept.
    """

    response: EventStreamResponse | None = None
    is_complete = False
    """The answer was sent on it: a client that resumes it gets the rest of its events, and its end."""
    is_over = False
    """No more events will come: it is complete, or a GET stream that its client has left for others."""
    kept = 0
    """How many of its events the store has."""
    _last = 0

    def __init__(
        self, number: int = 0, store: EventStore | None = None, *, primes: bool = False, is_listening: bool = False
    ) -> None:
        self.number = number
        self.is_listening = is_listening
        """A GET stream, for what belongs to no request."""
        self._store = store
        self._primes = primes

    def priming(self) -> bytes:
        """What a stream begins with: an event to resume after, where the version has that (2025-11-25), or nothing."""
        if self._store is None or not self._primes:
            return b""
        self._last += 1
        data = priming(b"%d-%d" % (self.number, self._last), self._store.retry_ms)
        self._store.add(self, self._last, data)
        return data

    def write(self, frame: bytes) -> bytes:
        """The next event, kept."""
        if self._store is None:
            return event(frame)
        self._last += 1
        data = event(frame, b"%d-%d" % (self.number, self._last))
        self._store.add(self, self._last, data)
        return data

    def push(self, frame: bytes) -> None:
        """Send an event on the connection that carries the stream now, and keep it for a client that resumes."""
        data = self.write(frame)
        if self.response is not None:
            self.response.push(data)

    def since(self, number: int) -> list[bytes] | None:
        """What is kept of the events that follow that number; None if none such was ever sent.

        Of a client that was away for long some may be lost: what is left, above all the answer, is still worth having.
        """
        assert self._store is not None
        return self._store.after(self, number) if 0 < number <= self._last else None

    def complete(self) -> None:
        """No more events will come."""
        self.is_complete = self.is_over = True
        if self._store is not None:
            self._store.release(self)
