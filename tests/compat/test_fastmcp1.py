"""Servers of `mcp.server.fastmcp`, version 1, as their authors write them, asked in every protocol version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compat.theirs import ask, call, module, served, texts
from support.wires import each_version

pytestmark = pytest.mark.usefixtures("libraries")


TOOLS = """
    from typing import Annotated, Literal, TypedDict
    from dataclasses import dataclass
    from mcp.server.fastmcp import Context, FastMCP, Image
    from mcp.types import CallToolResult, TextContent, ToolAnnotations
    from pydantic import BaseModel, Field

    mcp = FastMCP("Demo", instructions="Be kind")

    class Weather(BaseModel):
        degrees: float = Field(description="Celsius")
        alerts: list[str] = []

    @mcp.tool()
    def add(a: int, b: int = 3) -> int:
        "Adds."
        return a + b

    @mcp.tool(name="report", title="Report", annotations=ToolAnnotations(readOnlyHint=True), meta={"x": 1})
    async def make_report(city: str, ctx: Context) -> Weather:
        await ctx.info("looking")
        await ctx.report_progress(1, 2, "half")
        return Weather(degrees=1.5, alerts=[city])

    @mcp.tool()
    def names(items: list[str]) -> list[str]:
        return items

    @mcp.tool()
    def raw(value, copy: int = 1) -> dict:
        return {"value": value, "copy": copy}

    @mcp.tool()
    def picture() -> Image:
        return Image(data=b"abc", format="png")

    @mcp.tool()
    def nothing() -> None: ...

    @mcp.tool()
    def own() -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="own")], _meta={"y": 2})

    @mcp.tool()
    def fails(kind: Literal["plain", "odd"] = "plain") -> str:
        raise KeyError("gone") if kind == "odd" else ValueError("boom")

    @mcp.tool(structured_output=False)
    def plain() -> int:
        return 5
"""


@each_version
async def test_tools_are_listed_with_the_schemas_of_their_library(version: str) -> None:
    result = await ask(served(TOOLS), version, "tools/list")
    tools = {tool["name"]: tool for tool in result["tools"]}
    assert tools["add"]["description"] == "Adds."
    assert tools["add"]["inputSchema"] == {
        "type": "object",
        "title": "addArguments",
        "properties": {
            "a": {"title": "A", "type": "integer"},
            "b": {"title": "B", "type": "integer", "default": 3},
        },
        "required": ["a"],
    }
    assert tools["raw"]["inputSchema"]["properties"] == {
        "value": {"title": "value", "type": "string"},
        "copy": {"title": "Copy", "type": "integer", "default": 1},
    }
    assert list(tools["report"]["inputSchema"]["properties"]) == ["city"]
    if "outputSchema" in tools["add"]:
        assert tools["add"]["outputSchema"]["properties"] == {"result": {"title": "Result", "type": "integer"}}
        assert tools["report"]["outputSchema"]["title"] == "Weather"
        assert [name for name, tool in tools.items() if "outputSchema" not in tool] == [
            "raw",
            "picture",
            "own",
            "plain",
        ]


@each_version
async def test_results_become_content_as_theirs(version: str) -> None:
    server = served(TOOLS)
    assert texts(await call(server, version, "add", a="2")) == ["5"]
    assert texts(await call(server, version, "names", items=["x", "y"])) == ["x", "y"]
    assert texts(await call(server, version, "names", items='["x"]')) == ["x"]
    assert texts(await call(server, version, "raw", value="v")) == ['{\n  "value": "v",\n  "copy": 1\n}']
    assert (await call(server, version, "nothing"))["content"] == []
    assert (await call(server, version, "picture"))["content"] == [
        {"type": "image", "data": "YWJj", "mimeType": "image/png"}
    ]
    own = await call(server, version, "own")
    assert texts(own) == ["own"]
    assert own["_meta"]["y"] == 2
    report = await call(server, version, "report", city="Paris")
    assert texts(report) == ['{\n  "degrees": 1.5,\n  "alerts": [\n    "Paris"\n  ]\n}']
    assert report.get("structuredContent", {"degrees": 1.5, "alerts": ["Paris"]}) == {
        "degrees": 1.5,
        "alerts": ["Paris"],
    }


@each_version
async def test_failures_reach_the_model_in_the_words_of_their_library(version: str) -> None:
    server = served(TOOLS)
    failed = await call(server, version, "fails")
    assert (texts(failed), failed["isError"]) == (["Error executing tool fails: boom"], True)
    assert texts(await call(server, version, "fails", kind="odd")) == ["Error executing tool fails: 'gone'"]
    assert texts(await call(server, version, "nope")) == ["Unknown tool: nope"]
    missing = texts(await call(server, version, "add"))[0]
    assert missing.startswith("Error executing tool add: 1 validation error for addArguments\na\n  Field required")


OFFERINGS = """
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.server.fastmcp.prompts import base
    from mcp.server.fastmcp.resources import TextResource
    from mcp.types import Completion, PromptReference

    mcp = FastMCP("Demo")
    mcp.add_resource(TextResource(uri="note://today", name="today", text="rain"))

    @mcp.resource("config://app", mime_type="application/json")
    def config() -> dict:
        return {"a": 1}

    @mcp.resource("greeting://{name}")
    async def greeting(name: str, ctx: Context) -> str:
        return f"Hi {name}, {ctx.fastmcp.name}"

    @mcp.resource("broken://x")
    def broken() -> str:
        raise RuntimeError("no")

    @mcp.prompt(title="Review")
    def review(code: str, language: str = "py") -> list[base.Message]:
        "Reviews."
        return [base.UserMessage(f"Review {code}"), base.AssistantMessage(language)]

    @mcp.prompt()
    def short(topic: str):
        return topic

    @mcp.completion()
    async def complete(ref, argument, context):
        if isinstance(ref, PromptReference) and argument.name == "language":
            return Completion(values=["python"], hasMore=False)
        return None
