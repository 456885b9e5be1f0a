"""A server with tools of every kind that can be a task, and what tests do with it on a wire."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from support.clock import between_looks, until
from support.wires import META, MODERN, Wire, memory_wire

from mcpd import Context, Server, SyncContext, ToolError, elicit_form
from mcpd.errors import ProtocolError
from mcpd.server.extensions.tasks.registry import Tasks

__all__ = ["LEGACY_TASKS", "RELATED", "TAKES", "TASKS", "Name", "TaskStage", "answer", "begin", "status", "wait_for"]

LEGACY_TASKS = "2025-11-25"
TASKS = f"{META}tasks"
RELATED = f"{META}related-task"
TAKES = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}}


class Name(Struct):
    """The form of the stage's questions."""

    name: str


class Busy(ProtocolError):
    """A JSON-RPC error of an application."""

    code = 4711
    default_message = "the printer is on fire"


class TaskStage:
    """`gate` lets the tools end that wait for it; `entered` has the tools that began, in order."""

    def __init__(self, **settings: Any) -> None:
        self.gate = asyncio.Event()
        self.thread_gate = threading.Event()
        self.entered: list[str] = []
        self.ended: list[str] = []
        self.contexts: list[Context] = []
        self.server = server = Server("stage", **settings)

        @server.tool
        async def greet(name: str = "you") -> str:
            return f"Hello, {name}!"

        @server.tool(task="auto", task_after=3600)
        async def quick() -> str:
            return "at once"

        @server.tool(task="auto", task_after=0)
        async def auto(ctx: Context, text: str = "done") -> str:
            return await self.wait("auto", ctx, text)

        @server.tool(task="required")
        async def work(ctx: Context, text: str = "done") -> str:
            return await self.wait("work", ctx, text)

        @server.tool(task="required", retry=True)
        async def again(ctx: Context, text: str = "done") -> str:
            return await self.wait("again", ctx, text)

        @server.tool(task="auto", task_after=None)
        async def later(ctx: Context) -> str:
            self.entered.append("later")
            who = (await ctx.elicit("Who?", Name)).get().name
            await ctx.become_task(f"for {who}")
            await ctx.become_task()
            other = (await ctx.elicit("And then?", Name)).get().name
            return f"{who}, {other}"

        @server.tool(task="required")
        async def ask(ctx: Context, times: int = 1) -> str:
            self.contexts.append(ctx)
            return ", ".join([(await ctx.elicit("Who?", Name)).get().name for _ in range(times)])

        @server.tool(task="required")
        async def both(ctx: Context) -> str:
            answers = await ctx.ask(a=elicit_form("A?", Name), b=elicit_form("B?", Name))
            return f"{answers['a'].get().name} and {answers['b'].get().name}"

        @server.tool(task="required")
        def plain(ctx: SyncContext) -> str:
            self.entered.append("plain")
            while not ctx.is_cancelled and not self.thread_gate.wait(0.001):
                pass
            self.ended.append("plain")
            return "from a thread"

        @server.tool(task="required")
        async def fails() -> str:
            raise ToolError("no paper")

        @server.tool(task="required")
        async def breaks() -> str:
            raise Busy(data={"floor": 3})

        @server.tool(task="required")
        async def give(ctx: Context, keep: float | None = None) -> dict[str, int]:
            return ctx.hand_over(keep=keep)

    async def wait(self, name: str, ctx: Context, text: str) -> str:
        """What most tools do: until the gate is open."""
        self.entered.append(name)
        self.contexts.append(ctx)
        try:
            await self.gate.wait()
        finally:
            self.ended.append(name)
        return text

    @asynccontextmanager
    async def wire(
        self, open_wire: Any = memory_wire, version: str = MODERN, capabilities: dict[str, Any] = TAKES
    ) -> AsyncIterator[Wire]:
        """A wire to the server, after which no task runs any more."""
        try:
            async with open_wire(self.server, version, capabilities=capabilities) as wire:
                yield wire
        finally:
            await self.end()

    async def end(self) -> None:
        """End all tasks, as at the end of the process."""
        self.thread_gate.set()
        await self.tasks.finish(0)
        await self.server.extensions[TASKS].aclose()

    @property
    def tasks(self) -> Tasks:
        """The tasks of the server."""
        extension: Any = self.server.extensions[TASKS]
        found: Tasks = extension.tasks
        return found


async def begin(wire: Wire, tool: str, *, ttl: int | None = None, **arguments: Any) -> str:
    """Call a tool that becomes a task; its id."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if wire.version != MODERN:
        params["task"] = {} if ttl is None else {"ttl": ttl}
    result = await wire.result("tools/call", params)
    return str((result if wire.version == MODERN else result["task"])["taskId"])


async def get(wire: Wire, task_id: str) -> dict[str, Any]:
    """What `tasks/get` gives."""
    found: dict[str, Any] = await wire.result("tasks/get", {"taskId": task_id})
    return found


async def status(wire: Wire, task_id: str) -> str:
    """The status of a task."""
    return str((await get(wire, task_id))["status"])


async def wait_for(wire: Wire, task_id: str, *statuses: str) -> dict[str, Any]:
    """What `tasks/get` gives as soon as the status is one of these, by default one that is final."""
    async with asyncio.timeout(60):
        while True:
            task = await get(wire, task_id)
            if task["status"] in (statuses or ("completed", "failed", "cancelled")):
                return task
            await between_looks()


async def answer(wire: Wire, task_id: str, **names: str) -> Any:
    """Answer questions of a task by their keys, in 2026-07-28."""
    responses = {key.replace("_", "-"): {"action": "accept", "content": {"name": name}} for key, name in names.items()}
    return await wire.result("tasks/update", {"taskId": task_id, "inputResponses": responses})


async def entered(stage: TaskStage, count: int = 1) -> None:
    """Wait until so many tools have begun."""
    await until(lambda: len(stage.entered) >= count)
