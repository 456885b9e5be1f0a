"""Functions round the handlers of all methods: what they see, in which order, and what they may do about it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, structs
from support.ui_stage import BOTH_ERAS, each_wire
from support.wires import LEGACY, MODERN, OpenWire, memory_wire

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
    assert "wrong returned dict for tools/list, not a Result" in caplog.text


async def test_one_method_or_several_have_theirs_and_others_their_handlers() -> None:
    server = make_server()
    seen: list[str] = []

    @server.middleware("tools/call", "resources/read", f"{EXTENSION}/add")
    async def note(request: MiddlewareRequest, call_next: CallNext) -> Result:
        seen.append(request.method)
        return await call_next(request)

    untouched = [method for method in server.handlers if server.handlers[method] is server.handlers._bare[method]]
    assert set(server.handlers) - set(untouched) == {"tools/call", "resources/read", f"{EXTENSION}/add"}
    async with memory_wire(server, MODERN, capabilities={"extensions": {EXTENSION: {}}}) as wire:
        await wire.result("tools/list")
        await wire.text("echo", text="a")
        await wire.result("resources/read", {"uri": "layers://one"})
        await wire.result(f"{EXTENSION}/add", {"text": "b"})
    assert seen == ["tools/call", "resources/read", f"{EXTENSION}/add"]


async def test_a_method_that_is_served_later_has_its_middleware_too() -> None:
    server = Server("later")
    seen: list[str] = []

    @server.middleware("prompts/get")
    async def note(request: MiddlewareRequest, call_next: CallNext) -> Result:
        seen.append(request.method)
        return await call_next(request)

    @server.prompt
    def plan(season: str) -> str:
        return season

    async with memory_wire(server, MODERN) as wire:
        await wire.result("prompts/get", {"name": "plan", "arguments": {"season": "spring"}})
    assert seen == ["prompts/get"]


@pytest.mark.parametrize("method", ["tool/call", "notifications/cancelled", "x", ""])
def test_a_method_that_is_none(method: str) -> None:
    with pytest.raises(RegistrationError, match="there is no method"):
        make_server().middleware(method)


@BOTH_ERAS
@each_wire
async def test_arguments_can_be_read_and_changed(open_wire: OpenWire, version: str) -> None:
    server = make_server()
    seen: list[dict[str, Any]] = []

    @server.prompt
    def plan(season: str) -> str:
        return season

    @server.middleware("tools/call", "prompts/get")
    async def change(request: MiddlewareRequest, call_next: CallNext) -> Result:
        seen.append(request.arguments)
        request.arguments = {name: f"{value}!" for name, value in request.arguments.items()}
        return await call_next(request)

    async with open_wire(server, version) as wire:
        assert await wire.text("echo", text="a") == "a!"
        assert await wire.text("echo_in_thread", text="é") == "é!"
        got = await wire.result("prompts/get", {"name": "plan", "arguments": {"season": "spring"}})
        assert got["messages"][0]["content"]["text"] == "spring!"
        await wire.result("tools/call", {"name": "fail"})
        error = await wire.error("tools/call", {"name": "echo", "arguments": [1]})
        assert (error["code"], error["message"]) == (-32602, "arguments must be a JSON object")
    assert seen == [{"text": "a"}, {"text": "é"}, {"season": "spring"}, {}]


@BOTH_ERAS
@each_wire
async def test_it_may_try_again(open_wire: OpenWire, version: str) -> None:
    server = Server("retries")
    tries: list[int] = []

    @server.tool
    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ToolError("not yet")
        return "done"

    @server.middleware("tools/call")
    async def retry(request: MiddlewareRequest, call_next: CallNext) -> Result:
        for _ in range(4):
            result = await call_next(request)
            if not (isinstance(result, CallToolResult) and result.is_error):
                break
        return result

    async with open_wire(server, version) as wire:
        assert await wire.text("flaky") == "done"
    assert len(tries) == 3


async def test_all_of_a_request_have_the_same_one_and_a_refusal_inside_is_a_result_outside() -> None:
    server = make_server()
    seen: list[Any] = []

    @server.middleware
    async def outer(request: MiddlewareRequest, call_next: CallNext) -> Result:
        seen.append(request)
        result = await call_next(request)
        seen.append(result)
        return result

    @server.middleware("tools/call")
    async def inner(request: MiddlewareRequest, call_next: CallNext) -> Result:
        seen.append(request)
        raise ToolError("no")

    async with memory_wire(server, MODERN) as wire:
        seen.clear()
        assert (await wire.call("echo", text="a"))["isError"]
    assert seen[0] is seen[1]
    assert isinstance(seen[2], CallToolResult)


async def test_who_calls_is_the_same_for_all_requests_of_a_connection() -> None:
    server = make_server()
    callers: list[str] = []

    @server.middleware("tools/call")
    async def note(request: MiddlewareRequest, call_next: CallNext) -> Result:
        callers.append(request.caller)
        return await call_next(request)

    for _ in range(2):
        async with memory_wire(server, MODERN) as wire, memory_wire(server, LEGACY[-1]) as other:
            for one in (wire, other, wire, other):
                await one.text("echo", text="a")
    assert callers[0] == callers[2] != callers[1] == callers[3]
