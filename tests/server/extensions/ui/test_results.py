"""Results: the model's text, the View's data through two channels, and something to read for everybody."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from msgspec import Raw, Struct
from support.ui_stage import BOTH_ERAS, HTML, NO_APPS, WITH_APPS
from support.wires import LEGACY, MODERN, memory_wire

from mcpd import ContentBlock, Server, ToolError, ViewResult, embedded, image, link, text, view_result
from mcpd.protocol.types.features import CallToolResult, TextContent
from mcpd.server.extensions.ui.results import VIEW_DATA

IDENTITY = "io.modelcontextprotocol/serverInfo"


def make_server(function: Any, **options: Any) -> Server:
    server = Server("results")
    options.setdefault("ui", server.app("view", HTML))
    server.add_tool(function, name="show", **options)
    return server


async def call(server: Server, version: str, capabilities: Any) -> Any:
    async with memory_wire(server, version, capabilities=capabilities) as wire:
        result = await wire.call("show")
        result.pop("resultType", None)
        meta = result.pop("_meta", {})
        meta.pop(IDENTITY, None)
        return result | ({"_meta": meta} if meta else {})


# ------------------------------------------------------------------------------------ view_result


async def both_channels() -> ViewResult:
    """Shows."""
    return view_result("2 points", {"points": [1, 2]}, meta={"example/handle": "h1"})


@BOTH_ERAS
async def test_data_reach_a_view_through_two_channels(version: str) -> None:
    """APP-S-16: whichever one of content, structuredContent and `_meta` a host drops, the data are in another."""
    data = {"points": [1, 2]}
    result = await call(make_server(both_channels), version, WITH_APPS)
    assert result == {
        "content": [{"type": "text", "text": "2 points"}],
        "structuredContent": data,
        "_meta": {VIEW_DATA: data, "example/handle": "h1"},
    }
    for dropped in ("content", "structuredContent", "_meta"):
        left = {key: value for key, value in result.items() if key != dropped}
        assert left.get("structuredContent", left.get("_meta", {}).get(VIEW_DATA)) == data


@BOTH_ERAS
async def test_clients_without_apps_get_the_text_only(version: str) -> None:
    """mcp-apps-cap-05, mcp-apps-reg-01: "Text responses only"; AgentTools: unchanged results without Apps."""
    result = await call(make_server(both_channels), version, NO_APPS)
    assert result == {"content": [{"type": "text", "text": "2 points"}]}


@pytest.mark.parametrize("version", LEGACY[:3])
async def test_versions_without_structured_content_have_the_other_channel(version: str) -> None:
    result = await call(make_server(both_channels), version, WITH_APPS)
    assert "structuredContent" not in result
    assert result["_meta"][VIEW_DATA] == {"points": [1, 2]}


@BOTH_ERAS
async def test_an_output_schema_is_kept_for_everybody(version: str) -> None:
    """A tool that promises structured content gives it to clients without Apps too."""
    schema = {"type": "object", "properties": {"points": {"type": "array"}}, "required": ["points"]}
    server = make_server(both_channels, output_schema=schema)
    assert (await call(server, version, NO_APPS)) == {
        "content": [{"type": "text", "text": "2 points"}],
        "structuredContent": {"points": [1, 2]},
    }
    assert (await call(server, version, WITH_APPS))["_meta"][VIEW_DATA] == {"points": [1, 2]}


async def test_a_result_that_breaks_the_output_schema_is_an_error() -> None:
    server = make_server(both_channels, output_schema={"type": "object", "required": ["lines"]})
    assert (await call(server, MODERN, WITH_APPS))["isError"] is True


class Point(Struct):
    """Data of any type that becomes JSON."""

    x: int


@pytest.mark.parametrize(
    ("data", "expected"), [(Point(1), {"x": 1}), ({"a": Point(2)}, {"a": {"x": 2}}), (Raw(b'{"raw":1}'), {"raw": 1})]
)
async def test_data_may_be_whatever_becomes_json(data: Any, expected: Any) -> None:
    async def show() -> ViewResult:
        return view_result(["one", text("two")], data)

    result = await call(make_server(show), "2025-11-25", WITH_APPS)
    assert [block["text"] for block in result["content"]] == ["one", "two"]
    assert result["structuredContent"] == result["_meta"][VIEW_DATA] == expected


async def test_text_alone_and_errors() -> None:
    async def show() -> ViewResult:
        return view_result("no backend", is_error=True)

    for capabilities in (WITH_APPS, NO_APPS):
        result = await call(make_server(show), "2025-11-25", capabilities)
        assert result == {"content": [{"type": "text", "text": "no backend"}], "isError": True}


async def test_a_copy_of_ones_own_wins() -> None:
    """Who wants less in `_meta` than in `structuredContent` says so."""

    async def show() -> ViewResult:
        return view_result("x", {"big": "y" * 100}, meta={VIEW_DATA: {"small": 1}})

    result = await call(make_server(show), "2025-11-25", WITH_APPS)
    assert result["_meta"] == {VIEW_DATA: {"small": 1}}


@pytest.mark.parametrize("options", [{"ui": None}, {"ui": None, "visibility": ["model", "app"]}], ids=str)
@pytest.mark.parametrize("capabilities", [WITH_APPS, NO_APPS], ids=["with", "without"])
async def test_tools_without_a_view_of_their_own(options: Any, capabilities: Any) -> None:
    """A View calls such tools, too: the same rules, whether or not the tool was registered with ui=."""
    result = await call(make_server(both_channels, **options), "2025-11-25", capabilities)
    assert ("_meta" in result) is ("structuredContent" in result) is (capabilities is WITH_APPS)


async def test_a_server_that_has_no_apps_at_all() -> None:
    server = Server("none")
    server.add_tool(both_channels, name="show")
    assert await call(server, "2025-11-25", WITH_APPS) == {"content": [{"type": "text", "text": "2 points"}]}


async def test_a_shared_result_is_not_changed() -> None:
    """A tool may give the same object again and again."""
    kept = view_result("x", {"a": 1})

    async def show() -> ViewResult:
        return kept

    server = make_server(show)
    for _ in range(2):
        assert "_meta" in await call(server, "2025-11-25", WITH_APPS)
        assert "_meta" not in await call(server, "2025-11-25", NO_APPS)


# ------------------------------------------------------------------------- something to read


def nothing() -> None:
    """Shows."""


def empty() -> CallToolResult:
    """Shows."""
    return CallToolResult(content=[])


def blank() -> list[ContentBlock]:
    """Shows."""
    return [TextContent(" \n")]


def data_only() -> CallToolResult:
    """Shows."""
    return CallToolResult(content=[], structured_content={"a": 1})


def failed() -> CallToolResult:
    """Shows."""
    return CallToolResult(content=[], is_error=True)


def view_only() -> ViewResult:
    """Shows."""
    return view_result("", {"a": 1})


@pytest.mark.parametrize(
    ("function", "fallback"),
    [
        (nothing, "The tool show is done."),
        (empty, "The tool show is done."),
        (blank, "The tool show is done."),
        (data_only, '{"a":1}'),
        (failed, "The tool show failed without a message."),
        (view_only, '{"a":1}'),
    ],
)
async def test_a_tool_with_a_view_always_gives_something_to_read(function: Any, fallback: str) -> None:
    """APP-S-06: "Tools MUST return meaningful content array even when UI is available"."""
    server = make_server(function)
    for capabilities in (WITH_APPS, NO_APPS):
        result = await call(server, "2025-11-25", capabilities)
        if function is view_only and capabilities is NO_APPS:
            fallback = "The tool show is done."
        assert result["content"][-1] == {"type": "text", "text": fallback}


async def test_a_tool_without_a_view_may_give_nothing() -> None:
    server = Server("plain")
    server.add_tool(nothing, name="show")
    assert (await call(server, "2025-11-25", NO_APPS))["content"] == []


async def test_a_picture_is_something() -> None:
    """APP-S-06: what a model can look at needs no stand-in."""

    def show() -> ContentBlock:
        return image(b"x", "image/png")

    for capabilities in (WITH_APPS, NO_APPS):
        result = await call(make_server(show), "2025-11-25", capabilities)
        assert [block["type"] for block in result["content"]] == ["image"]


async def test_an_error_of_the_tool_is_text() -> None:
    def show() -> str:
        raise ToolError("the station is closed")

    result = await call(make_server(show), "2025-11-25", WITH_APPS)
    assert result == {"content": [{"type": "text", "text": "the station is closed"}], "isError": True}


# ----------------------------------------------------------------- no trace without Apps


async def test_nothing_names_a_view_to_a_client_without_apps() -> None:
    """mcp-apps-cap-05: "No UI resource references in response", however the tool made its result."""

    def show() -> CallToolResult:
        blocks = [
            text("see below"),
            link("ui://results/view", "view"),
            embedded("ui://results/view", HTML, "text/html;profile=mcp-app"),
            link("notes://x", "x"),
            embedded("notes://x", "note"),
        ]
        meta = {"ui": {"resourceUri": "ui://results/view"}, "ui/resourceUri": "x", VIEW_DATA: 1, "example/trace": "t"}
        return CallToolResult(content=blocks, meta=meta)

    server = make_server(show)
    result = await call(server, "2025-11-25", NO_APPS)
    assert [block["type"] for block in result["content"]] == ["text", "resource_link", "resource"]
    assert result["_meta"] == {"example/trace": "t"}
    result = await call(server, "2025-11-25", WITH_APPS)
    assert len(result["content"]) == 5
    assert len(result["_meta"]) == 4


async def test_a_view_alone_becomes_text_without_apps() -> None:
    def show() -> list[ContentBlock]:
        return [embedded("ui://results/view", HTML)]

    result = await call(make_server(show), "2025-11-25", NO_APPS)
    assert result["content"] == [{"type": "text", "text": "The tool show is done."}]


async def test_typed_data_are_unchanged_by_a_view() -> None:
    """AgentTools: "text/image results unchanged"; a typed tool already speaks through two channels."""

    def show() -> Point:
        return Point(3)

    for capabilities in (WITH_APPS, NO_APPS):
        result = await call(make_server(show), "2025-11-25", capabilities)
        assert result == {"content": [{"type": "text", "text": '{"x":3}'}], "structuredContent": {"x": 3}}


@BOTH_ERAS
@pytest.mark.parametrize("capabilities", [WITH_APPS, NO_APPS], ids=["apps", "no apps"])
async def test_views_get_objects_in_both_eras(version: str, capabilities: dict[str, Any]) -> None:
    """The official SDK of Views takes no other structured content (MCP Apps 2026-01-26), so hosts with Apps get lists
    and numbers wrapped in 2026-07-28 too; other clients of that version get them as they are (S26-107)."""

    async def show() -> dict[str, int]:
        return {}

    server = make_server(show)

    @server.tool
    async def beds() -> list[int]:
        return [1, 2]

    @server.tool
    async def either(is_object: bool) -> dict[str, int] | int:
        return {"a": 1} if is_object else 1

    @server.tool
    async def bed() -> dict[str, int]:
        return {"a": 1}

    wraps = capabilities is WITH_APPS or version != MODERN
    async with memory_wire(server, version, capabilities=capabilities) as wire:
        listed = {tool["name"]: tool.get("outputSchema") for tool in (await wire.result("tools/list"))["tools"]}
        assert ("properties" in listed["beds"]) is ("properties" in listed["either"]) is wraps
        for name, arguments, value in (
            ("beds", {}, [1, 2]),
            ("either", {"is_object": True}, {"a": 1}),
            ("either", {"is_object": False}, 1),
            ("bed", {}, {"a": 1}),
        ):
            result = await wire.call(name, **arguments)
            is_wrapped = wraps and name != "bed"
            assert result["structuredContent"] == ({"result": value} if is_wrapped else value)
            assert ("fastmcp" in result.get("_meta", {})) is is_wrapped
            jsonschema_rs.validate(listed[name], result["structuredContent"])
