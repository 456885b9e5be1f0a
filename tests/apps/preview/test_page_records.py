"""What the page of `mcpd preview` keeps: messages, what the policy blocked, what apps said; and the quirks of hosts."""

from __future__ import annotations

import json
import sys

import pytest
from conftest import REPOSITORY
from support.browser import Chromium
from support.preview_page_stage import APP, PageStage, busy_server, opened

from mcpd import Server

pytestmark = pytest.mark.slow

ROWS = """[...document.querySelectorAll('.trace-row')].sort((a, b) => a.dataset.at - b.dataset.at)
  .map((row) => row.innerText)"""
LIVE = "document.querySelector('.view')?.dataset.state === 'live'"


async def show(stage: PageStage, tool: str = "show") -> None:
    """Call a tool and await its View."""
    await stage.pick(f"tool {tool}")
    if tool == "show":
        await stage.write("city", "Oslo")
    await stage.press("Call")
    await stage.until(LIVE)


async def test_messages_are_filtered_opened_copied_and_saved(chromium: Chromium) -> None:
    """All three parties in order; by party, kind, method and text; the whole message, the clipboard, the file."""
    async with opened(chromium, busy_server()) as stage:
        main = stage.main
        await show(stage)
        whole = await stage.until("Number(document.querySelector('.trace-list').getAttribute('aria-rowcount')) > 12")
        await main.evaluate("document.querySelector('.trace-list').scrollTo(0, 0)")
        await main.until(f"{ROWS}[0].includes('host → server')")
        assert whole

        await stage.write("Party", "Views")
        await main.until(f"{ROWS}.length > 4 && {ROWS}.every((row) => row.includes('view'))")
        await stage.press("responses")
        await main.until(f"{ROWS}.length === 1 && {ROWS}[0].includes('ui/initialize')")
        await stage.press("responses")
        await stage.write("Party", "all parties")
        await stage.write("Method", "tool-input")
        await main.until(f"{ROWS}.length === 1 && {ROWS}[0].includes('ui/notifications/tool-input')")
        await stage.write("Method", "")
        await stage.write("Text in messages", "for 3 days")
        await main.until(f"{ROWS}.length === 2")  # the server's answer, and what the View was told

        await main.evaluate("document.querySelectorAll('.trace-row')[0].click()")
        await stage.until("document.querySelector('.trace-detail pre')?.innerText.includes('Oslo for 3 days')")
        await main.evaluate(
            """(() => { window.copied = []; window.saved = [];
              navigator.clipboard.writeText = async (text) => { copied.push(text); };
              URL.createObjectURL = (blob) => { saved.push(blob); return "#"; };
              URL.revokeObjectURL = () => {};
            })()"""
        )
        await stage.press("Copy the message")
        assert "Oslo for 3 days" in json.loads((await main.until("copied"))[0])["result"]["content"][0]["text"]
        await stage.press("Save")
        await main.until("saved.length")
        lines = (await main.evaluate("saved[0].text()")).splitlines()
        head, *records = map(json.loads, lines)
        assert head["trace"] == 1
        assert "result" in records[0]["message"]
        assert records[1]["message"]["method"] == "ui/notifications/tool-result"
        await stage.write("Text in messages", "nowhere")
        await stage.says("No message fits the filter")
        assert not stage.page.errors


async def test_fifty_thousand_messages_scroll(chromium: Chromium) -> None:
    """A row exists only while it is seen; any place is reached at once, also by keys; the newest are followed."""
    async with opened(chromium, busy_server()) as stage:
        trace = stage.preview.session.trace
        for number in range(50_100):
            trace.add("host", "server", b'{"jsonrpc":"2.0","method":"notifications/x","params":{"number":%d}}' % number)
        total = trace.total
        rows = "Number(document.querySelector('.trace-list').getAttribute('aria-rowcount'))"
        await stage.until(f"{rows} >= {total}")
        await stage.until(f"{ROWS}.join().includes('{{\"number\":50099}}')")
        for place in (25_000, 40_000, 1_000):
            await stage.main.evaluate(f"document.querySelector('.trace-list').scrollTo(0, {place} * 28)")
            await stage.until(f"document.getElementById('m{place}')?.innerText.startsWith('{place}')")
        assert await stage.main.evaluate("document.querySelectorAll('.trace-row').length") < 40
        await stage.main.evaluate("document.querySelector('.trace-list').focus()")
        await stage.page.press("Home", 36)
        await stage.says("Only the newest 50,000 messages are kept.")
        await stage.page.press("End", 35)
        last = "Number(document.activeElement.getAttribute('aria-activedescendant')?.slice(1))"
        await stage.until(f"{last} >= {total - 1} && document.querySelector('.trace-detail pre')")
        # Each frame of scrolling has all its rows without an answer: the page cannot ask while it scrolls here.
        missing = """(async () => {
          const list = document.querySelector('.trace-list');
          const { send } = WebSocket.prototype;
          WebSocket.prototype.send = () => {};
          const missing = [];
          for (let step = 0; step < 60; step += 1) {
            list.scrollTop -= 700;
            list.dispatchEvent(new Event("scroll"));
            await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
            const first = Math.ceil(list.scrollTop / 28);
            if (!document.getElementById(`m${first}`)) missing.push(first);
          }
          WebSocket.prototype.send = send;
          return missing;
        })()"""
        assert await stage.main.evaluate(missing) == []
        assert not stage.page.errors


