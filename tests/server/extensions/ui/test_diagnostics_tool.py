"""The starter's tool `apps_diagnostics`: it sends what its app needs to name a lost channel."""

from __future__ import annotations

import re
from pathlib import Path

from support.ui_stage import BOTH_ERAS, NO_APPS, WITH_APPS, tool_of
from support.wires import LEGACY, memory_wire

from mcpd.sources.demo import make_server

APP = Path(__file__).resolve().parents[4] / "examples" / "diagnostics" / "apps_diagnostics.html"


@BOTH_ERAS
async def test_every_channel_is_used_and_named(version: str) -> None:
    """APP-S-16: the app's header asks for `channels` in structuredContent or in `_meta`; both have it."""
    async with memory_wire(make_server(), version, capabilities=WITH_APPS) as wire:
        result = await wire.call("apps_diagnostics", note="hello")
    named = result["structuredContent"]["channels"]
    assert named == result["_meta"]["mcpd/channels"] == ["content", "structuredContent", "_meta"]
    assert all(result[channel] for channel in named)
    assert result["structuredContent"] == result["_meta"]["mcpd/data"]
    assert result["structuredContent"]["note"] == "hello"
    (known,) = re.findall(r"const CHANNELS = (\[.*\]);", APP.read_text(encoding="utf-8"))
    assert re.findall(r'"(\w+)"', known) == named


async def test_an_older_version_names_them_too() -> None:
    """2025-03-26 has no structuredContent, which the app then reports as lost: it is."""
    async with memory_wire(make_server(), LEGACY[2], capabilities=WITH_APPS) as wire:
        result = await wire.call("apps_diagnostics")
    assert "structuredContent" not in result
    assert result["_meta"]["mcpd/channels"]


@BOTH_ERAS
async def test_without_apps_it_is_a_text_about_the_server(version: str) -> None:
    """APP-S-06."""
    async with memory_wire(make_server(), version, capabilities=NO_APPS) as wire:
        assert "_meta" not in tool_of(await wire.result("tools/list"), "apps_diagnostics")
        text = await wire.text("apps_diagnostics", note="hello")
    assert version in text
    assert "Your host does not support MCP Apps" in text
    assert "Note: hello" in text


def test_the_starter_has_no_problem() -> None:
    assert make_server().problems() == []
