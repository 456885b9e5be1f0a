"""Tasks in folders, joined servers, reloads, lifespans and other ASGI servers, and what metrics count of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.clock import turns, until
from support.folders import opened
from support.task_stage import LEGACY_TASKS, TAKES, TaskStage, begin, entered, get, wait_for
from support.wires import MODERN, memory_wire

from mcpd import CacheHint, Server
from mcpd.server.joined import join
from mcpd.server.observe.metrics import Meter, expose
from mcpd.server.reloading import take_over


async def test_files_of_a_folder_can_be_tasks(tmp_path: Path) -> None:
    """`mcpd.tool(task=…)` in tools/*.py takes the options that a decorator takes."""
    text = 'import mcpd\n\n@mcpd.tool(task="required")\ndef render(scene: str) -> str:\n    return scene\n'
    server = opened(tmp_path, {"tools/render.py": text})
    async with memory_wire(server, MODERN, capabilities=TAKES) as wire:
        task = await wait_for(wire, await begin(wire, "render", scene="dawn"))
        assert task["result"]["content"][0]["text"] == "dawn"
    async with memory_wire(server, LEGACY_TASKS) as wire:
        (tool,) = (await wire.result("tools/list"))["tools"]
        assert tool["execution"] == {"taskSupport": "required"}


async def test_servers_that_are_served_together_share_their_tasks() -> None:
    one, other = TaskStage(), Server("other")
    joined = join([one.server, other])
    other.add_tool(lambda: "late", name="late", task="required")
    async with memory_wire(joined, MODERN, capabilities=TAKES) as wire:
        task_id = await begin(wire, "stage_work", text="joined")
        await entered(one)
        one.gate.set()
        assert (await wait_for(wire, task_id))["result"]["content"][0]["text"] == "joined"
        late = await wait_for(wire, await begin(wire, "other_late"))
        assert late["result"]["content"][0]["text"] == "late"


async def test_a_reload_keeps_running_tasks() -> None:
    old, new = TaskStage(), TaskStage()
    async with memory_wire(old.server, MODERN, capabilities=TAKES) as wire:
        task_id = await begin(wire, "work", text="old code")
        await entered(old)
        take_over(old.server, new.server)
        assert (await get(wire, task_id))["status"] == "working"
        other = await begin(wire, "work", text="new code")
        await entered(new)
        old.gate.set()
        new.gate.set()
        assert (await wait_for(wire, task_id))["result"]["content"][0]["text"] == "old code"
        assert (await wait_for(wire, other))["result"]["content"][0]["text"] == "new code"


async def test_the_lifespan_lasts_as_long_as_the_task() -> None:
    gone = asyncio.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        yield "open"
        gone.set()

    server, go = Server("t", lifespan=lifespan), asyncio.Event()

    @server.tool(task="required")
    async def tool() -> str:
        await go.wait()
        return str(gone.is_set())

    holder = object()
    lives: Any = server.lifespan
    lives.hold(holder)
    async with memory_wire(server, MODERN, capabilities=TAKES) as wire:
        task_id = await begin(wire, "tool")
        await lives.release(holder)
        go.set()
        assert (await wait_for(wire, task_id))["result"]["content"][0]["text"] == "False"
        await gone.wait()
    await server.aclose()


async def test_metrics_count_tasks() -> None:
    """TASK-080: by tool and final status, with how long they took."""
    stage = TaskStage()
    meter = Meter(stage.server.catalog.tools.find)
    stage.server.add_observer(meter)
    async with stage.wire() as wire:
        await wait_for(wire, await begin(wire, "fails"))
        await wait_for(wire, await begin(wire, "breaks"))
        await begin(wire, "work")
    text = expose(meter.families()).decode()
    for line in (
        'mcpd_tasks_created_total{gen_ai_tool_name="fails"} 1',
        'mcpd_tasks_created_total{gen_ai_tool_name="work"} 1',
        'mcpd_task_duration_seconds_count{gen_ai_tool_name="fails",status="completed"} 1',
        'mcpd_task_duration_seconds_count{gen_ai_tool_name="breaks",status="failed"} 1',
    ):
        assert line in text


async def test_an_asgi_server_that_stops_ends_its_tasks(tmp_path: Path) -> None:
    """TASK-076: what was running is recorded before the application is gone."""
    url = f"sqlite://{tmp_path}/tasks.db"
    stage = TaskStage(task_store=url)
    app = stage.server.asgi_app()
    await app.start()
    async with memory_wire(stage.server, MODERN, capabilities=TAKES) as wire:
        task_id = await begin(wire, "work")
        await entered(stage)
        await app.aclose()
    await until(lambda: stage.ended == ["work"])
    new = TaskStage(task_store=url)
    async with new.wire() as wire:
        task = await get(wire, task_id)
        assert (task["status"], task["error"]["message"]) == (
            "failed",
            "The server was stopped before the task had finished",
        )


async def test_nodes_that_serve_together_share_their_tasks() -> None:
    """TASK-015: the backplane of the applications is the store of their tasks, unless they have one of their own."""
    from mcpd.server.backplane.memory import MemoryBackplane

    backplane = MemoryBackplane()
    stages = TaskStage(state_key="k" * 16), TaskStage(state_key="k" * 16)
    apps = [stage.server.asgi_app(backplane=backplane) for stage in stages]
    for app in apps:
        await app.start()
    async with (
        memory_wire(stages[0].server, MODERN, capabilities=TAKES) as one,
        memory_wire(stages[1].server, MODERN, capabilities=TAKES) as other,
    ):
        task_id = await begin(one, "work")
        assert (await get(other, task_id))["status"] == "working"
        stages[0].gate.set()
        assert (await wait_for(other, task_id))["status"] == "completed"
    for app in apps:
        await app.aclose()
    await turns()
    assert all(not stage.tasks.runs for stage in stages)


async def test_the_list_of_tools_stays_one_for_all() -> None:
    """S26-191: which tools can be tasks is no secret, so a public list stays public."""
    server = Server("t", cache=CacheHint(60, "public"))
    server.add_tool(lambda: "", name="tool", task="auto")
    async with memory_wire(server, MODERN, capabilities=TAKES) as wire:
        assert (await wire.result("tools/list"))["cacheScope"] == "public"
