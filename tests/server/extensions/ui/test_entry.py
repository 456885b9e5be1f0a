"""`view=` on the wire: the resource, its link and version, and who gets them (APP-S-01 to -03, -10, -11)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from conftest import Child
from msgspec import Meta
from support.ui_stage import BOTH_ERAS, NO_APPS, WITH_APPS, each_wire, tool_of, uris
from support.wires import MODERN, memory_wire

from mcpd import Server, View
from mcpd.errors import RegistrationError
from mcpd.server.extensions.ui.constants import MIME_TYPE

ROWS = [{"month": "2026-01-01", "sales": 5}]


def make_server() -> Server:
    server = Server("shop", version="1")

    @server.tool(view="table")
    def sales() -> list[dict[str, Any]]:
        """Sales by month."""
        return ROWS

    @server.tool(view="table", visibility=["model"])
    def returns() -> list[dict[str, Any]]:
        """Returns by month."""
        return []

    @server.tool(view=View("chart", kind="bar", x="month", y=["sales"], title="Sales"))
    def drawn() -> list[dict[str, Any]]:
        """Sales, drawn."""
        return ROWS

    @server.tool(view="form", title="Order")
    def order(amount: Annotated[int, Meta(ge=1, le=9)], gift: bool = False) -> str:
        """Orders something."""
        return f"{amount} ordered"

    return server


def spec_of(html: str) -> Any:
    found = re.search(r'id="spec">(.*?)</script>', html)
    assert found is not None
    return json.loads(found[1])


@each_wire
@BOTH_ERAS
async def test_each_tool_links_a_page_that_can_be_read(open_wire: Callable[..., Any], version: str) -> None:
    async with open_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        listed = await wire.result("tools/list")
        links = {tool["name"]: tool["_meta"]["ui/resourceUri"] for tool in listed["tools"]}
        assert all(tool["_meta"]["ui"]["resourceUri"] == links[tool["name"]] for tool in listed["tools"])
        assert [link.partition("?v=")[0] for link in links.values()] == [
            "ui://shop/view-table", "ui://shop/view-table", "ui://shop/view-chart-drawn", "ui://shop/view-form-order",
        ]  # fmt: skip
        assert sorted({*links.values()}) == sorted(uris(await wire.result("resources/list")))
        for tool, link in links.items():
            [content] = (await wire.result("resources/read", {"uri": link}))["contents"]
            assert (content["uri"], content["mimeType"]) == (link, MIME_TYPE)
            assert content["_meta"] == {"ui": {"prefersBorder": True}}
            assert content["text"].startswith("<!doctype html>")
            assert spec_of(content["text"])["view"] in link, tool


async def test_a_page_knows_what_hosts_may_not_tell_it() -> None:
    """The options of a view, and a form's tool with its schema: no host has to pass on `_meta` or `toolInfo`."""
    async with memory_wire(make_server(), MODERN, capabilities=WITH_APPS) as wire:
        [content] = (await wire.result("resources/read", {"uri": "ui://shop/view-chart-drawn"}))["contents"]
        told = spec_of(content["text"])
        assert told == {"view": "chart", "kind": "bar", "x": "month", "y": ["sales"], "title": "Sales"}
        # Read before anything was listed: the schema is made for it.
        [content] = (await wire.result("resources/read", {"uri": "ui://shop/view-form-order"}))["contents"]
        tool = spec_of(content["text"])["tool"]
        listed = tool_of(await wire.result("tools/list"), "order")
        assert tool == {name: listed[name] for name in ("name", "title", "description", "inputSchema")}


@BOTH_ERAS
async def test_nothing_changes_for_clients_without_apps(version: str) -> None:
    async with memory_wire(make_server(), version, capabilities=NO_APPS) as wire:
        tool = tool_of(await wire.result("tools/list"), "sales")
        assert "_meta" not in tool
        assert uris(await wire.result("resources/list")) == []
        result = await wire.result("tools/call", {"name": "sales"})
        assert json.loads(result["content"][0]["text"]) == ROWS
        assert result["structuredContent"] in (ROWS, {"result": ROWS})


async def test_the_version_is_that_of_the_content() -> None:
    """A form that asks for something else is another document, so hosts read it again; the same one stays."""

    async def link(annotation: Any) -> str:
        server = Server("shop")

        def order(amount: Any) -> str:
            """Orders."""
            return "ordered"

        order.__annotations__["amount"] = annotation
        server.add_tool(order, view="form")
        async with memory_wire(server, MODERN, capabilities=WITH_APPS) as wire:
            return str(tool_of(await wire.result("tools/list"), "order")["_meta"]["ui/resourceUri"])

    assert await link(int) == await link(int)
    assert await link(int) != await link(str)


async def test_origins_of_images_are_in_the_policy() -> None:
    server = Server("shop")
    server.add_tool(lambda: "![x](https://img.example.com/x.png)", name="note",
                    view=View("markdown", images=["https://img.example.com"]))  # fmt: skip
    async with memory_wire(server, MODERN, capabilities=WITH_APPS) as wire:
        [content] = (await wire.result("resources/read", {"uri": "ui://shop/view-markdown-note"}))["contents"]
        assert content["_meta"]["ui"]["csp"]["resourceDomains"] == ["https://img.example.com"]


def test_an_app_of_that_name_is_not_replaced() -> None:
    server = Server("shop")
    server.app("view-table", "<!doctype html><meta charset=utf-8><title>Mine</title>")
    with pytest.raises(RegistrationError, match="another app"):
        server.add_tool(lambda: ROWS, name="sales", view="table")


async def test_a_tool_that_is_registered_anew_has_its_new_page() -> None:
    server = Server("shop")
    server.add_tool(lambda: ROWS, name="sales", view=View("chart", kind="bar"))
    server.remove_tool("sales")
    server.add_tool(lambda: ROWS, name="sales", view=View("chart", kind="line"))
    async with memory_wire(server, MODERN, capabilities=WITH_APPS) as wire:
        [content] = (await wire.result("resources/read", {"uri": "ui://shop/view-chart-sales"}))["contents"]
        assert spec_of(content["text"])["kind"] == "line"


def test_views_are_loaded_by_the_first_tool_that_has_one(child: Child) -> None:
    code = """
import sys
from mcpd import Server
def loaded():
    return any("extensions.ui.pages" in name for name in sys.modules)
server = Server("x")
server.add_tool(lambda: 1, name="a")
print(loaded())
server.add_tool(lambda: 1, name="b", view="table")
print(loaded())
"""
    done = subprocess.run(
        [child.python, "-c", code], env=child.env, capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.split() == ["False", "True"]
