"""The bundled views and the protocol of MCP Apps, in a host that does what a test says (APP-V-01 to -07)."""

from __future__ import annotations

from typing import Any

import pytest
from support.apps_scene import Open, initialize_result
from support.views_stage import SAMPLES, data, text

PHASE = "document.documentElement.dataset.phase"
each_kind = pytest.mark.parametrize("kind", SAMPLES)
ROWS = data([{"city": "Oslo", "high": 1234567.5}])


@each_kind
async def test_a_whole_life(open_view: Open, kind: str) -> None:
    """Handshake in order, the size reported, ping and strangers answered, silence after the teardown."""
    async with open_view(kind, SAMPLES[kind][0]) as scene:
        await scene.host.until("host.of('ui/notifications/size-changed').length > 0")
        methods = await scene.host.evaluate("host.methods()")
        assert methods[:2] == ["ui/initialize", "ui/notifications/initialized"]
        [hello] = await scene.received("ui/initialize")
        assert hello["params"]["protocolVersion"] == "2026-01-26"
        assert hello["params"]["appCapabilities"] == {"availableDisplayModes": ["inline", "fullscreen"]}
        height = "Math.ceil(document.documentElement.getBoundingClientRect().height)"
        await scene.view.until(f"{height} === innerHeight")
        assert (await scene.request("ping"))["result"] == {}
        assert (await scene.request("tools/list"))["error"]["code"] == -32601
        assert (await scene.request("ui/resource-teardown", {"reason": "done"}))["result"] == {}
        before = len(await scene.received())
        await scene.send("ui/notifications/host-context-changed", {"theme": "dark"})
        await scene.send("ui/notifications/tool-result", text("late"))
        assert (await scene.request("ping"))["result"] == {}
        assert len(await scene.received()) == before + 1
        assert await scene.view.evaluate(PHASE) == "closed"
        scene.clean()


@pytest.mark.parametrize("kind", ["table", "form"])
async def test_what_is_told_while_the_tool_runs(open_view: Open, kind: str) -> None:
    async with open_view(kind, initialized=[], await_phase="waiting") as scene:
        await scene.send("ui/notifications/tool-input-partial", {"arguments": {"city": "Osl"}})
        shown = (
            "document.querySelector('main').textContent + [...document.querySelectorAll('input')].map((i) => i.value)"
        )
        await scene.view.until(f"({shown}).includes('Osl')")
        await scene.send("ui/notifications/tool-input", {"arguments": {"city": "Oslo"}})
        await scene.view.until(f"{PHASE} === 'running'")
        assert "Oslo" in await scene.view.evaluate(shown)
        await scene.send("ui/notifications/tool-input-partial", {"arguments": {"city": "X"}})
        await scene.send("ui/notifications/tool-cancelled", {"reason": "the user pressed stop"})
        await scene.view.until(f"{PHASE} === 'cancelled'")
        assert "the user pressed stop" in await scene.view.text("main")
        scene.clean()


async def test_a_result_alone_and_one_that_comes_early(open_view: Open) -> None:
    """APP-V-05: no input ever comes, or the result comes before the View said that it is there."""
    message = {"jsonrpc": "2.0", "method": "ui/notifications/tool-result", "params": ROWS}
    for scenario in ({"initialized": [message]}, {"initialized": [], "early": [{"now": True, "message": message}]}):
        async with open_view("table", **scenario) as scene:
            assert await scene.view.text("td") == "Oslo"
            scene.clean()


@pytest.mark.parametrize(
    ("kind", "result", "phase", "words"),
    [
        ("table", {"isError": True, "content": [{"type": "text", "text": "no connection"}]}, "error", "no connection"),
        ("chart", {"isError": True, "content": []}, "error", "reported an error"),
        ("table", data([]), "shown", "There are no rows"),
        ("chart", data({"result": []}), "shown", "There are no rows"),
        ("markdown", text("  "), "empty", "is empty"),
        ("image", {"content": []}, "empty", "is empty"),
        ("table", text("only words"), "shown", "only words"),
        ("table", data({"name": "Ada", "age": 36}), "shown", "Ada"),
        ("chart", data([{"name": "Ada"}]), "shown", "No numbers"),
        ("image", text("no picture"), "shown", "no picture"),
        ("form", {"content": []}, "empty", "is empty"),
    ],
)
async def test_what_is_no_such_thing_is_said_or_shown_as_it_is(
    open_view: Open, kind: str, result: Any, phase: str, words: str
) -> None:
    async with open_view(kind, result, await_phase=phase) as scene:
        assert words in await scene.view.text("main")
        scene.clean()


