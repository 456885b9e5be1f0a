"""Functions round the handlers of all methods: what they see, in which order, and what they may do about it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, structs
from support.ui_stage import BOTH_ERAS, each_wire
from support.wires import MODERN, OpenWire, memory_wire

from mcpd import CallNext, CallToolResult, MiddlewareRequest, Params, Result, Server, TextContent, ToolError
from mcpd.errors import InvalidParams, RegistrationError

EXTENSION = "com.example/notes"


class NoteParams(Params, kw_only=True):
    text: str


def make_server() -> Server:
    server = Server("layers")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    def echo_in_thread(text: str) -> str:
        return text

    @server.tool
    async def fail() -> str:
        raise ToolError("it failed")

    @server.resource("layers://one")
    def one() -> str:
        return "one"

    server.extension(EXTENSION)

    @server.method(f"{EXTENSION}/add", NoteParams)
    async def add(ctx: Any, params: NoteParams) -> dict[str, Any]:
        return {"added": params.text}

    return server


@BOTH_ERAS
@each_wire
async def test_it_sees_every_method_and_its_result(open_wire: OpenWire, version: str) -> None:
    server = make_server()
    seen: list[tuple[str, str, str]] = []

    @server.middleware
    async def note(request: MiddlewareRequest, call_next: CallNext) -> Result:
        assert request.context.method == request.method
        assert request.context.protocol_version == version
        result = await call_next(request)
        seen.append((request.method, type(request.params).__name__, type(result).__name__))
        return result

    async with open_wire(server, version, capabilities={"extensions": {EXTENSION: {}}}) as wire:
        assert await wire.text("echo", text="a") == "a"
        assert await wire.text("echo_in_thread", text="a") == "a"
        await wire.result("tools/list")
        await wire.result("resources/read", {"uri": "layers://one"})
        assert (await wire.result(f"{EXTENSION}/add", {"text": "b"}))["added"] == "b"
    opening = ("server/discover", "DiscoverResult") if version == MODERN else ("initialize", "InitializeResult")
    assert [(method, result) for method, _, result in seen] == [
        opening,
        ("tools/call", "CallToolResult"),
        ("tools/call", "CallToolResult"),
        ("tools/list", "ListToolsResult"),
        ("resources/read", "ReadResourceResult"),
        (f"{EXTENSION}/add", "ObjectResult"),
    ]
    assert {params for _, params, _ in seen} >= {"CallToolParams", "PageParams", "ReadResourceParams", "NoteParams"}


@BOTH_ERAS
@each_wire
async def test_it_may_change_answer_and_refuse(open_wire: OpenWire, version: str) -> None:
    server = make_server()

    @server.middleware
    async def act(request: MiddlewareRequest, call_next: CallNext) -> Result:
        if request.method != "tools/call":
            return await call_next(request)
        match request.params.name:
            case "cached":
                return CallToolResult(content=[TextContent("from the cache")])
            case "forbidden":
                raise InvalidParams("not for you")
            case "busy":
                raise ToolError("try again later")
            case "alias":
                request.params = structs.replace(request.params, name="echo", arguments=Raw(b'{"text":"changed"}'))
        result = await call_next(request)
        if isinstance(result, CallToolResult) and result.is_error:
            return structs.replace(result, content=[*result.content, TextContent("sorry")])
        return result

    async with open_wire(server, version) as wire:
        assert await wire.text("cached") == "from the cache"
        assert await wire.text("alias") == "changed"
        error = await wire.error("tools/call", {"name": "forbidden"})
        assert (error["code"], error["message"]) == (-32602, "not for you")
        busy = await wire.call("busy")
        assert busy["isError"] is True
        assert busy["content"][0]["text"] == "try again later"
        failed = await wire.call("fail")
        assert [block["text"] for block in failed["content"]] == ["it failed", "sorry"]


async def test_the_first_one_is_the_outermost() -> None:
    server = make_server()
    order: list[str] = []

    def named(name: str) -> Any:
        async def layer(request: MiddlewareRequest, call_next: CallNext) -> Result:
            if request.method == "tools/call":
                order.append(f"{name} in")
                result = await call_next(request)
                order.append(f"{name} out")
                return result
            return await call_next(request)

        return layer

    for name in ("first", "second"):
        server.middleware(named(name))

    @server.tool
    async def later() -> str:
        order.append("tool")
        return ""

    async with memory_wire(server, MODERN) as wire:
        await wire.call("later")
        server.middleware(named("third"))
        await wire.call("later")
    assert order[:5] == ["first in", "second in", "tool", "second out", "first out"]
    assert order[5:] == ["first in", "second in", "third in", "tool", "third out", "second out", "first out"]


def test_without_any_the_table_holds_the_handlers_themselves() -> None:
    server = make_server()
    assert server.handlers == server.handlers._bare
    assert all(server.handlers[method] is handler for method, handler in server.handlers._bare.items())


def test_what_is_no_middleware() -> None:
    server = make_server()
    wrong: Any = lambda request, call_next: None  # noqa: E731
    with pytest.raises(RegistrationError, match="async def"):
        server.middleware(wrong)
    for wrong in (5, "x"):
        with pytest.raises(RegistrationError, match="async def"):
            server.middleware(wrong)

    class Limiter:
        async def __call__(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
            return await call_next(request)

    server.middleware(Limiter())


async def test_a_wrong_result_is_an_error_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    async def wrong(request: MiddlewareRequest, call_next: CallNext) -> Any:
        return {"tools": []} if request.method == "tools/list" else await call_next(request)

    server.middleware(wrong)
    async with memory_wire(server, MODERN) as wire:
        assert (await wire.error("tools/list"))["code"] == -32603
    assert "wrong answered tools/list with dict, not with a Result" in caplog.text
