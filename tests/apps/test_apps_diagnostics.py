"""apps_diagnostics in real Chromium: the handshake, the order of a call, hostile hosts, the rules for Views.

Rules: APP-V-01 to APP-V-07. The host is scripted (scripted_host.html), so that it can also do what no host should.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.apps_scene import OPAQUE, OWN_ORIGIN, STRICT, Open, initialize_result
from support.browser import Chromium
from support.pages import Pages

INPUT = "ui/notifications/tool-input"
PARTIAL = "ui/notifications/tool-input-partial"
RESULT = "ui/notifications/tool-result"
CANCELLED = "ui/notifications/tool-cancelled"
CONTEXT = "ui/notifications/host-context-changed"
GOOD = {"content": [{"type": "text", "text": "done"}], "structuredContent": {"a": 1}, "_meta": {"b": 2}}


def message(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}


# ------------------------------------------------------------------------------- the file itself


def test_loads_stores_and_evaluates_nothing(diagnostics_html: str) -> None:
    """APP-V-05, APP-V-07: one file without outside loads, eval, wasm, workers, storage, images, markup from data."""
    code = re.sub(r"<!--.*?-->", "", diagnostics_html, flags=re.DOTALL)
    forbidden = (
        r"\beval\b|new Function|WebAssembly|Worker\b|localStorage|sessionStorage|indexedDB|document\.cookie|caches\b",
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|setHTML|DOMParser|srcdoc|createContextualFragment",
        r"\bfetch\(|XMLHttpRequest|new WebSocket|EventSource|sendBeacon|\bimport\b|@import|@font-face\s*\{",
        r"<(img|link|iframe|object|embed|video|audio|base|form)\b|\bsrc=|\bxlink:href|\son\w+=|(?<![\w/])url\((?!\|)(?!\\)",
        r"blob:|data:(?!\s)",
    )
    for pattern in forbidden:
        # The test that refuses url( in host values names it: that one line is not a load.
        found = [line for line in code.splitlines() if re.search(pattern, line) and "/url\\(|image-set" not in line]
        assert not found, (pattern, found)
    assert code.count("<script>") == code.count("<script") == 1
    assert '<meta charset="utf-8">' in code
    assert code.lstrip().startswith("<!doctype html>")


def test_every_host_variable_has_a_fallback(diagnostics_html: str) -> None:
    """APP-V-07: nothing of the host's style is taken for granted."""
    used = re.findall(r"var\((--(?:color|font|border|shadow)-[\w-]+)\s*([,)])", diagnostics_html)
    assert len(used) > 25
    assert [name for name, after in used if after != ","] == []


def test_metadata_asks_for_a_border_and_for_nothing_else(diagnostics_meta: Any) -> None:
    """No csp member, so the strictest policy applies; no domain, which hosts refuse if it is not theirs (APP-S-08)."""
    assert diagnostics_meta == {"ui": {"prefersBorder": True}}


# ----------------------------------------------------------------------------------- handshake


async def test_says_what_it_can_and_waits_for_the_answer(open_app: Open) -> None:
    """APP-V-01, APP-V-03: initialize with all modes and the tools it answers; then initialized; nothing before."""
    slow = {"ui/initialize": {"result": initialize_result(), "after": 150}}
    async with open_app(answers=slow, await_phase=None) as scene:
        await scene.view.until("document.documentElement.dataset.phase === 'live'")
        await scene.host.until("host.received.length >= 3")
        first, second, third = (await scene.received())[:3]
        assert first == {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "ui/initialize",
            "params": {
                "appInfo": {"name": "apps_diagnostics", "title": "Apps diagnostics", "version": "1.0.0"},
                "appCapabilities": {"availableDisplayModes": ["inline", "fullscreen", "pip"], "tools": {}},
                "protocolVersion": "2026-01-26",
            },
        }
        assert second == {"jsonrpc": "2.0", "method": "ui/notifications/initialized"}
        assert third["method"] == "ui/notifications/size-changed"
        assert len(await scene.received("ui/initialize")) == len(await scene.received(second["method"])) == 1


