"""A search instead of a long list of tools, resources as tools, and hints for hosts that search themselves."""

from __future__ import annotations

import json
import tracemalloc
from time import process_time
from typing import Any

import pytest
from conftest import Child
from msgspec import Struct
from support.ui_stage import BOTH_ERAS
from support.wires import MODERN, memory_wire, process_wire

from mcpd import Context, Server
from mcpd.errors import ConfigurationError, RegistrationError
from mcpd.protocol.types.features import Tool
from mcpd.server.extensions.catalogue import Catalogue
from mcpd.server.extensions.tool_search import ToolIndex


class Confirmation(Struct):
    confirmed: bool


OURS = ["search_tools", "call_tool", "call_read_only_tool"]


def make_server(**options: Any) -> Server:
    server = Server("shop", extensions=[Catalogue(**{"tool_search": "always", **options})])

    @server.tool(tags={"orders"}, annotations={"readOnlyHint": True})
    def list_orders(status: str = "open") -> list[str]:
        """List what customers have bought."""
        return [status]

    @server.tool(search_hint="money back")
    async def refundOrder(order: int, ctx: Context) -> str:  # noqa: N802
        """Give an order back."""
        answer = await ctx.elicit(f"Refund {order}?", Confirmation)
        return f"refunded {order}: {answer.action}"

    @server.tool(always_load=True)
    def hello() -> str:
        """Say hello."""
        return "hello"

    @server.tool(visibility=["app"], ui="ui://shop/chart")
    def refresh() -> str:
        """Refresh the orders of the chart."""
        return "fresh"

    server.app("chart", "<!doctype html><html><body>chart</body></html>")
    server.add_text("notes://today", "Water the beans.", name="today")
    server.add_text("notes://dot", b"\x89PNG", name="dot", mime_type="image/png")

    @server.resource("notes://{day}")
    def note(day: str) -> str:
        """The note of a day."""
        return day

    return server


async def names(wire: Any) -> list[str]:
    return [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]


# ------------------------------------------------------------------------------------------ hints for hosts


@BOTH_ERAS
async def test_hints_and_groups_are_in_the_metadata(version: str) -> None:
    async with memory_wire(make_server(tool_search="off"), version) as wire:
        tools = {tool["name"]: tool.get("_meta", {}) for tool in (await wire.result("tools/list"))["tools"]}
    assert tools["refundOrder"] == {"anthropic/searchHint": "money back"}
    assert tools["hello"] == {"anthropic/alwaysLoad": True}
    assert tools["list_orders"] == {"fastmcp": {"tags": ["orders"]}, "io.modelcontextprotocol/groups": ["orders"]}


def test_a_hint_is_words() -> None:
    for hint in ("", " ", 5):
        with pytest.raises(RegistrationError, match="search_hint: expected words"):
            Server("x").add_tool(lambda: "", name="a", search_hint=hint)  # type: ignore[arg-type]
    for mode in ("on", "auto", "auto:x", ""):
        with pytest.raises(ConfigurationError, match="tool_search must be off, always or auto:N"):
            Catalogue(tool_search=mode)


# ------------------------------------------------------------------------------------------ the search