"""


@each_version
async def test_resources(version: str) -> None:
    server = served(OFFERINGS)
    listed = (await ask(server, version, "resources/list"))["resources"]
    assert [one["uri"] for one in listed] == ["note://today", "config://app", "broken://x"]
    templates = (await ask(server, version, "resources/templates/list"))["resourceTemplates"]
    assert templates[0]["uriTemplate"] == "greeting://{name}"

    async def read(uri: str) -> Any:
        return await ask(server, version, "resources/read", {"uri": uri})

    assert (await read("note://today"))["contents"] == [
        {"uri": "note://today", "mimeType": "text/plain", "text": "rain"}
    ]
    assert (await read("config://app"))["contents"][0]["text"] == '{\n  "a": 1\n}'
    assert (await read("greeting://ann"))["contents"][0]["text"] == "Hi ann, Demo"
    assert (await read("broken://x"))["message"] == "Error reading resource broken://x: no"
    assert (await read("no://such"))["message"] == "Unknown resource: no://such"


@each_version
async def test_prompts_and_completion(version: str) -> None:
    server = served(OFFERINGS)
    prompts = {one["name"]: one for one in (await ask(server, version, "prompts/list"))["prompts"]}
    assert prompts["review"]["arguments"] == [
        {"name": "code", "required": True},
        {"name": "language", "required": False},
    ]
    got = await ask(server, version, "prompts/get", {"name": "review", "arguments": {"code": "x"}})
    assert got["description"] == "Reviews."
    assert [(one["role"], one["content"]["text"]) for one in got["messages"]] == [
        ("user", "Review x"),
        ("assistant", "py"),
    ]
    missing = await ask(server, version, "prompts/get", {"name": "review", "arguments": {}})
    assert missing["message"] == "Missing required arguments: {'code'}"
    found = await ask(
        server,
        version,
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language", "value": "p"}},
    )
    assert found["completion"]["values"] == ["python"]


@each_version
async def test_without_completion_its_method_is_not_found(version: str) -> None:
    """It said that the prompt is unknown, which there is."""
    server = served(
        "from mcp.server.fastmcp import FastMCP\nmcp = FastMCP('t')\n@mcp.prompt()\ndef p(x: str): return x"
    )
    argument = {"name": "x", "value": "p"}
    refused = await ask(
        server, version, "completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": argument}
    )
    assert refused["code"] == -32601


def test_decorators_without_parentheses_say_so() -> None:
    for decorator in ("tool", "prompt", "resource"):
        with pytest.raises(TypeError, match=f"The @{decorator} decorator was used incorrectly"):
            module(f"""
                from mcp.server.fastmcp import FastMCP
                mcp = FastMCP("a")
                @mcp.{decorator}
                def f(): ...
            """)


async def test_the_lifespan_is_opened_once_and_its_value_is_in_the_context() -> None:
    theirs = module("""
        from contextlib import asynccontextmanager
        from mcp.server.fastmcp import Context, FastMCP
        opened = []

        @asynccontextmanager
        async def life(server):
            opened.append(server)
            yield {"db": "open"}

        mcp = FastMCP("a", lifespan=life)

        @mcp.tool()
        def look(ctx: Context) -> str:
            return ctx.request_context.lifespan_context["db"]
    """)
    server = theirs.mcp.__mcpd_server__()
    assert texts(await call(server, "2025-06-18", "look")) == ["open"]
    assert theirs.opened == [theirs.mcp]
    await server.aclose()


async def test_plain_functions_run_one_after_another_on_the_thread_of_the_event_loop() -> None:
    server = served("""
        import threading
        from mcp.server.fastmcp import FastMCP
        mcp = FastMCP("a")

        @mcp.tool()
        def where() -> str:
            return threading.current_thread().name
    """)
    assert texts(await call(server, "2025-06-18", "where")) == ["MainThread"]


async def test_in_threads_if_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPD_COMPAT_THREADS", "1")
    server = served("""
        import threading
        from mcp.server.fastmcp import FastMCP
        mcp = FastMCP("a")

        @mcp.tool()
        def where() -> bool:
            return threading.current_thread() is threading.main_thread()
    """)
    assert texts(await call(server, "2025-06-18", "where")) == ["false"]


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_PORT", "9000")
    monkeypatch.setenv("FASTMCP_DEPENDENCIES", '["x"]')
    mcp = module("""
        from mcp.server.fastmcp import FastMCP
        mcp = FastMCP("a", host="0.0.0.0", stateless_http=True, dependencies=("pandas",))
    """).mcp
    assert (mcp.settings.host, mcp.settings.port, mcp.settings.stateless_http) == ("0.0.0.0", 9000, True)
    assert (mcp.dependencies, mcp.settings.streamable_http_path) == (["pandas"], "/mcp")
    mcp.settings.port = 1
    with pytest.raises(TypeError, match="unexpected keyword argument 'prot'"):
        module("from mcp.server.fastmcp import FastMCP\nFastMCP('a', prot=1)")


async def test_what_tests_of_such_servers_call() -> None:
    mcp = module(TOOLS).mcp
    assert [tool.name for tool in await mcp.list_tools()][:2] == ["add", "report"]
    blocks, structured = await mcp.call_tool("add", {"a": 1})
    assert (blocks[0].text, structured) == ("4", {"result": 4})
    mcp.remove_tool("add")
    from mcp.server.fastmcp.exceptions import ToolError  # type: ignore[import-not-found]

    with pytest.raises(ToolError, match="Unknown tool: add"):
        await mcp.call_tool("add", {"a": 1})


def test_files_and_folders_as_resources(tmp_path: Path) -> None:
    from mcp.server.fastmcp.resources import DirectoryResource, FileResource  # type: ignore[import-not-found]

    (tmp_path / "a.txt").write_text("hello")
    import asyncio

    assert asyncio.run(FileResource(uri="file:///a", path=tmp_path / "a.txt").read()) == "hello"
    assert '"a.txt"' in asyncio.run(DirectoryResource(uri="dir:///a", path=tmp_path).read())
    with pytest.raises(ValueError, match="Path must be absolute"):
        FileResource(uri="file:///a", path="a.txt")
