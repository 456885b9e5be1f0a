"""A server whose tools report their progress up to the very end: what comes last must not be lost."""

from __future__ import annotations

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