async def test_what_the_policy_blocked_is_named_with_what_to_write(chromium: Chromium) -> None:
    """Each missing domain, its field, and one line for the app's metadata that has all of them and what was there."""
    async with opened(chromium, busy_server()) as stage:
        await show(stage, "leak")
        await stage.press("2 findings")
        await stage.says("https://api.example.com is missing in connectDomains")
        await stage.says("https://cdn.example.com is missing in resourceDomains")
        line = await stage.main.evaluate("document.querySelector('.needed pre').textContent")
        assert json.loads("{" + line + "}")["_meta"]["ui"]["csp"] == {
            "connectDomains": ["https://known.example.com", "https://api.example.com"],
            "resourceDomains": ["https://cdn.example.com"],
        }
        assert not stage.page.errors


QUIRKS = {
    "No tool-input": "!told.some(({ method }) => method === 'ui/notifications/tool-input')",
    "isError result": "document.getElementById('said').textContent.includes('The tool failed')",
    "Opaque origin": "origin === 'null'",
    "window.openai": "typeof window.openai === 'object'",
    "Drop structuredContent": "!told.some(({ params }) => params?.structuredContent)",
    "Hidden until initialized": "told.some(({ method }) => method === 'ui/notifications/tool-result')",
}


async def test_quirks_of_other_hosts_are_done_to_the_next_view(chromium: Chromium) -> None:
    """Each switch, seen from inside; and a profile, which the View says it has."""
    async with opened(chromium, busy_server()) as stage:
        await stage.press("Host")
        await show(stage)
        shown = [await stage.guest()]
        for name, seen in QUIRKS.items():
            tick = f"find.all().find((one) => find.name(one).startsWith('{name}'))"
            await stage.main.until(f"{tick}?.type === 'checkbox'")
            await stage.main.evaluate(f"{tick}.click()")
            await stage.press("Call")
            await stage.main.until(f"document.querySelectorAll('.view').length === 1 && {LIVE}")
            shown.append(guest := await stage.guest(*shown))
            await guest.until("document.getElementById('said').textContent !== 'nothing'")
            await guest.until(seen)
            await stage.main.evaluate(f"{tick}.click()")
        assert await stage.main.evaluate("document.querySelector('.screen').classList.contains('unseen')") is False
        await stage.write("Profile", "compat: as lax as the official example host")
        await stage.press("Call")
        await stage.says("compat · ")
        assert not stage.page.errors


async def test_what_an_app_says_is_asked_and_kept(chromium: Chromium) -> None:
    """A message, context for the model, a link: allowed, denied, shown; and its log is in the log."""
    async with opened(chromium, busy_server()) as stage:
        await show(stage)
        guest = await stage.guest()
        await guest.evaluate("ask('ui/message', { role: 'user', content: [{ type: 'text', text: 'Hello model' }] })")
        context = "{ content: [{ type: 'text', text: 'Oslo is open' }], structuredContent: { city: 'Oslo' } }"
        await guest.evaluate(f"ask('ui/update-model-context', {context})")
        await guest.evaluate("post({ method: 'notifications/message', params: { level: 'warning', data: 'careful' } })")
        await stage.main.evaluate("find.all().find((one) => one.textContent.startsWith('Conversation')).click()")
        await stage.says("Hello model")
        await stage.says("Oslo is open")
        await stage.main.evaluate("find.all().find((one) => one.textContent.startsWith('Log')).click()")
        await stage.says("careful")

        await guest.evaluate("ask('ui/open-link', { url: 'https://example.com/x' })")
        await stage.says("show asks to open a link")
        await stage.press("Deny")
        await guest.until("told.some(({ error }) => error?.code === -32000)")
        await guest.evaluate("ask('ui/open-link', { url: 'https://example.com/x' })")
        await stage.press("Allow without opening")
        await guest.until("told.at(-1).result && told.at(-1).id > 3")
        assert not stage.page.errors


