"""What a tool says of Apps: by options, or by raw `_meta` (APP-S-11, APP-S-12, APP-S-13)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.ui_stage import HTML, NO_APPS, WITH_APPS, tool_of
from support.wires import memory_wire

from mcpd import Server
from mcpd.errors import RegistrationError


def draw() -> str:
    """Draws."""
    return "drawn"


async def meta_of(server: Server, capabilities: Any = WITH_APPS) -> Any:
    async with memory_wire(server, "2025-11-25", capabilities=capabilities) as wire:
        tool = tool_of(await wire.result("tools/list"), "draw")
        return None if tool is None else tool.get("_meta")


def with_view() -> Server:
    server = Server("tools")
    server.app("view", HTML)
    return server


@pytest.mark.parametrize(
    ("options", "visibility"),
    [
        ({"ui": "view"}, None),
        ({"ui": "ui://tools/view", "visibility": ["model"]}, ["model"]),
        ({"ui": "view", "visibility": ("app", "model")}, ["model", "app"]),
        ({"visibility": ["app"]}, ["app"]),
    ],
)
async def test_options(options: Any, visibility: Any) -> None:
    """Nested and flat URI, the array as written in the specification, and nothing that was not said."""
    server = with_view()
    server.add_tool(draw, **options)
    meta = await meta_of(server)
    assert meta["ui"].get("visibility") == visibility
    assert ("resourceUri" in meta["ui"]) is ("ui/resourceUri" in meta) is ("ui" in options)
    assert await meta_of(server, NO_APPS) is None


async def test_raw_meta_is_gated_like_options() -> None:
    """What an author writes by hand as `_meta.ui` is versioned, checked, and for clients with Apps only."""
    server = with_view()
    server.add_tool(draw, meta={"ui": {"resourceUri": "ui://tools/view"}, "example/a": 1})
    meta = await meta_of(server)
    assert meta["ui"]["resourceUri"] == meta["ui/resourceUri"]
    assert meta["ui/resourceUri"].startswith("ui://tools/view?v=")
    assert meta["example/a"] == 1
    assert await meta_of(server, NO_APPS) == {"example/a": 1}


async def test_the_flat_key_alone() -> None:
    """apps.md 1.1: the old form is understood, and leaves as both."""
    server = with_view()
    server.add_tool(draw, meta={"ui/resourceUri": "ui://tools/view"})
    meta = await meta_of(server)
    assert meta["ui"]["resourceUri"] == meta["ui/resourceUri"] != "ui://tools/view"
    assert await meta_of(server, NO_APPS) is None


async def test_the_nested_key_wins_over_the_flat_one(caplog: pytest.LogCaptureFixture) -> None:
    """apps.md 1.1."""
    server = with_view()
    server.add_tool(draw, meta={"ui": {"resourceUri": "ui://tools/view"}, "ui/resourceUri": "ui://tools/other"})
    assert (await meta_of(server))["ui/resourceUri"].startswith("ui://tools/view?v=")
    assert "_meta.ui.resourceUri differs from ui/resourceUri" in caplog.text


@pytest.mark.parametrize(
    "meta",
    [
        {"ui/resourceUri": "https://example.com/x"},
        {"ui/resourceUri": 3},
        {"ui": {"resourceUri": "file:///x"}},
        {"ui": {"resourceUri": ["ui://x"]}},
        {"ui": {"resourceUri": ""}},
    ],
)
def test_a_view_that_is_no_ui_uri_is_an_error(meta: Any) -> None:
    """apps.md 1.1: "non-`ui://` value is an error"."""
    with pytest.raises(RegistrationError, match="tool draw, ui=.*begins with ui://"):
        with_view().add_tool(draw, meta=meta)


@pytest.mark.parametrize("member", ["csp", "permissions"])
def test_a_policy_belongs_to_the_resource(member: str) -> None:
    """APP-S-12: hosts ignore it on a tool, so its author would believe in a policy that is not there."""
    with pytest.raises(RegistrationError, match=rf"tool draw: {member} belongs to the UI resource.*server\.app\(\)"):
        with_view().add_tool(draw, meta={"ui": {"resourceUri": "ui://tools/view", member: {}}})
    with pytest.raises(RegistrationError, match=f"unknown option '{member}'"):
        with_view().add_tool(draw, ui="view", **{member: {}})


@pytest.mark.parametrize(
    ("value", "visibility"),
    [(["app", "everyone"], ["app"]), (["everyone"], None), ([], None), ("app", ["app"]), (7, None), ({}, None)],
    ids=str,
)
async def test_raw_visibility_loses_what_is_unknown(
    value: Any, visibility: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """APP-S-13, mcp-apps-tool-07: a warning, a default, and a server that goes on."""
    server = with_view()
    server.add_tool(draw, meta={"ui": {"resourceUri": "ui://tools/view", "visibility": value}})
    assert (await meta_of(server))["ui"].get("visibility") == visibility
    assert "tool draw: visibility" in caplog.text
    assert any("visibility" in str(problem) and problem.is_error for problem in server.problems())
    assert (await meta_of(server, NO_APPS)) is None


async def test_raw_app_only_tools_are_hidden_like_others() -> None:
    server = with_view()
    server.add_tool(draw, meta={"ui": {"visibility": ["app"]}})
    async with memory_wire(server, "2025-11-25", capabilities=NO_APPS) as wire:
        assert tool_of(await wire.result("tools/list"), "draw") is None
        assert (await wire.error("tools/call", {"name": "draw"}))["code"] == -32602


@pytest.mark.parametrize("ui", [[], "ui://tools/view", 3, True])
async def test_raw_ui_that_is_no_object(ui: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = with_view()
    server.add_tool(draw, meta={"ui": ui})
    assert await meta_of(server) is None
    assert "_meta.ui must be an object" in caplog.text


async def test_members_of_later_revisions_are_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    server = with_view()
    server.add_tool(draw, meta={"ui": {"resourceUri": "ui://tools/view", "later": {"x": 1}}})
    assert (await meta_of(server))["ui"]["later"] == {"x": 1}
    assert "'later'; it is passed on" in caplog.text


def test_one_way_or_the_other() -> None:
    raw = {"ui": {"resourceUri": "ui://tools/view"}}
    for options in ({"ui": "view"}, {"visibility": ["app"]}):
        with pytest.raises(RegistrationError, match="not both"):
            with_view().add_tool(draw, meta=raw, **options)  # type: ignore[arg-type]


async def test_a_condition_with_raw_meta() -> None:
    server = with_view()
    server.add_tool(draw, meta={"ui": {"resourceUri": "ui://tools/view"}}, ui_when=lambda: False)
    assert await meta_of(server) is None


async def test_what_the_author_gave_is_not_changed() -> None:
    given: dict[str, Any] = {"ui": {"resourceUri": "ui://tools/view", "visibility": ["x"]}, "a": 1}
    before = json.dumps(given)
    server = with_view()
    server.add_tool(draw, meta=given)
    await meta_of(server)
    assert json.dumps(given) == before
