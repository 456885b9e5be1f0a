"""All of it in the memory of one process, which is enough where one process serves all clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from mcpd.protocol.budget import SMALL, Charge

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
