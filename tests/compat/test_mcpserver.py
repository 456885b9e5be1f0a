"""Servers of the official SDK, version 2: `MCPServer`, and the low-level server with a function for each method."""

from __future__ import annotations

import json
from typing import Any

import pytest
from compat.theirs import ask, call, served, texts
from support.wires import memory_wire

from mcpd import Callbacks, Client, ElicitResult, Server

LATEST = "2025-11-25"
NEWEST = "2026-07-28"

pytestmark = pytest.mark.usefixtures("libraries")

SERVER = """
    from typing import Annotated, NotRequired, TypedDict
    from pydantic import BaseModel
    from mcp import MCPError
    from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.prompts.base import AssistantMessage, UserMessage
    from mcp.types import CallToolResult, Completion, TextContent, ToolAnnotations

    mcp = MCPServer("two", title="Two", instructions="I", version="3")

    class Weather(BaseModel):
        city: str

    class Partial(TypedDict):
        a: int
        b: NotRequired[str]

    @mcp.tool(title="Weather", annotations=ToolAnnotations(read_only_hint=True))
    async def weather(city: str, ctx: Context) -> Weather:
        await ctx.report_progress(1, 2)
        return Weather(city=city)

    @mcp.tool()
    def partial() -> Partial: return {"a": 1}

    @mcp.tool()
    def pictures() -> list[Image | str]: return [Image(data=b"x"), "a"]

    @mcp.tool()
    def fails(kind: str = ""):
        if kind == "told": raise ToolError("told")
        if kind == "coded": raise MCPError(code=-32050, message="coded", data={"a": 1})
        raise ValueError("boom")

    @mcp.tool()
    def raw() -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="r")], structured_content={"q": 1}, is_error=True)

    class Size(BaseModel):
        size: int

    async def doubled(a: int) -> int: return 2 * a
    async def asked(ctx: Context) -> Elicit[Size]: return Elicit("How large?", Size)

    @mcp.tool()
    async def found(a: int, b: Annotated[int, Resolve(doubled)], c: Annotated[Size, Resolve(asked)]) -> str:
        return f"{a} {b} {c.size}"

    @mcp.resource("u://{name}/{n}")
    def user(name: str, n: int, ctx: Context) -> dict: return {"name": name, "n": n}

    @mcp.resource("f:///{+path}{?limit}")
    def file(path: str, limit: int = 3) -> str: return f"{path} {limit}"

    @mcp.resource("bad://x")
    def bad() -> str: raise ValueError("secret")

    @mcp.prompt()
    def both(a: str) -> list: return [UserMessage("u" + a), AssistantMessage("b")]

    @mcp.prompt()
    def broken() -> str: raise ValueError("secret")

    @mcp.completion()
    async def complete(ref, argument, context):
        return Completion(values=[argument.value + "1"], has_more=False)
"""


@pytest.fixture
def server() -> Server:
    return served(SERVER)


async def test_lists(server: Server) -> None:
    tools = {one["name"]: one for one in (await ask(server, LATEST, "tools/list"))["tools"]}
    assert tools["weather"]["annotations"] == {"readOnlyHint": True}
    assert tools["weather"]["outputSchema"]["required"] == ["city"]
    assert tools["partial"]["outputSchema"]["properties"]["b"] == {"title": "B", "type": "string"}
    assert "outputSchema" not in tools["pictures"]
    assert list(tools["found"]["inputSchema"]["properties"]) == ["a"]


@pytest.mark.parametrize("version", ["2024-11-05", LATEST, NEWEST])
async def test_calls(version: str, server: Server) -> None:
    assert json.loads(texts(await call(server, version, "weather", city="P"))[0]) == {"city": "P"}
    assert (await ask(server, version, "resources/read", {"uri": "u://a/5"}))["contents"][0]["text"].count("5") == 1
    assert texts(await call(server, version, "raw")) == ["r"]


async def test_members_that_may_be_absent_are(server: Server) -> None:
    assert (await call(server, LATEST, "partial"))["structuredContent"] == {"a": 1}


@pytest.mark.parametrize(
    ("kind", "text"),
    [("told", "Error executing tool fails: told"), ("", "Error executing tool fails")],
)
async def test_errors_of_tools(kind: str, text: str, server: Server) -> None:
    result = await call(server, LATEST, "fails", kind=kind)
    assert (texts(result), result["isError"]) == ([text], True)