@pytest.mark.parametrize(
    ("policy", "sandbox", "origin"),
    [
        pytest.param(STRICT, OPAQUE, "null", id="strict-opaque"),
        pytest.param(STRICT, OWN_ORIGIN, "http://view.", id="strict-own-origin"),
        pytest.param(STRICT.replace(" 'self'", ""), OPAQUE, "null", id="inline-only"),
        pytest.param(None, None, "http://view.", id="no-policy-no-sandbox"),
    ],
)
async def test_runs_under_any_policy(open_app: Open, policy: str | None, sandbox: str | None, origin: str) -> None:
    """APP-V-05: strict default policy, opaque origin or its own; nothing blocked, nothing thrown, all in order."""
    async with open_app(policy=policy, sandbox=sandbox) as scene:
        assert (await scene.view.evaluate("origin")).startswith(origin)
        await scene.send(PARTIAL, {"arguments": {"note": "he"}})
        await scene.send(INPUT, {"arguments": {"note": "hello"}})
        await scene.send(RESULT, GOOD)
        await scene.becomes("channels", "pass")
        await scene.view.until("document.documentElement.dataset.verdict === 'pass'")
        for tab in ("call", "host", "display", "requests", "log"):
            await scene.tab(tab)
        assert await scene.failing() == set()
        scene.clean()


def wrapped(html: str) -> str:
    """As hosts do that set the policy with a meta element: the app's document inside the body of their own."""
    meta = f'<meta http-equiv="Content-Security-Policy" content="{STRICT}">'
    return f"<!doctype html><html><head>{meta}</head><body>{html}</body></html>"


def written(html: str) -> str:
    """As hosts do that hand the HTML to a small page, which writes it over itself."""
    text = json.dumps(html).replace("</", "<\\/")
    return (
        f"<!doctype html><script>const html = {text}; document.open(); document.write(html); document.close()</script>"
    )


@pytest.mark.parametrize("dress", [wrapped, written])
async def test_runs_however_the_host_gets_it_into_the_frame(open_app: Open, dress: Callable[[str], str]) -> None:
    """APP-V-05."""
    async with open_app(dress=dress, policy=None if dress is wrapped else STRICT) as scene:
        await scene.send(INPUT, {"arguments": {}})
        await scene.send(RESULT, GOOD)
        await scene.view.until("document.documentElement.dataset.verdict === 'pass'")
        assert await scene.view.evaluate("getComputedStyle(document.querySelector('.top')).display") == "flex"
        scene.clean()


async def test_comes_up_in_a_frame_that_is_hidden_until_it_has(open_app: Open) -> None:
    """APP-V-03: some hosts show the frame only once initialized has come; the size is told when there is one."""
    async with open_app(hidden=True) as scene:
        await scene.becomes("size-reported", "pass")
        sizes = [one["params"] for one in await scene.received("ui/notifications/size-changed")]
        assert all(size["width"] == 800 and size["height"] > 100 for size in sizes)


async def test_says_so_when_no_host_is_there(chromium: Chromium, pages: Pages, diagnostics_html: str) -> None:
    pages.put("/alone", diagnostics_html)
    async with chromium.page() as page:
        view = await page.goto(pages.url("/alone"))
        await view.until("document.documentElement.dataset.phase === 'failed'")
        assert "needs a host around it" in await view.text('[role="alert"]')
        assert page.errors == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": {"code": -32603, "message": "no views today"}}, "error -32603: no views today"),
        ({"result": {"isError": True}}, "Refused in the result"),
        ("silence", "No answer in 60 s"),
    ],
    ids=["error", "isError", "silence"],
)
async def test_says_why_the_handshake_failed(open_app: Open, answer: Any, words: str) -> None:
    async with open_app(answers={"ui/initialize": answer}, await_phase="failed", hasty=True) as scene:
        assert words in await scene.becomes("initialize", "fail")
        assert words in await scene.view.text('[role="alert"]')
        assert [one["method"] for one in await scene.received()] == ["ui/initialize"]


