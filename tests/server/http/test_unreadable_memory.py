"""What stands on the backplane in the place of a session's memory, and is none: written by a newer version, or by
somebody else who reaches it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.http_peer import Port, serving

from mcpd import Server
from mcpd.server.backplane.base import Backplane
from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.server.http import HttpSettings

JUNK = [b"", b"garbage", b"\xc1", b"\x91" * 10_000, b"\x94\x01\xc0\xa1x\xa0", b"\x94\xa1x\xc0\x90\xa0"]


@asynccontextmanager
async def node(backplane: Backplane) -> AsyncIterator[Port]:
    server = Server("one of two", state_key=b"k" * 32)
    server.add_text("x://y", "", name="y")
    async with serving(server, HttpSettings(backplane=backplane)) as port:
        yield port


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
async def test_nothing_crashes_and_no_call_is_refused(junk: bytes) -> None:
    """Who knows the session goes on and says that nothing more can be set; who does not has no session."""
    backplane = MemoryBackplane()
    async with node(backplane) as one, node(backplane) as other:
        session = await one.open()
        uid = one.app.sessions.find(session.id, "").sealed.uid
        await backplane.set(f"{{s:{uid}}}:m", junk, 600)
        refused = await session.ask("resources/subscribe", {"uri": "x://y"})
        assert (refused.status, "cannot read the stored settings" in refused.text) == (503, True)
        assert not one.app.sessions.find(session.id, "").connection.session.is_watched("x://y")
        assert (await session.ask("ping")).status == 200
        session.port = other
        assert (await session.ask("ping")).status == 404


async def test_facts_that_are_nested_without_end_are_none() -> None:
    backplane = MemoryBackplane()
    async with node(backplane) as one, node(backplane) as other:
        session = await one.open(capabilities={"experimental": {"x": {"y": "z" * 100_000}}})
        uid = one.app.sessions.find(session.id, "").sealed.uid
        deep = b"\x91\x81\xacexperimental\x81\xa1x" + b"\x81\xa1x" * 200_000 + b"\x80"
        await backplane.set(f"{{s:{uid}}}:f", deep, 600)
        session.port = other
        assert (await session.ask("ping")).status == 404
