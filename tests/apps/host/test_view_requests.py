"""What a View may ask for, and how it is answered (seed sections 5 and 6; apps.md 1.2, 1.4)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, json, structs
from support.host_stage import SETTINGS, Stage, tool

from mcpd.apps.host.view.context import ContainerDimensions, HostContext
from mcpd.apps.host.view.events import (
    Abort,
    ChatMessage,
    Download,
    Finding,
    Forward,
    Logged,
    ModeChange,
    ModelContextUpdate,
    OpenLink,
    Sample,
    SizeChanged,
)
from mcpd.apps.host.view.messages import Empty, Modalities, SamplingOffer
from mcpd.errors import LocalProtocolError, McpdError, RemoteError, RequestTimeout
from mcpd.protocol.types.features import CallToolResult, ImageContent, TextContent

RESULTS = structs.replace(SETTINGS, denials="result")
TEXT = {"type": "text", "text": "hello"}


def with_capabilities(**members: Any) -> Any:
    return structs.replace(SETTINGS, capabilities=structs.replace(SETTINGS.capabilities, **members))


# -------------------------------------------------------------------------------------- tools/call


def test_a_call_goes_to_the_server_and_comes_back_as_an_answer() -> None:
    """mcp-apps-req-04: "Result returned via standard JSON-RPC"; no tool-input or tool-result for it."""
    stage = Stage().to_live()
    assert stage.requests("tools/call", {"name": "refresh", "arguments": {"a": 1}}, request_id="x") is None
    forward = stage.only(Forward)
    assert (forward.method, forward.target, forward.wants_progress) == ("tools/call", "refresh", False)
    assert json.decode(forward.params) == {"name": "refresh", "arguments": {"a": 1}}
    stage.view.answer(forward.ask_id, CallToolResult(content=[TextContent(text="done")]))
    assert stage.drain() == [{"jsonrpc": "2.0", "id": "x", "result": {"content": [{"type": "text", "text": "done"}]}}]


def test_a_raw_result_is_passed_on_as_it_is() -> None:
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh"})
    forward = stage.only(Forward)
    assert json.decode(forward.params) == {"name": "refresh", "arguments": {}}
    stage.view.answer(forward.ask_id, Raw(b'{"content":[],"x":1}'))
    assert stage.drain()[0]["result"] == {"content": [], "x": 1}


@pytest.mark.parametrize("name", ["forecast", "refresh", "both"])
def test_tools_with_the_app_bit_can_be_called(name: str) -> None:
    """mcp-apps-tool-03, mcp-apps-tool-04, mcp-apps-tool-06, mcp-apps-req-04."""
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": name})
    assert stage.only(Forward).target == name


def test_a_model_only_tool_is_refused() -> None:
    """APP-H-03, mcp-apps-tool-05: M refuse if visibility lacks "app"."""
    stage = Stage().to_live()
    error = stage.requests("tools/call", {"name": "delete_all"})["error"]
    assert error["code"] == -32602
    assert "visibility" in error["message"]
    assert stage.take(Forward) == []
    assert stage.only(Finding).rule == "visibility"


@pytest.mark.parametrize("name", ["nothing", "other_server__read", "", "refresh ", "REFRESH"])
def test_only_the_views_own_servers_tools_exist(name: str) -> None:
    """APP-H-04: the table holds one server's tools; what is not in it cannot be called, whoever else has it."""
    stage = Stage().to_live()
    assert stage.requests("tools/call", {"name": name})["error"]["code"] == -32602
    assert stage.take(Forward) == []


def test_visibility_is_that_of_the_newest_list() -> None:
    stage = Stage().to_live()
    stage.view.set_tools([tool("refresh", ["model"])])
    assert stage.requests("tools/call", {"name": "refresh"})["error"]["code"] == -32602
    assert stage.requests("tools/call", {"name": "forecast"})["error"]["code"] == -32602


