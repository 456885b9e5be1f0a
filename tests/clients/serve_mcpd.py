"""The functions, served by mcpd; and what takes mcpd's own types, under the same names as in serve_fastmcp.py."""

from __future__ import annotations

import functions

from mcpd import ContentBlock, Context, Server, ToolError, embedded, image, text

server = Server("functions")
for function in functions.TOOLS:
    server.tool(function)


@server.tool
def picture() -> ContentBlock:
    """Gives an image."""
    return image(functions.PNG, "image/png")


@server.tool
def pictures() -> list[ContentBlock]:
    """Gives two images."""
    return [image(functions.PNG, "image/png"), image(functions.PNG, "image/png")]


@server.tool
def blocks() -> list[ContentBlock]:
    """Gives blocks of several types."""
    return [
        text("one"),
        image(functions.PNG, "image/png"),
        embedded("test://embedded", "embedded", "text/plain"),
    ]


@server.tool
async def slowly(steps: int, ctx: Context) -> str:
    """Says how far it is, and what it does."""
    for step in range(steps):
        await ctx.progress(step + 1, total=steps)
        await ctx.info(f"step {step + 1}")
    return f"{steps} steps"


@server.tool
def refuse(reason: str) -> str:
    """Always fails."""
    raise ToolError(f"Refused: {reason}")