async def test_an_app_that_floods_loses_its_frame(chromium: Chromium) -> None:
    """APP-H-20: nothing but that would give the page back to its user."""
    flood = "setInterval(() => { for (let n = 0; n < 500; n += 1) parent.postMessage({ n }, '*'); }, 20);"
    storm_page = APP.replace("const told", f"{flood}\nconst told")
    server = Server("flood")
    server.app("storm", storm_page)

    @server.tool(ui="ui://flood/storm")
    async def storm() -> str:
        return "words"

    async with opened(chromium, server) as stage:
        await stage.pick("tool storm")
        await stage.press("Call")
        await stage.until("document.querySelector('.view')?.dataset.state === 'failed'")
        assert await stage.main.evaluate("document.querySelector('.view iframe')") is None
        assert "2000 messages" in await stage.main.evaluate("document.querySelector('.view').innerText")


STOPPED = APP.replace(
    "let last",
    """open("https://shop.example.com/");
confirm("Sure?");
const file = Object.assign(document.createElement("a"), { download: "x.csv", href: "data:text/csv,a" });
file.click();
navigator.clipboard.writeText("x").catch(() => {});
navigator.geolocation.getCurrentPosition(() => {}, () => {});
fetch("http://127.0.0.1:9999/beds").catch(() => {});
document.documentElement.append(Object.assign(new Image(), { src: "logo.png" }));
document.documentElement.append(Object.assign(new Image(), { src: "https://undeclared.example/logo.png" }));
const grow = (height) => post({ method: "ui/notifications/size-changed", params: { height } });
let last""",
)
FOUND = "[...document.querySelectorAll('.finding strong')].map((one) => one.textContent)"


async def test_what_a_sandbox_stops_without_a_word_is_found(chromium: Chromium) -> None:
    """Each is tried all the same, and found once; what the policy blocked is the policy's to tell."""
    server = Server("stopped")
    server.app("ui://stopped/app", STOPPED, csp={"connectDomains": ["http://127.0.0.1:9999"]})
    server.add_tool(lambda: "text", name="stop", description="Stop.", ui="ui://stopped/app")
    async with opened(chromium, server) as stage:
        await stage.until(LIVE)
        await stage.until(f"{FOUND}.some((title) => title.includes('undeclared.example'))")
        for title in (
            "It tried to open a window: https://shop.example.com/",
            "It tried to open a dialog: confirm",
            "It tried to save a file: x.csv",
            "It was denied: writeText: ",
            "It was denied: getCurrentPosition: ",
            "It could not load something: http://127.0.0.1:9999/beds",
            "It could not load something: /logo.png",
        ):
            await stage.until(f"{FOUND}.filter((found) => found.startsWith({json.dumps(title)})).length === 1")
        assert not await stage.main.evaluate(f"{FOUND}.some((title) => title.includes('load something: https://'))")
        guest = await stage.guest()
        await guest.call("() => [100, 140, 180, 220, 260].forEach(grow)")
        await stage.until(f"{FOUND}.includes('It does not settle on a size')")
        await stage.press("9 findings")
        await stage.until("find.shown(document.querySelector('.finding'))")
        assert not stage.page.errors


async def test_running_tasks_are_listed_and_cancelled(chromium: Chromium) -> None:
    """Each with its status and message, the newest first; a task that has ended has no button."""
    script = [sys.executable, str(REPOSITORY / "tests" / "support" / "task_script.py"), "modern"]
    async with opened(chromium, script) as stage:
        await stage.pick("tool render")
        await stage.press("Call")
        await stage.until("document.querySelector('[data-task=busy]')?.textContent.includes('completed')")
        tasks = stage.preview.session.host.client.tasks
        await tasks.get("asks")
        await stage.until("document.querySelector('#task-list li').dataset.task === 'asks'")
        await stage.press("Tasks1")
        await stage.says("input required")
        await stage.press("Cancel the task asks")
        await stage.until("document.querySelector('#polite').textContent.includes('asked to cancel')")
        await tasks.get("asks")
        await stage.until("document.querySelector('[data-task=asks]').textContent.includes('cancelled')")
        assert await stage.main.evaluate("document.querySelectorAll('#task-list button').length") == 0
        assert not stage.page.errors
