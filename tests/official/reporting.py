"""A server whose tools report their progress up to the very end: what comes last must not be lost."""

from __future__ import annotations

import asyncio
import threading

from mcpd import Context, Server

server = Server("reporting")


@server.tool
async def report(ctx: Context, times: int = 1) -> str:
    """Report so many times, and end at once."""
    for done in range(times):
        await ctx.progress(done + 1, times, "on the way")
    return "done"


@server.tool
def report_plainly(ctx: Context, times: int = 1) -> str:
    """The same in a thread."""
    for done in range(times):
        ctx.progress(done + 1, times, "on the way")
    return "done"


@server.tool
async def silent(seconds: float) -> str:
    """Report nothing for so long."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
    except TimeoutError:
        pass
    return "done"


@server.tool
def silent_plainly(seconds: float) -> str:
    """The same in a thread."""
    threading.Event().wait(seconds)
    return "done"
