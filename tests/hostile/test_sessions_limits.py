"""Sessions whose client has gone end, whatever still runs for them; at the limit nobody loses to who has the most."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import until
from support.http_peer import Peer, Port, Session, call, initialize, post, serving
from support.http_stage import Stage

from mcpd.server.http import HttpSettings

WAIT = call("tools/call", {"name": "wait", "arguments": {"door": "never"}}, 7)


def user(name: str) -> dict[str, str | None]:
    return {"Authorization": f"Bearer {name}"}


async def opened(port: Port, name: str) -> Session:
    session = Session(port, "2025-11-25")
    session.extra = user(name)
    await session.open()
    return session


async def hang(stage: Stage, session: Session, message: Any = WAIT) -> Peer:
    """A call that does not end, and its connection."""
    peer = await session.start(message)
    async with asyncio.timeout(60):
        await stage.entered.get()
    return peer


async def is_there(session: Session) -> bool:
    return (await session.ask("ping", id=9)).status == 200


async def left(stage: Stage) -> str:
    async with asyncio.timeout(60):
        return await stage.left.get()


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_session_with_a_hung_call_ends_after_its_client(is_batch: bool) -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(session_idle_timeout=600)) as port:
        session = await port.open("2025-03-26")
        peer = await hang(stage, session, [WAIT] if is_batch else WAIT)
        sessions = port.app.sessions
        (there,) = sessions

        def after_eleven_minutes() -> None:
            there.touched -= 660
            sessions._expire()

        # As long as the client waits for the answer, it is there.
        after_eleven_minutes()
        assert len(sessions) == 1
        peer.abort()
        await until(lambda: not there.busy)
        after_eleven_minutes()
        assert await left(stage) == "never:cancelled"
        assert (await session.ask("ping", id=8)).status == 404
        assert len(port.app.sessions) == 0


async def test_at_the_limit_a_session_whose_client_has_gone_makes_room() -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_sessions=2)) as port:
        gone, there = await port.open(), await port.open()
        peer = await hang(stage, gone)
        waits = await hang(stage, there)
        peer.abort()
        (session, _) = port.app.sessions
        await until(lambda: not session.busy)
        new = await port.open()
        assert await left(stage) == "never:cancelled"
        assert await is_there(new)
        assert await is_there(there)
        waits.abort()


async def test_who_has_the_most_sessions_makes_room_for_the_others() -> None:
    """Though it waits on each of them: who has as many as it itself turns nobody away."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_sessions=4)) as port:
        hogs = [await opened(port, "hog") for _ in range(4)]
        peers = [await hang(stage, session) for session in hogs]
        assert (await port.ask(post(initialize(), user("hog")))).status == 503
        one = await opened(port, "one")
        assert await left(stage) == "never:cancelled"
        two = await opened(port, "two")
        assert await left(stage) == "never:cancelled"
        # Idle as they are, what the others have is not what the one with the most takes.
        assert (await port.ask(post(initialize(), user("hog")))).status == 503
        assert await is_there(one)
        assert await is_there(two)
        for peer in peers:
            peer.abort()


async def test_of_its_own_a_client_loses_the_one_that_was_idle_longest() -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_sessions=3)) as port:
        first, second, third = [await opened(port, "one") for _ in range(3)]
        assert await is_there(first)
        new = await opened(port, "one")
        assert [await is_there(session) for session in (first, third, new)] == [True, True, True]
        assert (await second.ask("ping", id=9)).status == 404
