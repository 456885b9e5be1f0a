"""The page of `mcpd preview` in a real Chromium, over its real backend: calls, questions, Views, what goes wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import REPOSITORY
from support.browser import Chromium, Page
from support.preview_page_stage import busy_server, opened

from mcpd.apps.preview.views import PageViews, ViewInfo
from mcpd.sources.demo import make_server

pytestmark = pytest.mark.slow

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowRight": 39, "Home": 36}
RESULT = "document.getElementById('result').innerText"


async def type_keys(page: Page, *keys: str) -> None:
    """Press keys one after the other: a name of `KEYS`, `Ctrl+Enter`, or characters."""
    for key in keys:
        if key.startswith("Ctrl+"):
            await page.press(key[5:], KEYS[key[5:]], ctrl=True)
        elif key in KEYS:
            await page.press(key, KEYS[key], text="\r" if key == "Enter" else "")
        else:
            for one in key:
                await page.press(one, ord(one.upper()), text=one)


async def test_a_tool_is_called_and_its_app_is_shown_with_keys_alone(chromium: Chromium) -> None:
    """From the search to the View and back, no pointer: each stop is where the shortcuts and tabs say."""
    async with opened(chromium, busy_server()) as stage:
        page, main = stage.page, stage.main
        assert await main.evaluate("location.hash") == ""
        await stage.until("document.querySelectorAll('[data-key^=tool]').length === 7")
        await type_keys(page, "/", "show", "ArrowDown", "Enter")
        await stage.until("document.getElementById('tool-title').textContent === 'show'")
        await type_keys(page, "Escape", "c")
        assert await main.evaluate("document.activeElement.id") == "tool-title"
        await type_keys(page, "Tab", "Tab", "Tab")
        assert await main.evaluate("find.name(document.activeElement)") == "city"
        await type_keys(page, "Oslo", "Ctrl+Enter")
        await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
        await stage.until(f"{RESULT}.includes('Oslo for 3 days')")
        guest = await stage.guest()
        await guest.until("document.getElementById('said').textContent === 'Oslo for 3 days'")
        await type_keys(page, "Escape", "v")
        assert await main.evaluate("document.activeElement.tagName + document.activeElement.textContent") == "H3show"
        # Border and title are the page's to show (APP-H-23), and nothing of the address, which is random.
        assert "mcpd.localhost" not in await main.evaluate("document.querySelector('.view-head').innerText")
        assert await main.evaluate("getComputedStyle(document.querySelector('.view')).borderTopWidth") == "1px"
        await type_keys(page, "m", "Home")
        await stage.until("document.activeElement.getAttribute('aria-activedescendant')")
        await type_keys(page, "?")
        assert await main.evaluate("document.querySelector('dialog[open]').id") == "help"
        await type_keys(page, "Escape", "h")
        assert await main.evaluate("document.activeElement.id") == "host-title"
        assert not page.errors
        assert not page.violations


async def test_calls_are_cancelled_and_failures_told(chromium: Chromium) -> None:
    """Progress while it runs, a call that is given up, isError, an unknown tool, and a field that the server names."""
    async with opened(chromium, busy_server()) as stage:
        await stage.pick("tool slow")
        await stage.press("Call")
        await stage.says("25 % · begun")
        assert await stage.main.evaluate("document.querySelector('progress').value") == 1
        assert await stage.main.evaluate("document.querySelector('.tool').getAttribute('aria-busy')") == "true"
        await stage.press("Cancel")
        await stage.until(f"{RESULT}.includes('Cancelled')")
        assert await stage.main.evaluate("find.name(document.activeElement)") == "Call"

        await stage.pick("tool fail")
        await stage.write("why", "rain")
        await stage.press("Call")
        await stage.until(f"{RESULT}.includes('isError') && {RESULT}.includes('it failed: rain')")

        await stage.pick("tool show")
        await stage.press("JSON")
        await stage.write("Arguments as JSON", '{"city": "Oslo", "days": "many"}')
        await stage.press("Call")
        await stage.until(f"{RESULT}.includes('isError') || {RESULT}.includes('error')")
        await stage.press("Form")
        assert await stage.main.evaluate("find.one('days').getAttribute('aria-invalid')") == "true"
        assert not stage.page.errors


async def test_the_server_asks_and_is_answered(chromium: Chromium) -> None:
    """A form, what a model would say, roots: by their controls, with the focus where the question is; and a refusal."""
    async with opened(chromium, busy_server()) as stage:
        await stage.pick("tool interview")
        await stage.press("Call")
        await stage.says("Who are you?")
        await stage.press("Send")
        assert await stage.main.evaluate("find.name(document.activeElement)") == "name"
        await stage.write("name", "Ann")
        await stage.press("Send")
        await stage.until(f"{RESULT}.includes('Ann') && {RESULT}.includes('30')")
        assert await stage.main.evaluate("document.getElementById('asks').hidden")
        await stage.press("Call")
        await stage.press("Decline")
        await stage.until(f"{RESULT}.includes('decline')")

        await stage.pick("tool think")
        await stage.press("Call")
        await stage.says("What is two and two?")
        await stage.write("Your answer, as the model", "four")
        await stage.press("Answer")
        await stage.until(f"{RESULT}.includes('four')")

        await stage.pick("tool roots")
        await stage.press("Call")
        await stage.write("Address of a root", "file:///work")
        await stage.press("Send")
        await stage.until(f"{RESULT}.includes('file:///work')")
        assert not stage.page.errors


async def test_resources_are_read_and_prompts_got(chromium: Chromium) -> None:
    """A resource, a template that is filled in, a prompt that lacks its argument and then has it."""
    async with opened(chromium, busy_server()) as stage:
        await stage.until("document.querySelector('.tabs .count').textContent === '7'")
        await stage.pick("resource notes://today")
        await stage.press("Read")
        await stage.until(f"{RESULT}.includes('Rain, later sun.')")
        await stage.pick("template notes://{day}")
        await stage.write("day", "first of may")
        await stage.says("notes://first%20of%20may")
        await stage.press("Read")
        await stage.until(f"{RESULT}.includes('The note of first of may.')")
        await stage.pick("prompt report")
        await stage.press("Get")
        assert await stage.main.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true"
        await stage.write("city required", "Oslo")
        await stage.press("Get")
        await stage.until(f"{RESULT}.includes('Write about Oslo.')")
        assert not stage.page.errors


async def test_a_view_is_sized_moved_and_torn_down(chromium: Chromium) -> None:
    """Its size and modes as the page draws them, what is in force for it, several at once, and its end."""
    async with opened(chromium, busy_server()) as stage:
        main = stage.main
        await stage.pick("tool show")
        await stage.write("city", "Oslo")
        await stage.press("Call")
        await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
        await stage.until("document.querySelector('.screen').offsetHeight === 180")
        guest = await stage.guest()

        await stage.write("Width of the container", "320")
        await guest.until("innerWidth === 320")
        await guest.until("told.some(({ params }) => params?.containerDimensions?.width === 320)")
        await stage.write("Display mode", "fullscreen")
        await guest.until("told.some(({ params }) => params?.displayMode === 'fullscreen')")
        await main.until("document.querySelector('.view.fullscreen .view-head').checkVisibility()")
        await main.until("document.querySelector('.view iframe').offsetWidth === innerWidth - 2")
        await main.call("() => document.querySelector('.view h3').focus()")
        await stage.page.press("Escape", 27)
        await guest.until("told.some(({ params }) => params?.displayMode === 'inline')")
        await guest.evaluate("ask('ui/request-display-mode', { mode: 'pip' })")
        await main.until("document.querySelector('.view.pip')")
        await guest.until("told.some(({ result }) => result?.mode === 'pip')")
        await guest.evaluate("ask('ui/request-display-mode', { mode: 'inline' })")
        await main.until("document.querySelector('.view.inline')")

        await stage.press("Details")
        await stage.says("Content security policy in force")
        details = await main.evaluate("document.querySelector('.details').innerText")
        assert "default-src" in details
        assert "SHA-256" in details
        assert "ui://busy/probe" in details

        assert "clipboardWrite" in details
        assert "not granted" in details
        await stage.press("Grant and load again")
        guest = await stage.guest(guest)
        await main.until("document.querySelector('.view iframe').allow === 'clipboard-write'")
        await guest.until("document.getElementById('said').textContent === 'Oslo for 3 days'")
        await stage.press("Load again with the same input and result")
        guest = await stage.guest(guest)
        await guest.until("document.getElementById('said').textContent === 'Oslo for 3 days'")
        await main.until("document.querySelectorAll('.view[data-state=live]').length === 1")

        await stage.press("Host")
        await stage.write("Theme", "dark")
        await guest.until("told.some(({ params }) => params?.theme === 'dark')")
        await stage.write("Locale", "ja-JP")
        await guest.until("told.some(({ params }) => params?.locale === 'ja-JP')")
        await main.call(
            "() => find.all().find((one) => one.labels?.[0]?.textContent.startsWith('Keep Views open')).click()"
        )
        await stage.press("Call")
        await main.until("document.querySelectorAll('.view[data-state=live]').length === 2")

        closes = "find.all().filter((one) => find.name(one) === 'Tear down')"
        await main.evaluate(f"{closes}[1].click()")
        await main.until("document.querySelectorAll('.view').length === 1")
        await main.evaluate(f"{closes}[0].click()")
        await stage.says("No app is open")
        assert not stage.page.errors
        assert not stage.page.violations


async def test_an_app_without_arguments_is_shown_at_once(chromium: Chromium) -> None:
    """Nothing is to be filled in, so nothing is to be pressed; one that stays for another tool says whose it is."""
    server = busy_server()
    server.add_tool(
        lambda: "gone", name="wipe", description="x", ui="ui://busy/probe", annotations={"destructiveHint": True}
    )
    async with opened(chromium, server) as stage:
        other = "document.querySelector('.view .chip.warn')"
        await stage.pick("tool leak")
        await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
        assert not await stage.main.evaluate(f"find.shown({other})")
        await stage.pick("tool wipe")
        await stage.until(f"find.shown({other}) && {other}.title.includes('leak')")
        assert "Not called yet" in await stage.main.evaluate(RESULT)
        await stage.pick("tool leak")
        await stage.until(f"!find.shown({other})")
        assert await stage.main.evaluate("document.querySelectorAll('.view').length") == 1
        assert not stage.page.errors


async def test_of_two_calls_in_a_row_the_view_of_the_last_one_stays(
    chromium: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the first View opens last."""
    order: list[str] = []
    second_is_open, first_is_closed = asyncio.Event(), asyncio.Event()
    open_view, close_view = PageViews.open, PageViews.close

    async def opening(views: PageViews, *call: Any) -> ViewInfo:
        is_first = not order
        order.append("begun")
        if is_first:
            await second_is_open.wait()
        info = await open_view(views, *call)
        order.append(info.view_id)
        return info

    async def closing(views: PageViews, view_id: str, reason: str) -> bool:
        is_clean = await close_view(views, view_id, reason)
        if view_id == order[-1]:
            first_is_closed.set()
        return is_clean

    monkeypatch.setattr(PageViews, "open", opening)
    monkeypatch.setattr(PageViews, "close", closing)
    async with opened(chromium, busy_server()) as stage:
        await stage.pick("tool leak")  # which calls it at once
        await stage.press("Call")
        await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
        second_is_open.set()
        await first_is_closed.wait()
        await stage.until("document.querySelectorAll('.view').length === 1")
        assert await stage.main.evaluate("document.querySelector('.view').dataset.view") == order[2]
        assert not stage.page.errors


