"""apps_diagnostics in real Chromium: requests to the host and their outcomes, sizes, modes, theme, log, keyboard.

Rules: APP-V-01, APP-V-02, APP-V-05, APP-V-07. The host is scripted (scripted_host.html).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.apps_scene import Open, Scene, initialize_result

CONTEXT = "ui/notifications/host-context-changed"
TABS = ("checks", "call", "host", "display", "requests", "log")
METHODS = {
    "ping": "ping",
    "tools-call-server-info": "tools/call",
    "tools-call-echo": "tools/call",
    "tools-list": "tools/list",
    "resources-read": "resources/read",
    "resources-list": "resources/list",
    "resources-templates-list": "resources/templates/list",
    "prompts-list": "prompts/list",
    "open-link": "ui/open-link",
    "message": "ui/message",
    "update-model-context": "ui/update-model-context",
    "download-file": "ui/download-file",
    "sampling": "sampling/createMessage",
}
NOTIFICATIONS = {
    "size-changed": "ui/notifications/size-changed",
    "log": "notifications/message",
    "request-teardown": "ui/notifications/request-teardown",
}


def context(**members: Any) -> dict[str, Any]:
    return initialize_result(hostContext=members)


# ------------------------------------------------------------------------------------- requests


async def test_asks_and_shows_success(open_app: Open) -> None:
    async with open_app(answers={method: {"result": {"told": "yes"}} for method in METHODS.values()}) as scene:
        for number, (key, method) in enumerate(METHODS.items(), 1):
            outcome, text = await scene.ask(key)
            assert outcome == "ok", key
            assert "Success" in text
            assert '"told": "yes"' in text
            sent = (await scene.received(method))[-1]
            assert isinstance(sent["params"], dict)
            assert sent["id"] == (f"diagnostics-{number}" if key == "ping" else number)
        assert await scene.failing() == set()


async def test_sends_what_the_specification_prints(open_app: Open) -> None:
    """mcp-apps-req-01 to 04: the parameters of the requests."""
    async with open_app(answers={method: {"result": {}} for method in METHODS.values()}) as scene:
        for key in METHODS:
            await scene.ask(key)
        sent = {one["method"]: one["params"] for one in await scene.received() if "params" in one}
        assert sent["ui/open-link"] == {"url": "https://modelcontextprotocol.io/"}
        assert sent["ui/message"]["role"] == "user"
        assert [block["type"] for block in sent["ui/message"]["content"]] == ["text"]
        assert sent["ui/update-model-context"].keys() == {"content", "structuredContent"}
        assert sent["resources/read"]["uri"] == "ui://mcpd/apps_diagnostics"
        assert sent["sampling/createMessage"]["maxTokens"] > 0
        (file,) = sent["ui/download-file"]["contents"]
        assert json.loads(file["resource"]["text"])["app"]["name"] == "apps_diagnostics"
        calls = [one["params"] for one in await scene.received("tools/call")]
        assert [call["name"] for call in calls] == ["server_info", "echo"]
        assert calls[1]["arguments"]["text"].startswith("Hello")
        assert all("progressToken" in call["_meta"] for call in calls)


@pytest.mark.parametrize(
    ("answer", "outcome", "tone", "words"),
    [
        ({"error": {"code": -32000, "message": "By user"}}, "error", "bad", "-32000, denied or failed, By user"),
        ({"result": {"isError": True}}, "is-error", "warn", "Refused in the result, isError"),
        ({"error": {"code": -32601, "message": "Method not found"}}, "error", "bad", "-32601, Method not found"),
        ({"result": {}}, "ok", "good", "empty result"),
    ],
    ids=["error", "isError", "unknown", "granted"],
)
async def test_tells_the_forms_of_denial_apart(
    open_app: Open, answer: Any, outcome: str, tone: str, words: str
) -> None:
    """Both ways in which hosts deny, apart from each other, from an unknown method and from success."""
    keys = ("open-link", "message", "download-file")
    async with open_app(answers={METHODS[key]: answer for key in keys}) as scene:
        for key in keys:
            told, text = await scene.ask(key)
            assert told == outcome
            assert words in text
            shown = f"document.querySelector('[data-request=\"{key}\"] .answer').dataset.tone"
            assert await scene.view.evaluate(shown) == tone
        assert await scene.failing() == set()


async def test_a_malformed_answer_is_an_error_and_a_finding(open_app: Open) -> None:
    answers = {"ping": {"result": {}, "also": {"error": {"code": 1, "message": "both"}}}}
    async with open_app(answers=answers) as scene:
        assert (await scene.ask("ping"))[0] == "error"
        assert "neither a result object nor an error alone" in await scene.becomes("answers", "fail")


async def test_sends_notifications(open_app: Open) -> None:
    async with open_app() as scene:
        for key, method in NOTIFICATIONS.items():
            assert (await scene.ask(key))[0] == "sent"
            sent = (await scene.received(method))[-1]
            assert "id" not in sent
            if key == "log":
                assert sent["params"]["level"] == "info"
                assert sent["params"]["logger"] == "apps_diagnostics"


async def test_marks_what_is_not_announced_and_tries_it_all_the_same(open_app: Open) -> None:
    async with open_app(result=initialize_result(hostCapabilities={"openLinks": {}})) as scene:
        await scene.tab("requests")
        capability = dict(
            await scene.view.evaluate(
                "[...document.querySelectorAll('[data-request]')].map((c) => [c.dataset.request, c.dataset.capability])"
            )
        )
        offered = {key for key, status in capability.items() if status == "offered"}
        assert offered == {"open-link", "request-display-mode"}
        assert {key for key, status in capability.items() if status == "always"} == {
            "ping",
            "size-changed",
            "request-teardown",
        }
        assert await scene.view.evaluate("document.querySelector('[data-action=\"message\"]').className") == "absent"
        assert await scene.view.evaluate("document.querySelector('[data-action=\"open-link\"]').className") == ""
        outcome, text = await scene.ask("message")
        assert (outcome, "-32601" in text) == ("error", True)


async def test_gives_the_model_only_what_the_host_takes(open_app: Open) -> None:
    caps: dict[str, Any] = {"updateModelContext": {"text": {}}}
    answers: dict[str, Any] = {"ui/update-model-context": {"result": {}}}
    async with open_app(result=initialize_result(hostCapabilities=caps), answers=answers) as scene:
        await scene.ask("update-model-context")
        (sent,) = await scene.received("ui/update-model-context")
        assert sent["params"].keys() == {"content"}


async def test_runs_all_that_changes_nothing(open_app: Open) -> None:
    async with open_app(answers={method: {"result": {}} for method in METHODS.values()}) as scene:
        await scene.tab("requests")
        await scene.view.click('[data-action="run-safe"]')
        assert (await scene.outcome("log"))[0] == "sent"
        sent = {one["method"] for one in await scene.received() if "method" in one}
        assert {"ping", "tools/call", "tools/list", "resources/read", "resources/list", "prompts/list"} <= sent
        assert (
            not {"ui/open-link", "ui/message", "ui/update-model-context", "ui/download-file", "sampling/createMessage"}
            & sent
        )


async def test_time_runs_out_and_late_answers_are_known(open_app: Open) -> None:
    """Sixty seconds without an answer end a request and cancel it; the answer that comes later is late, not foreign."""
    async with open_app(answers={"ping": "silence", "tools/list": {"result": {}, "after": 900}}, hasty=True) as scene:
        outcome, text = await scene.ask("ping")
        assert (outcome, "No answer in 60 s" in text) == ("timeout", True)
        (cancel,) = await scene.received("notifications/cancelled")
        assert cancel["params"]["requestId"] == "diagnostics-1"
        assert (await scene.ask("tools-list"))[0] == "timeout"
        await scene.view.until("document.querySelector('#log').textContent.includes('late answer to request 2')")
        assert await scene.failing() == set()


async def test_progress_gives_more_time(open_app: Open) -> None:
    steps = [{"after": at, "params": {"progress": at, "total": 1200, "message": "working"}} for at in (300, 600, 900)]
    answers = {
        "tools/call": {"progress": steps, "result": {"content": [{"type": "text", "text": "slow"}]}, "after": 1200}
    }
    async with open_app(answers=answers, hasty=True) as scene:
        await scene.tab("requests")
        await scene.view.click('[data-action="tools-call-server-info"]')
        card = "document.querySelector('[data-request=\"tools-call-server-info\"] .answer').textContent"
        await scene.view.until(f"{card}.includes('of 1200 · working')")
        outcome, text = await scene.outcome("tools-call-server-info")
        assert (outcome, "slow" in text) == ("ok", True)


# -------------------------------------------------------------------------------- display modes


async def test_asks_only_for_modes_that_the_host_lists(open_app: Open) -> None:
    """APP-V-01, mcp-apps-ctx-03: the host's list decides about the buttons; a new list, about new ones."""
    answers = {"ui/request-display-mode": {"result": {"mode": "fullscreen"}}}
    async with open_app(answers=answers) as scene:
        modes = "[...document.querySelectorAll('[data-mode]')].map(({ dataset }) => dataset.mode)"
        await scene.tab("display")
        assert await scene.view.evaluate(modes) == ["inline", "fullscreen"]
        await scene.view.click('[data-mode="fullscreen"]')
        await scene.view.until("document.querySelector('[data-mode=fullscreen]').ariaPressed === 'true'")
        assert (
            await scene.view.text('[data-field="mode-answer"]') == "Asked for fullscreen, the host answers fullscreen."
        )
        assert [one["params"] for one in await scene.received("ui/request-display-mode")] == [{"mode": "fullscreen"}]
        await scene.send(CONTEXT, {"availableDisplayModes": ["pip", "hologram", "fullscreen"]})
        await scene.view.until(f"{modes}.join() === 'fullscreen,pip'")
        await scene.send(CONTEXT, {"availableDisplayModes": []})
        await scene.view.until(f"{modes}.length === 0")
        assert "lists no display modes" in await scene.view.text('[data-field="mode-answer"]')


