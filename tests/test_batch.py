"""JSON-RPC batches: in 2025-03-26 and nowhere else.

Spec: mcp-2025-03-26 basic/index, batching; JSON-RPC 2.0 section 6.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.wires import Wire, each_version, initialize, memory_wire

from mcpd import Context, Server

VERSION = "2025-03-26"


class Gates:
    """A server whose tool `wait` goes on when the test says so."""

    def __init__(self) -> None:
        self.server = Server("t")
        self.doors: dict[str, asyncio.Event] = {}
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.cancelled: list[str] = []

        @self.server.tool
        async def echo(text: str) -> str:
            return text

        @self.server.tool
        async def wait(door: str, ctx: Context) -> str:
            self.doors[door] = asyncio.Event()
            self.entered.put_nowait(door)
            await ctx.progress(1)
            try:
                await self.doors[door].wait()
            except asyncio.CancelledError:
                self.cancelled.append(door)
                raise
            return door


def call(request_id: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": request_id}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


async def batch(wire: Wire, *messages: Any) -> Any:
    wire.send(list(messages))
    return await wire.receive()


def texts(answers: Any) -> dict[Any, str]:
    assert isinstance(answers, list)
    return {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers}


async def test_an_array_in_is_an_array_out() -> None:
    async with memory_wire(Gates().server, VERSION) as wire:
        answers = await batch(wire, call(1, "echo", text="a"), call("1", "echo", text="b"))
        assert texts(answers) == {1: "a", "1": "b"}
        answers = await batch(wire, call(3, "echo", text="alone"))
        assert texts(answers) == {3: "alone"}
        await wire.quiet()


async def test_notifications_alone_are_answered_by_nothing() -> None:
    async with memory_wire(Gates().server, VERSION) as wire:
        wire.send([notification("notifications/initialized"), notification("no/such")])
        wire.send([notification("notifications/cancelled", requestId=77)])
        await wire.quiet()


async def test_notifications_between_requests_take_no_place_in_the_answer() -> None:
    async with memory_wire(Gates().server, VERSION) as wire:
        answers = await batch(
            wire, notification("no/such"), call(1, "echo", text="a"), notification("notifications/initialized")
        )
        assert texts(answers) == {1: "a"}


async def test_the_array_waits_for_its_slowest_answer_but_other_messages_do_not() -> None:
    gates = Gates()
    async with memory_wire(gates.server, VERSION) as wire:
        wire.send([call(1, "wait", door="x"), call(2, "echo", text="quick")])
        await gates.entered.get()
        assert (await wire.receive())["method"] == "notifications/progress"
        assert await wire.text("echo", text="meanwhile") == "meanwhile"
        gates.doors["x"].set()
        assert texts(await wire.receive()) == {1: "x", 2: "quick"}


@pytest.mark.parametrize("first", [1, 2])
async def test_what_is_cancelled_has_no_place_in_the_answer(first: int) -> None:
    """The others are still answered, once all are there, and nothing more comes for the one that was cancelled."""
    gates = Gates()
    async with memory_wire(gates.server, VERSION) as wire:
        wire.send([call(number, "wait", door=str(number)) for number in (1, 2, 3)])
        for _ in range(3):
            await gates.entered.get()
            assert (await wire.receive())["method"] == "notifications/progress"
        wire.cancel(first)
        await wire.quiet()
        assert gates.cancelled == [str(first)]
        second = 3 - first
        gates.doors[str(second)].set()
        await wire.quiet()
        gates.doors["3"].set()
        assert texts(await wire.receive()) == {second: str(second), 3: "3"}
        await wire.quiet()


async def test_a_batch_of_which_all_is_cancelled_is_answered_by_nothing() -> None:
    gates = Gates()
    async with memory_wire(gates.server, VERSION) as wire:
        wire.send([call(1, "wait", door="1"), call(2, "wait", door="2")])
        for _ in range(2):
            await gates.entered.get()
            await wire.receive()
        wire.send([notification("notifications/cancelled", requestId=number) for number in (1, 2)])
        await wire.quiet()
        assert sorted(gates.cancelled) == ["1", "2"]


async def test_a_batch_can_cancel_what_it_asks_for() -> None:
    gates = Gates()
    async with memory_wire(gates.server, VERSION) as wire:
        answers: Any = None
        wire.send(
            [
                call(1, "wait", door="1"),
                notification("notifications/cancelled", requestId=1),
                call(2, "echo", text="stays"),
            ]
        )
        while not isinstance(answers, list):
            answers = await wire.receive()
        assert texts(answers) == {2: "stays"}
        await wire.quiet()


async def test_each_bad_part_has_its_own_error() -> None:
    async with memory_wire(Gates().server, VERSION) as wire:
        answers = await batch(
            wire,
            1,
            "text",
            None,
            [],
            {"jsonrpc": "2.0", "id": 5},
            {"jsonrpc": "1.0", "id": "six", "method": "ping"},
            {"jsonrpc": "2.0", "id": None, "method": "ping"},
            [call(1, "echo", text="nested")],
            {"jsonrpc": "2.0", "id": 7, "method": "no/such"},
            call(8, "echo"),
            call(9, "echo", text="fine"),
        )
        codes = [(answer["id"], answer.get("error", {}).get("code")) for answer in answers]
        assert sorted(codes, key=str) == sorted(
            [
                *[(None, -32600)] * 6,
                (5, -32600),
                ("six", -32600),
                (7, -32601),
                (8, None),
                (9, None),
            ],
            key=str,
        )


async def test_one_id_twice_in_a_batch_is_refused_once() -> None:
    gates = Gates()
    async with memory_wire(gates.server, VERSION) as wire:
        wire.send([call(1, "wait", door="1"), call(1, "echo", text="again")])
        await gates.entered.get()
        assert (await wire.receive())["method"] == "notifications/progress"
        gates.doors["1"].set()
        refused, answer = await wire.receive()
        assert refused["error"]["code"] == -32600
        assert texts([answer]) == {1: "1"}


async def test_answers_of_the_client_may_come_in_a_batch() -> None:
    async with memory_wire(Gates().server, VERSION) as wire:
        wire.send([{"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 2, "result": {}}])
        await wire.quiet()


async def test_initialize_is_never_part_of_a_batch() -> None:
    """Spec: mcp-2025-03-26 basic/lifecycle, initialization."""
    async with memory_wire(Gates().server, VERSION) as wire:
        answers = await batch(wire, initialize(VERSION, 1), call(2, "echo", text="x"))
        assert answers[0]["id"] == 1
        assert answers[0]["error"]["code"] == -32600
        assert texts(answers[1:]) == {2: "x"}
    async with memory_wire(Gates().server) as wire:
        wire.send([initialize(VERSION, 1)])
        refused = await wire.receive()
        assert refused["error"]["code"] == -32600
        assert "id" not in refused or refused["id"] is None
        wire.talk = type(wire.talk)()  # what stood in the batch was never asked
        await wire.open(VERSION)


@each_version
async def test_an_empty_array_is_an_invalid_request(version: str) -> None:
    async with memory_wire(Gates().server, version) as wire:
        wire.send([])
        refused = await wire.receive()
        assert isinstance(refused, dict)
        assert refused["error"]["code"] == -32600
        assert refused.get("id") is None
        await wire.quiet()


@each_version
async def test_other_versions_refuse_an_array_whole(version: str) -> None:
    """protocol-versions 3, batching: nothing in it is done."""
    gates = Gates()
    async with memory_wire(gates.server, version) as wire:
        if version == VERSION:
            return
        wire.send(b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{"door":"x"}}}]')
        refused = await wire.receive()
        assert isinstance(refused, dict)
        assert refused["error"]["code"] == -32600
        assert refused.get("id") is None
        assert VERSION in refused["error"]["message"]
        await wire.quiet()
        assert gates.entered.empty()


async def test_a_large_batch_is_within_the_limit_of_requests_at_once() -> None:
    gates = Gates()
    gates.server.max_in_flight = 3
    async with memory_wire(gates.server, VERSION) as wire:
        wire.send([call(number, "wait", door=str(number)) for number in range(5)])
        for _ in range(3):
            await gates.entered.get()
            await wire.receive()
        for door in gates.doors.values():
            door.set()
        answers = await wire.receive()
        assert len(answers) == 5
        assert sorted(answer["id"] for answer in answers if "error" in answer) == [3, 4]
