"""Streams that outlive their connections: ids, replay, polling, and what is forgotten."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support.clock import until
from support.http_peer import Peer, Port, Session, call, serving
from support.http_stage import Stage

from mcpd import Context
from mcpd.server.http import HttpSettings
from mcpd.server.http.resumable_streams import MemoryEventStore, ResumableStream, ResumableStreams


def count(steps: int, door: str, id: Any = 1) -> dict[str, Any]:
    params = {"name": "count", "arguments": {"steps": steps, "door": door}, "_meta": {"progressToken": "t"}}
    return call("tools/call", params, id)


async def busy(port: Port, session: Session, number: int) -> None:
    """Wait until so many requests of a session have a client that waits."""
    found = port.app.sessions.find(session.id, "")
    assert found is not None
    await until(lambda: found.busy == number)


async def ids(peer: Peer, number: int) -> list[str]:
    found = []
    for _ in range(number):
        event = await peer.event()
        assert event is not None
        found.append(event["id"])
    return found


# ----------------------------------------------------------------------------------------- on the wire


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_call_whose_connection_was_lost_is_finished_on_another(version: str) -> None:
    """S25-036, S25-038, S25-039: what followed the last event comes, the answer too, and the stream ends."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open(version)
        peer = await session.start(count(3, "d", id="x"))
        await peer.head()
        first = (await ids(peer, 1))[0]
        await stage.entered.get()
        peer.abort()
        resumed = await session.listen(first)
        seen = []
        if version == "2025-11-25":
            # The first was the priming event: both steps are still to be told.
            seen.append(await resumed.message())
        seen.append(await resumed.message())
        assert seen[-1]["params"]["progress"] == 2
        stage.open("d")
        assert (await resumed.message())["params"]["progress"] == 3
        last = await resumed.message()
        assert last["id"] == "x"
        assert last["result"]["content"][0]["text"] == "counted 3"
        assert await resumed.event() is None


async def test_what_was_said_meanwhile_is_replayed() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        peer = await session.start(count(2, "d", id="x"))
        await peer.head()
        seen = await ids(peer, 2)
        await stage.entered.get()
        peer.abort()
        await busy(port, session, 1)
        stage.open("d")
        await busy(port, session, 0)
        for _ in range(2):  # as often as it is asked for, while it is kept
            resumed = await session.listen(seen[1])
            assert (await resumed.message())["params"]["progress"] == 2
            assert (await resumed.message())["id"] == "x"
            assert await resumed.event() is None
        resumed = await session.listen(seen[0])
        assert [(await resumed.message())["params"]["progress"] for _ in range(2)] == [1, 2]


async def test_a_stream_of_which_all_was_sent_is_not_begun_again() -> None:
    """An empty stream would be asked for again, and again: clients take the end of one for a lost connection."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        answer = await session.ask("tools/call", count(1, "")["params"])
        last = answer.text.rstrip().rpartition("id: ")[2].partition("\n")[0]
        resumed = await port.ask(session.get(last))
        assert resumed.status == 405
        assert resumed["allow"] == "POST"


async def test_a_stream_that_came_whole_is_resumed_after_any_of_its_events() -> None:
    """S25-036: its answer left in one write, and a client may have got no more than a part of that."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        answer = await session.ask("tools/call", count(3, "")["params"])
        events = [event + "\n\n" for event in answer.text.split("\n\n")[:-1]]
        assert len(events) == 5
        for position, event in enumerate(events[:-1], 1):
            last = event.removeprefix("id: ").partition("\n")[0]
            resumed = await port.ask(session.get(last))
            assert resumed.text == "".join(events[position:])


async def test_a_stream_replays_nothing_of_another() -> None:
    """S25-039: two calls and the GET stream, each resumed, each its own."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        listening = await session.listen()
        get_id = (await ids(listening, 1))[0]
        calls = {}
        for door in "ab":
            calls[door] = await session.start(count(2, door, id=door))
            await calls[door].head()
            await stage.entered.get()
        firsts = {door: (await ids(peer, 1))[0] for door, peer in calls.items()}
        stage.change()
        await listening.message()
        assert len({id.partition("-")[0] for id in (get_id, *firsts.values())}) == 3
        for peer in (listening, *calls.values()):
            peer.abort()
        for door in "ab":
            resumed = await session.listen(firsts[door])
            assert (await resumed.message())["params"]["progress"] == 1
            stage.open(door)
            assert (await resumed.message())["params"]["progress"] == 2
            assert (await resumed.message())["id"] == door
            assert await resumed.event() is None
        resumed = await session.listen(get_id)
        assert (await resumed.message())["method"] == "notifications/tools/list_changed"
        stage.change()
        assert (await resumed.message())["method"] == "notifications/tools/list_changed"


async def test_who_comes_back_takes_the_stream_over() -> None:
    """S25-037: a connection that is dead without our knowing gets nothing more; it is ended."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        first = await session.listen()
        last = (await ids(first, 1))[0]
        second = await session.listen(last)
        stage.change()
        assert (await second.message())["method"] == "notifications/tools/list_changed"
        assert await first.event() is None
        call_stream = await session.start(count(2, "d"))
        await call_stream.head()
        last = (await ids(call_stream, 1))[0]
        await stage.entered.get()
        taken = await session.listen(last)
        assert (await taken.message())["params"]["progress"] == 1
        stage.open("d")
        assert (await taken.message())["params"]["progress"] == 2
        assert (await taken.message())["id"] == 1


