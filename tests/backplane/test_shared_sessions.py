"""A session that began in one process goes on in another: two applications that share a store, by bytes over HTTP.

What each process asks of the store is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from support.clock import Clock, turns
from support.http_peer import Port, Session, call, serving
from support.http_stage import Stage

from mcpd import Context
from mcpd.backplane.base import SessionStore
from mcpd.backplane.memory import MemorySessionStore
from mcpd.http import HttpSettings


class Counting(MemorySessionStore):
    """Counts what it is asked, and can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.is_away = False

    async def put(self, session_id: str, record: bytes, life: float) -> None:
        self._note("put")
        await super().put(session_id, record, life)

    async def get(self, session_id: str) -> bytes | None:
        self._note("get")
        return await super().get(session_id)

    async def delete(self, session_id: str) -> None:
        self._note("delete")
        await super().delete(session_id)

    def _note(self, what: str) -> None:
        self.asked.append(what)
        if self.is_away:
            raise ConnectionRefusedError("nobody is there")


def make_stage() -> Stage:
    stage = Stage()

    @stage.server.tool
    async def who(ctx: Context) -> str:
        client = ctx.client_info
        offers = ctx.client_capabilities
        return f"{client.name if client else None} {ctx.protocol_version} {offers.roots is not None}"

    @stage.server.tool
    async def say(ctx: Context) -> str:
        await ctx.debug("quiet")
        await ctx.error("loud")
        return "said"

    return stage