async def test_bad_parts_of_the_answer_are_named(open_app: Open) -> None:
    bad = {
        "protocolVersion": "2025-06-18",
        "hostInfo": {"name": "nameless"},
        "hostCapabilities": {"openLinks": True},
        "hostContext": {
            "theme": "sepia",
            "availableDisplayModes": "inline",
            "containerDimensions": {"width": 10, "maxWidth": 20},
            "styles": {
                "variables": {"--color-text-primary": "no colour", "--font-sans": "url(x)"},
                "css": {"fonts": []},
            },
        },
    }
    async with open_app(result=bad) as scene:
        assert "2025-06-18" in await scene.becomes("protocol-version", "fail")
        await scene.becomes("host-info", "fail")
        assert "openLinks" in await scene.becomes("host-capabilities", "fail")
        found = await scene.becomes("host-context", "fail")
        for part in ("theme", "availableDisplayModes", "fixed and flexible", "css.fonts"):
            assert part in found
        found = await scene.becomes("style-variables", "fail")
        assert "--color-text-primary" in found
        assert "--font-sans" in found
        assert scene.page.errors == []


# ------------------------------------------------------------------------------ order of a call


async def test_a_whole_call_passes(open_app: Open) -> None:
    """Partials, the input, the result: each is shown, and every check that is not optional passes."""
    async with open_app() as scene:
        await scene.tab("call")
        await scene.send(PARTIAL, {"arguments": {"note": "he"}})
        await scene.becomes("partial", "pass")
        await scene.view.until("document.querySelector('[data-field=tool-input]').textContent.includes('he')")
        # APP-V-02: what a partial says is marked as not final, and counts for nothing.
        assert await scene.view.text('[data-field="input-state"]') == "partial 1, not final"
        assert await scene.view.evaluate("document.querySelector('[data-field=tool-input]').dataset.final") == "false"
        assert await scene.status("tool-input") == "waiting"
        await scene.send(INPUT, {"arguments": {"note": "hello"}})
        await scene.becomes("tool-input", "pass")
        await scene.view.until("document.querySelector('[data-field=tool-input]').textContent.includes('hello')")
        assert await scene.view.text('[data-field="input-state"]') == "complete"
        await scene.send(RESULT, {**GOOD, "structuredContent": {"channels": ["content", "structuredContent"]}})
        await scene.view.until("document.documentElement.dataset.verdict === 'pass'")
        assert await scene.view.text('[data-channel="_meta"]') == "_meta present"
        assert '"b": 2' in await scene.view.text('[data-field="result-meta"]')
        assert "done" in await scene.view.text('[data-field="result-content"]')
        assert await scene.failing() == set()
        scene.clean()


ORDERS = {
    "result without input": ([message(RESULT, GOOD)], {"input-before-result"}),
    "input after result": (
        [message(RESULT, GOOD), message(INPUT, {"arguments": {}})],
        {"input-before-result"},
    ),
    "two inputs": ([message(INPUT, {"arguments": {}}), message(INPUT, {"arguments": {}})], {"tool-input-once"}),
    "partial after input": (
        [message(INPUT, {"arguments": {}}), message(PARTIAL, {"arguments": {}})],
        {"partial-order"},
    ),
    "partial after cancel": ([message(CANCELLED, {"reason": "x"}), message(PARTIAL, {})], {"partial-order"}),
    "two results": (
        [message(INPUT, {"arguments": {}}), message(RESULT, GOOD), message(RESULT, GOOD)],
        {"outcome-once"},
    ),
    "result and cancel": (
        [message(INPUT, {"arguments": {}}), message(RESULT, GOOD), message(CANCELLED, {})],
        {"outcome-once"},
    ),
    "input without arguments": ([message(INPUT)], {"tool-input"}),
    "partial without an object": ([message(PARTIAL, {"arguments": [1]})], {"partial"}),
    "result out of shape": (
        [message(INPUT, {"arguments": {}}), message(RESULT, {"content": "text", "isError": 1})],
        {"result-shape", "channels"},
    ),
    "lost channel": (
        [
            message(INPUT, {"arguments": {}}),
            message(RESULT, {"content": [], "_meta": {"mcpd/channels": ["content", "structuredContent", "_meta"]}}),
        ],
        {"channels"},
    ),
    "unknown request": ([{**message("ui/fly", {}), "id": 1}], {"requests"}),
    "answer to nothing": ([{"jsonrpc": "2.0", "id": 999, "result": {}}], {"answers"}),
    "answer twice": ([{"jsonrpc": "2.0", "id": 0, "result": {}}], {"answers"}),
    "other version of JSON-RPC": ([{**message(INPUT, {"arguments": {}}), "jsonrpc": "1.0"}], {"messages"}),
    "request with a null id": ([{**message("ping"), "id": None}], {"messages"}),
    "positional params": ([message(INPUT, [1])], {"messages"}),
    "sandbox message": ([message("ui/notifications/sandbox-resource-ready", {"html": ""})], {"reserved"}),
    "context that is none": ([message(CONTEXT)], {"context-changed"}),
}