async def test_accepts_another_mode_than_it_asked_for(open_app: Open) -> None:
    """APP-V-01: the answer names the mode in force."""
    async with open_app(answers={"ui/request-display-mode": {"result": {"mode": "inline"}}}) as scene:
        await scene.tab("display")
        await scene.view.click('[data-mode="fullscreen"]')
        await scene.view.until(
            "document.querySelector('[data-field=mode-answer]').textContent.includes('but the host answers inline')"
        )
        assert await scene.view.text('[data-field="display-mode"]') == "inline"
        assert await scene.failing() == set()


async def test_a_mode_that_is_not_listed_is_found(open_app: Open) -> None:
    async with open_app(result=context(displayMode="pip", availableDisplayModes=["inline"])) as scene:
        assert "pip is shown" in await scene.becomes("display-mode", "fail")


# -------------------------------------------------------------------------- context, size, theme


async def test_context_changes_are_merged(open_app: Open) -> None:
    """APP-V-02, mcp-apps-life-07: a delta changes what it names and leaves the rest."""
    async with open_app() as scene:
        await scene.tab("host")
        await scene.send(CONTEXT, {"theme": "dark", "locale": "fr-FR"})
        assert await scene.becomes("context-changed", "pass") == "1 so far, last: theme, locale"
        await scene.view.until("document.querySelector('#panel-host [data-field=locale]').textContent === 'fr-FR'")
        assert await scene.view.text('[data-field="platform"]') == "web"
        now = json.loads(await scene.view.text('[data-field="context-json"]'))
        assert (now["theme"], now["timeZone"], now["displayMode"]) == ("dark", "Europe/Berlin", "inline")
        assert await scene.view.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


