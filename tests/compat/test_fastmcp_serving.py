"""Servers of `fastmcp`: lifespans, middleware, what they ask and tell, their client, and HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from compat.theirs import call, module, served, texts
from support.wires import memory_wire

from mcpd import Callbacks, Client, CreateMessageResult, ElicitResult, TextContent

LATEST = "2025-11-25"
NEWEST = "2026-07-28"

pytestmark = pytest.mark.usefixtures("libraries")


def text(result: Any) -> str:
    found: str = result.content[0].text
    return found


async def test_lifespans_of_mounted_servers_too() -> None:
    made = module("""
        from fastmcp import Context, FastMCP
        from fastmcp.server.lifespan import lifespan
        events = []

        @lifespan
        async def first(server):
            events.append("open " + server.name)
            yield {"a": 1}
            events.append("closed")

        @lifespan
        async def second(server):
            yield {"b": 2}

        sub = FastMCP("sub", lifespan=first)
        mcp = FastMCP("m", lifespan=first | second)
        mcp.mount(sub)

        @mcp.tool
        def both(ctx: Context) -> dict:
            return ctx.lifespan_context
    """)
    async with Client(made.mcp.__mcpd_server__()) as client:
        assert (await client.call_tool("both")).structured_content == {"a": 1, "b": 2}
        assert made.events == ["open m", "open sub"]
    assert made.events[2:] == ["closed", "closed"]


MIDDLEWARE = """
    from fastmcp import FastMCP
    from fastmcp.exceptions import ToolError
    from fastmcp.server.middleware import Middleware, MiddlewareContext
    from fastmcp.server.middleware.caching import ResponseCachingMiddleware
    from fastmcp.server.middleware.error_handling import ErrorHandlingMiddleware, RetryMiddleware
    from fastmcp.server.middleware.logging import StructuredLoggingMiddleware
    from fastmcp.server.middleware.rate_limiting import RateLimitingMiddleware, SlidingWindowRateLimitingMiddleware
    from fastmcp.server.middleware.response_limiting import ResponseLimitingMiddleware
    from fastmcp.server.middleware.timing import DetailedTimingMiddleware, TimingMiddleware

    mcp = FastMCP("m")
    seen, runs = [], []

    class Watching(Middleware):
        async def on_message(self, context: MiddlewareContext, call_next):
            seen.append(context.method)
            return await call_next(context)

        async def on_call_tool(self, context, call_next):
            if context.message.name == "forbidden":
                raise ToolError("no")
            changed = {**context.message.arguments, "word": "changed"}
            result = await call_next(context.copy(message=context.message.model_copy(update={"arguments": changed})))
            result.structured_content = {"result": result.structured_content["result"].upper()}
            return result

        async def on_list_tools(self, context, call_next):
            return [tool for tool in await call_next(context) if tool.name != "hidden"]

    @mcp.tool
    def echo(word: str) -> str:
        runs.append(word)
        if word == "twice" and len(runs) < 2:
            raise ConnectionError("again")
        return word

    @mcp.tool
    def hidden() -> str: return "h" * 4000
