"""The streams of a session, which clients that lose a connection resume; their events are in an `EventStore`.

An event's id is `stream-number`: it names its stream, and is unique in the session (S25-038). A client that
comes back with the last id it saw gets what followed on that stream, and nothing of another (S25-039).
Spec: 2025-11-25 basic/transports, resumability and redelivery.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from mcpd.protocol.budget import SMALL, Charge
from mcpd.protocol.wire.sse import event, events, numbered, priming
from mcpd.server.backplane.base import EventStore
from mcpd.server.http.event_stream import EventStreamResponse

_EMPTY_LINE = b"\n\n"


_FEW = 16
"""So many pieces are in a list, more in a deque, which takes 760 bytes if it is empty; most streams say little."""

_Piece: TypeAlias = tuple[int, int, int, bytes]
"""One or more events: their stream, the number of the first, how many they are, their bytes."""


class MemoryEventStore:
    """At most so many events of a session, and so many bytes of them, as far as the budget has memory for them.

    A stream that came whole is kept in one piece, see `add_whole`, and taken apart only if the oldest of it is to go.
    """

    __slots__ = ("_bytes", "_charge", "_count", "_hidden", "_kept", "_of_stream", "most_bytes", "most_events")

    def __init__(self, most_events: int, most_bytes: int) -> None:
        self.most_events = most_events
        self.most_bytes = most_bytes
        self._kept: list[_Piece] | deque[_Piece] = []
        self._count = 0
        self._hidden = 0
        """So many events of the first piece are forgotten, and still in its bytes: to cut them off would copy it."""
        self._of_stream: dict[int, int] = {}
        """How many events of each stream are kept."""
        self._bytes = 0
        self._charge: Charge | None = None

    def add(self, stream: int, number: int, data: bytes) -> Iterable[int]:
        """See `EventStore`."""
        return self.add_whole(stream, number, 1, data)

    def add_whole(self, stream: int, number: int, count: int, data: bytes) -> Iterable[int]:
        """As `add` for each of so many events, of which `number` is the first: each ends at its first empty line.

        What is kept is the longest tail of all events that is within the bounds, however they came.
        """
        kept, of_stream = self._kept, self._of_stream
        kept.append((stream, number, count, data))
        if len(kept) == _FEW and kept.__class__ is list:
            kept = self._kept = deque(kept)
        of_stream[stream] = of_stream.get(stream, 0) + count
        self._count += count
        self._bytes += len(data)

        forgotten: list[int] = []
        while kept:
            surplus = self._count - self.most_events
            is_over = surplus > 0 or self._bytes > self.most_bytes
            if not (is_over and self._count > 1) and self._has_memory():  # the newest it may have in any case
                break

            # Of the oldest piece those events go that are too many; or, where it is the bytes, one event after the
            # other; or, if no more than that are left of it, all of it.
            oldest, first, many, piece = kept[0]
            gone = many - self._hidden
            if gone > surplus > 0:
                self._hidden += surplus
                gone = surplus
            elif surplus <= 0 and (self._hidden or gone > 1):
                # Hidden ones are counted as gone already, but their bytes are still here: these go first, alone.
                gone = 0 if self._hidden else 1
                rest = piece.split(_EMPTY_LINE, gone + self._hidden)[-1]
                kept[0] = (oldest, first + self._hidden + gone, many - self._hidden - gone, rest)
                self._bytes -= len(piece) - len(rest)
                self._hidden = 0
            else:
                del kept[0]
                self._hidden = 0
                self._bytes -= len(piece)

            self._count -= gone
            of_stream[oldest] -= gone
            if not of_stream[oldest]:
                del of_stream[oldest]
                forgotten.append(oldest)
        return forgotten

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

    def last(self, stream: int) -> int:
        """The number of the last event that is kept of a stream; 0 if there is none."""
        if stream not in self._of_stream:
            return 0
        return max(first + count - 1 for kept, first, count, _ in self._kept if kept == stream)

    async def after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
        """See `EventStore`."""
        found: list[tuple[int, bytes]] = []
        hidden = self._hidden
        for kept, first, count, data in self._kept:
            if kept == stream and first + count - 1 > number:
                events = [data] if count == 1 else [part + _EMPTY_LINE for part in data.split(_EMPTY_LINE)[:-1]]
                last = max(number, first + hidden - 1)
                found += [(position, event) for position, event in enumerate(events, first) if position > last]
            hidden = 0
        return found

    def clear(self) -> None:
        """See `EventStore`."""
        self._kept.clear()
        self._of_stream.clear()
        self._count = self._hidden = self._bytes = 0
        self._charge = None


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
