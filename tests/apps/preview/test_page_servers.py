"""The page of `mcpd preview` and what servers do: visits, kinds of content, changes, proposals; tabs, and a crash."""

from __future__ import annotations

import asyncio
import io
import sys
import wave
from pathlib import Path
from typing import Any

import pytest
from support.browser import Chromium
from support.clock import until
from support.pages import Pages
from support.preview_page_stage import APP, PageStage, busy_server, opened, tab
from support.views_stage import png

from mcpd import Context, Server
from mcpd.apps.preview.messages import TraceFilter, TraceGet
from mcpd.client.targets.named import CommandTarget
from mcpd.protocol.types.features import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextResourceContents,
)

pytestmark = pytest.mark.slow

RESULT = "document.getElementById('result').innerText"
VISITS = "document.getElementById('visits').innerText"
BANNER = "document.getElementById('banner').innerText"
NOTE = """(text) => import('/api.js').then(({ api }) =>
  api.request('tools/call', { callId: text, name: 'note', arguments: { text }, as: 'model' }))"""
STATE = "document.getElementById('server-facts').innerText"


def sound() -> bytes:
    """A tenth of a second of silence."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(8000)
        file.writeframes(bytes([128] * 800))
    return buffer.getvalue()


def giving_server(pages: Pages, is_over: asyncio.Event) -> Server:
    """A server that sends its user away, gives all kinds of content, changes, and proposes values."""
    server = Server("giver")
    paid: list[str] = []
    notes = ["Rain."]

    @server.tool
    async def sign_in(ctx: Context) -> str:
        answer = await ctx.elicit_url("Sign in, please.", pages.url("/in", "id"), elicitation_id="e1")
        await is_over.wait()
        await ctx.elicitation_complete("e1")
        return f"it was {answer.action}"

    @server.tool
    async def gated(ctx: Context) -> str:
        if not paid:
            paid.append("once")
            ctx.require_url("Pay first.", pages.url("/pay", "bank"), elicitation_id="e2")
        return "paid for"

    @server.tool
    async def everything() -> list[Any]:
        """One block of each kind."""
        text = TextResourceContents(uri="notes://inside", text="Embedded words", mime_type="text/plain")
        blob = BlobResourceContents(uri="files://a.zip", blob=b"12345", mime_type="application/zip")
        return [
            AudioContent(data=sound(), mime_type="audio/wav"),
            ImageContent(data=png(), mime_type="image/png"),
            EmbeddedResource(resource=text),
            EmbeddedResource(resource=blob),
            ResourceLink(uri="notes://today", name="today", title="The note of today", size=5),
        ]

    @server.resource("notes://today", mime_type="text/plain")
    async def today() -> str:
        """The note of today."""
        return notes[-1]

    @server.tool
    async def note(text: str) -> str:
        """Another note for today."""
        notes.append(text)
        server.resource_updated("notes://today")
        return "noted"

    @server.resource("notes://{day}")
    async def of_day(day: str) -> str:
        """A note."""
        return f"The note of {day}."

    @server.prompt
    async def report(city: str, style: str = "short") -> str:
        """Write a report."""
        return f"Write about {city}, {style}."

    @server.completion("city", prompt="report")
    async def cities(value: str) -> list[str]:
        return [name for name in ("Oslo", "Odense", "Bergen") if name.lower().startswith(value.lower())]

    @server.completion("day", template="notes://{day}")
    async def days(value: str) -> list[str]:
        return [f"{value}day", f"{value}night"]

    return server


async def visits(stage: PageStage, pages: Pages, is_over: asyncio.Event) -> None:
    """S25-093: the host is shown, nothing is opened but by the user's press, and the server's last word is heard."""
    await stage.pick("tool sign_in")
    await stage.press("Call")
    await stage.says("Sign in, please.")
    address = pages.url("/in", "id")
    assert (
        await stage.main.evaluate("document.querySelector('#asks .address strong').textContent")
        == (address.split("/")[2])
    )
    assert pages.visited == []
    await stage.press("Open it")
    await until(lambda: "/in" in pages.visited)
    await stage.until(f"{VISITS}.includes('id.localhost') && {VISITS}.includes('opened')")
    is_over.set()
    await stage.until(f"{VISITS}.includes('complete') && {RESULT}.includes('it was accept')")
    await stage.press(f"Forget the visit to {address.split('/')[2]}")
    assert await stage.main.evaluate("document.getElementById('visits').hidden")
    assert await stage.main.call("async () => (await import('/visits.js')).opener('javascript:alert(1)')") is None

    # One that is refused until a page was visited: the page, and the call again.
    await stage.pick("tool gated")
    await stage.press("Call")
    await stage.until(f"{RESULT}.includes('Pay first.') && {RESULT}.includes('bank.localhost')")
    assert "/pay" not in pages.visited
    await stage.press("Open it")
    await until(lambda: "/pay" in pages.visited)
    await stage.press("Call again")
    await stage.until(f"{RESULT}.includes('paid for')")


async def contents(stage: PageStage) -> None:
    """Sound that can be played, a picture, a text and a file inside, and a link that is read where it stands."""
    await stage.pick("tool everything")
    await stage.press("Call")
    await stage.until("document.querySelector('#result audio')?.duration > 0")
    await stage.until("document.querySelector('#result img')?.naturalWidth > 0")
    await stage.until(f"{RESULT}.includes('Embedded words') && {RESULT}.includes('5 B of data')")
    assert await stage.main.evaluate("find.one('Save', document.getElementById('result')).type") == "button"
    await stage.press("Read")
    await stage.until(f"{RESULT}.includes('Rain.')")
    assert await stage.main.evaluate("document.getElementById('tool-title').textContent") == "today"


async def changes(stage: PageStage) -> None:
    """What is subscribed to is read again when the server says that it has changed; and then no more."""
    for press, text, seen in (("Subscribe", "Snow.", "Snow."), ("Subscribed", "Hail.", "Snow.")):
        await stage.pick("resource notes://today")
        await stage.press(press)
        await stage.press("Read")
        await stage.until(f"{RESULT}.includes('.')")
        await stage.main.call(NOTE, text)
        await stage.until(f"{RESULT}.includes('{seen}')")
    await stage.press("Read")
    await stage.until(f"{RESULT}.includes('Hail.')")


async def proposals(stage: PageStage) -> None:
    """Arguments of prompts and variables of templates are completed by the server."""
    for key, name, text, told in (
        ("prompt report", "city required", "O", "2 proposals: Oslo, Odense"),
        ("template notes://{day}", "day", "sun", "2 proposals: sunday, sunnight"),
    ):
        await stage.pick(key)
        await stage.write(name, text)
        await stage.says(told)
        offered = "(name) => [...find.one(name).list.options].map(({ value }) => value)"
        assert ", ".join(await stage.main.call(offered, name)) == told.partition(": ")[2]


async def test_all_that_a_server_gives(chromium: Chromium, pages: Pages) -> None:
    """One server, one page: see the functions above."""
    for path in ("/in", "/pay"):
        pages.put(path, "<!doctype html><title>There</title>")
    is_over = asyncio.Event()
    async with opened(chromium, giving_server(pages, is_over), version="2025-11-25") as stage:
        await visits(stage, pages, is_over)
        await contents(stage)
        await changes(stage)
        await proposals(stage)
        assert not stage.page.errors
        assert not stage.page.violations


async def test_two_tabs_and_what_views_are_told(chromium: Chromium) -> None:
    """Each tab has its own Views, and their surroundings; a question is put to both, and answered once."""
    async with opened(chromium, busy_server()) as one, tab(chromium, one.preview) as two:
        for stage, city in ((one, "Oslo"), (two, "Bergen")):
            await stage.pick("tool show")
            await stage.write("city", city)
            await stage.press("Call")
            await stage.until("document.querySelectorAll('.view[data-state=live]').length === 1")
            await (await stage.guest()).until(f"document.getElementById('said').textContent === '{city} for 3 days'")
        first, second = await one.guest(), await two.guest()

        await one.press("Host")
        await one.write("A phone’s notch and bar", True)
        await one.write("right", "7")
        await one.write("touch", True)
        await one.write("hover", False)
        await one.write("Platform", "mobile")
        insets = {"top": 44, "right": 7, "bottom": 34, "left": 0}
        context = "Object.assign({}, ...told.map(({ params, result }) => result?.hostContext ?? params))"
        await first.until(f"{context}.platform === 'mobile'")
        assert (await first.evaluate(context)).items() >= {
            "safeAreaInsets": insets, "deviceCapabilities": {"touch": True, "hover": False},
        }.items()  # fmt: skip
        assert (await second.evaluate(context)).get("safeAreaInsets") != insets
        await one.press("Load again with the same input and result")
        first = await one.guest(first)
        told = "told.find(({ id }) => id === 0)?.result.hostContext"
        assert (await first.until(told))["safeAreaInsets"] == insets

        await one.pick("tool interview")
        await one.press("Call")
        for stage in (one, two):
            await stage.says("Who are you?")
        await two.write("name", "Ann")
        await two.press("Send")
        await one.until(f"document.getElementById('asks').hidden && {RESULT}.includes('Ann')")

        await one.press("Tear down")
        await one.says("No app is open")
        assert await two.main.evaluate("document.querySelectorAll('.view[data-state=live]').length") == 1
        await two.press("Call")
        await two.until("document.querySelector('.view')?.dataset.state === 'live'")
        assert not one.page.errors
        assert not two.page.errors


MORTAL = f"""import os
from mcpd import Server
server = Server("mortal")


