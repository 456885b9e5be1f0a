"""Heartbeats: a call that reports nothing sends progress all the same, to the clients that want progress.

The reference is section 2.3 of the page on tasks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from math import inf, nextafter
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from conftest import Child
from hypothesis import given, settings, strategies as st
from support.clock import Clock, turns
from support.http_wire import http_wire
from support.wires import MODERN, OpenWire, Wire, each_version, memory_wire, process_wire, stdio_wire, websocket_wire

from mcpd import Context, Server
from mcpd.server import shutdown
from mcpd.server.dispatcher import connection as connections, heartbeats

VERSION = "2025-11-25"
TOKEN = {"progressToken": "t"}

every_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire, http_wire])


class Silent:
    """A server with tools that are silent until `end`. `entered` has an item for each call."""

    def __init__(self, heartbeat: float = 0.01) -> None:
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._end, self._end_thread = asyncio.Event(), threading.Event()
        self.server = Server("silent")
        self.server.heartbeat = heartbeat

        @self.server.tool
        async def waits() -> str:
            self.entered.put_nowait("waits")
            await self._end.wait()
            return "done"

        @self.server.tool
        def blocks() -> str:
            self._loop.call_soon_threadsafe(self.entered.put_nowait, "blocks")
            assert self._end_thread.wait(60)
            return "done"

        @self.server.tool
        async def quick() -> str:
            return "done"

        @self.server.resource("a://slow")
        async def slow() -> str:
            return await waits()

    def end(self) -> None:
        self._end.set()
        self._end_thread.set()

    def call(self, wire: Wire, tool: str = "waits", meta: dict[str, Any] | None = None) -> Any:
        return wire.ask("tools/call", {"name": tool, "arguments": {}}, meta=meta)


async def beat(wire: Wire) -> dict[str, Any]:
    message = await wire.receive()
    assert message["method"] == "notifications/progress", message
    params: dict[str, Any] = message["params"]
    return params


@every_wire
@each_version
@pytest.mark.parametrize("tool", ["waits", "blocks"])
async def test_a_silent_call_sends_heartbeats_until_its_answer(open_wire: OpenWire, version: str, tool: str) -> None:
    """PROC-17, PROC-20; S26-099 to S26-101: also while a plain function holds its thread."""
    silent = Silent()
    async with open_wire(silent.server, version) as wire:
        asked = silent.call(wire, tool, TOKEN)
        beats = [await beat(wire) for _ in range(3)]
        silent.end()
        assert "result" in await wire.answer(asked)
        beats += [message["params"] for message in wire.heard]
        values = [params["progress"] for params in beats]
        assert values == sorted(set(values))
        assert 0 < values[-1] < 0.001
        has_text = version >= "2025-03-26"
        assert {params.get("message") for params in beats} == {"still running (0 s)" if has_text else None}
        assert {params["progressToken"] for params in beats} == {"t"}
        await wire.quiet()


@each_version
async def test_other_slow_requests_send_them_too(version: str) -> None:
    silent = Silent()
    async with memory_wire(silent.server, version) as wire:
        asked = wire.ask("resources/read", {"uri": "a://slow"}, meta=TOKEN)
        await beat(wire)
        silent.end()
        assert "result" in await wire.answer(asked)


class Scene:
    """One call of a tool that reports what a test puts into `reports`, and a clock that the test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        ahead = self.clock.time() - perf_counter()
        for module in (connections, heartbeats):
            monkeypatch.setattr(module, "perf_counter", lambda: self.clock.time() - ahead)
        self.reports: asyncio.Queue[tuple[Any, ...] | None] = asyncio.Queue()
        self.server = Server("scene")

        @self.server.tool
        async def reports(ctx: Context) -> str:
            while (report := await self.reports.get()) is not None:
                await ctx.progress(*report)
            return "done"

    async def report(self, *report: Any) -> None:
        self.reports.put_nowait(report)
        await turns()

    async def end(self, wire: Wire, asked: Any) -> None:
        self.reports.put_nowait(None)
        assert "result" in await wire.answer(asked)


