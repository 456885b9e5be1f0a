"""The server behind the HTTP tests: tools that wait, stream, ask and change things, when a test says so."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta, Struct

from mcpd import Context, Server

__all__ = ["Stage"]


class Name(Struct):
    """The form of `ask_name`."""

    name: str


def _header(name: str) -> Any:
    return Meta(extra_json_schema={"x-mcp-header": name})


class Stage:
    """`server`, and what goes on in it: `entered` hears of each call of `wait`, which then waits for `open`."""

    def __init__(self, **options: Any) -> None:
        self.server = server = Server("stage", version="1", **options)
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.left: asyncio.Queue[str] = asyncio.Queue()
        """`door:opened` or `door:cancelled` for each call of `wait` that ended."""
        self.doors: dict[str, asyncio.Event] = {}

        @server.tool
        async def echo(text: str) -> str:
            """Give the text back."""
            return text

        @server.tool
        def echo_sync(text: str) -> str:
            """Give the text back, from a thread."""
            return text

        @server.tool
        async def wait(door: str = "door", *, ctx: Context) -> str:
            """Wait until the door is opened."""
            self.entered.put_nowait(door)
            try:
                await self.door(door).wait()
            except asyncio.CancelledError:
                self.left.put_nowait(f"{door}:cancelled")
                raise
            self.left.put_nowait(f"{door}:opened")
            return "opened"

        @server.tool
        async def count(steps: int, door: str = "", *, ctx: Context) -> str:
            """Report so many steps; with a door wait there before the last."""
            for step in range(1, steps + 1):
                if door and step == steps:
                    self.entered.put_nowait(door)
                    await self.door(door).wait()
                await ctx.progress(step, total=steps)
            return f"counted {steps}"

        @server.tool
        async def log(text: str, *, ctx: Context) -> str:
            """Log the text."""
            await ctx.info(text)
            return "logged"

        @server.tool
        async def ask_name(*, ctx: Context) -> str:
            """Ask the user for a name."""
            answer = await ctx.elicit("What is your name?", Name, key="name")
            return f"Hello, {answer.content.name}!" if answer.is_accepted else answer.action

        @server.tool
        async def ask_model(*, ctx: Context) -> str:
            """Ask the client's model."""
            result = await ctx.sample("Hi", max_tokens=10, key="model")
            return str(result.model)

        @server.tool
        async def regional(
            region: Annotated[str | None, Meta(description="where")] = None,
            place: Annotated[str, _header("Region")] = "",
            shard: Annotated[int, _header("Shard")] = 0,
            dry: Annotated[bool, _header("Dry-Run")] = False,
        ) -> str:
            """Arguments that headers repeat."""
            return f"{place} {shard} {dry}"

        @server.tool
        async def poll(door: str = "door", *, ctx: Context) -> str:
            """Let the connection go, and wait until the door is opened."""
            ctx.close_stream()
            self.entered.put_nowait(door)
            await self.door(door).wait()
            return "polled"

        @server.tool
        async def change() -> str:
            """Make the list of tools another one."""
            self.change()
            return "changed"

        @server.tool
        async def fail() -> str:
            """Fail."""
            raise RuntimeError("/a/secret/path")

        @server.resource("stage://text", mime_type="text/plain")
        async def text() -> str:
            return "text of the stage"

        @server.resource("stage://long/{size}", mime_type="text/plain")
        async def long(size: int) -> str:
            return "x" * size

        @server.prompt
        async def greet(name: str) -> str:
            """A greeting."""
            return f"Greet {name}"

    def door(self, name: str = "door") -> asyncio.Event:
        """The door of that name."""
        return self.doors.setdefault(name, asyncio.Event())

    def open(self, name: str = "door") -> None:
        """Open a door; it stays open."""
        self.door(name).set()

    def change(self) -> None:
        """Make the list of tools another one."""
        if not self.server.remove_tool("extra"):

            @self.server.tool
            async def extra() -> str:
                """Comes and goes."""
                return "extra"
