"""The page of `mcpd preview` for tests: a preview with its real page in a real Chromium, and a server to look at.

Lives here: the server, the page once it is ready, and how a test finds controls by what they are called. Never here:
assertions about the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from support.browser import Chromium, Frame, Page

from mcpd import Context, Server, ToolError
from mcpd.apps.preview.preview import Preview
from mcpd.apps.preview.session import SessionOptions
from mcpd.client.target import Target

__all__ = ["APP", "PageStage", "busy_server", "opened", "schema_server", "tab"]

APP = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Probe</title><body><p id="said">nothing</p><script>
"use strict";
const told = [];
let last = 0;
const post = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const ask = (method, params) => post({ id: (last += 1), method, params });
addEventListener("message", ({ source, data }) => {
  if (source !== parent) return;
  told.push(data);
  if (data.id === 0) {
    post({ method: "ui/notifications/initialized" });
    post({ method: "ui/notifications/size-changed", params: { width: 300, height: 180 } });
  }
  if (data.method === "ui/notifications/tool-result")
    document.getElementById("said").textContent = data.params.content[0].text;
  if (data.method === "ui/resource-teardown") post({ id: data.id, result: {} });
});
post({ id: 0, method: "ui/initialize", params: {
  protocolVersion: "2026-01-26", appInfo: { name: "probe", version: "1" },
  appCapabilities: { availableDisplayModes: ["inline", "fullscreen", "pip"] } } });
</script>"""

PROBE = Path(__file__).resolve().parent.parent / "apps" / "preview" / "page_probe.js"

KINDS = {"tool": 0, "resource": 1, "template": 1, "prompt": 2}
"""Which tab on the left has an entry."""


class PageStage:
    """A preview and its page."""

    def __init__(self, preview: Preview, page: Page, main: Frame) -> None:
        self.preview = preview
        self.page = page
        self.main = main

    async def pick(self, key: str) -> None:
        """Choose an entry on the left: `tool NAME`, `resource URI`, `prompt NAME`."""
        row = f"document.querySelector('[data-key=\\'{key}\\']')"
        await self.main.until(row)
        await self.main.evaluate(f"document.querySelectorAll('#browse [role=tab]')[{KINDS[key.split()[0]]}].click()")
        await self.main.evaluate(f"{row}.click()")

    async def press(self, name: str) -> None:
        """Click the one control that is shown and called this, as soon as there is one."""
        await self._with(name, "find.press(name)")

    async def write(self, name: str, value: Any) -> None:
        """Write into the one control of this name, or choose there."""
        await self._with(name, f"find.write(name, {json.dumps(value)})")

    async def _with(self, name: str, step: str) -> None:
        # In the same moment: the page may draw the control anew, or disable it, between two looks.
        ready = "((name) => find.all().filter((one) => find.name(one) === name && !one.disabled).length === 1"
        await self.main.until(f"{ready} && ({step}, true))({json.dumps(name)})")

    async def until(self, expression: str) -> Any:
        """Await something in the page."""
        return await self.main.until(expression)

    async def says(self, text: str) -> None:
        """Await a text that is seen somewhere in the page."""
        await self.until(f"document.body.innerText.includes({json.dumps(text)})")

    async def guest(self, *before: Frame) -> Frame:
        """Await the frame of a View that is none of those before."""
        return await self.page.frame("/guest", known={frame.url for frame in before})


@contextlib.asynccontextmanager
async def opened(
    chromium: Chromium,
    target: Target,
    *,
    width: int = 1280,
    height: int = 800,
    scheme: str = "light",
    version: str | None = None,
) -> AsyncIterator[PageStage]:
    """A preview of this server, and its page when it is ready."""
    settings = SessionOptions(target=target, name="under test", version=version)
    async with Preview(settings) as preview, tab(chromium, preview, width, height, scheme) as stage:
        yield stage


@contextlib.asynccontextmanager
async def tab(
    chromium: Chromium, preview: Preview, width: int = 1280, height: int = 800, scheme: str = "light"
) -> AsyncIterator[PageStage]:
    """One more page of a preview."""
    script = PROBE.read_text(encoding="utf-8")
    async with chromium.page(width=width, height=height, scheme=scheme, script=script) as page:
        main = await page.goto(preview.url)
        await main.until("document.body.dataset.state === 'ready'")
        yield PageStage(preview, page, main)


def schema_server(schemas: dict[str, Any]) -> tuple[Server, list[tuple[str, Any]]]:
    """A server with a tool for each schema, and what they were called with."""
    server = Server("zoo")
    called: list[tuple[str, Any]] = []

    def add(name: str, schema: Any) -> None:
        async def take(arguments: dict[str, Any]) -> str:
            called.append((name, arguments))
            return "taken"

        server.tool(take, name=name, input_schema=schema)

    for name, schema in schemas.items():
        add(name, schema)
    return server, called


LEAKY = APP.replace(
    "let last",
    """fetch("https://api.example.com/x").catch(() => {});
const image = new Image();
image.src = "https://cdn.example.com/logo.png";
let last""",
)
"""The same, and it loads what it does not declare."""


class Person(Struct):
    """What the server asks for."""

    name: str
    age: int = 30


def busy_server() -> Server:
    """Tools that ask, that take their time, that fail, and that have an app; resources, a template, a prompt."""
    server = Server("busy", version="1.2.3", instructions="Be quick.")
    server.app("ui://busy/probe", APP, name="probe", permissions=["clipboardWrite"])

    @server.tool(ui="ui://busy/probe")
    async def show(city: str, days: int = 3) -> str:
        """Show a city."""
        return f"{city} for {days} days"

    server.app("ui://busy/leaky", LEAKY, name="leaky", csp={"connectDomains": ["https://known.example.com"]})

    @server.tool(ui="ui://busy/leaky")
    async def leak() -> str:
        """Show an app that loads from elsewhere."""
        return "leaked nothing"

    @server.tool
    async def slow(ctx: Context) -> str:
        """Take a while."""
        await ctx.progress(1, 4, "begun")
        await asyncio.sleep(3600)
        return "never"

    @server.tool
    async def fail(why: str = "no reason") -> str:
        """Fail."""
        raise ToolError(f"it failed: {why}")

    @server.tool
    async def interview(ctx: Context) -> str:
        """Ask who it is."""
        answer = await ctx.elicit("Who are you?", Person)
        return f"{answer}"

    @server.tool
    async def think(ctx: Context) -> str:
        """Ask the model."""
        answer = await ctx.sample("What is two and two?", max_tokens=50)
        return f"The model said {answer.content}"

    @server.tool
    async def roots(ctx: Context) -> list[str]:
        """Ask for the roots."""
        return [root.uri for root in await ctx.list_roots()]

    @server.resource("notes://today", mime_type="text/plain")
    async def today() -> str:
        """The note of today."""
        return "Rain, later sun."

    @server.resource("notes://{day}")
    async def note(day: str) -> str:
        """A note."""
        return f"The note of {day}."

    @server.prompt
    async def report(city: str) -> str:
        """Write a report."""
        return f"Write about {city}."

    return server
