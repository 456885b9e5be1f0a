"""Servers of `fastmcp`: what they list, what they answer, and the texts of their errors, which are that library's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from compat.theirs import ask, call, served, texts
from support.wires import memory_wire

from mcpd import Server

LATEST = "2025-11-25"
NEWEST = "2026-07-28"

pytestmark = pytest.mark.usefixtures("libraries")

SERVER = """
    from dataclasses import dataclass
    from typing import Annotated
    from pydantic import BaseModel, Field
    from fastmcp import FastMCP, Context
    from fastmcp.dependencies import CurrentContext, Depends
    from fastmcp.exceptions import ToolError
    from fastmcp.prompts import Message
    from fastmcp.tools import ToolResult
    from fastmcp.utilities.types import Audio, File, Image

    mcp = FastMCP("demo")

    class Item(BaseModel):
        name: str
        n: int = Field(default=3, ge=1)

    @dataclass
    class Point:
        x: int
        y: float = 2.5

    @mcp.tool
    def add(a: int, b: int = 2) -> int:
        '''Add two numbers.

        Args:
            a: the first
            b: the second one,
                with more

        Returns:
            The sum
        '''
        return a + b

    @mcp.tool(name="renamed", tags={"y", "x"}, annotations={"readOnlyHint": True}, meta={"k": 1})
    async def other(item: Item) -> Item:
        return Item(name=item.name, n=item.n + 1)

    @mcp.tool("points")
    def several() -> list[Point]:
        return [Point(1), Point(2, 3)]

    @mcp.tool()
    def fails(told: bool = False):
        raise ToolError("told") if told else ValueError("boom")

    @mcp.tool
    def mixed():
        return ["a", Image(data=b"x"), Audio(data=b"y"), File(data=b"hello", format="txt", name="n"), {"k": 2}]

    def first(): return "d"
    def second(x: str = Depends(first)): return x + "2"

    @mcp.tool
    async def injected(q: Annotated[str, Field(max_length=3)], d: str = Depends(second), c: Context = CurrentContext()):
        return q + d + c.fastmcp.name

    @mcp.tool
    async def counted(ctx: Context) -> str:
        count = (await ctx.get_state("count") or 0) + 1
        await ctx.set_state("count", count)
        found = await ctx.read_resource("data://one")
        return f"{count} {found.contents[0].content}"

    @mcp.tool
    def whole() -> ToolResult:
        return ToolResult(content="text", structured_content={"a": 1}, meta={"m": 2})

    @mcp.tool(timeout=0.01)
    async def slow():
        import asyncio
        await asyncio.Event().wait()

    @mcp.tool(exclude_args=["hidden"])
    def hides(seen: int, hidden: str = "h") -> str:
        return f"{seen}{hidden}"

    @mcp.resource("data://one")
    def one() -> str:
        return "1"

    @mcp.resource("user://{name}/p/{n}", mime_type="text/x")
    def user(name: str, n: int) -> str:
        return f"{name} {n + 1}"

    @mcp.resource("files://{path*}{?limit,flag}")
    def files(path: str, limit: int = 10, flag: bool = False) -> dict:
        return {"path": path, "limit": limit, "flag": flag}

    @mcp.prompt
    def ask(topic: str, n: int = 2) -> str:
        return f"about {topic} {n!r}"

    @mcp.prompt("many")
    def messages(items: list[str]) -> list[Message]:
        return [Message(",".join(items)), Message({"a": 1}, role="assistant")]

    sub = FastMCP("sub")
    @sub.tool
    def t(x: int) -> int: return x
    @sub.resource("sub://r/{x}")
    def r(x: str): return "r" + x
    @sub.prompt
    def p(): return "p"
    mcp.mount(sub, "s")
