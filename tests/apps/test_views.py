"""The bundled views in two hosts, ours and the official one: each kind, light and dark, wide and narrow.

What a page does in itself is in test_views_pages.py, what it withstands in test_views_hostile.py.
"""

from __future__ import annotations

import asyncio
import importlib.util
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from conftest import REPOSITORY
from msgspec import Meta
from support.apps_scene import OPAQUE, STRICT, Scene
from support.browser import Chromium, Frame, Page
from support.clock import until
from support.page_stage import showing
from support.pages import Pages
from support.views_stage import CALLED, DARK, FORM_TOOL, LIGHT, MARKDOWN, SAMPLES, look, png

from mcpd import Context, ImageContent, Server, SyncFile, ViewResult, view_result
from mcpd.apps.host.view.context import HostContext
from mcpd.apps.host.view.events import Closed, Finding
from mcpd.server.extensions.ui.pages import page as make_page

SIZES = (820, 360)
each_kind = pytest.mark.parametrize("kind", SAMPLES)


def make_server() -> Server:
    server = Server("shop", version="1")

    @server.tool(view="table")
    def table(city: str = "Oslo") -> list[dict[str, Any]]:
        """Rows."""
        return [{"day": "2026-03-01", "high": 12.5}, {"day": "2026-03-02", "high": 11}]

    @server.tool(view="chart")
    def chart(city: str = "Oslo") -> list[dict[str, Any]]:
        """The same rows."""
        return [{"day": f"2026-03-0{day}", "high": 12.5 + day} for day in range(1, 8)]

    @server.tool(view="markdown")
    def markdown(city: str = "Oslo") -> str:
        """Words."""
        return MARKDOWN

    @server.tool(view="image")
    def image(city: str = "Oslo") -> ImageContent:
        """A picture."""
        return ImageContent(data=png(), mime_type="image/png")

    @server.tool(view="form", title="Forecast")
    def form(city: str, days: Annotated[int, Meta(ge=1, le=14)] = 3) -> list[dict[str, Any]]:
        """Rows for arguments."""
        if city == "Atlantis":
            raise ValueError("no such city")
        return [{"city": city, "day": day} for day in range(days)]

    for kind, calls in (("reader", "show_docs"), ("notebook", "show_notebook_cells")):
        server.app(kind, make_page(kind, {"calls": calls}))
        server.add_tool(partial(_of_kind, kind), name=kind, ui=kind)
        server.add_tool(partial(_called_by, kind), name=calls, visibility=["app"])
    return server


def _of_kind(kind: str, city: str = "Oslo") -> ViewResult:
    """What a tool of that kind gives."""
    return view_result("words", SAMPLES[kind][0]["structuredContent"])


def _called_by(kind: str, path: str = "", first: int = 1) -> ViewResult:
    """What its page asks for."""
    return view_result("words", CALLED[kind]["structuredContent"])


async def shown(view: Frame) -> None:
    await view.until("document.documentElement.dataset.phase === 'shown'")


async def in_all_dresses(page: Page, view: Frame, dress: Any, sign: str) -> None:
    for scheme in (LIGHT, DARK):
        for width in SIZES:
            await page.resize(width, 700)
            await dress(scheme)
            await view.until(f"innerWidth === {width}")
            await view.until(f"document.querySelectorAll({sign!r}).length > 0")
            await look(view, scheme)


@each_kind
async def test_in_our_host(chromium: Chromium, pages: Pages, kind: str) -> None:
    async with showing(chromium, pages, make_server()) as show:
        view = await show.view(await show.host.call_tool(kind, {"city": "Oslo"}), keep=True)
        frame = await show.page.frame("/view")
        assert await view.live()
        await shown(frame)

        async def dress(scheme: Any) -> None:
            view.change_context(HostContext(theme=scheme))

        await in_all_dresses(show.page, frame, dress, SAMPLES[kind][1])
        assert await view.close("done") == Closed("done", clean=True)
        assert not [event for event in show.events if isinstance(event, Finding)]
        Scene(show.page, show.page.main, frame).clean()


@each_kind
async def test_in_the_official_host(chromium: Chromium, pages: Pages, bridge_bundle: str, kind: str) -> None:
    """Every message of the page fits the SDK's schemas; the policy is the strictest one, the origin opaque."""
    pages.put("/host", Path(__file__).with_name("official_host.html").read_text(encoding="utf-8"))
    pages.put("/app-bridge.js", bridge_bundle, content_type="text/javascript; charset=utf-8")
    html = make_page(kind, {}, FORM_TOOL if kind == "form" else None)
    pages.put("/view", html, content_security_policy=STRICT)
    result, sign = SAMPLES[kind]
    context = {
        "theme": LIGHT,
        "displayMode": "inline",
        "availableDisplayModes": ["inline", "fullscreen"],
        "containerDimensions": {"maxHeight": 5000},
        "locale": "en-GB",
    }
    planned = {
        "called": CALLED.get(kind),
        "view": pages.url("/view", "view"),
        "sandbox": OPAQUE,
        "capabilities": {"openLinks": {}, "serverTools": {}, "updateModelContext": {"text": {}}},
        "context": context,
    }
    async with chromium.page(width=820, height=700) as page:
        host = await page.goto(pages.url("/host"))
        await host.call("(planned) => host.open(planned)", planned)
        view = await page.frame("/view")
        await host.until("host.names().includes('initialized')")
        await host.evaluate("host.bridge.sendToolInputPartial({ arguments: { city: 'Os' } })")
        await host.evaluate("host.bridge.sendToolInput({ arguments: { city: 'Oslo' } })")
        await host.call("(result) => host.bridge.sendToolResult(result)", result)
        await shown(view)

        async def dress(scheme: str) -> None:
            await host.call("(context) => host.bridge.setHostContext(context)", {**context, "theme": scheme})

        await in_all_dresses(page, view, dress, sign)
        await host.until("host.names().includes('sizechange')")
        if kind == "form":
            await view.click(".primary")
            await host.until("host.names().includes('updatemodelcontext')")
        else:
            await view.click('[aria-label="Full screen"]') if kind != "markdown" else None
        assert await host.evaluate("host.bridge.teardownResource({ reason: 'done' })") == {}
        judged = await host.evaluate("host.objections()")
        assert judged["found"] == []
        assert judged["checked"] >= 4
        Scene(page, host, view).clean()