@pytest.mark.parametrize("name", ["examples/garden", "assets/init"])
async def test_the_pages_of_our_examples_shrink_with_what_is_in_them(chromium: Chromium, name: str) -> None:
    """APP-V-02: their frames become lower again."""
    async with opened(chromium, str(REPOSITORY / name)) as stage:
        if name == "assets/init":  # its tool has an argument, which may be left out
            await stage.press("Call")
        await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
        height = "document.querySelector('.screen').offsetHeight"
        guest = await stage.guest()
        await guest.call("() => { document.querySelector('ul, dl').style.height = '500px'; }")
        await stage.until(f"{height} > 500")
        await guest.call("() => { document.querySelector('ul, dl').style.height = ''; }")
        await stage.until(f"{height} < 500")


async def test_the_diagnostics_app_completes_every_step(chromium: Chromium) -> None:
    """The starter's app, opened by the page: each line of its check list that its own call can settle, passes."""
    async with opened(chromium, make_server()) as stage:
        await stage.pick("tool apps_diagnostics")
        await stage.write("note", "hello")
        await stage.press("Input bit by bit")
        await stage.press("Step")
        await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
        await stage.press("Step")
        await stage.press("Finish and call")
        guest = await stage.guest()
        await guest.until("document.documentElement.dataset.verdict === 'pass'")
        await stage.press("Host")
        await stage.write("Theme", "dark")
        await stage.press("Details")
        await stage.press("Ping")
        await stage.until("document.querySelector('.details summary')")
        await stage.main.evaluate("document.querySelectorAll('.details summary').forEach((one) => one.click())")
        await stage.press("Call get_report")
        checks = "[...document.querySelectorAll('[data-check]')].map(({ dataset }) => [dataset.check, dataset.status])"
        left = f"{checks}.filter(([_, status]) => status !== 'pass').map(([name]) => name).sort().join(' ')"
        # A call ends in one way, and what is told at the end of all is not told yet.
        await guest.until(f"{left} === 'cancelled quiet-close teardown'", seconds=20)
        await stage.press("Tear down")
        await stage.says("No app is open")
        assert not stage.page.errors


