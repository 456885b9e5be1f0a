"""The apps that we bring along pass `mcpd apps test`: every kind of view, diagnostics, the scaffold, the examples."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import REPOSITORY
from support.browser import find_chromium
from support.views_stage import CALLED, MARKDOWN, SAMPLES, png

from mcpd import ImageContent, Server, ViewResult, view_result
from mcpd.apps.verdict.report import AppsReport, TryOptions
from mcpd.apps.verdict.run import try_apps
from mcpd.client.target import Target
from mcpd.server.extensions.ui.pages import page as make_page
from mcpd.sources.demo import make_server as make_starter

pytestmark = pytest.mark.slow


def try_all(target: Target) -> AppsReport:
    if find_chromium() is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    # Patient: the machine may be doing other things too.
    return asyncio.run(try_apps(target, TryOptions(browser=find_chromium(), timeout=30)))


def hold(report: AppsReport, count: int) -> None:
    """APP-V-01 to APP-V-07, APP-S-04, APP-S-06: nothing fails, nothing is warned of."""
    assert len(report.apps) == count
    assert report.failures == []
    assert report.warnings == []


def made(server: Server, kind: str) -> None:
    """A tool of this kind, that is called with nothing."""

    def tool() -> ViewResult:
        return view_result("words", SAMPLES[kind][0]["structuredContent"])

    server.add_tool(tool, name=kind, ui=kind)


async def test_every_kind_of_view() -> None:
    server = Server("kinds", version="1")

    @server.tool(view="table")
    def table() -> list[dict[str, Any]]:
        """Rows."""
        return [{"day": "2026-03-01", "high": 12.5}, {"day": "2026-03-02", "high": 11}]

    @server.tool(view="chart")
    def chart() -> list[dict[str, Any]]:
        """The same rows."""
        return [{"day": f"2026-03-0{day}", "high": 12.5 + day} for day in range(1, 8)]

    @server.tool(view="markdown")
    def markdown() -> str:
        """Words."""
        return MARKDOWN

    @server.tool(view="image")
    def image() -> ImageContent:
        """A picture."""
        return ImageContent(data=png(), mime_type="image/png")

    @server.tool(view="form", title="Forecast")
    def form(city: str, days: int = 3) -> list[dict[str, Any]]:
        """Rows for arguments."""
        return [{"city": city, "day": day} for day in range(days)]

    for kind, calls in (("reader", "show_docs"), ("notebook", "show_notebook_cells")):
        server.app(kind, make_page(kind, {"calls": calls}))
        made(server, kind)

        def called(path: str = "", first: int = 1, kind: str = kind) -> ViewResult:
            return view_result("words", CALLED[kind]["structuredContent"])

        server.add_tool(called, name=calls, visibility=["app"])

    report = await asyncio.to_thread(try_all, server)
    hold(report, 7)


@pytest.mark.parametrize("target", ["starter", "examples/garden"])
async def test_other_apps_of_ours(target: str) -> None:
    found = make_starter() if target == "starter" else str(REPOSITORY / target)
    hold(await asyncio.to_thread(try_all, found), 1)
