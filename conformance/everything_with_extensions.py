"""`everything.py` with skills and tasks, which the official conformance suite looks at too; the transcripts are without
them. Names and behaviour of the tools are the suite's.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from everything import Name, server
from msgspec import Struct

from mcpd import Context, ToolError, add_skills, elicit_form
from mcpd.errors import InternalError

__all__ = ["server"]

add_skills(server, Path(__file__).with_name("skills"))


class Consent(Struct):
    """Whether something may be done. The suite sends members that it was not asked for, and leaves some out."""

    confirm: bool = False


async def _work(seconds: float) -> None:
    # The suite's tools take some time.
    is_done = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, is_done.set)
    await is_done.wait()


@server.tool
async def greet(name: str) -> str:
    """Greets somebody, and is never a task."""
    return f"Hello, {name}!"


@server.tool(task="auto", task_after=0.2)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Takes so many seconds."""
    await _work(seconds)
    return f"Computed {label} for {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Fails after a second, as tools do."""
    await _work(1)
    raise ToolError("This job always fails")


@server.tool(task="auto")
async def protocol_error_job(ctx: Context) -> str:
    """Fails with an error of the protocol."""
    await ctx.become_task()
    raise InternalError("This job ends in an error of the protocol")


@server.tool(task="required")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Asks for a confirmation."""
    answer = await ctx.elicit(f"Delete {filename}?", Consent, key="confirm")
    return f"Deleted {filename}" if answer.get().confirm else f"Kept {filename}"


@server.tool(task="required")
async def multi_input(ctx: Context) -> str:
    """Asks two questions at once."""
    answers = await ctx.ask(name=elicit_form("What is your name?", Name), consent=elicit_form("Go on?", Consent))
    return f"{answers['name'].get().name} answered"


@server.tool(task="required", task_after=None)
async def test_tool_with_task(ctx: Context) -> str:
    """Asks for a name first, and becomes a task then."""
    name = (await ctx.elicit("What is your name?", Name, key="user_name")).get().name
    await ctx.become_task("greeting")
    await _work(0.2)
    return f"Hello, {name}!"