async def test_the_protocol_version_is_switched(chromium: Chromium) -> None:
    """An older version, in which the same tool is called, and what the page says of it."""
    async with opened(chromium, busy_server()) as stage:
        await stage.pick("tool fail")
        for version in ("2025-11-25", "2025-06-18"):
            await stage.write("Protocol version", version)
            await stage.until(f"document.getElementById('version').options[0].text === '{version}'")
            await stage.write("why", f"in {version}")
            await stage.press("Call")
            await stage.until(f"{RESULT}.includes('it failed: in {version}')")
        await stage.main.evaluate("document.getElementById('server-button').click()")
        await stage.until("document.querySelector('dialog[open]').innerText.includes('Be quick.')")
        await stage.says("in a session (versions up to 2025-11-25)")
        assert not stage.page.errors


async def test_what_is_lost_is_said(chromium: Chromium) -> None:
    """The preview goes away, and the address of one that is gone is refused: what happened, and what to do."""
    async with opened(chromium, busy_server()) as stage:
        url = stage.preview.url
        wrong = await stage.page.goto(url.partition("#")[0] + "#not-the-token")
        await wrong.until("document.getElementById('banner').innerText.includes('not valid any more')")
        again = await stage.page.goto(url)  # pasted into the same page
        await again.until("document.getElementById('banner').hidden && document.body.dataset.state === 'ready'")
        await stage.preview.aclose()
        await again.until("document.getElementById('banner').innerText.includes('The preview cannot be reached')")
        assert await again.evaluate("document.getElementById('banner').getAttribute('role')") == "alert"
