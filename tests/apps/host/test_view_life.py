"""The life of a View: states, order, time limits (seed section 4; apps.md 1.3)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from msgspec import structs
from support.host_stage import APP, CONTEXT, DOCUMENT, HTML, INITIALIZE, INITIALIZED, SETTINGS, Stage, tool

from mcpd.apps.host.tool_call import PartialArguments
from mcpd.apps.host.view import View, ViewPhase
from mcpd.apps.host.view.context import HostContext, ToolInfo
from mcpd.apps.host.view.events import Abort, Closed, Connected, Failed, Finding, Forward, Live, TeardownRequested
from mcpd.errors import LocalProtocolError
from mcpd.protocol.types.features import CallToolResult, TextContent
from mcpd.server.extensions.ui.csp_sources import UiCsp

NO_PROXY = structs.replace(SETTINGS, has_proxy=False)
RESULT = {"content": [{"type": "text", "text": "21 °C"}], "structuredContent": {"t": 21}, "_meta": {"k": [1]}}
INPUT = "ui/notifications/tool-input"
PARTIAL = "ui/notifications/tool-input-partial"
DONE = "ui/notifications/tool-result"
CANCELLED = "ui/notifications/tool-cancelled"
CHANGED = "ui/notifications/host-context-changed"
TEARDOWN = "ui/resource-teardown"


# ------------------------------------------------------------------------------------- handshake


def test_the_proxy_gets_the_document() -> None:
    """mcp-apps-sbox-01, APP-X-03: raw HTML, with what was granted of csp and permissions."""
    stage = Stage(allowed=["camera"])
    assert stage.state is ViewPhase.PROXY
    assert stage.proxy_ready() == [
        {
            "jsonrpc": "2.0",
            "method": "ui/notifications/sandbox-resource-ready",
            "params": {
                "html": HTML,
                "sandbox": "allow-scripts allow-same-origin allow-forms",
                "csp": {"connectDomains": ["https://api.example.com"]},
                "permissions": {"camera": {}},
            },
        }
    ]
    assert stage.state is ViewPhase.HTML


def test_only_the_first_report_of_a_proxy_counts() -> None:
    """APP-X-07: a View could send the second one."""
    stage = Stage().to_html()
    for _ in range(2):
        assert stage.proxy_ready() == []
    stage.initialize()
    stage.initialized()
    assert stage.proxy_ready() == []
    assert [finding.rule for finding in stage.take(Finding)] == ["proxy-ready"] * 3


def test_a_csp_that_is_absent_is_not_sent_as_an_empty_one() -> None:
    """mcp-apps-sbox-02."""
    told = Stage(document=structs.replace(DOCUMENT, csp=None, permissions=None)).proxy_ready()
    assert set(told[0]["params"]) == {"html", "sandbox"}


def test_without_a_proxy_the_view_may_begin_at_once() -> None:
    """A native host, a headless one, a WebSocket: the program loads the document itself."""
    stage = Stage(NO_PROXY)
    assert stage.state is ViewPhase.HTML
    assert stage.initialize()["protocolVersion"] == "2026-01-26"


def test_the_answer_to_initialize() -> None:
    """mcp-apps-ctx-01, mcp-apps-life-01, APP-H-16: all four members, the context in full."""
    result = Stage(allowed=["camera"]).to_html().initialize()
    assert result["protocolVersion"] == "2026-01-26"
    assert result["hostInfo"] == {"name": "stage", "version": "1"}
    context = result["hostContext"]
    assert context["theme"] == "dark"
    assert context["styles"]["variables"]["--color-background-primary"].startswith("light-dark(")
    assert context["containerDimensions"] == {"width": 400, "maxHeight": 600}
    assert result["hostCapabilities"]["sandbox"] == {
        "csp": {"connectDomains": ["https://api.example.com"]},
        "permissions": {"camera": {}},
    }
    assert {"openLinks", "serverTools", "serverResources", "logging"} <= set(result["hostCapabilities"])


def test_fonts_are_one_string_of_css() -> None:
    """mcp-apps-ctx-06."""
    fonts = Stage().to_html().initialize()["hostContext"]["styles"]["css"]["fonts"]
    assert fonts.startswith("@font-face {")
    assert "https://fonts.example.com/x.woff2" in fonts


def test_the_context_is_there_even_when_empty() -> None:
    """K requires the member."""
    assert Stage(context=HostContext()).to_html().initialize()["hostContext"] == {}


def test_the_tool_of_the_launch_call() -> None:
    """`toolInfo`: which call the View was opened for."""
    context = HostContext(tool_info=ToolInfo(id=0, tool=tool("forecast", description="Forecast")))
    told = Stage(context=context).to_html().initialize()["hostContext"]["toolInfo"]
    assert told == {
        "id": 0,
        "tool": {"name": "forecast", "description": "Forecast", "inputSchema": {"type": "object"}},
    }


def test_the_view_says_who_it_is() -> None:
    stage = Stage().to_init(tools={}, availableDisplayModes=["inline"])
    connected = stage.only(Connected)
    assert (connected.app_info.name, connected.requested_version, connected.again) == (
        "weather-view",
        "2026-01-26",
        False,
    )
    assert connected.capabilities.available_display_modes == ["inline"]


def test_another_handshake_version_is_answered_with_ours() -> None:
    stage = Stage().to_html()
    params = {"appInfo": APP, "appCapabilities": {}, "protocolVersion": "2030-01-01"}
    assert stage.requests(INITIALIZE, params)["result"]["protocolVersion"] == "2026-01-26"
    assert stage.only(Finding).rule == "version"


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"appInfo": APP, "protocolVersion": "2026-01-26"},
        {"appInfo": {"name": "x"}, "appCapabilities": {}, "protocolVersion": "2026-01-26"},
        {"appInfo": APP, "appCapabilities": [], "protocolVersion": "2026-01-26"},
        {"appInfo": APP, "appCapabilities": {"availableDisplayModes": "inline"}, "protocolVersion": "2026-01-26"},
        {"clientInfo": APP, "capabilities": {}, "protocolVersion": "2026-01-26"},
    ],
)
def test_a_malformed_initialize_can_be_repeated(params: Any) -> None:
    stage = Stage().to_html()
    assert stage.requests(INITIALIZE, params)["error"]["code"] == -32602
    assert stage.state is ViewPhase.HTML
    assert "result" not in stage.initialize()
    assert stage.state is ViewPhase.INIT


def test_the_misprint_of_the_text_is_named() -> None:
    """The text shows a View that calls `initialize`; the error says what is meant."""
    stage = Stage().to_init()
    error = stage.requests("initialize", {"clientInfo": APP, "capabilities": {}, "protocolVersion": "x"})["error"]
    assert error["code"] == -32601
    assert "ui/initialize" in error["message"]


def test_ids_begin_at_zero_and_may_be_strings() -> None:
    """Official Views start at id 0: absence is tested, not truth."""
    stage = Stage().to_init()
    assert stage.told[-1]["id"] == 0
    assert stage.requests("ping", request_id="")["id"] == ""
    assert stage.requests("ping", request_id="a")["result"] == {}


def test_a_mistake_of_the_program_is_an_internal_error_for_the_view() -> None:
    stage = Stage(context=HostContext(locale="\ud83d")).to_html()
    assert stage.initialize()["error"] == {"code": -32603, "message": "Internal error"}


# ---------------------------------------------------------------- nothing before `initialized`


def test_what_happens_early_waits_and_comes_in_order() -> None:
    """APP-H-08, APP-H-09, mcp-apps-life-01: context, partial, input, result, lists; nothing before `initialized`."""
    stage = Stage(started=False)

    def everything(step: int) -> None:
        stage.view.context_changed(HostContext(locale=f"x-{step}"))
        stage.view.list_changed("tools")
        stage.view.list_changed("resources")

    everything(0)
    stage.view.partial_input({"city": "Ber"})
    stage.view.start(stage.now)
    assert [m["method"] for m in stage.proxy_ready()] == ["ui/notifications/sandbox-resource-ready"]
    everything(1)
    stage.view.partial_input({"city": "Berli"})
    stage.view.tool_input({"city": "Berlin"})
    assert stage.initialize()["hostContext"]["locale"] == "x-1"
    everything(2)
    stage.view.context_changed(HostContext(theme="light"))
    stage.view.tool_result(RESULT)
    assert stage.drain() == []
    assert stage.initialized() == [
        {"jsonrpc": "2.0", "method": CHANGED, "params": {"theme": "light", "locale": "x-2"}},
        {"jsonrpc": "2.0", "method": PARTIAL, "params": {"arguments": {"city": "Berli"}}},
        {"jsonrpc": "2.0", "method": INPUT, "params": {"arguments": {"city": "Berlin"}}},
        {"jsonrpc": "2.0", "method": DONE, "params": RESULT},
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {"jsonrpc": "2.0", "method": "notifications/resources/list_changed"},
    ]
    assert stage.only(Live) == Live(again=False)


def test_a_context_that_came_back_is_no_change() -> None:
    stage = Stage().to_init()
    stage.view.context_changed(HostContext(theme="light"))
    stage.view.context_changed(HostContext(theme="dark"))
    assert stage.initialized() == []


def test_early_requests_are_served_and_noted() -> None:
    stage = Stage().to_init()
    assert stage.requests("tools/call", {"name": "refresh"}) is None
    finding = stage.only(Finding)
    assert (finding.rule, finding.refused, finding.method) == ("early", False, "tools/call")
    forward = stage.only(Forward)
    stage.view.answer(forward.ask_id, {"content": []})
    assert stage.drain() == [{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}]


def test_early_progress_is_not_sent() -> None:
    """APP-H-08: a notification is no answer."""
    stage = Stage().to_init()
    stage.requests("tools/call", {"name": "refresh", "_meta": {"progressToken": 0}})
    stage.view.progress(stage.only(Forward).ask_id, 0.5)
    assert stage.drain() == []


@pytest.mark.parametrize("method", ["tools/call", "ui/open-link", "ui/message", "nothing/known"])
def test_before_initialize_only_ping_is_answered(method: str) -> None:
    """The table of 1.3: other requests -32600, logged."""
    stage = Stage().to_html()
    assert stage.requests("ping")["result"] == {}
    assert stage.requests(method, {})["error"]["code"] == -32600
    assert stage.only(Finding).rule == "state"
    for notification in (INITIALIZED, "ui/notifications/size-changed", "ui/notifications/request-teardown"):
        assert stage.notifies(notification, {"height": 1}) == []
        assert stage.only(Finding).rule == "state"
    assert stage.happened == []
    assert stage.state is ViewPhase.HTML


def test_before_the_document_nobody_is_answered() -> None:
    """PROXY: "Host may send: nothing"."""
    for stage in (Stage(), Stage(started=False)):
        for message in ({"jsonrpc": "2.0", "id": 1, "method": "ping"}, b"rubbish", {"jsonrpc": "2.0", "method": "x"}):
            assert stage.says(message) == []
        assert len(stage.take(Finding)) == 3
        assert stage.state in (ViewPhase.NEW, ViewPhase.PROXY)


# -------------------------------------------------------------------------- the launch call, live


def test_tool_input_equals_the_calls_arguments() -> None:
    """mcp-apps-life-01, APP-H-09: "Arguments match original tool call params"."""
    stage = Stage().to_live()
    arguments = {"city": "Köln", "days": 3, "nested": {"a": [1.5, None, True]}}
    assert stage.view.tool_input(arguments)
    assert stage.drain() == [{"jsonrpc": "2.0", "method": INPUT, "params": {"arguments": arguments}}]


def test_no_arguments_are_sent_as_an_empty_object() -> None:
    stage = Stage().to_live()
    stage.view.tool_input()
    assert stage.drain()[0]["params"] == {"arguments": {}}


def test_streamed_arguments() -> None:
    """mcp-apps-life-02, APP-H-10: closed objects while they are written, then the whole, then none any more."""
    stage, reader = Stage().to_live(), PartialArguments()
    for chunk in ('{"city": "Ber', 'lin", "da', 'ys": 3', "}"):
        if (partial := reader.feed(chunk)) is not None:
            stage.view.partial_input(partial)
    stage.view.tool_input({"city": "Berlin", "days": 3})
    assert not stage.view.partial_input({"city": "late"})
    assert [(m["method"], m["params"]["arguments"]) for m in stage.drain()] == [
        (PARTIAL, {"city": "Ber"}),
        (PARTIAL, {"city": "Berlin"}),
        (PARTIAL, {"city": "Berlin", "days": 3}),
        (INPUT, {"city": "Berlin", "days": 3}),
    ]


def test_the_whole_result_is_sent() -> None:
    """mcp-apps-life-03, APP-H-11: content, structuredContent and `_meta`, as the server gave them."""
    stage = Stage().to_live()
    stage.view.tool_input({})
    assert stage.view.tool_result(RESULT)
    assert stage.drain()[1] == {"jsonrpc": "2.0", "method": DONE, "params": RESULT}


def test_a_result_struct_is_sent_on_the_wire_names() -> None:
    """mcp-apps-life-03."""
    stage = Stage().to_live()
    stage.view.tool_result(CallToolResult(content=[TextContent(text="x")], is_error=True))
    told = stage.drain()
    assert [message["method"] for message in told] == [INPUT, DONE]
    assert told[1]["params"] == {"content": [{"type": "text", "text": "x"}], "isError": True}


def test_an_error_of_the_tool_is_a_result_and_the_view_stays() -> None:
    """Rule 4 of 1.3: `isError` is no cancellation."""
    stage = Stage().to_live()
    stage.view.tool_input({})
    stage.view.tool_result({"content": [], "isError": True})
    assert stage.methods()[-1] == DONE
    assert stage.state is ViewPhase.LIVE


def test_a_cancelled_call() -> None:
    """mcp-apps-life-04, APP-H-12: with a reason, and without any input before it."""
    stage = Stage().to_live()
    assert stage.view.tool_cancelled("stopped by the user")
    assert stage.drain() == [{"jsonrpc": "2.0", "method": CANCELLED, "params": {"reason": "stopped by the user"}}]
    assert not stage.view.tool_result(RESULT)
    assert not stage.view.tool_input({})
    assert stage.drain() == []


def test_a_cancellation_without_words_has_a_reason_all_the_same() -> None:
    """mcp-apps-life-04: the text's type requires the member."""
    stage = Stage().to_live()
    stage.view.tool_cancelled()
    assert stage.drain()[0]["params"] == {"reason": "cancelled"}