async def test_the_time_counts_from_the_last_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROC-17, PROC-19: 15 seconds by default; a call that reports more often than that sends its own progress only."""
    scene = Scene(monkeypatch)
    async with memory_wire(scene.server, VERSION) as wire:
        asked = wire.ask("tools/call", {"name": "reports"}, meta=TOKEN)
        await turns()
        await scene.clock.advance(14.5)
        await wire.quiet()
        await scene.clock.advance(1)
        assert await beat(wire) == {**TOKEN, "progress": 1e-9, "message": "still running (16 s)"}
        await scene.clock.advance(15)
        assert (await beat(wire))["message"] == "still running (31 s)"

        for value in range(1, 5):
            await scene.report(value, 10, "half way")
            assert await beat(wire) == {**TOKEN, "progress": value, "total": 10, "message": "half way"}
            await scene.clock.advance(14)
            await wire.quiet()
        await scene.clock.advance(1.1)
        again = {**TOKEN, "progress": nextafter(4, inf), "total": 10, "message": "half way"}
        assert await beat(wire) == again
        await scene.clock.advance(15)
        assert await beat(wire) == {**again, "progress": nextafter(again["progress"], inf)}
        await scene.end(wire, asked)
        await scene.clock.advance(60)
        await wire.quiet()


@settings(max_examples=50)
@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**62), 2**62)))
async def test_no_heartbeat_hides_a_real_value(values: list[float | None]) -> None:
    """PROC-18: None is a silence long enough for a heartbeat. Each value that rises is sent, and so are its texts."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        scene = Scene(monkeypatch)
        async with memory_wire(scene.server, VERSION) as wire:
            asked = wire.ask("tools/call", {"name": "reports"}, meta=TOKEN)
            await turns()
            last, real = -inf, -inf
            for number, value in enumerate(values):
                if value is None:
                    await scene.clock.advance(15.1)
                    if nextafter(max(last, 0), inf) == inf:
                        continue
                    sent = await beat(wire)
                else:
                    await scene.report(value, None, f"number {number}")
                    if value <= real:
                        continue
                    real = value
                    sent = await beat(wire)
                    assert sent["message"] == f"number {number}"
                    assert sent["progress"] == value or value <= last
                assert sent["progress"] > last
                last = sent["progress"]
            await scene.end(wire, asked)
            await wire.quiet()


@every_wire
@pytest.mark.parametrize("version", [VERSION, MODERN])
@pytest.mark.parametrize(("heartbeat", "meta"), [(0, TOKEN), (0.001, None)], ids=["off", "without a token"])
async def test_no_heartbeat_is_sent(open_wire: OpenWire, version: str, heartbeat: float, meta: Any) -> None:
    """PROC-17. Another call of the connection, with a token, has its heartbeats meanwhile."""
    silent, other = Silent(heartbeat), Silent()
    async with open_wire(silent.server, version) as wire, open_wire(other.server, version) as busy:
        asked = silent.call(wire, meta=meta)
        await silent.entered.get()
        asked_too = other.call(busy, meta=TOKEN)
        for _ in range(5):
            await beat(busy)
        await wire.quiet()
        silent.end()
        other.end()
        assert "result" in await wire.answer(asked)
        assert "result" in await busy.answer(asked_too)
        assert wire.heard == []


async def test_a_cancelled_call_and_a_subscription_send_none() -> None:
    """PROC-17: beside a call that does, whose heartbeats begin again with the next call."""
    silent = Silent()
    async with memory_wire(silent.server, MODERN) as wire:
        listening = wire.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, meta=TOKEN)
        assert (await wire.receive())["method"] == "notifications/subscriptions/acknowledged"
        cancelled = silent.call(wire, meta={"progressToken": "cancelled"})
        await beat(wire)
        wire.cancel(cancelled)
        await turns()
        for _ in range(2):
            asked = silent.call(wire, meta={"progressToken": "waits"})
            tokens = {(await beat(wire))["progressToken"] for _ in range(5)}
            wire.cancel(asked)
            await turns()
            assert tokens == {"waits"}
        wire.cancel(listening)


