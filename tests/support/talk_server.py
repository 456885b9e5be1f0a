"""A server with something of everything that the commands of a client show, or ask the user."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from mcpd import (
    Context,
    SamplingMessage,
    Server,
    TextContent,
    ToolError,
    audio,
    embedded,
    image,
    link,
)

server = Server("talk", version="1.0", title="A talk")

DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001"
    "e221bc330000000049454e44ae426082"
)
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202etxt\r\nnext\tcell"


class Bed(Struct):
    name: str
    plants: list[str]


class Sure(Struct):
    really: bool
    name: Annotated[str, Meta(description="Who says so.", min_length=2)] = "nobody"
    size: Literal["small", "large"] = "small"


@server.tool
def plant(
    bed: Annotated[str, Meta(description="Name of the bed.")],
    season: Literal["spring", "autumn"],
    rows: Annotated[int, Meta(ge=1, le=12, description="How many rows.")] = 1,
    what: list[str] | None = None,
) -> Bed:
    """Plant something in a bed.

    The second paragraph is for --verbose.
    """
    if bed == "none":
        raise ToolError("There is no bed\x1b[2J 'none'.")
    return Bed(bed, (what or [season]) * rows)


@server.tool
def hostile() -> str:
    """Give what commands a terminal."""
    return HOSTILE


@server.tool
def mixed() -> list[Any]:
    """Text, an image, a sound, bytes, a link."""
    return [
        "text",
        image(DOT, "image/png"),
        audio(b"RIFF", "audio/wav"),
        embedded("file:///etc/../pass wd.tar", b"\x00\x01", "application/x-tar"),
        embedded("note://one", "a note", "text/plain"),
        link("bed://south", "south", mime_type="text/plain", size=12),
    ]


@server.tool
def dot() -> Any:
    """An image."""
    return image(DOT, "image/png")


@server.tool
def nothing() -> None:
    """Do nothing."""


@server.tool
async def water(minutes: int, ctx: Context) -> str:
    """Ask, and water."""
    answer = await ctx.elicit(f"Water for {minutes} minutes?\x1b[2J\nmcpd: think twice", Sure)
    return f"{answer.action} {answer.get() if answer.is_accepted else ''}".strip()


@server.tool
async def pay(ctx: Context) -> str:
    """Ask for a page to be visited."""
    answer = await ctx.elicit_url("Pay first.", "https://xn--bcher-kva.example/pay")
    return answer.action


@server.tool
async def visit(ctx: Context) -> str:
    """Need a page visited first."""
    if not _visited:
        _visited.append(True)
        ctx.require_url("Log in.", "https://login.example/")
    return "visited"


_visited: list[bool] = []


@server.tool
async def think(ctx: Context) -> str:
    """Ask a model."""
    result = await ctx.sample([SamplingMessage("user", TextContent("What now?"))], max_tokens=10)
    return f"{result.model}: {result.text}"


@server.tool
async def steps(ctx: Context, count: int = 3) -> str:
    """Report how far it is."""
    for step in range(count):
        await ctx.progress(step + 1, total=count, message=f"step {step + 1}\x1b[2J")
    return "done"


@server.tool
async def hang(ctx: Context) -> str:
    """Never answer, and say when it is cancelled."""
    await ctx.progress(1, total=2, message="half")
    await ctx.log("debug", "begun")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("cancelled at the server", file=sys.stderr, flush=True)
        raise
    return "done"


@server.tool
async def complain(ctx: Context) -> str:
    """Log something."""
    await ctx.log("info", "all is well")
    await ctx.log("warning", "it is dry\x1b[2J")
    return "logged"


@server.tool
def change() -> str:
    """Change a resource and the list of tools."""
    server.resource_updated("talk://dot.png")

    @server.tool
    def grown() -> str:
        """Be new."""
        return "new"

    return "changed"


@server.tool
def die() -> str:
    """End the process."""
    import os

    print("\x1b[31mlast\x1b[0m words\x1b[2J", file=sys.stderr, flush=True)
    os._exit(3)


@server.resource("bed://{name}", mime_type="text/plain")
def bed(name: str) -> str:
    """What grows in a bed."""
    return f"bed {name}"


server.add_text("talk://dot.png", DOT, name="dot", mime_type="image/png")
server.add_text("talk://hostile", HOSTILE, name="hostile\x1b[2J", mime_type="text/plain")


@server.prompt
def plan(season: Literal["spring", "autumn"]) -> list[Any]:
    """Plan a season."""
    return [("user", f"Plan {season}."), ("assistant", "Beans.")]