def test_what_only_a_client_may_say_does_not_reach_the_server() -> None:
    """APP-H-21: a View does not choose the host's capabilities, identity, token or answers to the server."""
    stage = Stage().to_live()
    meta = {
        "progressToken": "view-token",
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
        "io.modelcontextprotocol/protocolVersion": "2025-06-18",
        "dev.mcp/x": 1,
        "com.example/trace": "kept",
        "plain": True,
    }
    params = {"name": "refresh", "_meta": meta, "inputResponses": {"a": 1}, "requestState": "s", "task": {}}
    stage.requests("tools/call", params)
    forward = stage.only(Forward)
    assert forward.wants_progress
    assert json.decode(forward.params) == {
        "name": "refresh",
        "arguments": {},
        "_meta": {"com.example/trace": "kept", "plain": True},
    }


@pytest.mark.parametrize("token", [0, "", "abc", 7])
def test_progress_comes_back_under_the_views_own_token(token: Any) -> None:
    """1.4: "remap tokens per View, forward notifications/progress back"; 0 is a token."""
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh", "_meta": {"progressToken": token}})
    forward = stage.only(Forward)
    stage.view.progress(forward.ask_id, 0.5, total=1, message="half")
    assert stage.drain() == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 0.5, "total": 1, "message": "half"},
        }
    ]
    stage.view.answer(forward.ask_id, {"content": []})
    stage.drain()
    stage.view.progress(forward.ask_id, 1)
    assert stage.drain() == []


def test_no_token_no_progress() -> None:
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh"})
    stage.view.progress(stage.only(Forward).ask_id, 0.5)
    assert stage.drain() == []


@pytest.mark.parametrize("token", [True, 1.5, {}, [1]])
def test_a_token_is_a_string_or_an_integer(token: Any) -> None:
    stage = Stage().to_live()
    answer = stage.requests("tools/call", {"name": "refresh", "_meta": {"progressToken": token}})
    assert answer["error"]["code"] == -32602


def test_a_cancelled_call_is_aborted_and_not_answered() -> None:
    """1.4: "`notifications/cancelled` from a View aborts the upstream call"; mcp-apps-life-04 for its own calls."""
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh"}, request_id=0)
    forward = stage.only(Forward)
    stage.notifies("notifications/cancelled", {"requestId": 0, "reason": "user left"})
    assert stage.only(Abort) == Abort(forward.ask_id, "user left")
    stage.notifies("notifications/cancelled", {"requestId": 0})
    stage.notifies("notifications/cancelled", {"requestId": "0"})
    stage.notifies("notifications/cancelled", {})
    assert stage.take(Abort) == []
    stage.view.fail(forward.ask_id, RequestTimeout())
    assert stage.drain() == []


def test_an_id_can_be_used_again_after_cancel() -> None:
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh"}, request_id=0)
    first = stage.only(Forward)
    stage.notifies("notifications/cancelled", {"requestId": 0})
    stage.requests("tools/call", {"name": "both"}, request_id=0)
    second = stage.only(Forward)
    stage.view.answer(first.ask_id, {"content": []})
    assert stage.drain() == []
    stage.view.answer(second.ask_id, {"content": []})
    assert stage.drain()[0]["id"] == 0


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RemoteError(-32001, "server says", {"a": 1}), -32001, "server says"),
        (RequestTimeout("no answer in 60 s"), -32000, "no answer in 60 s"),
        (McpdError(), -32000, "Failed"),
        (ValueError("secret path /etc"), -32603, "Internal error"),
    ],
)
def test_what_went_wrong_reaches_the_view_without_our_secrets(error: Exception, code: int, message: str) -> None:
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh"})
    stage.view.fail(stage.only(Forward).ask_id, error)
    (answer,) = stage.drain()
    assert (answer["error"]["code"], answer["error"]["message"]) == (code, message)
    assert answer["error"].get("data") == ({"a": 1} if code == -32001 else None)


def test_a_result_that_is_no_json_is_our_fault_and_still_an_answer() -> None:
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh"})
    stage.view.answer(stage.only(Forward).ask_id, {"content": object()})
    assert stage.drain()[0]["error"]["code"] == -32603