@pytest.mark.parametrize("order", ORDERS)
async def test_a_wrong_order_is_found(open_app: Open, order: str) -> None:
    """Each fault fails exactly the checks that are about it, is kept, and the View goes on."""
    messages, expected = ORDERS[order]
    async with open_app() as scene:
        await scene.post(*messages)
        answer = await scene.request("ping")
        assert answer["result"] == {}
        await scene.view.until("document.documentElement.dataset.verdict === 'fail'")
        assert await scene.failing() == expected
        assert scene.page.errors == []


async def test_what_comes_before_initialized_is_found(open_app: Open) -> None:
    """Hosts may send only answers before initialized (APP-H-08)."""
    early = [message(INPUT, {"arguments": {"early": True}})]
    async with open_app(before=early) as scene:
        assert INPUT in await scene.becomes("quiet-start", "fail")
        await scene.becomes("tool-input", "pass")  # and the View has it all the same


@pytest.mark.parametrize("now", [True, False], ids=["at-once", "zero-delay-timer"])
async def test_takes_input_that_comes_with_the_answer(open_app: Open, now: bool) -> None:
    """APP-V-05: some hosts send the input right after the answer, before they have seen initialized."""
    early = [{"now": now, "message": message(INPUT, {"arguments": {"note": "early"}})}]
    async with open_app(early=early) as scene:
        await scene.becomes("tool-input", "pass")
        await scene.tab("call")
        assert "early" in await scene.view.text('[data-field="tool-input"]')
        assert await scene.status("quiet-start") == "pass"


async def test_works_when_input_never_comes(open_app: Open) -> None:
    """APP-V-05: a host may send the result only. It is shown; the missing input is a finding about the host."""
    async with open_app() as scene:
        await scene.send(RESULT, GOOD)
        assert "without any input" in await scene.becomes("input-before-result", "fail")
        await scene.tab("call")
        assert "done" in await scene.view.text('[data-field="result-content"]')
        assert await scene.status("channels") == "pass"


async def test_a_cancel_is_shown_with_its_reason(open_app: Open) -> None:
    """mcp-apps-life-04: a cancel may come without any input, and is a whole ending."""
    async with open_app() as scene:
        await scene.send(CANCELLED, {"reason": "user pressed stop"})
        assert "user pressed stop" in await scene.becomes("cancelled", "pass")
        await scene.view.until("document.documentElement.dataset.verdict === 'pass'")
        await scene.tab("call")
        assert "user pressed stop" in await scene.view.text('[data-field="result-none"]')
        assert await scene.failing() == set()


async def test_an_error_of_the_tool_is_a_result(open_app: Open) -> None:
    async with open_app() as scene:
        await scene.send(INPUT, {"arguments": {}})
        await scene.send(RESULT, {"content": [{"type": "text", "text": "it broke"}], "isError": True})
        assert await scene.becomes("result-shape", "pass") == "an error of the tool"
        await scene.tab("call")
        assert await scene.view.text('[data-field="result-state"]') == "isError"
        assert await scene.failing() == set()