async def test_errors_with_codes(server: Server) -> None:
    coded = await call(server, LATEST, "fails", kind="coded")
    assert coded == {"code": -32050, "message": "coded", "data": {"a": 1}}
    assert texts(await call(server, LATEST, "none")) == ["Unknown tool: none"]
    for uri, code, message in (
        ("bad://x", -32603, "Error reading resource bad://x"),
        ("u://a/x", -32603, "Error creating resource from template u://a/x"),
        ("f:///../x", -32602, "Unknown resource: f:///../x"),
        ("none://", -32602, "Unknown resource: none://"),
    ):
        answer = await ask(server, LATEST, "resources/read", {"uri": uri})
        assert (answer["code"], answer["message"]) == (code, message)
    assert (await ask(server, LATEST, "prompts/get", {"name": "broken"}))["message"] == "Error rendering prompt broken"


@pytest.mark.parametrize("version", [LATEST, NEWEST])
async def test_parameters_that_are_resolved_may_ask(version: str, server: Server) -> None:
    async def answer(*_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"size": 7})

    async with Client(server, Callbacks(elicit_form=answer), version=version) as client:
        result = await client.call_tool("found", {"a": 2})
        assert result.content[0].text == "2 4 7"  # type: ignore[union-attr]


LOWLEVEL = """
    import mcp.types as types
    from mcp.server import Server, ServerRequestContext
    from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

    seen = []

    async def around(ctx, call_next):
        seen.append(ctx.method)
        return await call_next(ctx)

    async def list_tools(ctx: ServerRequestContext, params):
        return types.ListToolsResult(tools=[types.Tool(name="t", input_schema={"type": "object"})])

    ASK = ElicitRequest(params=ElicitRequestFormParams(message="Where?", requested_schema={
        "type": "object", "properties": {"region": {"type": "string"}}, "required": ["region"]}))

    async def call_tool(ctx: ServerRequestContext, params):
        if params.name == "seen":
            return types.CallToolResult(content=[types.TextContent(type="text", text=" ".join(seen))])
        answer = (params.input_responses or {}).get("region")
        if not isinstance(answer, ElicitResult):
            return InputRequiredResult(input_requests={"region": ASK}, request_state="s1")
        text = f"{answer.content['region']} {params.request_state} {ctx.protocol_version}"
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    server: Server[dict] = Server[dict]("low", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    server.middleware.append(around)
"""


async def test_the_low_level_server_takes_handlers_by_name() -> None:
    server = served(LOWLEVEL, "server")
    async with memory_wire(server) as wire:
        await wire.open(LATEST)
        assert [one["name"] for one in (await wire.request("tools/list"))["result"]["tools"]] == ["t"]
        answer = await wire.request("tools/call", {"name": "seen", "arguments": {}})
        assert texts(answer["result"]) == ["tools/list tools/call"]


@pytest.mark.parametrize("version", [LATEST, NEWEST])
async def test_questions_in_a_result_are_asked(version: str) -> None:
    server = served(LOWLEVEL, "server")

    async def answer(*_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"region": "eu"})

    async with Client(server, Callbacks(elicit_form=answer), version=version) as client:
        result = await client.call_tool("t", {})
        assert result.content[0].text == f"eu s1 {version}"  # type: ignore[union-attr]


def test_the_types_are_found_by_both_names() -> None:
    served("""
        import mcp.types, mcp_types
        from mcp_types import Tool
        assert Tool is mcp.types.Tool
        made = Tool(name="t", input_schema={"type": "object"})
        assert made.input_schema is made.inputSchema
        from mcp.server.mcpserver import MCPServer
        mcp = MCPServer()
    """)


def test_what_there_is_not_says_so_in_a_line() -> None:
    with pytest.raises(NotImplementedError, match="extensions=…. is not supported by mcpd.compat"):
        served("from mcp.server.mcpserver import MCPServer; MCPServer(extensions=[1])")


async def test_log_messages_are_data_of_any_kind() -> None:
    server = served("""
        from mcp.server.mcpserver import Context, MCPServer
        mcp = MCPServer("x")

        @mcp.tool()
        async def work(ctx: Context) -> str:
            await ctx.log("warning", data={"step": 1})
            await ctx.warning("half")
            return "done"
    """)
    heard: list[Any] = []
    async with Client(server, Callbacks(log=lambda params: heard.append(params.data)), version=LATEST) as client:
        await client.call_tool("work", {})
    assert heard == [{"step": 1}, "half"]