def test_an_ask_is_answered_once() -> None:
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh"})
    ask_id = stage.only(Forward).ask_id
    stage.view.answer(ask_id, {"content": []})
    for again in (
        lambda: stage.view.answer(ask_id),
        lambda: stage.view.deny(ask_id, ""),
        lambda: stage.view.fail(99, McpdError()),
    ):
        with pytest.raises(LocalProtocolError, match="ask (1|99) does not exist"):
            again()


# ------------------------------------------------------------------------ resources and other lists


def test_resources_are_read_from_the_server() -> None:
    stage = Stage().to_live()
    stage.requests("resources/read", {"uri": "notes://1", "_meta": {"progressToken": 1}})
    forward = stage.only(Forward)
    assert (forward.method, forward.target, forward.wants_progress) == ("resources/read", "notes://1", True)
    assert json.decode(forward.params) == {"uri": "notes://1"}


@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list", "tools/list"])
def test_lists_are_forwarded(method: str) -> None:
    stage = Stage().to_live()
    stage.requests(method, {"cursor": ""})
    forward = stage.only(Forward)
    assert (forward.method, json.decode(forward.params)) == (method, {"cursor": ""})


def test_a_views_tool_list_holds_what_it_may_call() -> None:
    """APP-H-03: visibility both ways, in lists too."""
    stage = Stage().to_live()
    stage.requests("tools/list")
    listed = [
        {"name": "a", "inputSchema": {}, "extra": 1},
        {"name": "m", "inputSchema": {}, "_meta": {"ui": {"visibility": ["model"]}}},
        {"name": 7},
        {"name": "v", "inputSchema": {}, "_meta": {"ui": {"visibility": ["app"]}}},
    ]
    stage.view.answer(stage.only(Forward).ask_id, {"tools": listed, "nextCursor": "c"})
    assert stage.drain()[0]["result"] == {"tools": [listed[0], listed[3]], "nextCursor": "c"}
    for odd, told in (({"tools": 7}, {"tools": 7}), ([1], [1])):
        stage.requests("tools/list")
        stage.view.answer(stage.only(Forward).ask_id, odd)
        assert stage.drain()[0]["result"] == told


def test_prompts_are_listed_if_the_server_has_any() -> None:
    assert Stage().to_live().requests("prompts/list")["error"]["code"] == -32601
    stage = Stage(structs.replace(SETTINGS, has_prompts=True)).to_live()
    assert stage.requests("prompts/list") is None
    assert stage.only(Forward).method == "prompts/list"


@pytest.mark.parametrize(
    ("method", "params", "capability"),
    [
        ("tools/call", {"name": "refresh"}, "server_tools"),
        ("tools/list", {}, "server_tools"),
        ("resources/read", {"uri": "x:"}, "server_resources"),
        ("resources/list", {}, "server_resources"),
        ("ui/open-link", {"url": "https://example.com"}, "open_links"),
        ("ui/message", {"role": "user", "content": [TEXT]}, "message"),
        ("ui/update-model-context", {}, "update_model_context"),
        ("ui/download-file", {"contents": []}, "download_file"),
        ("sampling/createMessage", {"messages": []}, "sampling"),
    ],
)
def test_what_is_not_offered_is_not_there(method: str, params: Any, capability: str) -> None:
    """1.4: -32601 for an absent capability."""
    stage = Stage(with_capabilities(**{capability: None})).to_live()
    assert stage.requests(method, params)["error"]["code"] == -32601
    assert stage.only(Finding).rule == "capability"


@pytest.mark.parametrize(
    "method", ["prompts/get", "logging/setLevel", "completion/complete", "resources/subscribe", "ui/nothing"]
)
def test_other_methods_are_unknown(method: str) -> None:
    stage = Stage().to_live()
    assert stage.requests(method, {})["error"]["code"] == -32601
    assert stage.only(Finding).rule == "method"


# ------------------------------------------------------------------------------------------- links