# ------------------------------------------------------------------------------- asked by the host


async def test_answers_the_host(open_app: Open) -> None:
    """APP-V-06: ping, both app tools, an unknown request, teardown; each in the form that MCP gives it."""
    async with open_app() as scene:
        assert (await scene.request("ping"))["result"] == {}
        tools = (await scene.request("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["get_report", "set_note"]
        assert all(tool["inputSchema"]["type"] == "object" for tool in tools)

        report = (await scene.request("tools/call", {"name": "get_report"}))["result"]
        assert report["content"][0]["type"] == "text"
        told = {check["id"]: check["status"] for check in report["structuredContent"]["checks"]}
        assert told.keys() == (await scene.checks()).keys()
        assert told["initialize"] == told["app-tools-list"] == "pass"
        assert report["structuredContent"]["verdict"] == "waiting"
        assert report["structuredContent"]["hostInfo"]["name"] == "scripted-host"

        set_note = {"name": "set_note", "arguments": {"text": "<b>look here</b>"}}
        assert (await scene.request("tools/call", set_note))["result"].get("isError") is None
        await scene.view.until("document.querySelector('[data-field=note]').textContent === '<b>look here</b>'")
        wrong = {"name": "set_note", "arguments": {"text": 5}}
        assert (await scene.request("tools/call", wrong))["result"]["isError"] is True
        assert (await scene.request("tools/call", {"name": "rm"}))["error"]["code"] == -32602
        assert (await scene.request("tools/call"))["error"]["code"] == -32602
        assert await scene.failing() == set()

        assert (await scene.request("roots/list"))["error"]["code"] == -32601
        assert await scene.failing() == {"requests"}


async def test_ends_when_the_host_says_so(open_app: Open) -> None:
    """APP-V-06, mcp-apps-life-05: teardown is answered; then the View is silent, and says if the host is not."""
    async with open_app(answers={"tools/call": "silence"}) as scene:
        await scene.tab("requests")
        await scene.view.click('[data-action="tools-call-echo"]')
        await scene.host.until("host.of('tools/call').length === 1")
        assert (await scene.request("ui/resource-teardown", {"reason": "closing time"}))["result"] == {}
        assert "closing time" in await scene.becomes("teardown", "pass")
        assert (await scene.outcome("tools-call-echo"))[0] == "closed"
        assert await scene.view.evaluate("document.documentElement.dataset.phase") == "closed"
        count = len(await scene.received())
        assert await scene.view.evaluate(
            "[...document.querySelectorAll('[data-request] button')].every((b) => b.disabled)"
        )
        await scene.view.evaluate("document.body.append(document.createElement('hr'))")  # a new size, not reported
        assert (await scene.request("ping"))["result"] == {}
        assert (await scene.request("ui/resource-teardown"))["result"] == {}
        await scene.becomes("quiet-close", "fail")
        assert len(await scene.received()) == count + 2


# ------------------------------------------------------------------------------------ hostile


HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=2</script>"\'>&amp;\u202e'


async def test_shows_whatever_comes_as_text(open_app: Open) -> None:
    """APP-V-07: markup in names, values, keys, ids and errors stays text everywhere."""
    context = {
        "theme": HOSTILE,
        "displayMode": HOSTILE,
        "availableDisplayModes": ["inline", HOSTILE],
        "locale": HOSTILE,
        "timeZone": HOSTILE,
        "userAgent": HOSTILE,
        "toolInfo": {"id": HOSTILE, "tool": {"name": HOSTILE, "inputSchema": {}}},
        "styles": {
            "variables": {HOSTILE: HOSTILE, "--font-sans": HOSTILE},
            "css": {"fonts": f"font-family: {HOSTILE}"},
        },
        HOSTILE: HOSTILE,
    }
    result = initialize_result(
        hostInfo={"name": HOSTILE, "version": HOSTILE}, hostCapabilities={HOSTILE: {}}, hostContext=context
    )
    answers = {"ping": {"error": {"code": -32000, "message": HOSTILE}}, "prompts/list": {"result": {HOSTILE: HOSTILE}}}
    async with open_app(result=result, answers=answers) as scene:
        before = await scene.view.evaluate("document.querySelectorAll('script, img, b, style').length")
        await scene.send(PARTIAL, {"arguments": {HOSTILE: HOSTILE}})
        await scene.send(INPUT, {"arguments": {HOSTILE: HOSTILE}})
        blocks = [{"type": "text", "text": HOSTILE}, {"type": HOSTILE, "data": HOSTILE}, None, 7]
        await scene.send(RESULT, {"content": blocks, "structuredContent": {HOSTILE: 1}, "_meta": {HOSTILE: 1}})
        await scene.send(CANCELLED, {"reason": HOSTILE})
        await scene.post(
            {**message(HOSTILE), "id": HOSTILE}, message(HOSTILE), message("__proto__"), message("toString")
        )
        await scene.request("tools/call", {"name": "set_note", "arguments": {"text": HOSTILE}})
        assert (await scene.ask("ping"))[0] == "error"
        assert (await scene.ask("prompts-list"))[0] == "ok"
        for tab in ("call", "host", "display", "log"):
            await scene.tab(tab)
        await scene.view.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        await scene.view.until("document.querySelector('#log').textContent.includes('onerror')")
        assert await scene.view.evaluate("window.owned ?? null") is None
        assert await scene.view.evaluate("document.querySelectorAll('script, img, b, style').length") == before
        assert await scene.view.evaluate("({}).polluted ?? Object.keys(Object.prototype).length") == 0
        scene.clean()


STRANGE = {"toString": 1, "valueOf": {"then": 2}, "then": 3, "toJSON": 4, "length": -1}


async def test_values_of_the_wrong_type_break_nothing(open_app: Open) -> None:
    """Wherever a string or a number is due, an object comes that cannot be turned into either."""
    texts = ("theme", "displayMode", "locale", "timeZone", "userAgent", "platform", "availableDisplayModes")
    context: dict[str, Any] = dict.fromkeys(texts, STRANGE)
    context |= {
        "containerDimensions": dict.fromkeys(("width", "maxHeight"), STRANGE),
        "safeAreaInsets": dict.fromkeys(("top", "left"), STRANGE),
        "deviceCapabilities": {"touch": STRANGE},
        "toolInfo": {"id": STRANGE, "tool": {"name": STRANGE, "_meta": STRANGE}},
        "styles": {"variables": {"--font-sans": STRANGE, "--color-text-info": 5}, "css": {"fonts": STRANGE}},
    }
    result = initialize_result(
        protocolVersion=STRANGE, hostInfo={"name": STRANGE, "version": STRANGE}, hostContext=context
    )
    answers = {
        "ping": {"error": {"code": STRANGE, "message": STRANGE, "data": STRANGE}},
        "ui/request-display-mode": {"result": {"mode": STRANGE}},
        "tools/list": {"error": STRANGE},
        "prompts/list": {"result": {"prompts": STRANGE, "content": STRANGE}},
    }
    async with open_app(result=result, answers=answers) as scene:
        await scene.send(PARTIAL, {"arguments": STRANGE})
        await scene.send(INPUT, {"arguments": STRANGE})
        strange_block = {"type": "text", "text": STRANGE}
        await scene.send(RESULT, {"content": [strange_block, STRANGE], "structuredContent": STRANGE, "_meta": STRANGE})
        await scene.send(CANCELLED, {"reason": STRANGE})
        await scene.send(CONTEXT, {"availableDisplayModes": ["inline"], "containerDimensions": STRANGE})
        await scene.send("notifications/progress", STRANGE)
        assert (await scene.request("tools/call", {"name": STRANGE, "arguments": STRANGE}))["error"]["code"] == -32602
        for key in ("ping", "tools-list"):
            assert (await scene.ask(key))[0] == "error"
        assert (await scene.ask("prompts-list"))[0] == "ok"
        await scene.tab("display")
        await scene.view.click('[data-mode="inline"]')
        assert (await scene.outcome("request-display-mode"))[0] == "ok"
        for tab in ("call", "host", "log"):
            await scene.tab(tab)
        await scene.checks()
        assert (await scene.request("ui/resource-teardown", {"reason": STRANGE}))["result"] == {}
        await scene.checks()
        scene.clean()


async def test_hears_nobody_but_its_parent(open_app: Open, pages: Pages) -> None:
    """APP-V-04: a message of another window, even a page of the same host, changes nothing and is only counted."""
    forged = [message(INPUT, {"arguments": {}}), {"jsonrpc": "2.0", "id": 5, "method": "tools/call"}, "noise"]
    pages.put(
        "/sibling",
        "<script>addEventListener('message', (e) => e.data.forEach((m) => parent[0].postMessage(m, '*')))</script>",
    )
    async with open_app() as scene:
        await scene.host.call(
            """(url) => new Promise((loaded) => {
              const frame = document.body.appendChild(document.createElement('iframe'));
              frame.onload = loaded;
              frame.src = url;
            })""",
            pages.url("/sibling", "other"),
        )
        before = await scene.said()
        await scene.host.call("(messages) => frames[1].postMessage(messages, '*')", forged)
        await scene.tab("log")
        await scene.view.until(
            "document.querySelector('[data-field=log-line]').textContent.includes('3 messages from other')"
        )
        assert await scene.status("tool-input") == "waiting"
        assert await scene.said() == before
        assert await scene.failing() == set()


async def test_bears_what_is_no_message_at_all(open_app: Open) -> None:
    """Other scripts of a page post to frames too: what is no JSON-RPC is counted and left alone."""
    async with open_app() as scene:
        count = await scene.said()
        await scene.post("text", 7, None, [1], {"source": "devtools"})
        await scene.host.call(
            """() => {
              const loop = { jsonrpc: "2.0", method: "x/loop", params: { big: 10n } };
              loop.params.self = loop;
              let deep = {};
              for (let i = 0; i < 1000; i += 1) deep = { deep };
              host.send(loop, { jsonrpc: "2.0", method: "x/deep", params: deep });
            }"""
        )
        assert (await scene.request("ping"))["result"] == {}
        assert await scene.said() == count + 1
        assert await scene.failing() == set()
        assert scene.page.errors == []


async def test_a_host_page_within_reach_is_found(open_app: Open) -> None:
    """APP-X-01: host and View differ in origin. Here they do not, and the View says so."""
    async with open_app(sandbox=None, view_host="page", policy=None) as scene:
        assert "share an origin" in await scene.becomes("isolation", "fail")


async def test_what_the_policy_blocks_is_found(open_app: Open) -> None:
    async with open_app() as scene:
        await scene.view.evaluate(
            "void document.body.append(Object.assign(new Image(), { src: 'https://host.invalid/x.png' }))"
        )
        assert "img-src" in await scene.becomes("csp", "fail")


async def test_a_flood_is_borne(open_app: Open) -> None:
    """Partials may come by the hundred: the View keeps up, and its log stays bounded."""
    async with open_app() as scene:
        await scene.host.evaluate(
            f"void [...Array(1000).keys()].forEach((n) => host.notify('{PARTIAL}', {{ arguments: {{ n }} }}))"
        )
        await scene.send(INPUT, {"arguments": {}})
        await scene.becomes("tool-input", "pass")
        assert "1000 so far" in await scene.becomes("partial", "pass")
        await scene.view.until("document.querySelectorAll('#log li').length === 200")
        await scene.tab("log")
        assert re.search(
            r"200 of 200 entries shown, the oldest \d+ dropped", await scene.view.text('[data-field="log-line"]')
        )
        assert "\n" not in await scene.view.text("#log li summary")