def test_exactly_one_end() -> None:
    """Rule 3 of 1.3."""
    stage = Stage().to_live()
    stage.view.tool_input({})
    assert stage.view.tool_result(RESULT)
    assert not stage.view.tool_cancelled("late")
    assert not stage.view.tool_result(RESULT)
    assert stage.methods().count(DONE) == 1
    assert CANCELLED not in stage.methods()
    with pytest.raises(LocalProtocolError, match="once per View"):
        stage.view.tool_input({})


# ---------------------------------------------------------------------------------- host context


def test_context_changes_are_told_as_deltas() -> None:
    """mcp-apps-life-07."""
    stage = Stage().to_live()
    stage.view.context_changed(HostContext(theme="light", locale=CONTEXT.locale))
    assert stage.drain() == [{"jsonrpc": "2.0", "method": CHANGED, "params": {"theme": "light"}}]
    stage.view.context_changed(HostContext(theme="light"))
    assert stage.drain() == []
    assert stage.view.context.theme == "light"


def test_lists_are_announced_as_promised() -> None:
    stage = Stage().to_live()
    stage.view.list_changed("tools")
    stage.view.list_changed("prompts")  # the server has none
    assert stage.drain() == [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
    stage.view.context_changed(HostContext(theme="light"))
    assert [m["method"] for m in stage.drain()] == [CHANGED]
    quiet = structs.replace(SETTINGS.capabilities, server_tools=None, server_resources=None)
    stage = Stage(structs.replace(SETTINGS, capabilities=quiet, has_prompts=True)).to_live()
    for kind in ("tools", "resources", "prompts"):
        stage.view.list_changed(kind)  # type: ignore[arg-type]
    assert [m["method"] for m in stage.drain()] == ["notifications/prompts/list_changed"]


# ---------------------------------------------------------------------------------- double mount


def test_a_view_that_mounts_again_gets_a_new_snapshot_and_no_input_again() -> None:
    """Rule 7 of 1.3: the latest wins, back to INIT, nothing is replayed."""
    stage = Stage().to_live(availableDisplayModes=["inline"])
    stage.view.tool_input({"city": "Berlin"})
    stage.view.tool_result(RESULT)
    stage.requests("tools/call", {"name": "refresh"}, request_id=7)
    stage.drain()
    stage.view.context_changed(HostContext(theme="light"))
    result = stage.initialize()
    assert stage.state is ViewPhase.INIT
    assert result["hostContext"]["theme"] == "light"
    assert result["hostContext"]["availableDisplayModes"] == ["inline", "fullscreen", "pip"]
    assert stage.take(Connected)[-1].again
    assert stage.only(Abort).ask_id == stage.only(Forward).ask_id
    stage.view.context_changed(HostContext(locale="fr-FR"))
    assert stage.drain() == []
    assert [m["params"] for m in stage.initialized()] == [{"locale": "fr-FR"}]
    assert stage.take(Live)[-1].again


def test_the_old_mounts_answers_are_not_given_to_the_new_one() -> None:
    """Official Views count ids from 0: an answer to the old id 1 must not meet the new id 1."""
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh"}, request_id=1)
    old = stage.only(Forward)
    stage.initialize()
    stage.initialized()
    stage.requests("tools/call", {"name": "both"}, request_id=1)
    new = stage.only(Forward)
    stage.view.answer(old.ask_id, {"content": [{"type": "text", "text": "old"}]})
    assert stage.drain() == []
    stage.view.answer(new.ask_id, {"content": []})
    assert stage.drain() == [{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}]


def test_input_that_was_still_waiting_goes_to_the_second_mount() -> None:
    stage = Stage().to_init()
    stage.view.tool_input({"a": 1})
    stage.initialize()
    assert [m["method"] for m in stage.initialized()] == [INPUT]


def test_initialized_counts_once() -> None:
    stage = Stage().to_live()
    assert stage.initialized() == []
    assert stage.only(Finding).rule == "state"


# -------------------------------------------------------------------------------------- teardown


def test_the_view_is_told_before_it_goes() -> None:
    """mcp-apps-life-05, APP-H-13: the request is sent, the answer awaited, then the frame may go."""
    stage = Stage().to_live()
    stage.view.teardown("user closed it", stage.now)
    (request,) = stage.drain()
    assert (request["method"], request["params"]) == (TEARDOWN, {"reason": "user closed it"})
    assert stage.state is ViewPhase.CLOSING
    assert stage.take(Closed) == []
    stage.answers(request)
    assert stage.only(Closed) == Closed("user closed it", clean=True)
    assert stage.state is ViewPhase.GONE


def test_an_error_answer_to_teardown_means_go_on() -> None:
    """mcp-apps-life-05: "Or error if teardown fails"; an official example answers -32601 (measured)."""
    stage = Stage().to_live()
    stage.view.teardown("x", stage.now)
    stage.answers(stage.drain()[0], error={"code": -32601, "message": "Method not found"})
    assert stage.only(Closed).clean


def test_silence_means_go_on_too() -> None:
    """APP-H-13: two seconds."""
    stage = Stage().to_live()
    stage.view.teardown("x", stage.now)
    assert stage.view.deadline == stage.now + 2
    stage.passes(1.9)
    assert stage.state is ViewPhase.CLOSING
    stage.passes(0.1)
    assert stage.only(Closed) == Closed("x", clean=False)


def test_nothing_new_is_said_while_closing() -> None:
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh"}, request_id=5)
    forward = stage.only(Forward)
    stage.view.teardown("x", stage.now)
    (teardown,) = stage.drain()
    stage.view.teardown("again", stage.now)
    stage.view.context_changed(HostContext(theme="light"))
    stage.view.tool_input({})
    stage.view.list_changed("tools")
    stage.view.progress(forward.ask_id, 1)
    assert stage.drain() == []
    assert stage.requests("ui/open-link", {"url": "https://example.com"})["error"]["code"] == -32000
    assert stage.requests(INITIALIZE, {})["error"]["code"] == -32000
    assert stage.requests("ping")["result"] == {}
    assert stage.notifies("ui/notifications/size-changed", {"width": 1}) == []
    stage.view.answer(forward.ask_id, {"content": []})
    assert stage.drain() == [{"jsonrpc": "2.0", "id": 5, "result": {"content": []}}]
    stage.answers(teardown)
    assert stage.only(Closed).reason == "x"


@pytest.mark.parametrize("state", [ViewPhase.NEW, ViewPhase.PROXY, ViewPhase.HTML, ViewPhase.INIT])
def test_before_live_the_frame_just_goes(state: ViewPhase) -> None:
    """Rule 8 of 1.3; APP-H-08 forbids the request."""
    stage = Stage(started=state is not ViewPhase.NEW)
    if state in (ViewPhase.HTML, ViewPhase.INIT):
        stage.to_html()
    if state is ViewPhase.INIT:
        stage.to_init()
    assert stage.state is state
    stage.drain()
    stage.view.teardown("x", stage.now)
    assert stage.drain() == []
    assert stage.only(Closed) == Closed("x", clean=True)


def test_a_view_may_ask_to_be_closed() -> None:
    """Rule 10 of 1.3: if accepted, the full teardown."""
    stage = Stage().to_live()
    stage.notifies("ui/notifications/request-teardown")
    assert stage.only(TeardownRequested)
    stage.view.teardown("the view asked for it", stage.now)
    assert stage.methods()[-1] == TEARDOWN


def test_whoever_worked_for_a_view_is_told_that_it_is_gone() -> None:
    stage = Stage().to_live()
    for request_id in (1, 2):
        stage.requests("tools/call", {"name": "refresh"}, request_id=request_id)
    asks = [forward.ask_id for forward in stage.take(Forward)]
    stage.view.frame_lost("the page was closed")
    assert [abort.ask_id for abort in stage.take(Abort)] == asks
    for ask_id in asks:
        stage.view.answer(ask_id, {"content": []})
    assert stage.drain() == []


def test_when_it_is_over_it_is_over() -> None:
    stage = Stage().to_live()
    stage.view.teardown("x", stage.now)
    stage.answers(stage.drain()[0])
    stage.happened.clear()
    for message in (
        b"rubbish",
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": INITIALIZED},
    ):
        assert stage.says(message) == []
    assert not stage.view.tool_input({})
    assert not stage.view.tool_result(RESULT)
    stage.view.teardown("y", stage.now)
    stage.view.frame_lost("y")
    assert stage.passes(100) == []
    assert stage.happened == []
    assert stage.view.deadline is None
    with pytest.raises(LocalProtocolError, match="started once"):
        stage.view.start(stage.now)


# ------------------------------------------------------------------------------------- time limits


@pytest.mark.parametrize(
    ("steps", "why"),
    [(0, "proxy did not report"), (1, "did not send ui/initialize"), (2, "did not send ui/notifications/initialized")],
)
def test_a_step_that_takes_too_long_is_a_failure(steps: int, why: str) -> None:
    """1.3: 10 s per step."""
    stage = Stage()
    for step in (stage.to_html, stage.to_init)[:steps]:
        stage.passes(9)
        step()
    assert stage.view.deadline == stage.now + 10
    stage.passes(9.5)
    assert stage.take(Failed) == []
    stage.passes(0.5)
    assert why in stage.only(Failed).reason
    assert stage.state is ViewPhase.FAILED
    assert stage.initialized() == []


def test_a_live_view_has_no_time_limit() -> None:
    stage = Stage().to_live()
    assert stage.view.deadline is None
    stage.passes(1e6)
    assert stage.state is ViewPhase.LIVE


def test_a_view_that_left_its_page_is_found_by_ping() -> None:
    """3.4: "A View can navigate itself to an error page: detect by ping, mark FAILED"."""
    stage = Stage().to_live()
    stage.view.ping(stage.now)
    stage.answers(stage.drain()[0], error={"code": -32601, "message": "?"})  # anybody home is enough
    stage.passes(100)
    assert stage.state is ViewPhase.LIVE
    stage.view.ping(stage.now)
    stage.passes(10)
    assert "ping" in stage.only(Failed).reason


def test_a_lost_frame_is_a_failure_unless_it_was_closing() -> None:
    stage = Stage().to_live()
    stage.view.frame_lost("the channel closed")
    assert stage.only(Failed).reason == "the channel closed"
    stage = Stage().to_live()
    stage.view.teardown("bye", stage.now)
    stage.view.frame_lost("the channel closed")
    assert stage.only(Closed) == Closed("bye", clean=False)


# -------------------------------------------------------------------------------------------- log


def test_the_effective_policy_and_external_domains_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """APP-H-06, APP-H-26: policy, warning and hash."""
    caplog.set_level(logging.INFO, "mcpd.host")
    Stage(name="weather")
    text = caplog.text
    assert "connect-src 'self' https://api.example.com" in text
    assert "sha256 " + "0" * 64 in text
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["weather: the view may reach https://api.example.com"]


def test_a_views_calls_are_logged_and_cannot_forge_lines(caplog: pytest.LogCaptureFixture) -> None:
    """APP-H-20: S log View calls."""
    caplog.set_level(logging.INFO, "mcpd.host")
    stage = Stage(name="weather").to_live()
    stage.requests("resources/read", {"uri": "x://a\nFORGED line"})
    stage.requests("evil\nFORGED method")
    lines = [record.getMessage() for record in caplog.records]
    assert "weather: resources/read 'x://a\\nFORGED line'" in lines
    assert not any("\n" in line for line in lines)


def test_bad_declarations_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    Stage(document=structs.replace(DOCUMENT, csp=UiCsp(connect_domains=["*"]), problems=("too big",)))
    assert "too big" in caplog.text
    assert "connectDomains: '*' dropped" in caplog.text


def test_messages_are_single_json_texts() -> None:
    stage = Stage().to_live()
    stage.view.tool_input({"a": "line\nbreak"})
    view: View = stage.view
    for message in view.data_to_send():
        assert b"\n" not in message
        json.loads(message)
