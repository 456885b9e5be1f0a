"""Drills: the Redis of a service is killed, hangs, is full, or answers slowly, while clients of both eras use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.clock import between_looks
from support.drills import drill, loaded, result_text
from support.http_peer import Answer, Peer, Port, Session, call, modern
from support.redis_server import NEEDS_REDIS, RedisServer
from support.service_stage import Service, missing
from support.slow_way import SlowWay, slow_way

pytestmark = [
    pytest.mark.nightly,
    NEEDS_REDIS,
    pytest.mark.skipif(bool(missing("nginx")), reason="nginx is not installed"),
]
NOBODY_WAITS_LONGER = 10.0
"""Three seconds, on a machine that is not busy."""
MORE_MEMORY = 16 * 1024 * 1024
READY = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass
class Trouble:
    """What happens to Redis: how it begins and ends, and what of the table then is otherwise."""

    begin: Callable[[RedisServer, SlowWay], Any]
    end: Callable[[RedisServer, SlowWay], Any]
    reads: int = 503
    """The status of what only has to read."""
    writes: int = 503
    elsewhere: int = 503
    """The status of an answer for another node, which is gone: 400 is said by who can ask for it."""
    ready: str = "ok\nbackplane away for "
    is_heard: bool = False
    """Whether other nodes hear of a change."""


def fill(redis: RedisServer, _: SlowWay) -> None:
    redis.say("CONFIG", "SET", "maxmemory-policy", "noeviction")
    redis.say("CONFIG", "SET", "maxmemory", "1")


def slow(_: RedisServer, way: SlowWay) -> None:
    way.delay = 0.2


def mend(_: RedisServer, way: SlowWay) -> None:
    way.delay = 0.0
    way.mend()


TROUBLES = {
    "killed": Trouble(lambda redis, _: redis.kill(), lambda redis, _: redis.start()),
    "paused": Trouble(lambda redis, _: redis.pause(), lambda redis, _: redis.go_on()),
    "cut": Trouble(lambda _, way: way.cut(), mend),
    "full": Trouble(fill, lambda redis, _: redis.say("CONFIG", "SET", "maxmemory", "0"), reads=200, elsewhere=400,
                    ready="ok\n", is_heard=True),
    "slow": Trouble(slow, mend, 200, 200, 400, "ok\n", is_heard=True),
}  # fmt: skip


@contextmanager
def stage(child: Child, folder: Path) -> Iterator[tuple[Service, RedisServer, SlowWay]]:
    """Three nodes whose way to Redis can be troubled."""
    with RedisServer() as redis, slow_way(redis.socket) as way:
        with drill(child, folder, backplane=way.url) as (served, _):
            yield served, redis, way


async def within(asked: Any) -> Answer:
    async with asyncio.timeout(NOBODY_WAITS_LONGER):
        answer: Answer = await asked
    return answer


async def listen(port: Port) -> Peer:
    peer = await port.connect()
    peer.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    assert (await peer.head()).status == 200
    assert (await peer.message())["method"] == "notifications/subscriptions/acknowledged"
    return peer


async def residents(nodes: list[Port]) -> list[int]:
    return [int(result_text(await port.modern("tools/call", {"name": "resident"}))) for port in nodes]


@asynccontextmanager
async def clients(nodes: list[Port]) -> AsyncIterator[tuple[Session, Session, list[Peer]]]:
    """A session that all nodes have seen, one that only the first has, and who listens on each."""
    known, unseen = await nodes[0].open(), await nodes[0].open()
    for known.port in nodes:
        assert (await known.ask("ping")).status == 200
    listening = [await listen(port) for port in nodes]
    yield known, unseen, listening
    for port in nodes:
        for peer in port._peers:
            peer.abort()


@pytest.mark.parametrize("name", TROUBLES)
async def test_redis_is_in_trouble(name: str, child: Child, tmp_path: Path) -> None:
    """SCALE-21: what goes on goes on, the rest is refused within 3 s, nothing grows, and all is well afterwards."""
    trouble = TROUBLES[name]
    with stage(child, tmp_path) as (served, redis, way):
        nodes = [served.node(index) for index in range(3)]
        async with clients(nodes) as (known, unseen, listening), loaded(served.at()) as load:
            await load.more(300)
            before = await residents(nodes)

            await asyncio.to_thread(trouble.begin, redis, way)
            await during(trouble, nodes, known, unseen)
            await change(nodes[0], "new", listening if trouble.is_heard else listening[:1])
            await load.more(300)

            await asyncio.to_thread(trouble.end, redis, way)
            await afterwards(nodes, known, unseen)
            await change(nodes[1], "newer", listening)
            await load.more(300)
            grown = [after - was for after, was in zip(await residents(nodes), before, strict=True)]
            assert max(grown) < MORE_MEMORY, grown
        assert load.repeats == 0, load.counts
        assert max(caller.slowest for caller in load.callers) < NOBODY_WAITS_LONGER


async def during(trouble: Trouble, nodes: list[Port], known: Session, unseen: Session) -> None:
    """The table of what is served meanwhile."""
    for known.port in nodes:
        assert (await within(known.ask("ping"))).status == 200
        assert (await within(known.port.modern("tools/list"))).status == 200
    session = Session(nodes[1], "2025-11-25")
    async with asyncio.timeout(NOBODY_WAITS_LONGER):
        await session.open()
    assert (await within(session.ask("ping"))).status == 200

    port = nodes[2]
    answer = await within(port.ask(unseen.bytes(call("ping"))))
    assert answer.status == trouble.reads
    assert answer.status == 200 or answer["retry-after"]
    for method, params in (("logging/setLevel", {"level": "error"}), ("resources/subscribe", {"uri": "drill://text"})):
        assert (await within(port.ask(known.bytes(call(method, params))))).status == trouble.writes
    gone = {"jsonrpc": "2.0", "id": "0123456789.1", "result": {}}
    assert (await within(port.ask(known.bytes(gone)))).status == trouble.elsewhere
    assert (await within(port.ask(session.delete()))).status in (trouble.reads, 204 if trouble.writes == 200 else 503)

    ready = await within(port.ask(READY))
    assert ready.status == 200
    assert ready.text.startswith(trouble.ready), ready.text


async def in_time(what: Any) -> Any:
    """All is well 5 s after, on a machine that is not busy."""
    async with asyncio.timeout(30):
        return await what


async def afterwards(nodes: list[Port], known: Session, unseen: Session) -> None:
    """Everything is served again, on all nodes."""

    async def until_served(port: Port, message: dict[str, Any], session: Session) -> None:
        while (answer := await port.ask(session.bytes(message))).status == 503:
            await between_looks()
        assert answer.status == 200, answer.body

    level = call("logging/setLevel", {"level": "warning"})
    for port in nodes:
        await in_time(until_served(port, call("ping"), unseen))
        await in_time(until_served(port, level, known))
        assert (await port.ask(READY)).text == "ok\n"


async def change(port: Port, name: str, listening: list[Peer]) -> None:
    """A tool more on one node, of which these are told."""
    params = {"name": "change", "arguments": {"name": name}}
    assert result_text(await within(port.modern("tools/call", params))) == "changed"
    async with asyncio.timeout(NOBODY_WAITS_LONGER):
        for peer in listening:
            assert (await peer.message())["method"] == "notifications/tools/list_changed"
