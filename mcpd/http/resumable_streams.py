"""The streams of a session, which clients that lose a connection resume; their events are in an `EventStore`.

An event's id is `stream-number`: it names its stream, and is unique in the session (S25-038). A client that
comes back with the last id it saw gets what followed on that stream, and nothing of another (S25-039).
Spec: 2025-11-25 basic/transports, resumability and redelivery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from mcpd.backplane.base import EventStore
from mcpd.backplane.memory import MemoryEventStore
from mcpd.http.event_stream import EventStreamResponse
from mcpd.protocol.wire.sse import event, events, numbered, priming

_MOST_LEFT = 16
_MOST_AT_ONCE = 64 * 1024
"""The bytes of a stream that is kept in one piece: what is larger would be copied too often to be taken apart."""


class StreamMaker(Protocol):
    """What makes the event stream that answers a POST."""

    def new_stream(self) -> ResumableStream:
        """One that goes on."""

    def write_whole(self, frames: Sequence[bytes]) -> bytes:
        """One that begins and ends with these frames: all its bytes."""


class Relay(Protocol):
    """What else is told of the events of a stream: whoever may resume it elsewhere."""

    def add(self, number: int, data: bytes) -> None:
        """An event was sent, or would have been."""

    def end(self) -> None:
        """No more will come."""


class ResumableStreams:
    """The streams of one session that can be resumed, by number. `make_store` makes what keeps its events, by its id.

    A stream that is not over can be resumed even when none of its events is kept.
    """

    __slots__ = ("_by_number", "_left", "_make_store", "_session_id", "_store", "node", "on_lost", "retry_ms")

    def __init__(self, session_id: str, make_store: Callable[[str], EventStore], retry_ms: int) -> None:
        self.retry_ms = retry_ms
        self._session_id = session_id
        self._make_store = make_store
        self._by_number: dict[int, ResumableStream] = {}
        self._left: tuple[ResumableStream, ...] = ()
        self._store: EventStore | None = None
        self.node = ""
        """What the ids of events begin with: the node that sends them."""
        self.on_lost: Callable[[ResumableStream], object] | None = None
        """Called when a stream loses its connection before its end."""

    def __len__(self) -> int:
        return len(self._by_number)

    def get(self, number: int) -> ResumableStream | None:
        """The stream of that number."""
        stream = self._by_number.get(number)
        if stream is None and self._store.__class__ is MemoryEventStore:
            last = self._store.last(number)
            if last:
                stream = ResumableStream(number, self)
                stream.resume_whole(last)
        return stream

    def add(self, stream: ResumableStream, number: int, data: bytes) -> None:
        """Keep an event."""
        stream.is_kept = True
        self._by_number[stream.number] = stream
        store = self._open() if self._store is None else self._store
        self._forget(store.add(stream.number, number, data))

    def write_whole(self, number: int, frames: Sequence[bytes], *, primes: bool) -> bytes:
        """All the bytes of a new stream that begins and ends with this: `priming`, `write` for each frame, `complete`.

        The same, and mostly in one step. Of such a stream only its events are kept, in one piece: few clients come
        back for one, and for these `get` makes it.
        """
        store = self._open() if self._store is None else self._store
        if store.__class__ is MemoryEventStore:  # one of a derived class may add in its own way
            prefix = self.prefix(number)
            first = 2 if primes else 1
            whole = numbered(frames, prefix, first)
            if whole is not None and len(whole) <= _MOST_AT_ONCE:
                if primes:
                    whole = priming(prefix + b"1", self.retry_ms) + whole
                self._forget(store.add_whole(number, 1, first + len(frames) - 1, whole))
                return whole

        stream = ResumableStream(number, self, primes=primes)
        parts = [stream.priming(), *map(stream.write, frames)]
        stream.complete()
        return b"".join(parts)

    def prefix(self, number: int, *, is_listening: bool = False) -> bytes:
        """What the ids of a stream's events begin with.

        Of a node's stream they say whose it is, and whether it goes on elsewhere if that is gone.
        """
        return (
            b"%s.%s%d-" % (self.node.encode(), b"g" if is_listening else b"", number) if self.node else b"%d-" % number
        )

    def _open(self) -> EventStore:
        store = self._store = self._make_store(self._session_id)  # most sessions never have an event stream
        return store

    def _forget(self, streams: Iterable[int]) -> None:
        for forgotten in streams:
            other = self._by_number.get(forgotten)
            if other is not None:
                other.is_kept = False
                self.release(other)

    async def after(self, stream: ResumableStream, number: int) -> list[tuple[int, bytes]]:
        """The events of a stream that follow that number, as far as they are kept."""
        return [] if self._store is None else await self._store.after(stream.number, number)

    def release(self, stream: ResumableStream) -> None:
        """Forget a stream that is over, once none of its events is kept."""
        if stream.is_over and not stream.is_kept:
            self._by_number.pop(stream.number, None)

    def leave(self, stream: ResumableStream) -> None:
        """A GET stream lost its connection. A few such can be resumed even if no event was missed meanwhile."""
        self._left = (*(each for each in self._left if each is not stream), stream)
        if len(self._left) > _MOST_LEFT:
            oldest, *left = self._left
            self._left = tuple(left)
            if oldest.response is None:
                oldest.is_over = True
                self.release(oldest)

    def clear(self) -> None:
        """The session has ended: nothing can be resumed any more."""
        self.on_lost = None  # it holds the session, which holds this
        self._by_number.clear()
        self._left = ()
        if self._store is not None:
            self._store.clear()


class ResumableStream:
    """One event stream of a session as the protocol sees it: it outlives the connections that carry it.

    `response` is the connection that carries it now. Without `streams`, to which it belongs, events have no ids, and
    nothing is kept.
    """

    response: EventStreamResponse | None = None
    is_complete = False
    """The answer was sent on it: a client that resumes it gets the rest of its events, and its end."""
    is_over = False
    """No more events will come: it is complete, or a GET stream that its client has left for others."""
    is_kept = False
    """Whether the store has some of its events."""
    relay: Relay | None = None
    """What else is told of its events, once somebody may resume it on another node."""
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
        """A GET stream, for what belongs to no request."""
        self._streams = streams
        self._primes = primes
        if streams is not None:
            self._prefix = streams.prefix(number, is_listening=is_listening)

    def priming(self) -> bytes:
        """What a stream begins with: an event to resume after, where the version has that (2025-11-25), or nothing."""
        if self._streams is None or not self._primes:
            return b""
        self._last += 1
        data = priming(b"%b%d" % (self._prefix, self._last), self._streams.retry_ms)
        self._streams.add(self, self._last, data)
        return data

    def write(self, frame: bytes) -> bytes:
        """The next event, kept."""
        if self._streams is None:
            return event(frame)
        self._last += 1
        data = event(frame, b"%b%d" % (self._prefix, self._last))
        self._streams.add(self, self._last, data)
        return data

    def push(self, frame: bytes) -> None:
        """Send an event on the connection that carries the stream now, and keep it for a client that resumes."""
        data = self.write(frame)
        if self.response is not None:
            self.response.push(data)
        if self.relay is not None:
            self.relay.add(self._last, data)

    def lost(self) -> None:
        """Its connection has ended before it did."""
        if self._streams is not None and self._streams.on_lost is not None and not self.is_complete:
            self._streams.on_lost(self)

    async def since(self, number: int) -> list[bytes] | None:
        """What is kept of the events that follow that number; None if none such was ever sent."""
        missed = await self.numbered_since(number)
        return None if missed is None else [data for _, data in missed]

    async def numbered_since(self, number: int) -> list[tuple[int, bytes]] | None:
        """The same, with their numbers.

        Of a client that was away for long some may be lost: what is left, above all the answer, is still worth having.
        """
        assert self._streams is not None
        if not 0 < number <= self._last:
            return None

        missed: list[tuple[int, bytes]] = []
        position = number
        while position < self._last:
            # While a store is asked more may be said: whoever takes what this gives has to have all of it.
            last = self._last
            found = await self._streams.after(self, position)
            missed += found
            position = max(last, found[-1][0] if found else 0)
        return missed

    def resume_whole(self, last: int) -> None:
        """It came whole, and this was the number of its last event."""
        self.is_complete = self.is_over = self.is_kept = True
        self._last = last

    def complete(self) -> None:
        """No more events will come."""
        self.is_complete = self.is_over = True
        if self.relay is not None:
            self.relay.end()
        if self._streams is not None:
            self._streams.release(self)


class _NotResumable:
    """Makes streams that end with their connection."""

    def new_stream(self) -> ResumableStream:
        return ResumableStream()

    def write_whole(self, frames: Sequence[bytes]) -> bytes:
        return events(frames)


NOT_RESUMABLE: StreamMaker = _NotResumable()