def test_a_link_is_opened() -> None:
    """mcp-apps-req-01, APP-H-17: an empty result on success."""
    stage = Stage().to_live()
    assert stage.requests("ui/open-link", {"url": "https://example.com/a"}, request_id=3) is None
    ask = stage.only(OpenLink)
    assert ask.url == "https://example.com/a"
    stage.view.answer(ask.ask_id)
    assert stage.drain() == [{"jsonrpc": "2.0", "id": 3, "result": {}}]


def test_a_denied_link_is_error_32000() -> None:
    """mcp-apps-req-01: "On denial: error with code -32000 and message"."""
    stage = Stage().to_live()
    stage.requests("ui/open-link", {"url": "https://example.com"}, request_id=3)
    stage.view.deny(stage.only(OpenLink).ask_id, "Link opening denied by user")
    assert stage.drain()[0]["error"] == {"code": -32000, "message": "Link opening denied by user"}


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "ui://a"])
def test_a_dangerous_link_never_reaches_the_program(url: str) -> None:
    """APP-H-17, mcp-apps-req-01."""
    stage = Stage().to_live()
    assert stage.requests("ui/open-link", {"url": url})["error"]["code"] == -32000
    assert stage.take(OpenLink) == []
    assert stage.only(Finding).rule == "denied"
    stage = Stage(RESULTS).to_live()
    assert stage.requests("ui/open-link", {"url": url})["result"] == {"isError": True}
    assert stage.take(OpenLink) == []
    assert stage.only(Finding).rule == "denied"


@pytest.mark.parametrize("params", [None, {}, {"url": 7}, {"url": None}, []])
def test_malformed_is_always_an_error(params: Any) -> None:
    """1.4: malformed is a JSON-RPC error with either kind of denials."""
    for settings in (SETTINGS, RESULTS):
        assert Stage(settings).to_live().requests("ui/open-link", params)["error"]["code"] == -32602


# ---------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize("content", [TEXT, [TEXT]])
def test_a_message_in_either_form(content: Any) -> None:
    """mcp-apps-req-02, APP-H-18: the text prints one block, every SDK sends an array."""
    stage = Stage().to_live()
    stage.requests("ui/message", {"role": "user", "content": content}, request_id=3)
    ask = stage.only(ChatMessage)
    assert list(ask.content) == [TextContent(text="hello")]
    stage.view.answer(ask.ask_id)
    assert stage.drain() == [{"jsonrpc": "2.0", "id": 3, "result": {}}]  # APP-H-18: no conversation data


def test_a_denied_message() -> None:
    """mcp-apps-req-02: "Response indicates success or denial"."""
    for settings, expected in ((SETTINGS, "error"), (RESULTS, "result")):
        stage = Stage(settings).to_live()
        stage.requests("ui/message", {"role": "user", "content": [TEXT]})
        stage.view.deny(stage.only(ChatMessage).ask_id, "Message sending denied")
        (answer,) = stage.drain()
        assert answer[expected] in ({"code": -32000, "message": "Message sending denied"}, {"isError": True})


@pytest.mark.parametrize(
    "params",
    [
        {"role": "assistant", "content": [TEXT]},
        {"role": "user"},
        {"role": "user", "content": []},
        {"role": "user", "content": "hello"},
        {"role": "user", "content": [{"type": "video", "data": ""}]},
        {"role": "user", "content": [{"type": "image", "data": "%%", "mimeType": "image/png"}]},
        {"content": [TEXT]},
    ],
)
def test_a_message_that_is_none(params: Any) -> None:
    stage = Stage().to_live()
    assert stage.requests("ui/message", params)["error"]["code"] == -32602


def test_only_announced_kinds_of_content_are_taken() -> None:
    stage = Stage(with_capabilities(message=Modalities(text=Empty()))).to_live()
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    error = stage.requests("ui/message", {"role": "user", "content": [TEXT, image]})["error"]
    assert (error["code"], "image" in error["message"]) == (-32602, True)
    stage = Stage(with_capabilities(message=Modalities())).to_live()  # announced without kinds: all of them
    stage.requests("ui/message", {"role": "user", "content": [image]})
    assert stage.only(ChatMessage).content == [ImageContent(data=b"hi", mime_type="image/png")]