async def test_a_call_sends_heartbeats_until_it_becomes_a_task() -> None:
    """PROC-17, TASK-053: its own progress counts before that, and nothing is sent after its answer."""
    server = Server("tasks")
    server.heartbeat = 0.01
    go = asyncio.Event()

    @server.tool(task="auto", task_after=None)
    async def renders(ctx: Context) -> str:
        await ctx.progress(1, 3, "frame")
        await go.wait()
        await ctx.become_task()
        await ctx.progress(2, 3, "frame")
        return "done"

    takes = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    silent = Silent()
    async with memory_wire(server, MODERN, capabilities=takes) as wire, memory_wire(silent.server, MODERN) as other:
        asked = wire.ask("tools/call", {"name": "renders", "arguments": {}}, meta=TOKEN)
        found = [await beat(wire) for _ in range(3)]
        assert [params["total"] for params in found] == [3, 3, 3]
        assert 1 == found[0]["progress"] < found[1]["progress"] < found[2]["progress"] < 2
        go.set()
        task_id = (await wire.answer(asked))["result"]["taskId"]
        wire.heard.clear()
        silent.call(other, meta=TOKEN)
        for _ in range(5):
            await beat(other)
        await wire.quiet()
        await until_completed(wire, task_id)


async def until_completed(wire: Wire, task_id: str) -> None:
    while (await wire.result("tasks/get", {"taskId": task_id}))["status"] != "completed":
        await turns()


async def test_a_quick_call_starts_no_timer() -> None:
    silent = Silent(3600)
    async with memory_wire(silent.server, MODERN) as wire:
        assert "result" in await wire.answer(silent.call(wire, "quick", None))
        assert wire.connection.heartbeats is None


async def test_a_client_that_reads_nothing_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    async with memory_wire(scene.server, VERSION) as wire:
        asked = wire.ask("tools/call", {"name": "reports"}, meta=TOKEN)
        await turns()
        monkeypatch.setattr(type(wire.connection.channel), "is_congested", True)
        await scene.clock.advance(15.1)
        await wire.quiet()
        monkeypatch.undo()
        monkeypatch.setattr(heartbeats, "perf_counter", lambda: perf_counter() + 60)
        await scene.clock.advance(15.1)
        assert (await beat(wire))["message"] == "still running (60 s)"
        await scene.end(wire, asked)


# ---------------------------------------------------------------------------- a blocked event loop

BLOCKING = """
import logging
import threading
from mcpd import Server
from mcpd.server import shutdown

shutdown.BLOCKED_SECONDS, shutdown._WATCH_SECONDS = 0.1, 0.05
was_logged = threading.Event()

class Wakes(logging.Handler):
    def emit(self, record):
        was_logged.set()

logging.getLogger("mcpd").addHandler(Wakes(logging.ERROR))
server = Server("blocking")

@server.tool
async def spins() -> str:
    return str(was_logged.wait(60))
"""


@pytest.mark.parametrize("also", [(), ("--http", "127.0.0.1:0")], ids=["asyncio", "uvloop"])
async def test_a_tool_that_blocks_the_event_loop_is_named(child: Child, tmp_path: Path, also: tuple[str, ...]) -> None:
    """PROC-20, where the event loop can send no heartbeat."""
    assert shutdown.BLOCKED_SECONDS == 5
    path = tmp_path / "server.py"
    path.write_text(BLOCKING, encoding="utf-8")
    async with process_wire(child, str(path), *also, version=VERSION) as wire:
        assert await wire.text("spins") == "True"
        await wire.said("The event loop has been blocked for 0.1 s by spins (server.py, line 19)")


async def test_a_loop_that_turns_is_not_blocked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Callbacks that take long, but not too long, one after the other; then one that blocks, and the end."""
    monkeypatch.setattr(shutdown, "_WATCH_SECONDS", 0.001)
    caplog.set_level(logging.ERROR, "mcpd")
    pause = threading.Event()
    watch = shutdown.LoopWatch()
    for _ in range(20):
        pause.wait(0.005)
        await turns()
    assert caplog.messages == []

    monkeypatch.setattr(shutdown, "BLOCKED_SECONDS", 0.01)
    was_logged = threading.Event()
    monkeypatch.setattr(shutdown.log, "error", lambda *_: was_logged.set())

    def blocks(wait: Callable[[float], bool]) -> None:
        assert wait(60)

    asyncio.get_running_loop().call_soon(blocks, was_logged.wait)
    await turns()
    watch.stop()
