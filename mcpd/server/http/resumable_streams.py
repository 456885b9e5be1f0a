"""The event streams of a session, which clients resume after a lost connection, and the store of their events.

An event's id is `stream-number`, which is unique in the session (S25-038). A client that returns with the last id it
received gets the following events of that stream, and none of another stream (S25-039).
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
"""Number of blocks from which a deque is used instead of a list: an empty deque takes 760 bytes."""

_Piece: TypeAlias = tuple[int, int, int, bytes]
"""A block of events: their stream, the number of the first, how many there are, their bytes."""


class MemoryEventStore:
    """Stores the events of one session, limited by their number, their bytes and the memory budget.

    A complete stream is stored as one block, see `add_whole`, which is only split when its oldest events are dropped.
    """

    __slots__ = ("_bytes", "_charge", "_count", "_hidden", "_kept", "_of_stream", "most_bytes", "most_events")

    def __init__(self, most_events: int, most_bytes: int) -> None:
        self.most_events = most_events
        self.most_bytes = most_bytes
        self._kept: list[_Piece] | deque[_Piece] = []
        self._count = 0
        self._hidden = 0
        """Dropped events of the first block that are still in its bytes: removing them would copy the block."""
        self._of_stream: dict[int, int] = {}
        """The number of stored events of each stream."""
        self._bytes = 0
        self._charge: Charge | None = None

    def add(self, stream: int, number: int, data: bytes) -> Iterable[int]:
        return self.add_whole(stream, number, 1, data)

    def add_whole(self, stream: int, number: int, count: int, data: bytes) -> Iterable[int]:
        """Store `count` events, of which `number` is the first, as `add` does; each ends at its first empty line.

        The longest tail of all events that is within the limits is kept.
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
            if not (is_over and self._count > 1) and self._has_memory():  # the newest event is always kept
                break

            # Drop the surplus events of the oldest block; or one event after the other if the bytes are too many; or
            # the whole block.
            oldest, first, many, piece = kept[0]
            gone = many - self._hidden
            if gone > surplus > 0:
                self._hidden += surplus
                gone = surplus
            elif surplus <= 0 and (self._hidden or gone > 1):
                # Hidden events are not counted any more, but their bytes are still here: drop these first.
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
        """Charge the stored bytes to the memory budget. Returns False if it is used up."""
        pages = self._bytes // SMALL
        if not pages:
            self._charge = None
            return True
        if self._charge is None:
            self._charge = Charge("events")  # all stores together leave half of the budget to requests
        # In pages, so that most events do not change the charge.
        size = (pages + 1) * SMALL
        return size == self._charge.size or self._charge.set(size)

    def last(self, stream: int) -> int:
        """Return the number of the last stored event of a stream; 0 without stored events."""
        if stream not in self._of_stream:
            return 0
        return max(first + count - 1 for kept, first, count, _ in self._kept if kept == stream)

    async def after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
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
        self._kept.clear()
        self._of_stream.clear()
        self._count = self._hidden = self._bytes = 0
        self._charge = None


_MOST_LEFT = 16
_MOST_AT_ONCE = 64 * 1024
"""Bytes up to which a stream is stored as one block: removing events from a larger block would copy too much."""


class Relay(Protocol):
    """Passes the events of a stream to another node, where a client may resume it."""

    def add(self, number: int, data: bytes) -> None:
        """Pass on an event."""

    def end(self) -> None:
        """Report the end of the stream."""


class ResumableStreams:
    """The streams of one session that can be resumed, by number. `make_store` returns the store for a session's id.

    A stream that is not over can be resumed even if none of its events is stored.
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
        """The node that sends the events, with which their ids begin; empty for a single process."""
        self.on_lost: Callable[[ResumableStream], object] | None = None
        """Called when a stream loses its connection before its end."""

    def __len__(self) -> int:
        return len(self._by_number)

    def get(self, number: int) -> ResumableStream | None:
        """Return the stream with this number."""
        stream = self._by_number.get(number)
        if stream is None and self._store.__class__ is MemoryEventStore:
            last = self._store.last(number)
            if last:
                stream = ResumableStream(number, self)
                stream.resume_whole(last)
        return stream

    def add(self, stream: ResumableStream, number: int, data: bytes) -> None:
        """Store an event."""
        stream.is_kept = True
        self._by_number[stream.number] = stream
        store = self._open() if self._store is None else self._store
        self._forget(store.add(stream.number, number, data))

    def write_whole(self, number: int, frames: Sequence[bytes], *, primes: bool) -> bytes:
        """Return the bytes of a new stream that consists of these frames: `priming`, `write` for each, `complete`.

        The events are stored as one block, without a stream object: few clients resume such a stream, and `get` creates
        the object for them.
        """
        store = self._open() if self._store is None else self._store
        if store.__class__ is MemoryEventStore:  # a subclass may store events differently
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
        """Return the beginning of the ids of a stream's events.

        With several nodes it includes the node, and a "g" if the stream continues on another node after a crash.
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
            found = await self._streams.after(self, position)
            missed += found
            position = max(last, found[-1][0] if found else 0)
        return missed

    def resume_whole(self, last: int) -> None:
        """Mark a stream as complete that was stored as one block; `last` is the number of its last event."""
        self.is_complete = self.is_over = self.is_kept = True
        self._last = last

    def complete(self) -> None:
        """End the stream."""
        self.is_complete = self.is_over = True
        if self.relay is not None:
            self.relay.end()
        if self._streams is not None:
            self._streams.release(self)


class StreamMaker:
    """Creates event streams that answer POSTs: these end with their connection, those of a session are resumable."""

    __slots__ = ()

    def new_stream(self) -> ResumableStream:
        """Return a stream that continues."""
        return ResumableStream()

    def write_whole(self, frames: Sequence[bytes]) -> bytes:
        """Return the bytes of a stream that consists of these frames."""
        return events(frames)


NOT_RESUMABLE = StreamMaker()
