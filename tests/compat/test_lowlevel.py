"""Low-level servers of version 1 of the official SDK: a handler for each method."""

from __future__ import annotations

import json
from typing import Any

import pytest
from compat.theirs import ask, call, module, served, texts
from support.wires import each_version, memory_wire

pytestmark = pytest.mark.usefixtures("libraries")

SERVER = """
    import mcp.types as types
    from mcp.server.lowlevel import Server, NotificationOptions
    from mcp.server.lowlevel.helper_types import ReadResourceContents
    from mcp.shared.exceptions import McpError
    from pydantic import AnyUrl

    server = Server("low", version="1.2", instructions="Ask")
    heard = []

    @server.list_tools()
    async def list_tools() -> list[types.Tool]:
        return [
            types.Tool(name="echo", description="Echoes", inputSchema={
                "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
            types.Tool(name="typed", inputSchema={"type": "object"}, outputSchema={
                "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
        ]

    @server.call_tool()
    async def call_tool(name: str, arguments: dict):
        if name == "echo":
            return [types.TextContent(type="text", text=arguments["text"])]
        if name == "typed":
            return {"n": arguments.get("n", 1)}
        if name == "refused":
            raise McpError(types.ErrorData(code=-32001, message="no"))
        raise ValueError(f"Unknown tool: {name}")

    @server.list_resources()
    async def list_resources():
        return [types.Resource(uri=AnyUrl("note:///a"), name="a", mimeType="text/plain")]

    @server.read_resource()
    async def read_resource(uri: AnyUrl):
        if str(uri) == "note:///gone":
            raise McpError(types.ErrorData(code=types.INVALID_PARAMS, message="gone", data={"uri": str(uri)}))
        return [ReadResourceContents(content=b"ab", mime_type="image/png"), ReadResourceContents(content="text")]

    @server.list_prompts()
    async def list_prompts(request: types.ListPromptsRequest) -> types.ListPromptsResult:
        page = int(request.params.cursor or 0) if request.params else 0
        return types.ListPromptsResult(prompts=[types.Prompt(name=f"p{page}")],
                                       nextCursor=str(page + 1) if page < 1 else None)

    @server.get_prompt()
    async def get_prompt(name, arguments):
        return types.GetPromptResult(messages=[types.PromptMessage(
            role="user", content=types.TextContent(type="text", text=str(arguments)))])

    @server.set_logging_level()
    async def set_level(level):
        heard.append(level)

    @server.subscribe_resource()
    async def subscribe(uri):
        heard.append(str(uri))
"""


@each_version
async def test_tools(version: str) -> None:
    server = served(SERVER, "server")
    tools = (await ask(server, version, "tools/list"))["tools"]
    assert [tool["name"] for tool in tools] == ["echo", "typed"]
    assert texts(await call(server, version, "echo", text="hi")) == ["hi"]
    failed = await call(server, version, "echo")
    assert (texts(failed), failed["isError"]) == (["Input validation error: 'text' is a required property"], True)
    typed = await call(server, version, "typed")
    assert texts(typed) == ['{\n  "n": 1\n}']
    assert texts(await call(server, version, "typed", n="x")) == [
        "Output validation error: 'x' is not of type 'integer'"
    ]
    assert texts(await call(server, version, "other")) == ["Unknown tool: other"]
    # Their library makes a result of this one too, so that the model reads it.
    assert texts(await call(server, version, "refused")) == ["no"]


@each_version
async def test_resources_and_prompts(version: str) -> None:
    server = served(SERVER, "server")
    assert (await ask(server, version, "resources/list"))["resources"] == [
        {"uri": "note:///a", "name": "a", "mimeType": "text/plain"}
    ]
    assert (await ask(server, version, "resources/read", {"uri": "note:///a"}))["contents"] == [
        {"uri": "note:///a", "mimeType": "image/png", "blob": "YWI="},
        {"uri": "note:///a", "mimeType": "text/plain", "text": "text"},
    ]
    gone = await ask(server, version, "resources/read", {"uri": "note:///gone"})
    assert (gone["code"], gone["message"], gone["data"]) == (-32602, "gone", {"uri": "note:///gone"})
    first = await ask(server, version, "prompts/list")
    assert ([one["name"] for one in first["prompts"]], first["nextCursor"]) == (["p0"], "1")
    second = await ask(server, version, "prompts/list", {"cursor": "1"})
    assert ([one["name"] for one in second["prompts"]], "nextCursor" in second) == (["p1"], False)
    got = await ask(server, version, "prompts/get", {"name": "p0", "arguments": {"a": "b"}})
    assert got["messages"][0]["content"]["text"] == "{'a': 'b'}"


