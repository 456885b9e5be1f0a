"""Rules that no other test is about, each in a few lines.

Spec: 2025-11-25 and 2026-07-28, the pages that the numbers stand for in protocol-versions.md, section 7.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec import Struct
from support.wires import LEGACY, META, MODERN, Wire, each_legacy, each_version, memory_wire

from mcpd import Context, Server

NEWEST_LEGACY = LEGACY[-1]
SECRET = "hunter2 of somebody@example.com"


class Name(Struct):
    name: str


def make_server(**settings: Any) -> Server:
    server = Server("t", **settings)

    @server.tool
    async def echo(text: str = "") -> str:
        return text

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Who?", Name, key="who")).get().name

    @server.tool
    async def sample(ctx: Context) -> str:
        return (await ctx.sample(SECRET)).text

    @server.tool
    async def crash() -> None:
        raise RuntimeError(SECRET)

    @server.prompt
    async def bad_prompt() -> str:
        raise RuntimeError(SECRET)

    @server.resource("test://bad")
    async def bad_resource() -> str:
        raise RuntimeError(SECRET)

    for number in range(5):
        server.add_prompt(lambda: "", name=f"p{number}")
        server.add_text(f"test://{number}", "", name="r")
        server.resource(f"test://{number}/{{x}}", name="t")(lambda x: "")
    return server


LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


@each_version
async def test_values_at_reserved_meta_keys_are_not_relied_upon(version: str) -> None:
    """S25-017, S26-026: whatever stands there, the request is served; a token that is none is bad params."""
    odd = {"io.modelcontextprotocol/related-task": 5, "dev.mcp/x": None, "com.mcp.tools/y": [], "traceparent": {}}
    async with memory_wire(make_server(), version) as wire:
        assert (await wire.call("echo", odd, text="x"))["content"][0]["text"] == "x"


@each_version
async def test_nothing_of_ours_carries_trace_keys(version: str) -> None:
    """S26-035: mcpd makes up no trace context, and passes none on."""
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", "tracestate": "a=b"}
    async with memory_wire(make_server(), version) as wire:
        assert "trace" not in str(await wire.call("echo", trace))


@each_version
async def test_lists_depend_on_nothing_that_was_said_before(version: str) -> None:
    """S26-104, S26-105, S26-113, S26-114, S26-122, S26-123: the same for every connection, before and after calls."""
    server = make_server()
    seen = []
    for _ in range(2):
        async with memory_wire(server, version) as wire:
            for _ in range(2):
                seen.append([await wire.result(method) for method in LISTS])
                await wire.call("echo")
                await wire.request("prompts/get", {"name": "p1"})
                await wire.request("resources/read", {"uri": "test://1"})
    assert all(lists == seen[0] for lists in seen)
    assert all(result[LISTS[method]] for method, result in zip(LISTS, seen[0], strict=True))


@pytest.mark.parametrize("method", LISTS)
async def test_all_pages_of_a_list_have_one_scope(method: str) -> None:
    """S26-128, S26-129, S26-130, S26-131: private, unless somebody who knows better says otherwise."""
    async with memory_wire(make_server(page_size=2), MODERN) as wire:
        cursor: dict[str, Any] = {}
        hints, number = set(), 0
        while True:
            page = await wire.result(method, cursor)
            hints.add((page["ttlMs"], page["cacheScope"]))
            number += len(page[LISTS[method]])
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert hints == {(0, "private")}
        assert number > 2


@each_version
async def test_failures_are_logged_here_and_say_nothing_to_the_client(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S25-061, S25-077, S25-078, S25-079, S26-111, S26-141, S26-142, S26-143: no log message that no author sent."""
    meta = {f"{META}logLevel": "debug"} if version == MODERN else None
    async with memory_wire(make_server(), version) as wire:
        if version != MODERN:
            await wire.result("logging/setLevel", {"level": "debug"})
        answers = [
            await wire.request("tools/call", {"name": "crash"}, meta=meta),
            await wire.request("prompts/get", {"name": "bad_prompt"}, meta=meta),
            await wire.request("resources/read", {"uri": "test://bad"}, meta=meta),
        ]
        assert SECRET not in str(answers)
        assert "rules.py" not in str(answers)
        assert not wire.heard
        assert caplog.text.count(SECRET) >= 3  # the author finds it


@pytest.mark.parametrize("version", [NEWEST_LEGACY, MODERN])
async def test_what_users_and_models_say_is_not_logged(version: str, caplog: pytest.LogCaptureFixture) -> None:
    """S25-084, S26-149: neither questions nor answers stand in the server's own log."""
    said = {"role": "assistant", "content": {"type": "text", "text": SECRET}, "model": "m"}
    named = {"action": "accept", "content": {"name": SECRET}}
    capabilities = {"sampling": {}, "elicitation": {}}
    with caplog.at_level(logging.DEBUG):
        async with memory_wire(make_server(), version, capabilities=capabilities) as wire:
            for tool, answer in (("sample", said), ("ask", named)):
                if version == MODERN:
                    first = await wire.result("tools/call", {"name": tool})
                    (key,) = first["inputRequests"]
                    again = {"name": tool, "inputResponses": {key: answer}, "requestState": first["requestState"]}
                    result = await wire.result("tools/call", again)
                else:
                    call = wire.ask("tools/call", {"name": tool})
                    question = await wire.receive()
                    wire.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
                    result = (await wire.answer(call))["result"]
                assert result["content"][0]["text"] == SECRET
    assert SECRET not in caplog.text


