"""The functions, served by FastMCP over HTTP; and what takes its own types, named as in serve_mcpd.py."""

from __future__ import annotations

import socket

import functions
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image
from mcp_types import ContentBlock, EmbeddedResource, ImageContent, TextContent, TextResourceContents

server = FastMCP("functions")
for function in functions.TOOLS:
    server.tool(function)


@server.tool
def picture() -> Image:
    """Gives an image."""
    return Image(data=functions.PNG, format="png")


@server.tool
def pictures() -> list[Image]:
    """Gives two images."""
    return [Image(data=functions.PNG, format="png"), Image(data=functions.PNG, format="png")]


@server.tool
def blocks() -> list[ContentBlock]:
    """Gives blocks of several types."""
    image: ImageContent = Image(data=functions.PNG, format="png").to_image_content()
    resource = TextResourceContents(uri="test://embedded", text="embedded", mime_type="text/plain")
    return [TextContent(type="text", text="one"), image, EmbeddedResource(type="resource", resource=resource)]


@server.tool
async def slowly(steps: int, ctx: Context) -> str:
    """Says how far it is, and what it does."""
    for step in range(steps):
        await ctx.report_progress(step + 1, total=steps)
        await ctx.info(f"step {step + 1}")
    return f"{steps} steps"


@server.tool
def refuse(reason: str) -> str:
    """Always fails."""
    raise ToolError(f"Refused: {reason}")


if __name__ == "__main__":
    # Left to the system is which port is free. HTTP, because every framework can use this server over HTTP: over stdio
    # it answers no handshake on a connection that began with server/discover, as Vercel's does.
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(server.http_app(), log_level="error")).run(sockets=[listener])