@pytest.mark.parametrize("last", ["1-99", "99-1", "1-0", "rubbish", "", "1-1-1", "-1", "1", "99999999999-1"])
async def test_an_event_that_never_was_is_400(last: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        await session.ask("tools/call", count(1, "")["params"])
        answer = await port.ask(session.get(last))
        assert (answer.status, answer.code) == (400, -32600)


async def test_an_event_of_another_session_is_400() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        first, second = await port.open(), await port.open()
        listening = await first.listen()
        assert (await ids(listening, 1)) == ["1-1"]
        assert (await port.ask(second.get("1-1"))).status == 400


async def test_of_what_is_forgotten_the_rest_is_replayed() -> None:
    """The answer comes, even if some of what came before it is lost."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_stored_events=3)) as port:
        session = await port.open()
        answer = await session.ask("tools/call", count(5, "")["params"])
        known = [line[4:] for line in answer.text.split("\n") if line.startswith("id: ")]
        assert len(known) == 7
        for seen in (known[0], known[3]):
            resumed = await session.listen(seen)
            messages = [await resumed.message() for _ in range(3)]
            assert "result" in messages[-1]
            assert await resumed.event() is None
        found = port.app.sessions.find(session.id, "")
        assert found is not None
        assert found.streams.get(1) is not None
        for number in range(5):
            await session.ask("tools/call", count(3, "")["params"], id=10 + number)
        assert [found.streams.get(number) is None for number in range(1, 7)] == [True] * 5 + [False]
        assert not found.streams.has_unread


async def test_a_stream_goes_on_after_others_have_said_much() -> None:
    """A call that runs, and a GET stream, of which all events are forgotten: nothing was missed on them."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_stored_events=3, retry_ms=10)) as port:
        session = await port.open()
        listening = await session.listen()
        heard = (await ids(listening, 1))[0]
        polling = await session.ask("tools/call", {"name": "poll"}, "x")
        assert await stage.entered.get() == "door"
        await session.ask("tools/call", count(9, "")["params"], id=5)
        listening.abort()
        await busy(port, session, 1)
        polled = await session.listen(polling.text[4 : polling.text.index("\n")])
        stage.open()
        assert (await polled.message())["id"] == "x"
        assert await polled.event() is None
        again = await session.listen(heard)
        stage.change()
        assert (await again.message())["method"] == "notifications/tools/list_changed"


async def test_streams_that_clients_left_are_not_waited_for_without_end() -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_stored_events=1)) as port:
        session = await port.open()
        first = ""
        for _ in range(40):
            peer = await session.listen()
            first = first or (await ids(peer, 1))[0]
            peer.abort()
            await busy(port, session, 0)
        found = port.app.sessions.find(session.id, "")
        assert found is not None
        assert len(found.streams._by_number) < 20
        assert (await port.ask(session.get(first))).status == 400


async def test_a_listening_stream_goes_on_after_a_gap() -> None:
    """What is lost is lost; what comes now need not be."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_stored_events=2)) as port:
        session = await port.open()
        listening = await session.listen()
        first = (await ids(listening, 1))[0]
        for _ in range(4):
            stage.change()
            await listening.message()
        listening.abort()
        resumed = await session.listen(first)
        for _ in range(2):
            await resumed.message()
        stage.change()
        await resumed.message()


async def test_a_call_may_let_its_connection_go() -> None:
    """2025-11-25 basic/transports, sending messages 6: primed, told when to retry, closed; the answer is polled for."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(retry_ms=10)) as port:
        session = await port.open()
        answer = await session.ask("tools/call", {"name": "poll"}, "x")
        assert answer.status == 200
        assert answer["content-type"] == "text/event-stream"
        assert answer.text == "id: 1-1\nretry: 10\ndata: \n\n"
        await stage.entered.get()
        polled = await session.listen("1-1")
        stage.open()
        message = await polled.message()
        session.talk.server(message)
        assert message["id"] == "x"
        assert message["result"]["content"][0]["text"] == "polled"
        assert await polled.event() is None
        # The same when it was done before it was asked for.
        later = {"name": "poll", "arguments": {"door": "later"}}
        answer = await session.ask("tools/call", later, "y")
        stage.open("later")
        await busy(port, session, 0)
        polled = await session.listen(answer.text[4 : answer.text.index("\n")])
        assert (await polled.message())["id"] == "y"