async def test_reports_its_size_and_stays_quiet_when_nothing_changes(open_app: Open) -> None:
    """APP-V-02, mcp-apps-life-06: with a host that follows the height it settles instead of looping."""
    async with open_app(fitHeight=True, size=(420, 700)) as scene:
        await scene.becomes("size-reported", "pass")
        await scene.tab("requests")
        settle = """async () => {
          const count = () => host.of("ui/notifications/size-changed").length;
          for (let turn = 0; turn < 12; turn += 1) {
            const before = count();
            await new Promise((done) => setTimeout(done, 250));
            if (before > 1 && before === count()) return true;
          }
          return false;
        }"""
        assert await scene.host.call(settle), "it never stops"
        reports = [one["params"] for one in await scene.received("ui/notifications/size-changed")]
        assert all(isinstance(value, int) and value > 0 for report in reports for value in report.values())
        height = await scene.host.evaluate("host.frame.offsetHeight")
        assert await scene.view.evaluate("document.documentElement.scrollHeight") == height == reports[-1]["height"]
        # Many changes in one moment are told once.
        await scene.view.evaluate(
            """(() => { for (let n = 0; n < 20; n += 1) document.body.append(
                Object.assign(document.createElement('div'), { textContent: n })); })()"""
        )
        assert await scene.host.call(settle), "it never stops"
        assert len(await scene.received("ui/notifications/size-changed")) == len(reports) + 1


async def test_never_reports_more_than_the_container_allows(open_app: Open) -> None:
    """mcp-apps-ctx-05."""
    async with open_app(result=context(containerDimensions={"maxHeight": 333, "maxWidth": 250})) as scene:
        await scene.becomes("size-reported", "pass")
        sizes = [one["params"] for one in await scene.received("ui/notifications/size-changed")]
        assert sizes
        assert all(size == {"width": 250, "height": 333} for size in sizes)


