"""What servers of the official SDK, version 1, ask of their clients and tell them, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from compat.theirs import served
from support.wire_schema import VERSIONS
from support.wires import each_version

from mcpd import Callbacks, Client, CreateMessageResult, ElicitResult, RemoteError, Root, TextContent

pytestmark = pytest.mark.usefixtures("libraries")

SERVER = """
    from mcp import ServerSession
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.shared.exceptions import McpError, UrlElicitationRequiredError
    from mcp.types import ClientCapabilities, ElicitRequestURLParams, RootsCapability, SamplingMessage, TextContent
    from pydantic import BaseModel, Field

    mcp = FastMCP("asks")

    class Booking(BaseModel):
        day: str = Field(description="Which day?")
        guests: int = 2

    @mcp.tool()
    async def book(ctx: Context[ServerSession, None]) -> str:
        answer = await ctx.elicit(message="When?", schema=Booking)
        if answer.action == "accept":
            return f"{answer.data.day} for {answer.data.guests}"
        return answer.action

    @mcp.tool()
    async def careless(ctx: Context) -> str:
        return "booked" if await ctx.elicit(message="When?", schema=Booking) else "left"

    @mcp.tool()
    async def poem(ctx: Context) -> str:
        result = await ctx.session.create_message(
            messages=[SamplingMessage(role="user", content=TextContent(type="text", text="a poem"))], max_tokens=10)
        return result.content.text

    @mcp.tool()
    async def folders(ctx: Context) -> list[str]:
        return [str(root.uri) for root in (await ctx.session.list_roots()).roots]

    @mcp.tool()
    async def offers(ctx: Context) -> bool:
        return ctx.session.check_client_capability(ClientCapabilities(roots=RootsCapability()))

    @mcp.tool()
    async def visit(ctx: Context) -> str:
        raise UrlElicitationRequiredError([ElicitRequestURLParams(
            mode="url", message="Sign in", url="https://example.com/in", elicitationId="e1")])

    @mcp.tool()
    async def tells(ctx: Context) -> str:
        await ctx.debug("no")
        await ctx.warning("careful")
        await ctx.report_progress(1, 4, "begun")
        await ctx.session.send_tool_list_changed()
        return ctx.request_id
"""


async def elicit(params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"day": "Monday"})


async def sample(params: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent("roses"), model="m")


CALLBACKS = Callbacks(elicit_form=elicit, sample=sample, roots=lambda: [Root(uri="file:///a")])


def text(result: Any) -> str:
    found: str = result.content[0].text
    return found


@each_version
async def test_questions(version: str) -> None:
    async with Client(served(SERVER), CALLBACKS, version=version) as client:
        if VERSIONS.index(version) >= VERSIONS.index("2025-06-18"):
            assert text(await client.call_tool("book")) == "Monday for 2"
        assert text(await client.call_tool("poem")) == "roses"
        if version != "2024-10-07":
            assert text(await client.call_tool("folders")) == "file:///a"
            assert text(await client.call_tool("offers")) == "true"


async def test_a_client_that_cannot_be_asked() -> None:
    async with Client(served(SERVER), version="2025-06-18") as client:
        for tool, said in (
            ("book", "Elicitation not supported"),
            ("poem", "Sampling not supported"),
            ("folders", "List roots not supported"),
        ):
            assert text(await client.call_tool(tool)) == f"Error executing tool {tool}: {said}"


@each_version
async def test_what_it_tells(version: str) -> None:
    heard: list[str] = []
    steps: list[float] = []
    callbacks = Callbacks(log=lambda params: heard.append(params.data), list_changed=lambda kind: heard.append(kind))
    async with Client(served(SERVER), callbacks, version=version) as client:
        result = await client.call_tool("tells", on_progress=lambda progress, *_: steps.append(progress))
        assert text(result).isdigit()
    assert steps == [1]
    assert "no" not in heard
    if version != "2026-07-28":  # which hears of log messages and lists only if it asks for them
        assert heard == ["careful", "tools"]


async def test_pages_to_visit() -> None:
    visited: list[str] = []

    async def visit(params: Any) -> ElicitResult:
        visited.append(params.url)
        return ElicitResult(action="decline")

    async with Client(served(SERVER), Callbacks(elicit_url=visit), version="2025-11-25") as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("visit")
        assert (caught.value.code, caught.value.message) == (-32042, "URL elicitation required")
        assert caught.value.data["elicitations"][0]["elicitationId"] == "e1"
    async with Client(served(SERVER), Callbacks(elicit_url=visit), version="2026-07-28") as client:
        result = await client.call_tool("visit")
        assert (visited, result.is_error) == (["https://example.com/in"], True)


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(("action", "outcome"), [("accept", "booked"), ("decline", "left"), ("cancel", "left")])
async def test_a_refusal_is_false(version: str, action: Any, outcome: str) -> None:
    """Unlike under the library itself: there a tool goes on although the user said no."""

    async def answer(params: Any) -> ElicitResult:
        return ElicitResult(action=action, content={"day": "Monday"} if action == "accept" else None)

    async with Client(served(SERVER), Callbacks(elicit_form=answer), version=version) as client:
        assert text(await client.call_tool("careless")) == outcome