@BOTH_ERAS
async def test_the_list_has_pinned_tools_and_three_others(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        assert await names(wire) == ["hello", *OURS]
        found = (await wire.call("search_tools", query="orders customers"))["structuredContent"]["tools"]
        assert [tool["name"] for tool in found] == ["list_orders", "refundOrder"]
        assert found[0]["inputSchema"]["properties"]["status"]["default"] == "open"
        assert found[0]["annotations"] == {"readOnlyHint": True}
        found = (await wire.call("search_tools", query="money", limit=1))["structuredContent"]["tools"]
        assert [tool["name"] for tool in found] == ["refundOrder"]
        assert (await wire.call("search_tools", query="?"))["structuredContent"] == {"tools": []}


@BOTH_ERAS
async def test_a_call_through_it_is_the_call_itself(version: str) -> None:
    """MNT-41: each tool is callable by its name directly too. Arguments are checked, questions are asked."""
    async with memory_wire(make_server()) as wire:
        await wire.open(version, {"elicitation": {}})
        for name in ("call_tool", "call_read_only_tool"):
            result = await wire.call(name, name="list_orders", arguments={"status": "paid"})
            assert json.loads(result["content"][0]["text"]) == ["paid"]
        assert await wire.call("list_orders", status="paid") == result

        refused = await wire.call("call_read_only_tool", name="refundOrder", arguments={"order": 1})
        assert refused["content"][0]["text"] == "refundOrder is not read-only: use call_tool"
        wrong = await wire.call("call_tool", name="refundOrder", arguments={"order": "one"})
        assert wrong["isError"]
        assert wrong == await wire.call("refundOrder", order="one")

        params = {"name": "call_tool", "arguments": {"name": "refundOrder", "arguments": {"order": 7}}}
        if version == MODERN:
            asked = await wire.result("tools/call", params)
            ((key, _),) = asked["inputRequests"].items()
            answers = {key: {"action": "accept", "content": {"confirmed": True}}}
            again = {**params, "inputResponses": answers, "requestState": asked["requestState"]}
            assert (await wire.result("tools/call", again))["content"][0]["text"].startswith("refunded 7")
        else:
            id = wire.ask("tools/call", params)
            question = await wire.receive()
            assert question["method"] == "elicitation/create"
            wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
            assert (await wire.answer(id))["result"]["content"][0]["text"].startswith("refunded 7")


async def test_tools_for_apps_only_cannot_be_found_or_called_through_it() -> None:
    """APP-H-02: only the host may call a tool without "model" in its visibility."""
    offers = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
    async with memory_wire(make_server()) as wire:
        await wire.open(MODERN, offers)
        assert "refresh" in await names(wire)  # the host decides what the model sees
        found = (await wire.call("search_tools", query="refresh chart"))["structuredContent"]["tools"]
        assert not found
        for name in ("refresh", "hello", "call_tool", "nothing"):
            result = await wire.call("call_tool", name=name, arguments={})
            assert result["isError"]
            assert "search_tools finds no tool of this name" in result["content"][0]["text"]
        assert await wire.text("refresh") == "fresh"


async def test_what_a_client_may_not_see_is_not_found() -> None:
    server = make_server()

    @server.visibility
    async def no_refunds(entry: Any, ctx: Context) -> bool:
        return entry.name != "refundOrder"

    async with memory_wire(server, MODERN) as wire:
        found = (await wire.call("search_tools", query="refundOrder"))["structuredContent"]["tools"]
        assert [tool["name"] for tool in found] == ["list_orders"]
        assert (await wire.call("call_tool", name="refundOrder", arguments={"order": 1}))["isError"]


async def test_the_list_follows_changes_and_the_number_of_tools() -> None:
    server = make_server(tool_search="auto:4")
    async with memory_wire(server, MODERN) as wire:
        assert await names(wire) == ["list_orders", "refundOrder", "hello"]
        for number in range(2):
            server.add_tool(lambda: "", name=f"extra_{number}", description="More.")
        assert await names(wire) == ["hello", *OURS]
        found = (await wire.call("search_tools", query="extra"))["structuredContent"]["tools"]
        assert [tool["name"] for tool in found] == ["extra_0", "extra_1"]


async def test_tools_of_a_document_are_searched_and_own_ones_listed() -> None:
    server = make_server()
    paths = {f"/{name}": {"get": {"operationId": name, "responses": {}}} for name in ("pets", "owners", "visits")}
    document = {"openapi": "3.1.0", "info": {"title": "Clinic", "version": "1"}, "paths": paths}
    server.add_openapi(document, base="https://clinic.example", always_load=["visits"])
    try:
        async with memory_wire(server, MODERN) as wire:
            assert await names(wire) == ["list_orders", "refundOrder", "hello", "visits", *OURS]
            found = (await wire.call("search_tools", query="owner"))["structuredContent"]["tools"]
            assert [tool["name"] for tool in found] == ["owners"]
    finally:
        await server.aclose()


async def test_tools_of_a_mount_are_found_and_called() -> None:
    upstream, server = make_server(tool_search="off"), Server("front", extensions=[Catalogue(tool_search="always")])
    server.add_tool(lambda: "own", name="own", description="Own.")
    server.mount("db", upstream)
    async with memory_wire(server, MODERN) as wire:
        assert await names(wire) == ["own", "db_hello", *OURS]
        found = (await wire.call("search_tools", query="db_list_orders"))["structuredContent"]["tools"]
        assert found[0]["name"] == "db_list_orders"
        result = await wire.call("call_read_only_tool", name="db_list_orders", arguments={"status": "paid"})
        assert json.loads(result["content"][0]["text"]) == ["paid"]
    await server.aclose()


@pytest.mark.medium
async def test_a_server_that_is_mounted_alone_is_searched_too(child: Child, tmp_path: Any) -> None:
    (tmp_path / "alone.py").write_text(
        "from mcpd import Server\nserver = Server('alone')\nserver.add_text('a://b', 'text', name='b')\n"
        "for n in range(6):\n    server.add_tool(lambda: 'x', name=f'tool_{n}', description='T.')\n"
    )
    options = ("--tool-search", "always", "--resources-as-tools", "--", *child.mcpd("serve", "--stdio", "alone.py"))
    async with process_wire(child, *options, version=MODERN, cwd=tmp_path) as wire:
        assert await names(wire) == [*OURS, "list_resources", "read_resource"]
        found = (await wire.call("search_tools", query="tool_3", limit=1))["structuredContent"]["tools"]
        assert [tool["name"] for tool in found] == ["tool_3"]
        assert await wire.text("call_tool", name="tool_3", arguments={}) == "x"
        assert [each["uri"] for each in (await wire.call("list_resources"))["structuredContent"]["resources"]] == [
            "a://b"
        ]
        assert await wire.text("read_resource", uri="a://b") == "text"


def many(number: int) -> list[Tool]:
    verbs = ("create", "list", "update", "delete", "getAll")
    nouns = ("user", "issue", "repository", "pull_request", "team", "label", "webhook", "deploy_key", "gist", "release")
    tools = []
    for each in range(number):
        name = f"{verbs[each % 5]}_{nouns[each // 5 % 10]}_{each // 50}"
        properties = {f"{noun}_{each % 7}": {"type": "string"} for noun in nouns[: each % 10]}
        description = f"{verbs[each % 5]} one {nouns[each // 5 % 10]} of the organization number {each}. " * 3
        schema = {"type": "object", "properties": properties}
        tools.append(Tool(name=name, description=description, input_schema=schema))
    return tools


def test_every_tool_is_found_by_its_exact_name_first() -> None:
    """MNT-41"""
    tools = many(1000)
    index = ToolIndex(tools)
    assert all(index.search(tool.name, 5)[0] is tool for tool in tools)
    assert len(index.search("list issues", 7)) == 7
    assert all("list_issue" in tool.name for tool in index.search("list issues", 7))


def test_a_thousand_tools_are_searched_in_two_milliseconds() -> None:
    """MNT-42, by processor time and allocated memory."""
    tools = many(1000)
    tracemalloc.start()
    index = ToolIndex(tools)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held <= 4 * 1024 * 1024

    def least(work: Any) -> float:
        times = []
        for _ in range(7):
            began = process_time()
            work()
            times.append(process_time() - began)
        return min(times)

    assert least(lambda: ToolIndex(tools)) <= 0.2
    assert least(lambda: index.search("update the pull request of a team in the organization", 5)) <= 0.002


# ------------------------------------------------------------------------------------------ resources as tools


@BOTH_ERAS
async def test_resources_are_tools_for_hosts_that_read_none(version: str) -> None:
    async with memory_wire(make_server(tool_search="off", resources_as_tools=True), version) as wire:
        assert (await names(wire))[-2:] == ["list_resources", "read_resource"]
        listed = (await wire.call("list_resources"))["structuredContent"]
        assert [each["uri"] for each in listed["resources"]] == ["notes://today", "notes://dot"]
        assert [each["uriTemplate"] for each in listed["resourceTemplates"]] == ["notes://{day}"]
        assert await wire.text("read_resource", uri="notes://today") == "Water the beans."
        assert await wire.text("read_resource", uri="notes://monday") == "monday"
        (block,) = (await wire.call("read_resource", uri="notes://dot"))["content"]
        assert block["resource"] == {"uri": "notes://dot", "mimeType": "image/png", "blob": "iVBORw=="}
        assert (await wire.call("read_resource", uri="other://x"))["isError"]
        assert (await wire.call("list_resources", cursor="x"))["isError"]
        assert (await wire.call("read_resource", uri=5))["isError"]
        assert "search_tools" not in await names(wire)
        assert (await wire.error("tools/call", {"name": "search_tools"}))["code"] == -32602


@pytest.mark.medium
async def test_the_command_line_switches_both_on(child: Child, tmp_path: Any) -> None:
    (tmp_path / "many.py").write_text(
        "from mcpd import Server\nserver = Server('many')\nfor n in range(6):\n"
        "    server.add_tool(lambda: 'x', name=f'tool_{n}', description='T.')\n"
    )
    options = ("--tool-search", "auto:5", "--resources-as-tools")
    async with process_wire(child, "many.py", *options, version=MODERN, cwd=tmp_path) as wire:
        assert await names(wire) == [*OURS, "list_resources", "read_resource"]
        assert await wire.text("call_tool", name="tool_3", arguments={}) == "x"
