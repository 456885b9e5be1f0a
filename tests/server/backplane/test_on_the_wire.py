"""What processes share, in use: two servers on one bus, and streams whose events are kept elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.http_peer import call, serving
from support.http_stage import Stage
from support.ui_stage import BOTH_ERAS
from support.wires import MODERN, Wire, memory_wire

from mcpd import Server
from mcpd.server.backplane.base import Kind, Subscriber
from mcpd.server.http import HttpSettings
from mcpd.server.http.resumable_streams import MemoryEventStore


def nothing() -> str:
    """Nothing."""
    return ""


class Bus:
    """Between the servers of this process."""

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []
        self.subscribe, self.unsubscribe = self._subscribers.append, self._subscribers.remove

    def publish(self, kind: Kind, uri: str | None, by: Subscriber) -> None:
        for subscriber in self._subscribers:
            if subscriber is not by:
                subscriber.notify(kind, uri)


def make_server(bus: Bus) -> Server:
    server = Server("one of two", change_bus=bus)
    server.add_tool(nothing, name="first")
    server.add_text("x://y", "", name="y")
    return server


async def watch(wire: Wire, version: str) -> None:
    if version != MODERN:
        await wire.result("resources/subscribe", {"uri": "x://y"})
        return
    wire.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["x://y"]}})
    assert (await wire.receive())["method"] == "notifications/subscriptions/acknowledged"


@BOTH_ERAS
async def test_clients_of_each_server_hear_of_the_changes_on_all(version: str) -> None:
    bus = Bus()
    one, other = make_server(bus), make_server(bus)
    async with memory_wire(one, version) as near, memory_wire(other, version) as far:
        await watch(near, version)
        await watch(far, version)
        for server in (one, other):
            server.add_tool(nothing, name="second")
            for wire in (near, far):
                assert (await wire.receive())["method"] == "notifications/tools/list_changed"
            server.resource_updated("x://y")
            for wire in (near, far):
                told = await wire.receive()
                assert (told["method"], told["params"]["uri"]) == ("notifications/resources/updated", "x://y")
        for wire in (near, far):
            await wire.quiet()


class Elsewhere(MemoryEventStore):
    """A store that takes its time, as one on another machine does."""

    def __init__(self, session_id: str, made: dict[str, Elsewhere]) -> None:
        super().__init__(256, 1 << 20)
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.is_cleared = False
        made[session_id] = self

    async def after(self, stream: int, number: int) -> list[tuple[int, bytes]]:
        found = await super().after(stream, number)
        self.asked.set()
        await self.may_answer.wait()
        return found

    def clear(self) -> None:
        self.is_cleared = True
        super().clear()


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_what_is_said_while_the_store_is_asked_is_not_lost(version: str) -> None:
    """S25-036, S25-039: a stream is resumed with all that followed, each event once."""
    made: dict[str, Elsewhere] = {}
    stage = Stage()
    settings = HttpSettings(event_store=lambda session_id: Elsewhere(session_id, made))
    async with serving(stage.server, settings) as port:
        session = await port.open(version)
        arguments = {"steps": 3, "door": "d"}
        params: dict[str, Any] = {"name": "count", "arguments": arguments, "_meta": {"progressToken": "t"}}
        peer = await session.start(call("tools/call", params, "x"))
        await peer.head()
        first = await peer.event()
        assert first is not None
        await stage.entered.get()
        peer.abort()

        # It asks the store, and meanwhile the call ends.
        resuming = asyncio.create_task(session.listen(first["id"]))
        (store,) = made.values()
        async with asyncio.timeout(60):
            await store.asked.wait()
            stage.open("d")
            while any(port.app.connections) and port.app.connections[0].session.in_flight:
                await asyncio.sleep(0)
        store.may_answer.set()
        resumed = await resuming
        seen = [first["id"]]
        while (event := await resumed.event()) is not None:
            seen.append(event["id"])
        assert seen == sorted(set(seen), key=lambda id: int(id.partition("-")[2]))
        assert [int(id.partition("-")[2]) for id in seen] == list(range(1, len(seen) + 1))
        assert len(seen) == (5 if version == "2025-11-25" else 4)
        peer = await port.connect()
        assert (await peer.ask(session.delete())).status == 204
        await peer.aclose()
        assert store.is_cleared


async def test_a_session_that_ends_while_its_store_is_asked() -> None:
    """S25-041."""
    made: dict[str, Elsewhere] = {}
    stage = Stage()
    settings = HttpSettings(event_store=lambda session_id: Elsewhere(session_id, made))
    async with serving(stage.server, settings) as port:
        session = await port.open()
        params: dict[str, Any] = {"name": "count", "arguments": {"steps": 1}, "_meta": {"progressToken": "t"}}
        answer = await session.ask("tools/call", params)
        first = answer.text.partition("id: ")[2].partition("\n")[0]
        peer = await port.connect()
        peer.send(session.get(first))
        (store,) = made.values()
        async with asyncio.timeout(60):
            await store.asked.wait()
        assert (await port.ask(session.delete())).status == 204
        store.may_answer.set()
        assert (await peer.answer()).status == 404
        await peer.aclose()
