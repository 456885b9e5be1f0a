"""The pages of `view=`: who sees a tool sees its page, and nobody else does, as it tells the tool's name and schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.wires import Wire, each_version, memory_wire

from mcpd import Server, View


def with_views(server: Server, **of_closed: Any) -> Server:
    """Tools with pages of their own, and with one that all tools share."""
    for name in ("open", "closed"):
        options: dict[str, Any] = of_closed if name == "closed" else {}
        for kind in ("form", View("table", title="Titled"), "table"):

            def tool(argument: int = 1) -> list[dict[str, int]]:
                return []

            own = f"{name}-{'shared' if kind == 'table' else kind if isinstance(kind, str) else kind.view}"
            server.add_tool(tool, name=own, view=kind, **options)
    return server


async def pages_of(wire: Wire) -> set[str]:
    """The pages that are listed; those that tools link have to be read, and no others."""
    linked = {tool["_meta"]["ui"]["resourceUri"] for tool in (await wire.result("tools/list"))["tools"]}
    listed = {item["uri"]: item["name"] for item in (await wire.result("resources/list"))["resources"]}
    assert linked <= set(listed)
    for name in ("form-open-form", "table-open-table", "form-closed-form", "table-closed-table", "table"):
        for uri in [uri for uri in listed if listed[uri] == f"view-{name}"] or [f"ui://server/view-{name}"]:
            answer = await wire.request("resources/read", {"uri": uri})
            assert ("result" in answer) is (uri in listed)
            assert "result" in answer or "argument" not in str(answer)
    return {name.removeprefix("view-") for name in listed.values()}


ALL = {"table", "form-open-form", "table-open-table", "form-closed-form", "table-closed-table"}
OPEN = {"table", "form-open-form", "table-open-table"}
OF_PAGES: list[tuple[Callable[[Server], Any], dict[str, Any], set[str]]] = [
    (lambda server: None, {}, ALL),
    (lambda server: None, {"enabled": False}, OPEN),
    (lambda server: None, {"visible": lambda ctx: False}, OPEN),
    (lambda server: server.disable(names={"closed-form", "closed-table"}), {}, OPEN),
    (lambda server: server.disable(tags={"a"}), {"tags": {"a"}}, OPEN),
    (lambda server: server.disable(components={"tool"}), {}, {"table"}),
    (lambda server: server.enable(components={"tool"}, only=True), {}, ALL),
    (lambda server: server.visibility(lambda entry, ctx: "closed" not in entry.name), {}, OPEN),
    (lambda server: server.visibility(lambda entry, ctx: "a" in entry.tags), {"tags": {"a"}}, ALL - OPEN | {"table"}),
]


@pytest.mark.parametrize(("switch", "options", "expected"), OF_PAGES)
@pytest.mark.parametrize("is_late", [True, False])
@each_version
async def test_the_page_of_a_tool_is_seen_by_those_who_see_the_tool(
    version: str, is_late: bool, switch: Callable[[Server], Any], options: dict[str, Any], expected: set[str]
) -> None:
    server = Server("server", apps="always")
    if is_late:
        switch(server)
    with_views(server, **options)
    if not is_late:
        switch(server)
    async with memory_wire(server, version) as wire:
        assert await pages_of(wire) == expected


async def test_pages_come_and_go_with_their_tools() -> None:
    server = with_views(Server("server", apps="always"))
    async with memory_wire(server, "2025-11-25") as wire:
        assert await pages_of(wire) == ALL
        server.remove_tool("closed-form")
        assert await pages_of(wire) == ALL - {"form-closed-form"}
        server.disable(names={"closed-table"})
        assert await pages_of(wire) == OPEN
        server.enable(names={"closed-table"})
        assert await pages_of(wire) == ALL - {"form-closed-form"}