"""


async def test_middleware_sees_and_changes() -> None:
    made = module(MIDDLEWARE)
    made.mcp.add_middleware(made.Watching())
    async with Client(made.mcp.__mcpd_server__()) as client:
        assert [tool.name for tool in await client.list_tools()] == ["echo"]
        assert (await client.call_tool("echo", {"word": "x"})).structured_content == {"result": "CHANGED"}
        assert text(await client.call_tool("forbidden")) == "no"
    assert [method for method in made.seen if method == "tools/call"] == ["tools/call"] * 2


async def test_the_ready_middleware(caplog: pytest.LogCaptureFixture) -> None:
    made = module(MIDDLEWARE)
    caplog.set_level("INFO")
    limits = made.ResponseLimitingMiddleware(max_size=500)
    for one in (made.TimingMiddleware(), made.DetailedTimingMiddleware(), limits,
                made.StructuredLoggingMiddleware(include_payloads=True), made.ResponseCachingMiddleware(),
                made.RetryMiddleware(base_delay=0)):  # fmt: skip
        made.mcp.add_middleware(one)
    async with Client(made.mcp.__mcpd_server__()) as client:
        for _ in range(2):
            assert text(await client.call_tool("echo", {"word": "twice"})) == "twice"
        assert text(await client.call_tool("hidden")).endswith("[Response truncated due to size limit]")
    assert made.runs == ["twice", "twice"]  # tried again once, then kept
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("Tool 'echo' completed in ") for line in lines)
    assert any('"event": "request_success"' in line for line in lines)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("RateLimitingMiddleware(0.001, burst_capacity=1)", "Rate limit exceeded for client: global"),
        ("SlidingWindowRateLimitingMiddleware(1)", "Rate limit exceeded: 1 requests per 1 minutes for client: global"),
    ],
)  # fmt: skip
async def test_limits_of_requests(limit: str, message: str) -> None:
    made = module(MIDDLEWARE)
    made.mcp.add_middleware(eval(f"made.{limit}", {"made": made}))
    async with memory_wire(made.mcp.__mcpd_server__()) as wire:
        await wire.open(LATEST)
        await wire.request("tools/call", {"name": "echo", "arguments": {"word": "a"}})
        answer = await wire.request("tools/call", {"name": "echo", "arguments": {"word": "a"}})
        assert answer["error"] == {"code": -32000, "message": message}


async def test_errors_become_codes() -> None:
    made = module(MIDDLEWARE)
    handling = made.ErrorHandlingMiddleware()
    made.mcp.add_middleware(handling)
    async with memory_wire(made.mcp.__mcpd_server__()) as wire:
        await wire.open(LATEST)
        answer = await wire.request("resources/read", {"uri": "none://x"})
        assert answer["error"]["code"] == -32002
    assert handling.get_error_stats() == {"NotFoundError:resources/read": 1}


ASKS = """
    from dataclasses import dataclass
    from fastmcp import Context, FastMCP
    mcp = FastMCP("asks")

    @dataclass
    class Booking:
        day: str
        guests: int = 2

    @mcp.tool
    async def book(ctx: Context) -> str:
        answer = await ctx.elicit("When?", response_type=Booking)
        return f"{answer.data.day} {answer.data.guests}" if answer.action == "accept" else answer.action

    @mcp.tool
    async def choose(ctx: Context) -> str:
        return (await ctx.elicit("Which?", ["red", "blue"])).data

    @mcp.tool
    async def poem(ctx: Context) -> str:
        return (await ctx.sample("a poem", max_tokens=5)).text

    @mcp.tool
    async def opens(ctx: Context) -> str:
        await ctx.enable_components(names={"secret"})
        return "open"

    @mcp.tool(enabled=False)
    def secret() -> str: return "s"
"""


@pytest.mark.parametrize("version", [LATEST, NEWEST])
async def test_questions(version: str) -> None:
    async def elicit(params: Any) -> ElicitResult:
        members = params.requested_schema["properties"]
        return ElicitResult(action="accept", content={"value": "blue"} if "value" in members else {"day": "Monday"})

    async def sample(_: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent("roses"), model="m")

    async with Client(served(ASKS), Callbacks(elicit_form=elicit, sample=sample), version=version) as client:
        assert text(await client.call_tool("book")) == "Monday 2"
        assert text(await client.call_tool("choose")) == "blue"
        assert text(await client.call_tool("poem")) == "roses"


async def test_several_of_some_texts_are_asked_for_as_texts() -> None:
    asked: list[Any] = []

    async def elicit(params: Any) -> ElicitResult:
        asked.append(params.requested_schema["properties"]["value"])
        return ElicitResult(action="accept", content={"value": ["a"]})

    server = served("""
        from fastmcp import Context, FastMCP
        mcp = FastMCP("x")
        @mcp.tool
        async def pick(ctx: Context) -> str:
            return str((await ctx.elicit("Which?", response_type=[["a", "b"]])).data)
    """)
    async with Client(server, Callbacks(elicit_form=elicit), version=LATEST) as client:
        assert text(await client.call_tool("pick")) == "['a']"
    assert asked == [{"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}]


async def test_what_a_session_is_offered_can_change() -> None:
    server = served(ASKS)
    async with Client(server, version=LATEST) as client:
        assert "secret" not in {tool.name for tool in await client.list_tools()}
        await client.call_tool("opens")
        assert text(await client.call_tool("secret")) == "s"
    assert texts(await call(server, LATEST, "secret")) == ["Unknown tool: 'secret'"]


async def test_its_client_asks_a_server_in_the_same_process() -> None:
    made = module("""
        from fastmcp import Client, FastMCP
        from fastmcp.exceptions import ToolError
        mcp = FastMCP("m")

        @mcp.tool
        def add(a: int, b: int) -> int: return a + b

        @mcp.resource("r://{x}")
        def r(x: str) -> str: return x

        @mcp.prompt
        def p(n: int) -> str: return f"{n + 1}"

        async def main():
            async with Client(mcp) as client:
                await client.ping()
                result = await client.call_tool("add", {"a": 1, "b": 2})
                try:
                    await client.call_tool("add", {"a": "x"})
                except ToolError as error:
                    failed = str(error)
                read = (await client.read_resource("r://5"))[0].text
                said = (await client.get_prompt("p", {"n": 1})).messages[0].content.text
                names = [one.name for one in [*await client.list_tools(), *await client.list_resource_templates(),
                                              *await client.list_prompts(), *await client.list_resources()]]
                return result.data, failed, read, said, names
    """)
    data, failed, read, said, names = await asyncio.wait_for(made.main(), 20)
    assert (data, read, said, names) == (3, "5", "2", ["add", "r", "p"])
    assert failed.startswith("2 validation errors for call[add]")
