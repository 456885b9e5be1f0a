"""What every implementation of what processes share has to hold: add another one to the list, and it is held to it."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from mcpd.protocol.budget import BUDGET
from mcpd.server.backplane.base import EventStore
from mcpd.server.http.resumable_streams import MemoryEventStore

# (most events, most bytes) -> an empty store
EVENT_STORES: list[Callable[[int, int], EventStore]] = [MemoryEventStore]


@pytest.mark.parametrize("make", EVENT_STORES)
class TestEventStore:
    async def test_events_follow_their_own_stream_only(self, make: Callable[[int, int], EventStore]) -> None:
        """S25-039."""
        store = make(10, 1000)
        for stream, number in ((1, 1), (2, 1), (1, 2), (2, 2), (1, 5)):
            assert list(store.add(stream, number, b"%d-%d" % (stream, number))) == []
        assert await store.after(1, 1) == [(2, b"1-2"), (5, b"1-5")]
        assert await store.after(1, 0) == [(1, b"1-1"), (2, b"1-2"), (5, b"1-5")]
        assert await store.after(2, 2) == []
        assert await store.after(3, 0) == []

    async def test_the_newest_event_is_kept_whatever_its_size(self, make: Callable[[int, int], EventStore]) -> None:
        store = make(10, 100)
        store.add(1, 1, b"small")
        assert list(store.add(1, 2, b"x" * 1000)) == []
        assert await store.after(1, 0) == [(2, b"x" * 1000)]
        assert list(store.add(2, 1, b"small")) == [1]
        assert await store.after(1, 0) == []
        assert await store.after(2, 0) == [(1, b"small")]

    async def test_a_session_that_has_ended_keeps_nothing(self, make: Callable[[int, int], EventStore]) -> None:
        store = make(10, 1000)
        store.add(1, 1, b"x")
        for _ in range(2):
            store.clear()
        assert await store.after(1, 0) == []

    async def test_two_stores_share_nothing(self, make: Callable[[int, int], EventStore]) -> None:
        one, other = make(10, 1000), make(10, 1000)
        one.add(1, 1, b"x")
        assert await other.after(1, 0) == []
        other.clear()
        assert await one.after(1, 0) == [(1, b"x")]

    async def test_it_gives_its_memory_back(self, make: Callable[[int, int], EventStore]) -> None:
        before = BUDGET.used
        store = make(1000, 10_000_000)
        store.add(1, 1, b"x" * 1_000_000)
        store.clear()
        assert BUDGET.used == before
        store.add(1, 2, b"x" * 1_000_000)
        del store
        gc.collect()
        assert BUDGET.used == before

    @given(
        written=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40)), max_size=60),
        most_events=st.integers(1, 12),
        most_bytes=st.integers(1, 400),
    )
    async def test_kept_is_a_tail_within_both_limits(
        self,
        make: Callable[[int, int], EventStore],
        written: list[tuple[int, int]],
        most_events: int,
        most_bytes: int,
    ) -> None:
        store = make(most_events, most_bytes)
        tail: list[tuple[int, int, bytes]] = []
        last = dict.fromkeys((1, 2, 3), 0)
        for stream, size in written:
            last[stream] += 1
            before = {number for number, _, _ in tail}
            tail.append((stream, last[stream], b"x" * size))
            while len(tail) > 1 and (len(tail) > most_events or sum(len(data) for _, _, data in tail) > most_bytes):
                tail.pop(0)
            gone = list(store.add(stream, last[stream], b"x" * size))
            assert sorted(gone) == sorted(before - {number for number, _, _ in tail})
        for stream in last:
            for position in range(last[stream] + 2):
                there = [(number, data) for kept, number, data in tail if kept == stream and number > position]
                assert await store.after(stream, position) == there