async def test_fills_a_fixed_container_and_reports_nothing(open_app: Open) -> None:
    """mcp-apps-ctx-04."""
    fixed = {"width": 640, "height": 480}
    async with open_app(
        result=context(containerDimensions=fixed), width="640px", height="480px", size=(900, 700)
    ) as scene:
        assert await scene.becomes("container-fit", "pass") == "640 × 480 px"
        assert await scene.received("ui/notifications/size-changed") == []
        assert await scene.view.evaluate("document.body.offsetHeight >= 480")


async def test_a_frame_of_another_size_than_told_is_found(open_app: Open) -> None:
    async with open_app(result=context(containerDimensions={"width": 640}), width="500px") as scene:
        assert "width is 500, told 640" in await scene.becomes("container-fit", "fail")


VARIABLES = {
    "--color-background-primary": "light-dark(rgb(250, 240, 230), rgb(10, 20, 30))",
    "--color-text-primary": "light-dark(rgb(1, 2, 3), rgb(240, 241, 242))",
    "--font-sans": "Georgia, serif",
}


async def test_follows_the_hosts_theme(open_app: Open) -> None:
    """APP-V-07, mcp-apps-ctx-01: variables are used, light and dark follow the theme and not the browser."""
    style = "((own) => [own.backgroundColor, own.color, own.fontFamily])(getComputedStyle(document.body))"
    result = context(
        theme="dark", styles={"variables": VARIABLES, "css": {"fonts": "@font-face { font-family: Own; }"}}
    )
    async with open_app(result=result, scheme="light") as scene:
        assert await scene.view.evaluate(style) == ["rgb(10, 20, 30)", "rgb(240, 241, 242)", "Georgia, serif"]
        await scene.send(CONTEXT, {"theme": "light"})
        await scene.view.until(f"{style}[0] === 'rgb(250, 240, 230)'")
        await scene.tab("display")
        assert await scene.view.text('[data-field="variable-count"]') == "3 of 76"
        assert "Own" in await scene.view.text('[data-field="fonts"]')
        assert await scene.view.evaluate("document.querySelectorAll('[data-variable]').length") == 3
        # A later set replaces the earlier one: what it no longer names falls back to the app's own.
        await scene.send(CONTEXT, {"styles": {"variables": {"--font-sans": "monospace"}}})
        await scene.view.until(f"{style}[2] === 'monospace'")
        assert await scene.view.evaluate(f"{style}[0]") == "rgb(255, 255, 255)"
        await scene.view.click('[data-action="host-styles"]')
        await scene.view.until(f"{style}[2].includes('system-ui')")
        scene.clean()