# ----------------------------------------------------------------------------------- model context


def update(stage: Stage, request_id: int, **params: Any) -> int:
    assert stage.requests("ui/update-model-context", params, request_id=request_id) is None
    return stage.only(ModelContextUpdate).ask_id


def test_context_for_the_model() -> None:
    """mcp-apps-req-03, APP-H-19: stored, replaced by the next, and only the last is given to the next turn."""
    stage = Stage().to_live()
    stage.view.answer(update(stage, 1, content=[TEXT], structuredContent={"a": 1}))
    assert stage.drain() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    stage.view.answer(update(stage, 2, content=[{"type": "text", "text": "newer"}]))
    taken = stage.view.take_model_context()
    assert taken is not None
    assert (list(taken.content), taken.structured_content) == ([TextContent(text="newer")], None)
    assert stage.view.take_model_context() is None
    assert stage.view.model_context == taken


def test_the_same_context_twice_is_asked_once() -> None:
    """mcp-apps-req-03: "May be deduplicated"."""
    stage = Stage().to_live()
    stage.view.answer(update(stage, 1, content=[TEXT]))
    stage.view.take_model_context()
    assert stage.requests("ui/update-model-context", {"content": [TEXT]})["result"] == {}
    assert stage.take(ModelContextUpdate) == []
    assert stage.view.take_model_context() is None


def test_the_last_context_sent_counts_whenever_it_is_allowed() -> None:
    """APP-H-19: the user may answer the second question first."""
    stage = Stage().to_live()
    first, second = update(stage, 1, structuredContent={"n": 1}), update(stage, 2, structuredContent={"n": 2})
    stage.view.answer(second)
    stage.view.answer(first)
    assert stage.view.model_context is not None
    assert stage.view.model_context.structured_content == {"n": 2}


def test_an_empty_update_takes_the_context_back() -> None:
    """mcp-apps-req-03: "Overwrites previous context from same UI"."""
    stage = Stage().to_live()
    stage.view.answer(update(stage, 1, content=[TEXT]))
    stage.view.answer(update(stage, 2))
    taken = stage.view.take_model_context()
    assert taken is not None
    assert (list(taken.content), taken.structured_content) == ([], None)


def test_a_denied_update_is_an_error_in_both_ways_and_stores_nothing() -> None:
    """1.4: "update-model-context denial is -32000 (its result has no isError)"."""
    for settings in (SETTINGS, RESULTS):
        stage = Stage(settings).to_live()
        stage.view.deny(update(stage, 1, content=[TEXT]), "Context update denied")
        assert stage.drain()[0]["error"]["code"] == -32000
        assert stage.view.model_context is None


def test_an_update_is_checked() -> None:
    stage = Stage(with_capabilities(update_model_context=Modalities(text=Empty()))).to_live()
    for params in ({"content": TEXT}, {"structuredContent": [1]}, {"structuredContent": {"a": 1}}):
        assert stage.requests("ui/update-model-context", params)["error"]["code"] == -32602


# -------------------------------------------------------------------------------------- display mode


def test_a_mode_both_sides_know_is_asked_for() -> None:
    """mcp-apps-ctx-03, APP-H-15: the View hears of the mode before its request is answered."""
    stage = Stage().to_live(availableDisplayModes=["inline", "fullscreen"])
    assert stage.requests("ui/request-display-mode", {"mode": "fullscreen"}, request_id=9) is None
    ask = stage.only(ModeChange)
    assert ask.mode == "fullscreen"
    stage.view.answer(ask.ask_id)
    assert stage.drain() == [
        {
            "jsonrpc": "2.0",
            "method": "ui/notifications/host-context-changed",
            "params": {"displayMode": "fullscreen"},
        },
        {"jsonrpc": "2.0", "id": 9, "result": {"mode": "fullscreen"}},
    ]


