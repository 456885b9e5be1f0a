"""Drills: nodes of a service are killed, or stopped and started again, while clients of both eras use it."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.clock import between_looks, until
from support.drills import Caller, Journal, Load, drill, hang_up, loaded, result_text
from support.http_peer import Peer, Session, call, envelope
from support.redis_server import NEEDS_REDIS
from support.service_stage import NodeProcess, Service, missing

pytestmark = [
    pytest.mark.nightly,
    NEEDS_REDIS,
    pytest.mark.skipif(bool(missing("nginx")), reason="nginx is not installed"),
]
ENDS_WITHIN = 10.0
"""A resumption of what nobody works on any more ends within 3 s (SCALE-12), on a machine that is not busy."""


def kill_who(served: Service, journal: Journal, what: str) -> NodeProcess:
    """kill -9 of the node whose tool wrote this last."""
    node = served.of([process for each, _, process in journal if each == what][-1])
    node.kill()
    return node


async def count(session: Session, steps: int, behind: str, id: int = 5) -> tuple[Peer, list[Any]]:
    """A call with progress, which waits before its last step; its events so far."""
    arguments = {"number": 1, "steps": steps, "behind": behind}
    params = {"name": "count", "arguments": arguments, "_meta": {"progressToken": id}}
    peer = await session.start(call("tools/call", params, id))
    assert (await peer.head()).status == 200
    return peer, [await peer.event() for _ in range(steps)]  # the priming one, and all but the last step


async def resumed(session: Session, last: Any) -> list[Any]:
    """All events that a client gets that comes back, to the end of the stream."""

    async with asyncio.timeout(ENDS_WITHIN):
        peer = await session.port.connect()
        peer.send(session.get(last["id"]))
        answer = await peer.head()
        assert answer.status in (200, 405), answer.status

        found = []
        while answer.status == 200 and (event := await peer.event()) is not None:
            found.append(event)
        peer.abort()
    return found


async def test_a_node_is_killed_in_a_stream(child: Child, tmp_path: Path) -> None:
    """SCALE-11, SCALE-12: what the client has seen does not come again, what was written for one that had lost its
    connection comes once, and then the stream ends instead of hanging."""
    with drill(child, tmp_path) as (served, journal):
        session = await served.at().open()
        peer, seen = await count(session, 4, "never")
        assert [event["id"].partition("-")[2] for event in seen] == ["1", "2", "3", "4"]
        node = kill_who(served, journal, "count")
        await peer.rest()  # nginx ends it
        assert await resumed(session, seen[-1]) == []
        node.start()
        await asyncio.to_thread(node.wait)

        peer, seen = await count(session, 4, "never again")
        peer.abort()
        owner = seen[0]["id"].partition(".")[0]
        async with asyncio.timeout(60):
            while owner not in await served.redis.asay("KEYS", "*:e:*"):  # what was kept is written
                await between_looks()

        kill_who(served, journal, "count")
        assert await resumed(session, seen[1]) == seen[2:]
        assert await resumed(session, seen[-1]) == []
        assert journal.times("count") == {1: 2}  # nobody but the client sends a call again
        hang_up(session.port)


async def test_a_node_is_killed_in_a_question(child: Child, tmp_path: Path) -> None:
    """SCALE-14, SCALE-17: an answer that nobody waits for is refused, so that the client asks again; between the rounds
    of a modern request there is nothing to lose."""
    with drill(child, tmp_path) as (served, journal):
        session = await served.at().open(capabilities={"elicitation": {}})
        accepted = {"action": "accept", "content": {"name": "Ada"}}
        for is_killed in (True, False):
            params = {"name": "ask", "arguments": {"number": 1}}
            peer = await session.start(call("tools/call", params, 5))
            assert (await peer.head()).status == 200
            question = await peer.message()

            if is_killed:
                kill_who(served, journal, "ask")
                await peer.rest()

            answer = await session.post({"jsonrpc": "2.0", "id": question["id"], "result": accepted})
            assert answer.status == (503 if is_killed else 202)  # it says for 15 s more that it lives
        assert (await peer.message())["result"]["content"][0]["text"] == "Hello, Ada!"
        assert (journal.times("ask"), journal.times("asked")) == ({1: 2}, {1: 1})

        offers = envelope({"elicitation": {"form": {}}})
        arguments: dict[str, Any] = {"name": "ask", "arguments": {"number": 2}}
        asked = await served.at().modern("tools/call", arguments, meta=offers)
        state = asked.messages[-1]["result"]["requestState"]
        kill_who(served, journal, "ask")

        answers = {"inputResponses": {"name": accepted}, "requestState": state}
        answer = await served.at().modern("tools/call", {**arguments, **answers}, meta=offers)
        assert result_text(answer) == "Hello, Ada!"
        assert journal.times("asked") == {1: 1, 2: 1}
        hang_up(session.port)


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_node_is_killed_in_a_call(version: str, child: Child, tmp_path: Path) -> None:
    """SCALE-20: no node takes a call over by itself; the client hears that it was lost, sends it again, and is answered
    once."""
    with drill(child, tmp_path) as (served, journal):
        counts: Counter[str] = Counter()
        caller = Caller(served.at(), version, itertools.count(1), counts)
        calling = asyncio.ensure_future(caller.call(behind="door"))
        await until(lambda: journal.times("work") == {1: 1})
        kill_who(served, journal, "work")

        await until(lambda: journal.times("work") == {1: 2})
        (tmp_path / "door").touch()
        assert await calling == "1"
        assert (counts["lost"] + counts["refused 502"], journal.times("worked")) == (1, {1: 1})


async def test_each_node_is_started_anew_under_load(child: Child, tmp_path: Path) -> None:
    """SCALE-13, SCALE-25: stopped by SIGTERM one after the other: no client has to send anything again, each call runs
    once, and sessions go on."""
    with drill(child, tmp_path) as (served, journal):
        async with loaded(served.at()) as load:
            await restart_each(served, load, journal)
        assert load.repeats == 0, load.counts
        assert journal.times("work") == journal.times("worked") == dict.fromkeys(range(1, load.counts["calls"] + 1), 1)


async def test_each_node_is_killed_under_load(child: Child, tmp_path: Path) -> None:
    """By kill -9: what was under way on it is sent again, and nothing is answered twice or not at all."""
    with drill(child, tmp_path) as (served, journal):
        async with loaded(served.at()) as load:
            await restart_each(served, load, journal, kills=True)

        begun = journal.times("work")
        assert set(begun) == set(range(1, load.counts["calls"] + 1))
        assert 0 < load.repeats <= 3 * 2 * len(load.callers), load.counts
        assert sum(begun.values()) <= load.counts["calls"] + load.repeats


async def restart_each(served: Service, load: Load, journal: Journal, *, kills: bool = False) -> None:
    for node in served.nodes:
        await load.more(50)

        await asyncio.to_thread(node.kill if kills else node.stop)
        await load.more(50)

        node.start()
        await asyncio.to_thread(node.wait)
        await journal.has_of(node.pid)
    await load.more(50)


async def test_a_node_is_stopped_in_a_call(child: Child, tmp_path: Path) -> None:
    """SCALE-11, SCALE-13: the answer reaches a client that waits on its own connection, and those that have lost that
    and came to another node, before the node began to stop or after."""
    with drill(child, tmp_path, proxies=()) as (served, _):
        owner, other, third = (served.node(index) for index in range(3))
        session = await owner.open()
        waiting, _ = await count(session, 3, "door")
        lost, (*_, last) = await count(session, 3, "door", id=6)
        lost.abort()

        session.port = other
        following = [asyncio.ensure_future(resumed(session, last))]
        await until(lambda: other._peers)

        stopping = asyncio.ensure_future(asyncio.to_thread(served.nodes[0].stop))
        await until(lambda: _refuses(owner.number))

        session.port = third
        following.append(asyncio.ensure_future(resumed(session, last)))
        await until(lambda: third._peers)

        (tmp_path / "door").touch()
        for rest in await asyncio.gather(*following):
            assert [event["id"].partition("-")[2] for event in rest] == ["4", "5"]
            assert "counted 3" in rest[-1]["data"]

        assert (await waiting.message())["method"] == "notifications/progress"
        assert (await waiting.message())["result"]["content"][0]["text"] == "counted 3"
        await stopping
        hang_up(owner, other, third)


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False