"""


async def listed(server: Server, method: str) -> dict[str, Any]:
    """What is listed, by name."""
    result = await ask(server, LATEST, method)
    (items,) = (value for value in result.values() if isinstance(value, list))
    return {one["name"]: one for one in items}


@pytest.fixture
def server() -> Server:
    return served(SERVER)


async def test_tools_are_listed_as_their_functions_say(server: Server) -> None:
    tools = await listed(server, "tools/list")
    assert tools["add"] == {
        "name": "add",
        "title": "Add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "a": {"type": "integer", "description": "the first"},
                "b": {"type": "integer", "default": 2, "description": "the second one,\nwith more"},
            },
            "required": ["a"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {"result": {"type": "integer"}},
            "required": ["result"],
            "x-fastmcp-wrap-result": True,
        },
        "_meta": {"fastmcp": {"tags": []}},
    }
    assert tools["renamed"]["_meta"] == {"k": 1, "fastmcp": {"tags": ["x", "y"]}}
    assert tools["renamed"]["annotations"] == {"readOnlyHint": True}
    assert "$defs" not in json.dumps(tools)  # written where they are used
    assert list(tools["injected"]["inputSchema"]["properties"]) == ["q"]
    assert list(tools["hides"]["inputSchema"]["properties"]) == ["seen"]
    assert "outputSchema" not in tools["mixed"]
    assert "outputSchema" not in tools["whole"]


@pytest.mark.parametrize("version", ["2024-11-05", LATEST, NEWEST])
async def test_calls(version: str, server: Server) -> None:
    assert texts(await call(server, version, "add", a="5")) == ["7"]
    assert texts(await call(server, version, "points")) == ['[{"x":1,"y":2.5},{"x":2,"y":3.0}]']
    assert texts(await call(server, version, "injected", q="q")) == ["qd2demo"]
    assert texts(await call(server, version, "hides", seen=1)) == ["1h"]
    assert texts(await call(server, version, "s_t", x=4)) == ["4"]


async def test_results(server: Server) -> None:
    wrapped = await call(server, LATEST, "add", a=1)
    assert (wrapped["structuredContent"], wrapped["_meta"]) == ({"result": 3}, {"fastmcp": {"wrap_result": True}})
    assert (await call(server, LATEST, "renamed", item={"name": "n"}))["structuredContent"] == {"name": "n", "n": 4}
    whole = await call(server, LATEST, "whole")
    assert (texts(whole), whole["structuredContent"], whole["_meta"]) == (["text"], {"a": 1}, {"m": 2})
    blocks = (await call(server, LATEST, "mixed"))["content"]
    assert [block["type"] for block in blocks] == ["text", "image", "audio", "resource", "text"]
    assert blocks[3]["resource"] == {"uri": "file:///n.txt", "mimeType": "text/plain", "text": "hello"}


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("fails", {}, "Error calling tool 'fails': boom"),
        ("fails", {"told": True}, "told"),
        ("nothing", {}, "Unknown tool: 'nothing'"),
        ("add", {}, "1 validation error for call[add]\na\n  Missing required argument [type=missing_argument"),
        ("injected", {"q": "long"}, "1 validation error for call[injected]\nq\n  String should have at most 3 char"),
        ("slow", {}, "Error calling tool 'slow': Tool 'slow' execution timed out after 0.01s"),
    ],
)
async def test_errors_of_tools(name: str, arguments: dict[str, Any], text: str, server: Server) -> None:
    result = await call(server, LATEST, name, **arguments)
    assert result["isError"]
    assert texts(result)[0].startswith(text)


async def test_state_is_kept_for_the_session(server: Server) -> None:
    from support.wires import memory_wire

    async with memory_wire(server) as wire:
        await wire.open(LATEST)
        for count in (1, 2):
            answer = await wire.request("tools/call", {"name": "counted", "arguments": {}})
            assert texts(answer["result"]) == [f"{count} 1"]
    assert texts(await call(server, LATEST, "counted")) == ["1 1"]


async def read(server: Server, uri: str) -> Any:
    return await ask(server, LATEST, "resources/read", {"uri": uri})


async def test_resources(server: Server) -> None:
    assert (await read(server, "data://one"))["contents"] == [
        {"uri": "data://one", "mimeType": "text/plain", "text": "1"}
    ]
    assert (await read(server, "user://bob/p/4"))["contents"][0]["text"] == "bob 5"
    found = (await read(server, "files://a/b%20c?limit=3&flag=true"))["contents"][0]
    assert (json.loads(found["text"]), found["mimeType"]) == ({"path": "a/b c", "limit": 3, "flag": True}, "text/plain")
    assert (await read(server, "sub://s/r/5"))["contents"][0]["text"] == "r5"
    missing = await read(server, "data://none")
    assert (missing["code"], missing["message"]) == (-32602, "Resource not found: 'data://none'")
    assert (await read(server, "user://bob/p/x"))["message"].startswith("Error reading resource 'user://bob/p/x'")


async def test_prompts(server: Server) -> None:
    prompts = await listed(server, "prompts/list")
    note = 'Provide a value matching the following JSON schema: {"type":"integer"}. Encode non-string values as JSON.'
    assert prompts["ask"]["arguments"] == [
        {"name": "topic", "required": True},
        {"name": "n", "description": note, "required": False},
    ]

    async def get(name: str, **arguments: str) -> Any:
        return await ask(server, LATEST, "prompts/get", {"name": name, "arguments": arguments})

    assert (await get("ask", topic="t", n="5"))["messages"][0]["content"]["text"] == "about t 5"
    many = (await get("many", items='["a","b"]'))["messages"]
    assert [(one["role"], one["content"]["text"]) for one in many] == [("user", "a,b"), ("assistant", '{"a":1}')]
    assert (await get("s_p"))["messages"][0]["content"]["text"] == "p"
    assert await get("ask") == {"code": -32602, "message": "Missing required arguments: {'topic'}"}
    assert (await get("none"))["message"] == "Unknown prompt: 'none'"


async def test_what_is_offered_can_be_said() -> None:
    server = served("""
        from fastmcp import FastMCP
        mcp = FastMCP("m", mask_error_details=True, list_page_size=2)
        for name in "abcd":
            mcp.tool(lambda: 1 / 0, name=name, tags={"odd"} if name in "ac" else None)
        mcp.disable(tags={"odd"})
        mcp.enable(names={"c"})
        mcp.remove_tool("d")
        @mcp.tool(enabled=False)
        def off(): pass
        @mcp.tool(version="1")
        def v() -> str: return "one"
        @mcp.tool(name="v", version="1.10")
        def newer() -> str: return "ten"
        @mcp.tool(name="v", version="1.9")
        def newest() -> str: return "nine"
    """)
    first = await ask(server, LATEST, "tools/list")
    second = await ask(server, LATEST, "tools/list", {"cursor": first["nextCursor"]})
    assert [one["name"] for one in [*first["tools"], *second["tools"]]] == ["b", "c", "v"]
    assert second["tools"][0]["_meta"]["fastmcp"] == {"tags": [], "version": "1.10", "versions": ["1.10", "1.9", "1"]}
    assert texts(await call(server, LATEST, "b")) == ["Error calling tool 'b'"]  # and no more of it
    assert texts(await call(server, LATEST, "v")) == ["ten"]
    assert texts(await call(server, LATEST, "a")) == ["Unknown tool: 'a'"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("from fastmcp import FastMCPApp", "fastmcp.FastMCPApp"),
        ("import fastmcp.server.openapi", "fastmcp.server.openapi"),
        ("from fastmcp import FastMCP; FastMCP(providers=[1])", "FastMCP(providers=…)"),
        ("from fastmcp import FastMCP; FastMCP.from_openapi({})", "FastMCP.from_openapi"),
    ],
)
def test_what_there_is_not_says_so_in_a_line(text: str, what: str) -> None:
    with pytest.raises((ImportError, NotImplementedError)) as raised:
        served(text)
    assert str(raised.value) == (
        f"{what} is not supported by mcpd.compat; to run the server with fastmcp itself: --library always"
    )


def test_an_option_of_a_decorator_that_does_nothing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    served("""
        from fastmcp import FastMCP
        mcp = FastMCP("x")
        @mcp.tool(tags={"a"}, timeout=3, tag="a")
        def a() -> str: return "a"
        @mcp.prompt(task=True)
        def b() -> str: return "b"
        @mcp.resource("x://c", task=False, cache=3)
        def c() -> str: return "c"
    """)
    said = [record.getMessage().partition(" does nothing here")[0] for record in caplog.records]
    assert said == ["FunctionTool(tag=…)", "FunctionPrompt(task=…)", "FunctionResource(cache=…)"]


@pytest.mark.parametrize("version", [LATEST, NEWEST])
async def test_what_a_client_says_of_an_extension_is_not_changed_for_others(version: str) -> None:
    server = served("""
        from fastmcp import Context, FastMCP

        mcp = FastMCP("demo")

        @mcp.tool
        async def note(ctx: Context) -> list[str]:
            types = ctx.client_extension_settings("io.modelcontextprotocol/ui")["mimeTypes"]
            types.append("seen")
            return types
    """)
    offered = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
    for _ in range(2):  # programs that say the same
        async with memory_wire(server) as wire:
            await wire.open(version, offered)
            result = await wire.result("tools/call", {"name": "note", "arguments": {}})
            assert result["structuredContent"]["result"] == ["text/html;profile=mcp-app", "seen"]


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        ("dict", "{'x': [float('inf')]}", "$.x[0]"),
        ("float", "float('inf')", "$"),
        ("list[float]", "[1.0, float('inf')]", "$[1]"),
    ],
)
async def test_a_number_that_json_lacks_is_named_with_its_place(annotation: str, value: str, path: str) -> None:
    server = served(f"""
        from fastmcp import FastMCP
        mcp = FastMCP("x")
        @mcp.tool
        def a() -> {annotation}: return {value}
    """)
    result = await call(server, LATEST, "a")
    said = f"Tool result contains a non-finite float (inf) at {path}; JSON cannot represent NaN or Infinity"
    assert (texts(result), result["isError"]) == ([said], True)


@pytest.mark.parametrize(
    ("doc", "description", "text"),
    [
        ("A.\n\nRules:\n    - one\n\nLast.", "A.\n\nRules:\n    - one\n\nLast.", None),
        ("A.\n\nRules:\n    - one\n\nArgs:\n    q: x", "A.", "x"),
        ("A.\n\nNote:\n    x\n\nLast.", "A.", None),
        ("A.\n\n```\nArgs:\n    q: x\n```\nLast.", "A.\n\n```\nArgs:\n    q: x\n```\nLast.", None),
        ("Args:\n    q: x\n\nLast.", "Last.", "x"),
        ("A.\nArgs:\n    q: x", "A.\nArgs:\n    q: x", None),
        ("A.\n\nArgs:\n    q (dict[str, (a)]): x:\n         z\n       l\n\n        p\n    r", "A.", "x:\n z\nl\n\np"),
        ("A.\n\nOther Args:\n    q: x", "A.", None),
        ("A.\n\nArgs:\n    q -- x\n        y: z", "A.\n\nArgs:\n    q -- x\n        y: z", None),
        ("A.\n\nArgs:\n    q -- x\n\nReturns:\n    z", "A.", None),
        ("A.\n\nRaises:\n    z", "A.\n\nRaises:\n    z", None),
        ("A.\n\nParameters\n----------\nq : str\n    x\n\nReturns\n-------\nz", "A.", "x"),
        ("A.\n\nRules\n-----\nz", "A.\n\nRules\n-----\nz", None),
        ("A.\n\n:param q: x\n:returns: z", "A.", "x"),
    ],
)  # fmt: skip
async def test_descriptions_of_docstrings(doc: str, description: str, text: str | None) -> None:
    from fastmcp import FastMCP

    mcp = FastMCP("a")

    def tool(q: str) -> str:
        return q

    tool.__doc__ = doc
    mcp.tool(tool)
    (listed,) = (await ask(mcp.__mcpd_server__(), "2025-06-18", "tools/list"))["tools"]
    assert listed["description"] == description
    assert listed["inputSchema"]["properties"]["q"].get("description") == text


async def test_the_transform_of_what_is_visible() -> None:
    server = served("""
        from fastmcp import FastMCP
        from fastmcp.server.transforms import Visibility
        mcp = FastMCP("a", transforms=[Visibility(False, tags={"admin"}), Visibility(False)])
        for name in "abc":
            mcp.tool(lambda: 1, name=name, tags={"admin"} if name != "a" else None)
        mcp.add_transform(Visibility(True, names={"c"}))
    """)
    assert [tool["name"] for tool in (await ask(server, LATEST, "tools/list"))["tools"]] == ["a", "c"]


async def test_methods_of_version_3_that_show_fewer_tools() -> None:
    server = served("""
        from fastmcp import FastMCP
        from fastmcp.exceptions import NotFoundError

        class Fewer(FastMCP):
            async def _list_tools_mcp(self, *given):
                return [tool for tool in await super()._list_tools_mcp(*given) if tool.name != "b"]

            async def _call_tool_mcp(self, key, arguments):
                if key == "b":
                    raise NotFoundError("b")
                return await super()._call_tool_mcp(key, arguments)

        mcp = Fewer("x")
        for name in "ab":
            mcp.tool(lambda: "called", name=name)
    """)
    assert [tool["name"] for tool in (await ask(server, LATEST, "tools/list"))["tools"]] == ["a"]
    assert texts(await call(server, LATEST, "a")) == ["called"]
    assert texts(await call(server, LATEST, "b")) == ["Unknown tool: 'b'"]


def test_lines_of_a_docstring_that_the_library_drops_are_named(caplog: pytest.LogCaptureFixture) -> None:
    from fastmcp import FastMCP  # type: ignore[import-not-found]

    def find(sql: str, most: int = 3) -> str:
        """Find it.

        Args:
            - sql: what to look for
              in which dialect
            most: how many
        """
        return sql

    FastMCP("x").tool(find)
    (message,) = caplog.messages
    assert message.startswith("function find: the line '- sql: what to look for' of its docstring reaches no client")