@pytest.mark.parametrize("mode", ["pip", "fullscreen"])
def test_a_mode_that_is_not_shared_leaves_the_current_one(mode: str) -> None:
    """mcp-apps-ctx-03, APP-H-15: never a mode the View did not declare; S the current one if unavailable."""
    context = HostContext(available_display_modes=["inline", "pip"])
    stage = Stage(context=context).to_live(availableDisplayModes=["inline", "fullscreen"])
    assert stage.requests("ui/request-display-mode", {"mode": mode})["result"] == {"mode": "inline"}
    assert stage.take(ModeChange) == []


def test_the_offer_is_the_intersection() -> None:
    """mcp-apps-ctx-02: "Server only offers modes supported by both parties"."""
    result = Stage().to_html().initialize(availableDisplayModes=["pip", "inline", "cinema"])
    assert result["hostContext"]["availableDisplayModes"] == ["inline", "pip"]


def test_a_declined_mode_is_answered_with_the_current_one() -> None:
    """mcp-apps-ctx-03: "Returns current mode if change denied"; the program may also choose another."""
    stage = Stage().to_live()
    stage.requests("ui/request-display-mode", {"mode": "pip"})
    stage.view.deny(stage.only(ModeChange).ask_id, "not now")
    assert stage.drain()[0]["result"] == {"mode": "inline"}
    stage.requests("ui/request-display-mode", {"mode": "pip"})
    stage.view.answer(stage.only(ModeChange).ask_id, "fullscreen")
    assert stage.drain()[-1]["result"] == {"mode": "fullscreen"}
    assert stage.view.context.display_mode == "fullscreen"
    stage.requests("ui/request-display-mode", {"mode": "fullscreen"})
    assert stage.told[-1]["result"] == {"mode": "fullscreen"}


def test_a_program_cannot_answer_with_a_mode_nobody_declared() -> None:
    stage = Stage().to_live(availableDisplayModes=["inline", "pip"])
    stage.requests("ui/request-display-mode", {"mode": "pip"})
    ask = stage.only(ModeChange)
    with pytest.raises(LocalProtocolError, match="fullscreen"):
        stage.view.answer(ask.ask_id, "fullscreen")
    stage.view.answer(ask.ask_id)
    assert stage.drain()[-1]["result"] == {"mode": "pip"}


@pytest.mark.parametrize("mode", ["cinema", "", 7, None])
def test_a_mode_that_does_not_exist_is_malformed(mode: Any) -> None:
    assert Stage().to_live().requests("ui/request-display-mode", {"mode": mode})["error"]["code"] == -32602


# ------------------------------------------------------------------------------------------ downloads


def test_a_download() -> None:
    """APP-H-22: the files come with safe names; the user is asked by the program."""
    stage = Stage().to_live()
    contents = [
        {"type": "resource", "resource": {"uri": "x://../../evil\u202egpj.exe", "text": "data"}},
        {"type": "resource_link", "uri": "https://example.com/b", "name": "b.zip"},
    ]
    assert stage.requests("ui/download-file", {"contents": contents}) is None
    ask = stage.only(Download)
    assert [(item.name, item.data, item.url) for item in ask.items] == [
        ("evilgpj.exe", b"data", None),
        ("b.zip", None, "https://example.com/b"),
    ]
    stage.view.answer(ask.ask_id)
    assert stage.drain()[0]["result"] == {}


def test_a_denied_download() -> None:
    """APP-H-22."""
    for settings, expected in ((SETTINGS, "error"), (RESULTS, "result")):
        stage = Stage(settings).to_live()
        stage.requests("ui/download-file", {"contents": [{"type": "resource", "resource": {"uri": "a", "text": ""}}]})
        stage.view.deny(stage.only(Download).ask_id, "no")
        assert expected in stage.drain()[0]
        link = {"type": "resource_link", "uri": "file:///etc/passwd", "name": "x"}
        answer = stage.requests("ui/download-file", {"contents": [link]})
        assert expected in answer