@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "structuredContent": {"result": [{"a": 1}]}},
        {"content": [], "structuredContent": [{"a": 1}]},
        {"content": [{"type": "text", "text": "one row"}], "_meta": {"mcpd/data": [{"a": 1}]}},
        {"content": [{"type": "text", "text": '[{"a": 1}]'}]},
        {"content": [{"type": "text", "text": '{"a": 1}'}, {"type": "text", "text": '{"a": 1}'}]},
    ],
    ids=["wrapped", "list", "meta", "text", "blocks"],
)
async def test_data_is_found_on_each_way_that_it_may_take(open_view: Open, result: Any) -> None:
    """APP-S-16: what one host drops has another way."""
    async with open_view("table", result) as scene:
        assert await scene.view.text("th span") == "A"
        assert await scene.view.text("td") == "1"


async def test_locale_theme_and_variables_of_the_host(open_view: Open) -> None:
    """APP-V-02, APP-V-07: deltas are merged; half a palette is not used; formats are the host's."""
    async with open_view("table", ROWS) as scene:
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        assert await scene.view.evaluate(ground) == "rgb(255, 255, 255)"
        cell = "document.querySelector('td.number').textContent"
        assert await scene.view.evaluate(cell) == "1,234,567.5"
        await scene.send("ui/notifications/host-context-changed", {"locale": "de-DE"})
        await scene.view.until(f"{cell} === '1.234.567,5'")
        await scene.send("ui/notifications/host-context-changed", {"theme": "dark"})
        await scene.view.until(f"{ground} === 'rgb(23, 24, 27)'")
        half = {"--color-background-primary": "#ff0000", "--border-radius-md": "1px", "background": "red"}
        await scene.send("ui/notifications/host-context-changed", {"styles": {"variables": half}})
        await scene.view.until("getComputedStyle(document.querySelector('.frame')).borderRadius === '1px'")
        assert await scene.view.evaluate(ground) == "rgb(23, 24, 27)"
        whole = {**half, "--color-text-primary": "light-dark(black, white)"}
        await scene.send("ui/notifications/host-context-changed", {"styles": {"variables": whole}})
        await scene.view.until(f"{ground} === 'rgb(255, 0, 0)'")
        await scene.send("ui/notifications/host-context-changed", {"locale": "ar-EG"})
        await scene.view.until("document.documentElement.dir === 'rtl'")
        assert await scene.view.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for nonsense in ({"locale": "!!", "timeZone": 5}, {"styles": 5, "theme": 7, "containerDimensions": "x"}):
            await scene.send("ui/notifications/host-context-changed", nonsense)
        await scene.view.until("document.documentElement.dir === 'ltr'")
        scene.clean()


async def test_display_modes_are_asked_for_only_where_the_host_has_them(open_view: Open) -> None:
    answers = {"ui/request-display-mode": {"result": {"mode": "fullscreen"}}}
    async with open_view("table", ROWS, answers=answers) as scene:
        await scene.view.click('[aria-label="Full screen"]')
        await scene.view.until("document.documentElement.classList.contains('fill')")
        assert [one["params"] for one in await scene.received("ui/request-display-mode")] == [{"mode": "fullscreen"}]
        await scene.view.until("document.querySelector('[aria-label=\"Back to the conversation\"]')")
        await scene.send("ui/notifications/host-context-changed", {"displayMode": "inline"})
        await scene.view.until("!document.documentElement.classList.contains('fill')")
    async with open_view("table", ROWS, context={"availableDisplayModes": ["inline"]}) as scene:
        assert await scene.view.evaluate("document.querySelectorAll('.expander button').length") == 0


async def test_a_fixed_height_is_filled(open_view: Open) -> None:
    rows = data([{"n": number} for number in range(500)])
    async with open_view(
        "table", rows, context={"containerDimensions": {"height": 400, "width": 600}}, fitHeight=False,
        height="400px", width="600px",
    ) as scene:  # fmt: skip
        await scene.view.until("document.documentElement.scrollHeight <= 400")
        assert await scene.view.evaluate("document.querySelector('.scroll').clientHeight") > 250
        scene.clean()


async def test_messages_of_others_are_ignored(open_view: Open) -> None:
    """APP-V-04: only the parent counts, and only JSON-RPC."""
    async with open_view("table", ROWS) as scene:
        await scene.view.evaluate(
            "window.postMessage({ jsonrpc: '2.0', method: 'ui/notifications/tool-cancelled', params: {} }, '*')"
        )
        strange = ({"method": "toString", "params": {}}, {"method": "__proto__"}, {"id": 99, "result": {}}, {})
        await scene.post(None, 5, "x", [], {"jsonrpc": "1.0", "id": 1, "method": "ping"})
        await scene.post(*({"jsonrpc": "2.0", **one} for one in strange))
        assert (await scene.request("constructor"))["error"]["code"] == -32601
        assert await scene.view.evaluate(PHASE) == "shown"
        scene.clean()


async def test_a_host_that_refuses_is_named(open_view: Open) -> None:
    refused = {"ui/initialize": {"error": {"code": -32600, "message": "not today"}}}
    async with open_view("table", answers=refused, initialized=[], await_phase="failed") as scene:
        assert "not today" in await scene.view.text("main")
        assert await scene.received("ui/notifications/initialized") == []
    assert initialize_result()["protocolVersion"] == "2026-01-26"
