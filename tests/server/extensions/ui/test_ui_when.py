"""Conditional associations: whether a tool has its View, asked for each list."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from support.ui_stage import BOTH_ERAS, HTML, NO_APPS, WITH_APPS, each_wire, tool_of
from support.wires import MODERN, OpenWire, envelope, memory_wire

from mcpd import Context, Server
from mcpd.errors import RegistrationError
from mcpd.server.registry import rules

VIEW = "ui://when/chart"


def make_server(when: Any, **options: Any) -> Server:
    server = Server("when")
    server.app("chart", HTML)

    @server.tool(ui="chart", ui_when=when, **options)
    async def draw() -> str:
        """Draws, or says so."""
        return "drawn"

    @server.tool(ui="chart")
    async def always() -> str:
        """Has its View whatever happens."""
        return "here"

    return server


def view_of(listed: Any, name: str = "draw") -> Any:
    meta = tool_of(listed, name).get("_meta", {})
    assert meta.get("ui", {}).get("resourceUri") == meta.get("ui/resourceUri")
    return meta.get("ui/resourceUri")


@BOTH_ERAS
@each_wire
async def test_a_tool_loses_its_view_while_its_backend_is_down(open_wire: OpenWire, version: str) -> None:
    """AgentTools: the association is conditional, the tool works as text meanwhile, and nothing is kept too long."""
    up = True

    async def is_up() -> bool:
        return up

    async with open_wire(make_server(is_up), version, capabilities=WITH_APPS) as wire:
        for state in (True, False, True, False):
            up = state
            for _ in range(2):
                listed = await wire.result("tools/list")
                assert (view_of(listed) is not None) is state
                assert view_of(listed, "always") is not None
            assert await wire.text("draw") == "drawn"


@pytest.mark.parametrize("version", [MODERN])
async def test_the_condition_may_look_at_the_request(version: str) -> None:
    """Decided per request: two requests of one connection, two answers."""

    async def for_one(ctx: Context) -> bool:
        assert ctx.client_info is not None
        return ctx.meta.get("example/view") == "yes"

    async with memory_wire(make_server(for_one), version) as wire:
        for wanted in ("yes", "no", "yes"):
            meta = {**envelope(capabilities=WITH_APPS), "example/view": wanted}
            listed = await wire.result("tools/list", meta=meta)
            assert (view_of(listed) is not None) is (wanted == "yes")


async def test_a_plain_condition_runs_in_a_thread_and_only_where_it_matters() -> None:
    """It may block, like a plain tool; who has no Apps does not wait for it."""
    loop_thread = threading.get_ident()
    asked = []

    def is_up() -> bool:
        asked.append(threading.get_ident())
        return True

    server = make_server(is_up)
    async with memory_wire(server, "2025-11-25", capabilities=NO_APPS) as wire:
        assert view_of(await wire.result("tools/list")) is None
        assert not asked
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        assert view_of(await wire.result("tools/list")) is not None
        await wire.text("draw")
        await wire.result("resources/list")
    assert len(asked) == 1
    assert asked[0] != loop_thread


@pytest.mark.parametrize("fail", [RuntimeError("no route"), SystemExit(1)], ids=repr)
async def test_a_condition_that_fails_counts_as_no(fail: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """APP-S-18 in spirit: the list is answered, the log says why."""

    async def is_up() -> bool:
        raise fail

    async with memory_wire(make_server(is_up), "2025-11-25", capabilities=WITH_APPS) as wire:
        with caplog.at_level(logging.WARNING):
            assert view_of(await wire.result("tools/list")) is None
        assert "tool draw: its ui_when function failed and counts as false" in caplog.text


async def test_a_condition_that_takes_too_long_counts_as_no(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "CONDITION_TIMEOUT", 0.02)

    async def is_up() -> bool:
        await asyncio.Event().wait()
        return True

    async with memory_wire(make_server(is_up), "2025-11-25", capabilities=WITH_APPS) as wire:
        assert view_of(await wire.result("tools/list")) is None
        assert "takes longer than 0.02 seconds" in caplog.text


async def test_a_thread_that_hangs_is_joined_by_no_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "CONDITION_TIMEOUT", 0.02)
    gate, entered = threading.Event(), []
    done = threading.Event()

    def is_up() -> bool:
        entered.append(1)
        gate.wait(20)
        done.set()
        return True

    async with memory_wire(make_server(is_up), "2025-11-25", capabilities=WITH_APPS) as wire:
        for _ in range(3):
            assert view_of(await wire.result("tools/list")) is None
        assert len(entered) == 1
        monkeypatch.setattr(rules, "CONDITION_TIMEOUT", 20.0)
        gate.set()
        await asyncio.to_thread(done.wait, 20)
        while view_of(await wire.result("tools/list")) is None:  # the thread may still be on its way out
            await asyncio.sleep(0)


async def test_many_conditions_are_asked_at_once() -> None:
    """A list waits for the slowest of them, not for all in turn."""
    server = Server("many")
    server.app("chart", HTML)
    met = asyncio.Event()
    count = 0

    async def is_up() -> bool:
        nonlocal count
        count += 1
        if count == 5:
            met.set()
        await met.wait()
        return True

    for number in range(5):
        server.add_tool(plain, name=f"draw{number}", ui="chart", ui_when=is_up)
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        listed = await wire.result("tools/list")
    assert all(view_of(listed, f"draw{number}") for number in range(5))


async def plain() -> str:
    """Does nothing."""
    return ""


async def test_an_app_only_tool_without_its_view_is_still_for_apps_only() -> None:
    """Without `_meta.ui` a host would show it to the model (APP-H-02)."""
    async with memory_wire(
        make_server(lambda: False, visibility=["app"]), "2025-11-25", capabilities=WITH_APPS
    ) as wire:
        assert tool_of(await wire.result("tools/list"), "draw")["_meta"] == {"ui": {"visibility": ["app"]}}


async def test_pages_follow_the_condition() -> None:
    """Paging and conditions: each page is made for what holds when it is asked for."""
    server = Server("pages", page_size=1)
    server.app("chart", HTML)
    up = True
    for number in range(3):
        server.add_tool(plain, name=f"draw{number}", ui="chart", ui_when=lambda: up)
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        first = await wire.result("tools/list")
        assert view_of(first, "draw0")
        up = False
        second = await wire.result("tools/list", {"cursor": first["nextCursor"]})
        assert view_of(second, "draw1") is None
        up = True
        third = await wire.result("tools/list", {"cursor": second["nextCursor"]})
        assert view_of(third, "draw2")


async def test_clients_can_be_told_that_the_condition_has_changed() -> None:
    """`server.tools_changed()`: notifications/tools/list_changed."""
    server = make_server(lambda: True)
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        server.tools_changed()
        assert (await wire.receive())["method"] == "notifications/tools/list_changed"


async def test_a_tool_that_is_removed_takes_its_condition_with_it() -> None:
    asked = 0

    def is_up() -> bool:
        nonlocal asked
        asked += 1
        return True

    server = make_server(is_up)
    async with memory_wire(server, "2025-11-25", capabilities=WITH_APPS) as wire:
        await wire.result("tools/list")
        assert asked == 1
        server.remove_tool("draw")
        assert tool_of(await wire.result("tools/list"), "draw") is None
        assert asked == 1


async def test_a_condition_may_be_a_bound_method() -> None:
    class Backend:
        async def is_up(self) -> bool:
            return True

    async with memory_wire(make_server(Backend().is_up), "2025-11-25", capabilities=WITH_APPS) as wire:
        assert view_of(await wire.result("tools/list"))


def test_what_is_no_condition_is_refused() -> None:
    server = Server("bad")

    def wants(backend: str) -> bool:
        return bool(backend)

    with pytest.raises(
        RegistrationError, match=r"ui_when function takes nothing or a Context, but this one takes back"
    ):
        server.add_tool(plain, ui="chart", ui_when=wants)
    with pytest.raises(RegistrationError, match=r"ui_when= requires ui="):
        server.add_tool(plain, ui_when=lambda: True)
    with pytest.raises(RegistrationError, match="not a function"):
        server.add_tool(plain, ui="chart", ui_when=True)  # type: ignore[arg-type]