async def test_what_a_session_keeps() -> None:
    theirs = module(SERVER)
    server = theirs.server.__mcpd_server__()
    assert (await ask(server, "2025-06-18", "logging/setLevel", {"level": "debug"})) == {}
    assert (await ask(server, "2025-06-18", "resources/subscribe", {"uri": "note:///a"})) == {}
    assert theirs.heard == ["debug", "note:///a"]


async def test_notifications_of_the_client() -> None:
    theirs = module("""
        import asyncio
        import mcp.types as types
        from mcp.server import Server
        server = Server("low")
        heard = asyncio.Queue()

        @server.progress_notification()
        async def progress(token, progress, total, message):
            heard.put_nowait((token, progress, total, message))

        async def roots(told):
            heard.put_nowait(told.method)

        server.notification_handlers[types.RootsListChangedNotification] = roots
    """)
    async with memory_wire(theirs.server.__mcpd_server__()) as wire:
        await wire.open("2025-06-18")
        wire.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}).encode())
        assert await theirs.heard.get() == "notifications/roots/list_changed"
        params = {"progressToken": "t", "progress": 1, "message": "begun"}
        wire.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode())
        assert await theirs.heard.get() == ("t", 1.0, None, "begun")


async def test_what_it_says_of_itself() -> None:
    server = served(SERVER, "server")
    async with memory_wire(server) as wire:
        said: Any = await wire.open("2025-11-25")
    assert said["serverInfo"] == {"name": "low", "version": "1.2"}
    assert said["instructions"] == "Ask"
    assert set(said["capabilities"]) == {"logging", "prompts", "resources", "tools"}


def test_options_for_the_handshake() -> None:
    theirs = module(SERVER)
    said = theirs.server.create_initialization_options(
        notification_options=theirs.NotificationOptions(tools_changed=True), experimental_capabilities={"x": {}}
    )
    assert (said.server_name, said.server_version, said.capabilities.tools.listChanged) == ("low", "1.2", True)
    assert said.capabilities.experimental == {"x": {}}


def test_both_spellings_of_members() -> None:
    import mcp.types as types  # type: ignore[import-not-found]

    tool = types.Tool(name="a", input_schema={"type": "object"}, _meta={"x": 1}, more=2)
    assert tool.inputSchema == tool.input_schema == {"type": "object"}
    assert tool.model_dump(by_alias=True, exclude_none=True) == {
        "name": "a",
        "inputSchema": {"type": "object"},
        "_meta": {"x": 1},
        "more": 2,
    }
    assert types.TextContent(text="a").type == "text"
    assert types.Tool.model_json_schema()["required"] == ["name", "inputSchema"]
    assert types.TextContent.model_json_schema()["required"] == ["type", "text"]
    assert isinstance(types.TextContent(type="text", text="a"), types.ContentBlock)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "from mcp.types import Nothing",
            "mcp.types.Nothing is not supported by mcpd.compat; to run the server with the official SDK",
        ),
        ("import mcp.nothing", "mcp.nothing is not supported by mcpd.compat"),
        ("import mcp.types\nmcp.types.Nothing", "mcp.types.Nothing is not supported by mcpd.compat"),
    ],
)
def test_what_is_not_there_is_named(text: str, said: str) -> None:
    with pytest.raises((ImportError, AttributeError), match=said):
        module(text)


def test_names_are_all_there() -> None:
    from mcpd.compat.install import known_modules
    from mcpd.compat.names import MISSING

    for name, names in known_modules().items():
        for each in names.all():
            assert names.find(each) is not MISSING, f"{name}.{each}"


async def test_instructions_that_are_changed_once_it_serves() -> None:
    made = module("from mcp.server.lowlevel import Server\nserver = Server('a', instructions='old')").server
    server = made.__mcpd_server__()
    made.instructions = "new"
    assert (await ask(server, "2026-07-28", "server/discover"))["instructions"] == "new"