async def test_a_call_may_let_its_connection_go_again() -> None:
    """Also the one on which its client came back."""
    stage = Stage()

    @stage.server.tool
    async def poll_twice(*, ctx: Context) -> str:
        for door in ("first", "second"):
            ctx.close_stream()
            stage.entered.put_nowait(door)
            await stage.door(door).wait()
        return "polled twice"

    async with serving(stage.server, HttpSettings(retry_ms=10)) as port:
        session = await port.open()
        answer = await session.ask("tools/call", {"name": "poll_twice"}, "x")
        assert await stage.entered.get() == "first"
        polled = await session.listen(answer.text[4 : answer.text.index("\n")])
        await busy(port, session, 1)
        stage.open("first")
        assert await stage.entered.get() == "second"
        assert await polled.event() is None
        polled = await session.listen(answer.text[4 : answer.text.index("\n")])
        stage.open("second")
        assert (await polled.message())["result"]["content"][0]["text"] == "polled twice"


async def test_only_that_version_lets_connections_go() -> None:
    stage = Stage()
    stage.open()
    async with serving(stage.server) as port:
        for version in ("2025-03-26", "2025-06-18"):
            session = await port.open(version)
            answer = await session.ask("tools/call", {"name": "poll"})
            assert answer.json["result"]["content"][0]["text"] == "polled"
        answer = await port.modern("tools/call", {"name": "poll"})
        assert answer.json["result"]["content"][0]["text"] == "polled"


# ------------------------------------------------------------------------------------------ by itself


def kept(most_events: int, most_bytes: int, retry_ms: int = 1) -> ResumableStreams:
    return ResumableStreams("id", lambda _: MemoryEventStore(most_events, most_bytes), retry_ms)


async def test_numbers_name_their_stream() -> None:
    streams = kept(10, 1000, 5)
    first, second = ResumableStream(1, streams, primes=True), ResumableStream(2, streams)
    assert first.priming() == b"id: 1-1\nretry: 5\ndata: \n\n"
    assert second.priming() == b""
    assert second.write(b"{}") == b"id: 2-1\ndata: {}\n\n"
    assert first.write(b"{}") == b"id: 1-2\ndata: {}\n\n"
    assert ResumableStream().write(b"{}") == b"data: {}\n\n"
    assert ResumableStream().priming() == b""
    assert await first.since(1) == [b"id: 1-2\ndata: {}\n\n"]
    assert await first.since(2) == []
    assert await first.since(0) is None
    assert await first.since(3) is None


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    with pytest.raises(StopIteration) as done:
        work.send(None)
    return done.value.value


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40)), max_size=60),
    st.integers(1, 12),
    st.integers(1, 400),
)
def test_streams_against_a_list(written: list[tuple[int, int]], most_events: int, most_bytes: int) -> None:
    """Kept is a tail of all events, within both limits or one event long; each stream's tail is what replays."""
    store = kept(most_events, most_bytes)
    streams = {number: ResumableStream(number, store) for number in (1, 2, 3)}
    everything: list[tuple[int, int, bytes]] = []
    last = dict.fromkeys(streams, 0)
    for number, size in written:
        data = streams[number].write(b"x" * size)
        last[number] += 1
        everything.append((number, last[number], data))
    tail = everything[:]
    while len(tail) > 1 and (len(tail) > most_events or sum(len(data) for _, _, data in tail) > most_bytes):
        tail.pop(0)
    # More may be said on all of them.
    assert {number for number in streams if store.get(number)} == {number for number, _ in written}
    for number, stream in streams.items():
        for position in range(last[number] + 2):
            there = [data for n, p, data in tail if n == number and p > position]
            assert at_once(stream.since(position)) == (there if 0 < position <= last[number] else None)
        stream.complete()
    assert {number for number in streams if store.get(number)} == {number for number, _, _ in tail}


def test_frames_are_one_line() -> None:
    """Raw JSON of somebody else's hand may have line breaks between its tokens."""
    pretty = json.dumps({"a": ["b\n", 1]}, indent=1).encode()
    event = ResumableStream().write(pretty.replace(b"\n", b"\r\n"))
    assert event.count(b"\n") == 2
    assert b"\r" not in event
    assert json.loads(event[6:]) == {"a": ["b\n", 1]}


@given(st.integers(1, 6), st.integers(1, 60), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20)), max_size=40))
def test_a_stream_is_forgotten_with_the_last_of_its_events(most: int, size: int, added: list[tuple[int, int]]) -> None:
    """As it would be if all that is kept were looked through each time."""
    store = MemoryEventStore(most, size)
    kept: list[tuple[int, int]] = []
    for number, (stream, length) in enumerate(added):
        kept.append((stream, length))
        gone = []
        while len(kept) > 1 and (len(kept) > most or sum(length for _, length in kept) > size):
            oldest, _ = kept.pop(0)
            if all(other != oldest for other, _ in kept):
                gone.append(oldest)
        assert list(store.add(stream, number, b"x" * length)) == gone
