"""Tools that have not ended in time: their callers get an error, in every version, whatever kind of function it is."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from support.clock import Clock, turns, until
from support.ui_stage import BOTH_ERAS, each_wire
from support.wires import LEGACY, MODERN, OpenWire, each_version, memory_wire

from mcpd import Context, Depends, Server
from mcpd.errors import RegistrationError
from mcpd.server.registry import tools
from mcpd.server.registry.tools import FunctionTool, TimedTool

SHORT = 0.02


class Stage:
    """Tools that do not end by themselves, and what became of them."""

    def __init__(self, timeout: float | None = SHORT, **options: Any) -> None:
        self.server = Server("slow", **options)
        self.go_on = threading.Event()
        self.has_begun = threading.Event()
        self.ended: list[str] = []

        @self.server.tool(timeout=timeout)
        async def waits() -> str:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.append("waits")
            return "never"

        @self.server.tool(timeout=timeout)
        def blocks() -> str:
            self.has_begun.set()
            self.go_on.wait()
            self.ended.append("blocks")
            return "late"

        @self.server.tool(timeout=60)
        async def quick(text: str) -> str:
            return text

        @self.server.tool(timeout=60)
        def quick_in_thread(text: str) -> str:
            return text


@each_version
async def test_the_caller_gets_an_error_and_the_thread_goes_on(version: str) -> None:
    """PROC-05: a coroutine is cancelled, a thread is left alone; processes are in `tests/server/processes`."""
    stage = Stage()
    async with memory_wire(stage.server, version) as wire:
        for name in ("waits", "blocks"):
            while True:
                result = await wire.call(name)
                assert result["isError"] is True
                (block,) = result["content"]
                assert block["text"] == f"The tool {name} took longer than 0.02 s"
                if name == "waits" or stage.has_begun.is_set():
                    break  # on a busy machine the time may be over before the function begins
        assert stage.ended == ["waits"]
        stage.go_on.set()
        await until(lambda: stage.ended == ["waits", "blocks"])
        await wire.quiet()  # what it gave is dropped


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("phase", ["open", "close"])
async def test_a_dependency_that_hangs_in_its_thread_keeps_nobody_waiting(is_async: bool, phase: str) -> None:
    go_on, ended = threading.Event(), threading.Event()
    server = Server("slow")

    def database() -> Iterator[str]:
        try:
            if phase == "open":
                go_on.wait(30)
            yield "opened"
            if phase == "close":
                go_on.wait(30)
        finally:
            ended.set()

    @server.tool(timeout=SHORT, name="uses")
    async def awaits(db: Annotated[str, Depends(database)]) -> str:
        return db

    @server.tool(timeout=SHORT, name="uses_in_thread")
    def uses(db: Annotated[str, Depends(database)]) -> str:
        return db

    async with memory_wire(server, MODERN) as wire:
        result = await wire.call("uses" if is_async else "uses_in_thread")
        assert "took longer than 0.02 s" in result["content"][0]["text"]
        assert not ended.is_set()
        go_on.set()
        await until(ended.is_set)
        await until(lambda: not tools._left_behind)


async def test_a_tool_that_swallows_its_cancellation_keeps_nobody_waiting() -> None:
    server, ended = Server("stubborn"), asyncio.Event()

    @server.tool(timeout=SHORT)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ended.wait()
        return "late"

    async with memory_wire(server, MODERN) as wire:
        assert (await wire.call("stubborn"))["isError"] is True
        ended.set()
        await until(lambda: not tools._left_behind)


@BOTH_ERAS
@each_wire
async def test_over_every_transport(open_wire: OpenWire, version: str) -> None:
    stage = Stage()
    async with open_wire(stage.server, version) as wire:
        assert (await wire.call("waits"))["isError"] is True
        assert (await wire.call("blocks"))["isError"] is True
        assert await wire.text("quick", text="a") == "a"
        assert await wire.text("quick_in_thread", text="b") == "b"
        stage.go_on.set()


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_time_in_which_the_client_is_asked_is_not_counted(is_async: bool) -> None:
    server = Server("asks")
    schema = {"type": "object", "properties": {}}

    if is_async:

        @server.tool(timeout=30, name="ask")
        async def ask(ctx: Context) -> str:
            answers = await asyncio.gather(ctx.elicit("One?", schema), ctx.elicit("Two?", schema))
            await asyncio.Event().wait()
            return str(answers)

    else:

        @server.tool(timeout=30, name="ask")
        def ask_in_thread(ctx: Context) -> str:
            ctx.elicit("One?", schema)
            ctx.elicit("Two?", schema)
            return "asked"

    async with memory_wire(server, LEGACY[-1], capabilities={"elicitation": {}}) as wire:
        clock = Clock()
        call = wire.ask("tools/call", {"name": "ask"})
        for _ in range(2):
            question = await wire.receive()
            assert question["method"] == "elicitation/create"
            await clock.advance(100)
            wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
            await turns()
        if not is_async:
            assert (await wire.answer(call))["result"]["content"][0]["text"] == "asked"
            return
        await clock.advance(29)
        await wire.quiet()
        await clock.advance(2)
        assert (await wire.answer(call))["result"]["isError"] is True


async def test_a_timeout_of_its_own_is_its_own() -> None:
    server = Server("own")

    @server.tool(timeout=60)
    async def gives_up() -> str:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
        return ""

    async with memory_wire(server, MODERN) as wire:
        (block,) = (await wire.call("gives_up"))["content"]
        assert "internal error" in block["text"]


async def test_a_client_that_gives_up_ends_it_without_an_answer() -> None:
    stage = Stage(60)
    async with memory_wire(stage.server, LEGACY[-1]) as wire:
        call = wire.ask("tools/call", {"name": "waits"})
        await turns()
        wire.cancel(call)
        await wire.quiet()
        await until(lambda: stage.ended == ["waits"])


@each_version
async def test_the_default_of_a_server_is_for_tools_that_say_nothing(version: str) -> None:
    stage = Stage(None, tool_timeout=SHORT)

    go_on = asyncio.Event()

    @stage.server.tool(timeout=math.inf)
    async def patient() -> str:
        await go_on.wait()
        return "done"

    async with memory_wire(stage.server, version) as wire:
        waiting = wire.ask("tools/call", {"name": "patient"})
        assert (await wire.call("waits"))["isError"] is True
        go_on.set()
        assert "isError" not in (await wire.answer(waiting))["result"]


def test_without_a_limit_a_tool_is_what_it_was() -> None:
    stage = Stage(None)
    kinds = {entry.key: type(entry) for entry in stage.server.catalog.tools}
    assert kinds == {"waits": FunctionTool, "blocks": FunctionTool, "quick": TimedTool, "quick_in_thread": TimedTool}


@pytest.mark.parametrize("seconds", [0, -1, math.nan, "5", True])
def test_what_is_no_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(RegistrationError, match="tool 'f', timeout: expected seconds"):
        Server("t").tool(timeout=seconds, name="f")(lambda: "")
    with pytest.raises(RegistrationError, match="server 't', tool_timeout: expected seconds"):
        Server("t", tool_timeout=seconds)
