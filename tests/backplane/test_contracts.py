"""What every implementation of what processes share has to hold: add another one to the list, and it is held to it."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock import turns

from mcpd.backplane.base import ChangeBus, EventStore, Kind, SessionStore
from mcpd.backplane.memory import MemoryChangeBus, MemoryEventStore, MemorySessionStore
from mcpd.budget import BUDGET

# (most events, most bytes) -> an empty store
EVENT_STORES: list[Callable[[int, int], EventStore]] = [MemoryEventStore]
SESSION_STORES: list[Callable[[], SessionStore]] = [MemorySessionStore]
CHANGE_BUSES: list[Callable[[], ChangeBus]] = [MemoryChangeBus]


@pytest.mark.parametrize("make", SESSION_STORES)
class TestSessionStore:
    async def test_a_record_takes_the_place_of_the_one_before(self, make: Callable[[], SessionStore]) -> None:
        store = make()
        assert await store.get("a") is None
        await store.put("a", b"1", 60)
        await store.put("b", b"2", 0)
        await store.put("a", b"3\x00\xff", 60)
        assert (await store.get("a"), await store.get("b")) == (b"3\x00\xff", b"2")

    async def test_a_record_has_a_life_which_begins_anew(self, make: Callable[[], SessionStore]) -> None:
        store = make()
        await store.put("a", b"1", 0.01)
        await store.put("b", b"1", 0.01)
        await store.put("b", b"1", 600)
        async with asyncio.timeout(60):
            while await store.get("a") is not None:
                await turns()
        assert await store.get("b") == b"1"
        await store.put("c", b"1", 600)
        assert await store.get("a") is None

    async def test_all_are_told_of_what_is_deleted(self, make: Callable[[], SessionStore]) -> None:
        store = make()
        told: asyncio.Queue[str] = asyncio.Queue()
        others: list[str] = []
        loop = asyncio.get_running_loop()
        store.watch(lambda id: loop.call_soon_threadsafe(told.put_nowait, id) and None)
        unwatch = store.watch(others.append)
        for _ in range(2):
            unwatch()
        await store.put("a", b"1", 60)
        for _ in range(2):
            await store.delete("a")
        assert await store.get("a") is None
        async with asyncio.timeout(60):
            assert await told.get() == "a"
        assert others == []

    async def test_many_that_are_over_take_no_room(self, make: Callable[[], SessionStore]) -> None:
        store = make()
        for number in range(2000):
            await store.put(f"old-{number}", b"x", 1e-6)
        for number in range(2000):
            await store.put(f"new-{number}", b"x", 600)
        assert await store.get("old-1") is None
        if isinstance(store, MemorySessionStore):
            assert len(store._records) == 2000


def test_the_memory_of_one_process_is_bounded() -> None:
    store = MemorySessionStore(most_records=10)
    for number in range(100):
        asyncio.run(store.put(str(number), b"x", 0))
    assert len(store._records) == 10
    assert asyncio.run(store.get("99")) == b"x"


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


class Notes:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.changes: list[tuple[Kind, str | None]] = []

    def notify(self, kind: Kind, uri: str | None) -> None:
        self.changes.append((kind, uri))


@pytest.mark.parametrize("make", CHANGE_BUSES)
class TestChangeBus:
    def test_all_others_hear_of_each_change_once_and_in_order(self, make: Callable[[], ChangeBus]) -> None:
        bus = make()
        one, two, three = Notes(), Notes(), Notes()
        for subscriber in (one, two, three, three):
            bus.subscribe(subscriber)
        bus.publish("tools", None, one)
        bus.publish("resources", "x://y", one)
        bus.publish("prompts", None, two)
        assert one.changes == [("prompts", None)]
        assert two.changes == [("tools", None), ("resources", "x://y")]
        assert three.changes == [*two.changes, ("prompts", None)]

    def test_who_leaves_hears_no_more(self, make: Callable[[], ChangeBus]) -> None:
        bus = make()
        one, two = Notes(), Notes()
        bus.subscribe(one)
        bus.subscribe(two)
        for _ in range(2):
            bus.unsubscribe(two)
        bus.publish("tools", None, one)
        assert two.changes == []

    def test_it_keeps_nobody_alive(self, make: Callable[[], ChangeBus]) -> None:
        bus = make()
        one, gone = Notes(), []
        bus.subscribe(one)

        class Mortal(Notes):
            def __del__(self) -> None:
                gone.append(True)

        bus.subscribe(Mortal())
        gc.collect()
        assert gone == [True]
        bus.publish("tools", None, one)

    def test_from_any_thread(self, make: Callable[[], ChangeBus]) -> None:
        bus = make()
        mine, others = Notes(), [Notes() for _ in range(4)]
        bus.subscribe(mine)

        def work(subscriber: Notes) -> None:
            bus.subscribe(subscriber)
            for number in range(100):
                bus.publish("resources", f"x://{number}", subscriber)

        threads = [threading.Thread(target=work, args=(subscriber,)) for subscriber in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(mine.changes) == 400