@server.tool
async def end() -> None:
    os._exit(3)


@server.tool
async def greet() -> str:
    return "hello"


server.app("bed", {APP!r})


@server.tool(ui="bed")
async def show_bed() -> str:
    return "beans"
"""


async def test_a_server_that_changes_or_ends_is_followed(chromium: Chromium, tmp_path: Path) -> None:
    """A changed app is shown anew with the same result; a server that ended is reached again, by itself where it starts
    again, and where it does not by a button, when it is mended."""
    file = tmp_path / "server.py"
    file.write_text(MORTAL)
    target = CommandTarget((sys.executable, "-m", "mcpd", "serve", "--stdio", str(file)))
    async with opened(chromium, target) as stage:
        await stage.main.evaluate(
            f"""(() => {{ window.seen = []; new MutationObserver(() => seen.push({BANNER}))
              .observe(document.getElementById('banner'), {{ childList: true, attributes: true }}); }})()"""
        )
        await stage.pick("tool show_bed")
        await (guest := await stage.guest()).until("document.getElementById('said').textContent === 'beans'")
        file.write_text(MORTAL.replace("<title>Probe", "<title>Another"))
        guest = await stage.guest(guest)
        await guest.until("document.title === 'Another' && document.getElementById('said').textContent === 'beans'")
        calls = stage.preview.session.trace.get(TraceGet(filter=TraceFilter(methods=["tools/call"], kinds=["request"])))
        assert calls["total"] == 1
        await stage.press("Tear down")

        await stage.pick("tool end")
        await stage.press("Call")
        await stage.until("seen.some((text) => text.includes('The server has stopped.'))")
        await stage.until(f"document.getElementById('banner').hidden && {STATE}.includes('restarted')")
        await stage.pick("tool greet")
        await stage.press("Call")
        await stage.until(f"{RESULT}.includes('hello')")

        file.write_text("raise RuntimeError('not today')")
        await stage.pick("tool end")
        await stage.press("Call")
        await stage.until(f"{BANNER}.includes('mend it, then connect anew') && {STATE}.includes('lost')")
        await stage.press("Connect anew")
        await stage.until(f"{BANNER}.includes('The server was not reached') && {BANNER}.includes('not today')")
        file.write_text(MORTAL.replace('"hello"', '"hello again"'))
        await stage.press("Try again")
        await stage.until(f"document.getElementById('banner').hidden && {STATE}.includes('connected')")
        await stage.pick("tool greet")
        await stage.press("Call")
        await stage.until(f"{RESULT}.includes('hello again')")
        assert not stage.page.errors