# -------------------------------------------------------------------------------------------- sampling


def test_sampling_is_the_hosts_model() -> None:
    stage = Stage(with_capabilities(sampling=SamplingOffer())).to_live()
    params = {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 10}
    assert stage.requests("sampling/createMessage", params) is None
    ask = stage.only(Sample)
    assert json.decode(ask.params) == params
    stage.view.answer(ask.ask_id, {"role": "assistant", "content": TEXT, "model": "m"})
    assert stage.drain()[0]["result"]["model"] == "m"
    for bad in ({}, {"messages": "x"}, {**params, "tools": []}):
        assert stage.requests("sampling/createMessage", bad)["error"]["code"] == -32602
    stage = Stage(with_capabilities(sampling=SamplingOffer(tools=Empty()))).to_live()
    assert stage.requests("sampling/createMessage", {**params, "tools": []}) is None


# ----------------------------------------------------------------------------------------- size and log


def test_a_flexible_frame_follows_its_view() -> None:
    """mcp-apps-life-06, mcp-apps-ctx-05, APP-H-14: up to the maximum; the fixed axis stays."""
    stage = Stage().to_live()  # width 400 fixed, height up to 600
    stage.notifies("ui/notifications/size-changed", {"width": 900, "height": 250})
    assert stage.only(SizeChanged) == SizeChanged(None, 250)
    stage.notifies("ui/notifications/size-changed", {"height": 5000.5})
    assert stage.only(SizeChanged) == SizeChanged(None, 600)


def test_a_fixed_frame_does_not() -> None:
    """mcp-apps-ctx-04: "No auto-resize notifications needed"."""
    stage = Stage(context=HostContext(container_dimensions=ContainerDimensions(width=400, height=300))).to_live()
    stage.notifies("ui/notifications/size-changed", {"width": 900, "height": 900})
    assert stage.take(SizeChanged) == []
    assert stage.initialize()["hostContext"]["containerDimensions"] == {"width": 400, "height": 300}


def test_an_unbounded_frame_has_a_limit_all_the_same() -> None:
    stage = Stage(context=HostContext()).to_live()
    stage.notifies("ui/notifications/size-changed", {"width": 1e300, "height": -5})
    assert stage.only(SizeChanged) == SizeChanged(16384, 1)
    for bad in ({"width": "900"}, {"width": True}, [], None):
        stage.notifies("ui/notifications/size-changed", bad)
    assert stage.take(SizeChanged) == []


def test_log_messages_are_handed_on() -> None:
    stage = Stage().to_live()
    stage.notifies("notifications/message", {"level": "error", "logger": "map", "data": {"a": None}})
    assert stage.only(Logged) == Logged("error", {"a": None}, "map")
    stage.notifies("notifications/message", {"level": "shout", "data": 1})
    assert stage.take(Logged) == []
    assert stage.only(Finding).rule == "params"
    stage = Stage(with_capabilities(logging=None)).to_live()
    stage.notifies("notifications/message", {"level": "error", "data": 1})
    assert stage.take(Logged) == []
    assert stage.only(Finding).rule == "capability"


def test_the_same_context_again_is_an_update_while_another_one_waits() -> None:
    """APP-H-19: the last one sent counts, A after B too; what is kept is not what the View said last."""
    stage = Stage().to_live()
    stage.view.answer(update(stage, 1, structuredContent={"v": "A"}))
    waiting = update(stage, 2, structuredContent={"v": "B"})
    stage.view.answer(update(stage, 3, structuredContent={"v": "A"}))
    stage.view.answer(waiting)
    assert stage.view.model_context is not None
    assert stage.view.model_context.structured_content == {"v": "A"}
    # Nothing waits any more, however it ended: what is the same is not asked again.
    stage.view.deny(update(stage, 4, structuredContent={"v": "C"}), "no")
    stage.drain()
    assert stage.requests("ui/update-model-context", {"structuredContent": {"v": "A"}})["result"] == {}