async def test_a_form_sends_a_chosen_file(chromium: Chromium, pages: Pages) -> None:
    """FIL-12: the page of `view="form"` has an input for a parameter that takes a file."""
    server = Server("files")

    @server.tool(view="form")
    def describe(report: SyncFile | None = None) -> str:
        return "none" if report is None else f"{report.name} has {report.read().decode()!r}"

    async with showing(chromium, pages, server) as show:
        view = await show.view(await show.host.call_tool("describe", {}), keep=True)
        frame = await show.page.frame("/view")
        assert await view.live()
        await shown(frame)
        await frame.call(
            """(name, text) => {
              const input = document.querySelector("input[type=file]"), chosen = new DataTransfer();
              chosen.items.add(new File([text], name, { type: "text/plain" }));
              input.files = chosen.files;
              input.dispatchEvent(new Event("change", { bubbles: true }));
            }""", "a b.txt", "one, two",
        )  # fmt: skip
        await frame.until("!document.querySelector('.form [aria-busy=true]')")
        await frame.click(".primary")
        await frame.until("document.querySelector('.outcome').textContent.includes(\"a b.txt has 'one, two'\")")


async def test_a_form_calls_its_tool_again_through_our_host(chromium: Chromium, pages: Pages) -> None:
    """From the call's arguments to a second call, its result, what is wrong with a third, and what the model hears."""
    async with showing(chromium, pages, make_server()) as show:
        view = await show.view(await show.host.call_tool("form", {"city": "Oslo", "days": 2}), keep=True)
        frame = await show.page.frame("/view")
        assert await view.live()
        await shown(frame)
        assert await frame.evaluate("[...document.querySelectorAll('.form input')].map((one) => one.value)") == [
            "Oslo",
            "2",
        ]
        await frame.call("(value) => { document.querySelectorAll('.form input')[1].value = value; }", "5")
        await frame.click(".primary")
        await frame.until("document.querySelectorAll('.outcome tbody tr').length === 5")
        await frame.call("(value) => { document.querySelectorAll('.form input')[0].value = value; }", "Atlantis")
        await frame.click(".primary")
        await frame.until("document.querySelector('.outcome .problem')")
        told: list[str] = []

        def is_told() -> bool:
            told.extend(map(str, show.host.conversation.take_context()))
            return any("Atlantis" in each for each in told)

        await until(is_told)  # the model hears of it after the user
        assert "failed" in told[-1]
        Scene(show.page, show.page.main, frame).clean()


EXAMPLE = {
    "stock": ({}, "document.querySelectorAll('tbody tr').length === 6"),
    "sales": ({"weeks": 8}, "document.querySelectorAll('[data-series]').length === 3"),
    "levels": ({}, "document.querySelectorAll('[data-series]').length === 1"),
    "advice": ({"plant": "carrots"}, "document.querySelector('.markdown table')"),
    "plan": ({}, "document.querySelector('.stage img').naturalWidth === 300"),
    "order": ({"article": "Spade"}, "document.querySelector('.outcome table')"),
}


@pytest.mark.parametrize("tool", EXAMPLE)
async def test_the_example(chromium: Chromium, pages: Pages, tool: str) -> None:
    place = "example_of_views", REPOSITORY / "examples" / "views.py"
    spec = importlib.util.spec_from_file_location(*place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    arguments, sign = EXAMPLE[tool]
    async with showing(chromium, pages, module.server) as show:
        view = await show.view(await show.host.call_tool(tool, arguments))
        frame = await show.page.frame("/view")
        assert await view.live()
        await shown(frame)
        await frame.until(sign)
        await look(frame, DARK)
        if tool == "order":
            await frame.evaluate("document.querySelectorAll('[role=form] input')[0].value = '99'")
            await frame.click(".primary")
            await frame.until(
                "document.querySelector('.wrong:not([hidden])')?.textContent === 'only 18 of Spade are left'"
            )
        Scene(show.page, show.page.main, frame).clean()


async def test_the_progress_of_a_task_of_ours(chromium: Chromium, pages: Pages) -> None:
    """In a host without tasks the page waits for the result: from the text that the server gives to the table."""
    gate = asyncio.Event()
    server = Server("slow", task_fallback="poll")
    server.extensions["io.modelcontextprotocol/tasks"].fallback_after = 0.0  # type: ignore[attr-defined]

    @server.tool(task="auto", view="table")
    async def table(ctx: Context) -> list[dict[str, str]]:
        await ctx.progress(3, total=40, message="frame")
        await gate.wait()
        return [{"city": "Oslo"}]

    async with showing(chromium, pages, server, version="2025-06-18") as show:
        await show.view(await show.host.call_tool("table", {}), keep=True)
        frame = await show.page.frame("/view")
        await frame.until("document.querySelector('.state progress')?.value === 3")
        assert await frame.text(".state span") == "frame"
        gate.set()
        await frame.until("document.querySelector('tbody tr')")
