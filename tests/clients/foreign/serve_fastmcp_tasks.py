"""Tools that FastMCP runs as tasks, in its own environment: `serve_fastmcp_tasks.py [PORT]`."""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Context, FastMCP
from fastmcp_tasks import TasksExtension

server = FastMCP("tasks")
server.add_extension(TasksExtension(url="memory://"))


@server.tool(task=True)
async def render(frames: int, ctx: Context) -> str:
    """Renders a scene."""
    for frame in range(frames):
        await ctx.report_progress(frame + 1, frames, "frame")
    return f"{frames} frames"


@server.tool(task=True)
async def forever() -> str:
    """Never ends."""
    await asyncio.Event().wait()
    return ""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="http", port=int(sys.argv[1]), show_banner=False)
    else:
        server.run(show_banner=False)