@asynccontextmanager
async def nodes(store: SessionStore, number: int = 2, **settings: Any) -> AsyncIterator[list[Port]]:
    """So many processes, but that they are one."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(serving(make_stage().server, HttpSettings(session_store=store, **settings)))
            for _ in range(number)
        ]


def text(answer: Any) -> str:
    assert answer.status == 200, answer.body
    return str(answer.messages[-1]["result"]["content"][0]["text"])


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_session_goes_on_on_another_node(version: str) -> None:
    """SCALE-03, SCALE-08: with its version and what the client said of itself; each asks once."""
    store = Counting()
    async with nodes(store) as (one, other):
        session = await one.open(version, capabilities={"roots": {}})
        assert store.asked == ["put", "put"]  # initialize, initialized
        told = text(await session.ask("tools/call", {"name": "who"}))
        assert told.endswith(f"{version} True")
        session.port = other
        for _ in range(3):
            assert text(await session.ask("tools/call", {"name": "who"})) == told
        session.port = one
        assert text(await session.ask("tools/call", {"name": "who"})) == told
        # The second asks once; that it has it now is nothing new to the first.
        assert store.asked.count("get") == 1
        assert len(other.app.sessions) == len(one.app.sessions) == 1


async def test_what_the_client_set_holds_on_all_nodes() -> None:
    """On nodes that have not seen the session yet; those that have keep what they know."""
    store = Counting()
    async with nodes(store) as (one, other):
        session = await one.open()
        assert (await session.ask("logging/setLevel", {"level": "error"})).status == 200
        assert (await session.ask("resources/subscribe", {"uri": "stage://text"})).status == 200
        session.port = other
        answer = await session.ask("tools/call", {"name": "say"})
        assert [message["params"]["data"] for message in answer.messages[:-1]] == ["loud"]
        found = other.app.sessions.find(session.id, "")
        assert found is not None
        assert found.connection.session.is_watched("stage://text")


async def test_a_session_ends_on_all_nodes() -> None:
    """S25-041."""
    store = Counting()
    async with nodes(store, 3) as (one, two, three):
        session = await one.open()
        session.port = two
        assert text(await session.ask("tools/call", {"name": "echo", "arguments": {"text": "a"}})) == "a"
        assert (await three.ask(session.delete())).status == 204
        await turns()
        for port in (one, two, three):
            session.port = port
            assert (await session.ask("ping")).status == 404
            assert len(port.app.sessions) == 0


async def test_it_ends_too_while_its_record_is_on_its_way() -> None:
    class Slow(Counting):
        asked_for = asyncio.Event()
        may_answer = asyncio.Event()

        async def get(self, session_id: str) -> bytes | None:
            record = await super().get(session_id)
            self.asked_for.set()
            await self.may_answer.wait()
            return record

    store = Slow()
    async with nodes(store) as (one, other):
        session = await one.open()
        session.port = other
        asking = asyncio.create_task(session.ask("ping"))
        async with asyncio.timeout(60):
            await store.asked_for.wait()
        assert (await one.ask(session.delete())).status == 204
        store.may_answer.set()
        assert (await asking).status == 404
        assert len(other.app.sessions) == 0


async def test_of_requests_that_come_together_one_makes_the_session() -> None:
    store = Counting()
    async with nodes(store) as (one, other):
        session = await one.open()
        session.port = other
        message = call("tools/call", {"name": "echo", "arguments": {"text": "a"}}, 1)
        answers = await asyncio.gather(*(other.ask(session.bytes({**message, "id": id})) for id in range(1, 9)))
        assert [text(answer) for answer in answers] == ["a"] * 8
        assert len(other.app.sessions) == 1


async def test_a_stranger_finds_nothing() -> None:
    """SCALE-06: the id of another principal, one that never was."""
    store = Counting()
    async with nodes(store) as (one, other):
        session = await one.open()
        session.port = other
        session.extra = {"Authorization": "Bearer eve"}
        assert (await session.ask("ping")).status == 404
        session.extra = {}
        known, session.id = session.id, "x" * 32
        assert (await session.ask("ping")).status == 404
        session.id = known
        assert (await session.ask("ping")).status == 200


async def test_while_the_store_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """Sessions that are known go on; a 404 would end one that is not."""
    store = Counting()
    async with nodes(store) as (one, other):
        session = await one.open()
        store.is_away = True
        assert (await session.ask("logging/setLevel", {"level": "error"})).status == 200
        elsewhere = Session(other, session.version)
        elsewhere.id = session.id
        answer = await elsewhere.ask("ping")
        assert (answer.status, answer["retry-after"]) == (503, "5")
        assert (await other.ask(elsewhere.get())).status == 503
        begun = await one.open()
        store.is_away = False
        # What could not be saved is, with the next request.
        assert (await begun.ask("ping")).status == 200
        assert (await session.ask("ping")).status == 200
        begun.port = other
        assert (await begun.ask("ping")).status == 200
        assert (await elsewhere.ask("ping")).status == 200
    assert "could not be saved for other processes" in caplog.text
    assert "cannot be asked for" in caplog.text


async def test_a_session_that_is_idle_on_one_node_is_not_over() -> None:
    """Only where it was: on another it goes on, and comes back."""
    store = Counting()
    async with nodes(store, session_idle_timeout=600) as (one, other):
        clock = Clock()
        session = await one.open()
        await clock.advance(601)
        await clock.advance(200)
        assert len(one.app.sessions) == 0
        session.port = other
        assert (await session.ask("ping")).status == 200
        session.port = one
        assert (await session.ask("ping")).status == 200


async def test_a_session_that_is_used_stays_in_the_store() -> None:
    store = Counting()
    async with nodes(store, session_idle_timeout=600) as (one, _):
        clock = Clock()
        session = await one.open()
        assert (await session.ask("ping")).status == 200
        before = len(store.asked)
        await clock.advance(301)
        assert (await session.ask("ping")).status == 200
        assert store.asked[before:] == ["put"]


async def test_at_the_limit_of_sessions() -> None:
    """One that comes from elsewhere makes room as a new one does; none is lost that its client still waits on."""
    store = Counting()
    async with nodes(store, max_sessions=1) as (one, other):
        session = await one.open()
        mine = await other.open()
        session.port = other
        assert (await session.ask("ping")).status == 200
        assert len(other.app.sessions) == 1
        assert (await mine.ask("ping")).status == 200  # it was only here that it had to go
        peer = await mine.listen()
        assert (await session.ask("ping")).status == 503
        peer.abort()


async def test_who_says_too_much_is_served_where_it_began(caplog: pytest.LogCaptureFixture) -> None:
    store = Counting()
    async with nodes(store) as (one, other):
        session = await one.open(capabilities={"experimental": {"x": {"y": "z" * 100_000}}})
        assert store.asked == []
        assert (await session.ask("ping")).status == 200
        session.port = other
        assert (await session.ask("ping")).status == 404
    assert caplog.text.count("is not saved for other processes") <= 2


async def test_a_record_that_cannot_be_read_is_no_session() -> None:
    store = Counting()
    async with nodes(store) as (one, other):
        session = await one.open()
        for record in (b"", b"{", b'{"version":"2031-01-01"}', b"[]"):
            await store.put(session.id, record, 60)
            session.port = other
            assert (await session.ask("ping")).status == 404


async def test_an_application_that_is_closed_hears_of_no_ends() -> None:
    store = Counting()
    async with nodes(store) as (one, _):
        await one.open()
    assert store._deleted == []
