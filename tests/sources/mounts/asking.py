"""A server that asks, reports and fails: what a mount has to carry. Run as a program, it serves on stdio."""

from __future__ import annotations

import asyncio
from typing import Any

from mcpd import Context, Server, ToolError
from mcpd.errors import InvalidParams
from mcpd.server.registry.content import image, link

FORM = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}


def make_server() -> Server:
    server = Server("asking")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def picture() -> list[Any]:
        return [image(b"\x89PNG", "image/png"), link("notes://all", "all")]

    @server.tool
    async def fail() -> str:
        raise ToolError("it failed")

    @server.tool
    async def refuse() -> str:
        raise InvalidParams("not like this", {"why": "so"})

    @server.tool
    async def steps(ctx: Context) -> str:
        for number in (1, 2, 3):
            await ctx.progress(number, 3, f"step {number}")
        await ctx.warning("careful")
        return "done"

    @server.tool
    async def name(ctx: Context, greeting: str) -> str:
        answer = await ctx.elicit(f"{greeting}, who?", FORM)
        return f"{greeting} {answer.content['n'] if answer.is_accepted else answer.action}"

    @server.tool
    async def model(ctx: Context, words: str) -> str:
        return (await ctx.sample(words)).text

    @server.tool
    async def folders(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots())

    @server.tool
    async def both(ctx: Context) -> str:
        """Ask two questions at once."""
        first, second = await asyncio.gather(ctx.elicit("first?", FORM), ctx.elicit("second?", FORM))
        await ctx.progress(5, 6, "asked")
        return f"{first.action} {first.content} {second.action} {second.content}"

    @server.tool
    async def visit(ctx: Context) -> str:
        ctx.require_url("Log in", "https://example.com/login")

    server.add_text("notes://all", "all notes", name="all")

    @server.prompt
    def greet(whom: str) -> str:
        return f"Greet {whom}"

    return server


if __name__ == "__main__":
    make_server().run(stdio=True)