async def test_half_a_palette_is_shown_but_not_used(open_app: Open) -> None:
    """APP-V-07: a background without its text colour could make the page unreadable."""
    half = {"--color-background-primary": "rgb(0, 0, 0)"}
    async with open_app(result=context(theme="light", styles={"variables": half})) as scene:
        assert await scene.view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        await scene.tab("display")
        assert "not used" in await scene.view.text('[data-field="palette"]')


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!colour.endsWith(', 0)') && colour !== 'transparent') return colour;
    }
    return 'white';
  };
  const poor = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
    if (!own || !node.checkVisibility() || node.disabled) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const what = `${node.className || node.tagName}: ${node.textContent.slice(0, 30)}`;
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${what}`);
  }
  return poor;
}"""


async def filled(scene: Scene) -> None:
    """Give the app something to show on every tab."""
    await scene.send("ui/notifications/tool-input", {"arguments": {"note": "hello " * 40, "n": [1, 2, {"deep": None}]}})
    long = "word/" * 80
    await scene.send(
        "ui/notifications/tool-result", {"content": [{"type": "text", "text": long}], "_meta": {long: long}}
    )
    await scene.send("ui/notifications/tool-input-partial", {"arguments": {}})
    await scene.becomes("partial-order", "fail")
    assert (await scene.ask("open-link"))[0] == "error"
    assert (await scene.ask("message"))[0] == "is-error"
    assert (await scene.ask("ping"))[0] == "ok"


ANSWERS = {
    "ui/open-link": {"error": {"code": -32000, "message": "denied" * 20}},
    "ui/message": {"result": {"isError": True}},
    "ping": {"result": {}},
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [300, 800])
async def test_reads_well_in_light_and_dark_narrow_and_wide(open_app: Open, scheme: str, width: int) -> None:
    """Own colours only, the browser's preference decides: text keeps 4.5:1, nothing is wider than the frame."""
    word = "unbroken" * 20
    about = {"name": word, "version": word}
    modes = {"availableDisplayModes": ["inline", "fullscreen", "pip"], "displayMode": "inline"}
    tool = {"name": word, "inputSchema": {"type": "object"}}
    result = context(**modes, userAgent=word, toolInfo={"id": word, "tool": tool})
    result |= {"hostInfo": about, "hostCapabilities": {word: {word: word}}}
    async with open_app(result=result, answers=ANSWERS, scheme=scheme, size=(width, 900)) as scene:
        await filled(scene)
        for tab in TABS[1:] if width >= 700 else TABS:
            await scene.tab(tab)
            await scene.checks()
            assert await scene.view.evaluate("document.documentElement.scrollWidth") == width, tab
            assert await scene.view.call(CONTRAST) == [], tab
        assert await scene.view.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)" if scheme == "light" else "rgb(23, 24, 27)"
        )
        scene.clean()


# ------------------------------------------------------------------------------- log, keyboard


async def test_the_log_shows_filters_and_gives_itself_away(open_app: Open) -> None:
    """Every message in and out; where the clipboard is closed, the text is put up and selected."""
    async with open_app(answers={"ping": {"result": {}}}) as scene:
        await scene.ask("ping")
        await scene.tab("log")
        rows = "[...document.querySelectorAll('#log > li')].filter((row) => !row.hidden)"
        sent = len(await scene.received())
        await scene.view.until(f"{rows}.filter((row) => row.dataset.direction === 'out').length === {sent}")
        # The answer to ping is on its way back when the request is in the log already.
        await scene.view.until(f"{rows}.filter((row) => row.dataset.direction === 'in').length >= 2")
        assert await scene.view.evaluate(f"{rows}.filter((row) => row.dataset.direction === 'in').length") == 2
        await scene.view.call(
            """() => { const field = document.querySelector('[data-field="log-filter"]');
                       field.value = 'DIAGNOSTICS-1'; field.dispatchEvent(new Event('input')); }"""
        )
        await scene.view.until(f"{rows}.length === 2")
        await scene.view.evaluate(f"{rows}[0].querySelector('summary').click()")
        await scene.view.until(
            "document.querySelector('#log details[open] pre').textContent.includes('\"method\": \"ping\"')"
        )
        await scene.view.click('[data-action="copy"]')
        await scene.view.until("!document.querySelector('[data-field=log-text]').hidden")
        text = await scene.view.evaluate("getSelection().toString() || document.activeElement.value")
        copied = json.loads(text)
        assert copied["report"]["app"]["name"] == "apps_diagnostics"
        assert [entry["method"] for entry in copied["log"]][:3] == [
            "ui/initialize",
            "response",
            "ui/notifications/initialized",
        ]


async def test_goes_by_keyboard_alone(open_app: Open) -> None:
    """Tabs by arrows, a button by Enter, and the focus can be seen."""
    async with open_app(answers={"ping": {"result": {}}}, size=(380, 900)) as scene:
        focused = "document.activeElement.dataset.tab ?? document.activeElement.dataset.action ?? ''"
        await scene.view.evaluate("document.querySelector('[data-tab=checks]').focus()")
        for expected in ("call", "host", "display", "requests"):
            await scene.page.press("ArrowRight", 39)
            await scene.view.until(f"({focused}) === '{expected}'")
        assert await scene.view.evaluate("document.querySelector('#panel-requests').checkVisibility()")
        for _ in range(8):
            await scene.page.press("Tab", 9)
            if await scene.view.evaluate(focused) == "ping":
                break
        assert await scene.view.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        await scene.page.press("Enter", 13, text="\r")
        assert (await scene.outcome("ping"))[0] == "ok"
        await scene.view.evaluate("document.querySelector('[data-tab=requests]').focus()")
        await scene.page.press("End", 35)
        await scene.view.until(f"({focused}) === 'log'")
        await scene.page.press("ArrowRight", 39)
        await scene.view.until(f"({focused}) === 'checks'")


async def test_everything_has_a_name_for_those_who_do_not_see_it(open_app: Open) -> None:
    async with open_app(answers=ANSWERS) as scene:
        await filled(scene)
        await scene.page.wire.send("Accessibility.enable", scene.view.session)
        tree = await scene.page.wire.send("Accessibility.getFullAXTree", scene.view.session)
        roles = (
            "button",
            "textbox",
            "searchbox",
            "combobox",
            "tab",
            "tabpanel",
            "tablist",
            "region",
            "article",
            "image",
        )
        seen = [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree["nodes"]
            if not node["ignored"] and node["role"]["value"] in roles
        ]
        assert {"button", "textbox", "tab", "tabpanel", "tablist", "region"} <= {role for role, _ in seen}
        assert [role for role, name in seen if not name.strip()] == []