async def test_a_question_is_answered_by_who_was_asked_and_nobody_else() -> None:
    """S25-092, S25-098, S25-099, S25-106: it lives with the one call; the same id elsewhere is no answer to it."""
    server = make_server()
    capabilities = {"elicitation": {}}
    async with (
        memory_wire(server, NEWEST_LEGACY, capabilities=capabilities) as ada,
        memory_wire(server, NEWEST_LEGACY, capabilities=capabilities) as eve,
    ):
        call = ada.ask("tools/call", {"name": "ask"})
        question = await ada.receive()
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Eve"}}}
        eve.send(answer)
        await eve.quiet()
        await ada.quiet()
        ada.send({**answer, "result": {"action": "accept", "content": {"name": "Ada"}}})
        assert (await ada.answer(call))["result"]["content"][0]["text"] == "Ada"
        # Nothing of it is kept.
        outgoing = ada.connection._outgoing
        assert outgoing is not None
        assert not outgoing.pending
        assert not ada.connection.session.in_flight


@each_legacy
async def test_our_requests_name_no_progress_token(version: str) -> None:
    """S25-048, S25-049: so none can be taken for another's."""
    async with memory_wire(make_server(), version, capabilities={"sampling": {}}) as wire:
        call = wire.ask("tools/call", {"name": "sample"})
        question = await wire.receive()
        assert "_meta" not in question["params"]
        wire.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": 0, "message": "no"}})
        await wire.answer(call)


@each_legacy
@pytest.mark.parametrize("code", [-32000, -32002, -32019, -32042, -32601, -1, 0, 7])
async def test_codes_of_the_client_have_no_meaning_here(version: str, code: int) -> None:
    """S26-011: whatever its code, an error of the client is an answer that did not come."""
    async with memory_wire(make_server(), version, capabilities={"sampling": {}}) as wire:
        call = wire.ask("tools/call", {"name": "sample"})
        question = await wire.receive()
        wire.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": code, "message": "no", "data": [1]}})
        result = (await wire.answer(call))["result"]
        assert result["isError"] is True
        assert result["content"][0]["text"].endswith("no")


@each_version
async def test_uris_are_validated_before_they_are_looked_up(version: str) -> None:
    """S25-064, S26-118: what is no URI of a resource here is not found, whatever it looks like."""
    async with memory_wire(make_server(), version) as wire:
        for uri in (
            "",
            " ",
            "/etc/passwd",
            "file:///etc/passwd",
            "test:",
            "test://1/../2",
            "test://1/a/b",
            "test://\u0000",
        ):
            error = await wire.error("resources/read", {"uri": uri})
            assert error["code"] == (-32602 if version == MODERN else -32002)


async def all_messages(wire: Wire) -> list[Any]:
    """One of each kind of message that a server sends by itself."""
    await wire.call("echo", {"progressToken": 1})
    await wire.request("no/such/method")
    return wire.heard


@each_version
@pytest.mark.usefixtures("shared")
async def test_every_message_is_json_rpc(version: str) -> None:
    """S25-002, S25-009, S25-012, S26-002, S26-008, S26-017: version, id and members, as the wire checks them of all."""
    from support.wire_schema import Conversation, SchemaViolation

    async with memory_wire(make_server(), version) as wire:
        await all_messages(wire)
        assert wire.talk.seen
    for wrong in (
        {"id": 1, "result": {}},
        {"jsonrpc": "1.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "error": {"message": "no code"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": "1", "message": "x"}},
        {"jsonrpc": "2.0", "id": 7, "method": "notifications/message", "params": {"level": "info", "data": 1}},
    ):
        talk = Conversation()
        talk.client({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        with pytest.raises(SchemaViolation):
            talk.server(wrong)


@each_version
async def test_an_extension_that_only_we_have_changes_nothing(version: str) -> None:
    """S26-041: a client without Apps gets the tools as they are."""
    server = make_server()
    server.app("ui://t/view", "<!doctype html><title>t</title>")
    server.add_tool(lambda: "plain text", name="shown", ui="ui://t/view")
    async with memory_wire(server, version) as wire:
        tool = next(tool for tool in (await wire.result("tools/list"))["tools"] if tool["name"] == "shown")
        assert tool.keys() == {"name", "inputSchema"}
        assert await wire.text("shown") == "plain text"
        assert (await wire.request("resources/read", {"uri": "ui://t/view"})).keys() >= {"error"}


# ------------------------------------------------------------------------- tasks, before there are any

TASKS = "io.modelcontextprotocol/tasks"


@each_version
async def test_a_client_that_knows_tasks_gets_plain_results(version: str) -> None:
    """S25-115, S26-188, S26-204, S26-206, S26-207: `task` in the params of a call changes nothing."""
    capabilities = {"extensions": {TASKS: {}}, "tasks": {"list": {}, "cancel": {}}}
    async with memory_wire(make_server(), version, capabilities=capabilities) as wire:
        result = await wire.result("tools/call", {"name": "echo", "arguments": {"text": "x"}, "task": {"ttl": 60_000}})
        assert result["content"] == [{"type": "text", "text": "x"}]
        assert "task" not in result
        assert "taskId" not in result


@each_version
async def test_tasks_are_not_offered(version: str) -> None:
    """S26-203, S26-205: neither by a capability nor by a method."""
    async with memory_wire(make_server()) as wire:
        capabilities = (await wire.open(version))["capabilities"]
        assert "tasks" not in capabilities
        assert TASKS not in capabilities.get("extensions", {})
        for method in ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update"):
            assert (await wire.error(method, {"taskId": "x"}))["code"] == -32601
