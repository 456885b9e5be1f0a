"""Tools that a View offers (APP-H-25)."""

from __future__ import annotations

from typing import Any

import pytest
from support.host_stage import Stage, tool

from mcpd.apps.host.view.events import AppToolAnswered, AppToolsChanged, AppToolsListed, Finding
from mcpd.apps.host.view.outgoing import model_names, needs_confirmation
from mcpd.errors import InvalidParams, LocalProtocolError, RemoteError, RequestCancelled, RequestTimeout, TransportError
from mcpd.protocol.types.features import ToolAnnotations

LOOK = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
MOVE = {"name": "move", "inputSchema": {"type": "object"}}


def listed(*tools: Any) -> Stage:
    """A live View whose tools are listed."""
    stage = Stage().to_live(tools={"listChanged": True})
    stage.view.list_app_tools(stage.now)
    stage.answers(stage.drain()[0], {"tools": list(tools)})
    return stage


def test_tools_are_listed_and_called() -> None:
    """APP-H-25: `appCapabilities.tools`."""
    stage = listed(LOOK)
    assert [each.name for each in stage.only(AppToolsListed).tools] == ["look"]
    assert [each.name for each in stage.view.app_tools] == ["look"]
    call_id = stage.view.call_app_tool("look", {"at": "sea"}, stage.now)
    (request,) = stage.drain()
    assert request == {
        "jsonrpc": "2.0",
        "id": call_id,
        "method": "tools/call",
        "params": {"name": "look", "arguments": {"at": "sea"}},
    }
    stage.answers(request, {"content": [{"type": "text", "text": "blue"}], "isError": False})
    answered = stage.only(AppToolAnswered)
    assert (answered.call_id, answered.tool, answered.error) == (call_id, "look", None)
    assert answered.result is not None
    assert answered.result.content[0].text == "blue"  # type: ignore[union-attr]


def test_only_a_view_that_declares_tools_is_asked() -> None:
    stage = Stage().to_live()
    with pytest.raises(LocalProtocolError, match="appCapabilities"):
        stage.view.list_app_tools(stage.now)
    with pytest.raises(LocalProtocolError, match="has not listed"):
        stage.view.call_app_tool("look", {}, stage.now)
    stage.notifies("notifications/tools/list_changed")
    assert stage.take(AppToolsChanged) == []


def test_a_change_of_the_list_is_announced() -> None:
    stage = listed(LOOK)
    stage.notifies("notifications/tools/list_changed")
    assert stage.only(AppToolsChanged)


def test_pages_are_read_to_the_end_and_the_old_list_holds_until_then() -> None:
    stage = listed(LOOK)
    stage.take(AppToolsListed)
    stage.view.list_app_tools(stage.now)
    (first,) = stage.drain()
    (second,) = stage.answers(first, {"tools": [MOVE], "nextCursor": "2"})
    assert (second["method"], second["params"]) == ("tools/list", {"cursor": "2"})
    assert [each.name for each in stage.view.app_tools] == ["look"]
    assert stage.answers(second, {"tools": [{**MOVE, "name": "jump"}]}) == []
    assert [each.name for each in stage.only(AppToolsListed).tools] == ["move", "jump"]


def test_a_list_has_limits() -> None:
    """APP-H-25: <=50 tools; endless pages end."""
    stage = listed(*({**LOOK, "name": f"t{n}"} for n in range(60)))
    assert len(stage.view.app_tools) == 50
    assert "50" in stage.only(Finding).text
    stage.view.list_app_tools(stage.now)
    pages = 0
    told = stage.drain()
    while told:
        pages += 1
        told = stage.answers(told[0], {"tools": [], "nextCursor": "more"})
    assert pages == 10


@pytest.mark.parametrize(
    "bad", [{}, {"name": "x"}, {**LOOK, "name": ""}, {**LOOK, "name": "a b"}, {**LOOK, "name": "x" * 129}, 7, LOOK]
)
def test_one_bad_tool_spoils_no_list(bad: Any) -> None:
    """APP-H-25: name clashes within the View, too."""
    stage = listed(LOOK, bad, MOVE)
    assert [each.name for each in stage.view.app_tools] == ["look", "move"]
    assert stage.only(Finding).rule == "app-tools"


@pytest.mark.parametrize("result", [{}, {"tools": 7}, [], None])
def test_a_list_that_is_none(result: Any) -> None:
    stage = Stage().to_live(tools={})
    stage.view.list_app_tools(stage.now)
    stage.says({"jsonrpc": "2.0", "id": stage.drain()[0]["id"], "result": result})
    assert stage.only(Finding).rule == "app-tools"
    assert stage.take(AppToolsListed) == []


def test_a_view_that_declares_tools_and_does_not_answer() -> None:
    """Seen in the wild: declared, and tools/list is answered with -32601, or not at all."""
    stage = Stage().to_live(tools={})
    stage.view.list_app_tools(stage.now)
    stage.answers(stage.drain()[0], error={"code": -32601, "message": "Method not found"})
    assert "Method not found" in stage.only(Finding).text
    stage.view.list_app_tools(stage.now)
    stage.drain()
    (cancelled,) = stage.passes(30)
    assert cancelled["method"] == "notifications/cancelled"
    assert stage.only(Finding).rule == "app-tools"


def test_what_is_not_read_only_needs_the_users_word() -> None:
    """APP-H-25: confirm unless read-only; silence about it is no promise."""
    stage = listed(LOOK, MOVE, {**MOVE, "name": "wipe", "annotations": {"readOnlyHint": False}})
    for name in ("move", "wipe"):
        with pytest.raises(LocalProtocolError, match="read-only"):
            stage.view.call_app_tool(name, {}, stage.now)
        assert stage.drain() == []
        assert stage.view.call_app_tool(name, {}, stage.now, confirmed=True) == stage.drain()[0]["id"]
    assert needs_confirmation(tool("x"))
    assert not needs_confirmation(tool("x", annotations=ToolAnnotations(read_only_hint=True)))


def test_errors_and_rubbish_end_a_call_too() -> None:
    """APP-H-25: validate results."""
    stage = listed(LOOK)
    stage.view.call_app_tool("look", {}, stage.now)
    stage.answers(stage.drain()[0], error={"code": -32000, "message": "lost", "data": 1})
    error = stage.only(AppToolAnswered).error
    assert isinstance(error, RemoteError)
    assert (error.code, error.message, error.data) == (-32000, "lost", 1)
    for result in ({}, {"content": "x"}, {"content": [{"type": "hologram"}]}, 7):
        stage.view.call_app_tool("look", {}, stage.now)
        stage.answers(stage.drain()[0], result)
        assert isinstance(stage.only(AppToolAnswered).error, InvalidParams)


def test_a_call_has_thirty_seconds() -> None:
    """APP-H-25."""
    stage = listed(LOOK)
    call_id = stage.view.call_app_tool("look", {}, stage.now)
    (request,) = stage.drain()
    assert stage.view.deadline == stage.now + 30
    assert stage.passes(29) == []
    (cancelled,) = stage.passes(1)
    assert cancelled["params"]["requestId"] == call_id
    assert isinstance(stage.only(AppToolAnswered).error, RequestTimeout)
    stage.answers(request, {"content": []})
    assert stage.take(AppToolAnswered) == []
    assert stage.only(Finding).rule == "unknown-answer"


@pytest.mark.parametrize("value", [object(), "\ud83d"], ids=["object", "lone surrogate"])
def test_arguments_that_are_no_json_leave_no_call_behind(value: Any) -> None:
    stage = listed(LOOK)
    with pytest.raises(LocalProtocolError, match="cannot be written as JSON"):
        stage.view.call_app_tool("look", {"a": value}, stage.now)
    assert stage.drain() == []
    assert stage.view.deadline is None


def test_a_call_can_be_given_up() -> None:
    stage = listed(LOOK)
    call_id = stage.view.call_app_tool("look", {}, stage.now)
    stage.drain()
    stage.view.cancel_app_call(call_id, "the user changed their mind")
    assert stage.drain()[0]["params"] == {"requestId": call_id, "reason": "the user changed their mind"}
    assert isinstance(stage.only(AppToolAnswered).error, RequestCancelled)
    stage.view.cancel_app_call(call_id)
    assert stage.drain() == []


@pytest.mark.parametrize("end", ["teardown", "frame_lost", "mount"])
def test_tools_go_with_their_view(end: str) -> None:
    """APP-H-25: M dropped with the View, never persisted, error after close."""
    stage = listed(LOOK)
    call_id = stage.view.call_app_tool("look", {}, stage.now)
    stage.drain()
    if end == "teardown":
        stage.view.teardown("bye", stage.now)
        stage.answers(stage.drain()[0])
    elif end == "frame_lost":
        stage.view.frame_lost("crash")
    else:
        stage.initialize(tools={})
    answered = stage.only(AppToolAnswered)
    assert answered.call_id == call_id
    assert isinstance(answered.error, TransportError)
    assert list(stage.view.app_tools) == []
    with pytest.raises(LocalProtocolError, match="live"):
        stage.view.call_app_tool("look", {}, stage.now)


def test_names_for_the_model_say_where_a_tool_comes_from_and_clash_with_none() -> None:
    """APP-H-25: S attribute, avoid name clashes."""
    tools = [tool("look"), tool("a.b"), tool("a-b"), tool("x" * 128), tool("x" * 127 + "y")]
    taken = {"weather_app-view-1__look"}
    names = model_names("weather app!", "view-1", tools, taken)
    assert list(names.values()) == tools
    assert list(names)[:3] == [
        "weather_app-view-1__look_2",
        "weather_app-view-1__a_b",
        "weather_app-view-1__a-b",
    ]
    assert all(len(name) <= 64 for name in names)
    assert not taken & set(names)
    assert next(iter(model_names("…", "view-1", tools[:1], ()))) == "view-view-1__look"


def test_names_for_the_model_stay_with_their_view() -> None:
    """APP-H-25: however long the tool's own name is, and whether another View is there or not."""
    call, tools = "show_quarterly_sales_report", [tool("delete_row")]
    first, second = (list(model_names(call, view_id, tools, ())) for view_id in ("view-1", "view-2"))
    assert first != second
    assert list(model_names(call, "view-2", tools, first)) == second
    assert all(name.endswith("-view-2__delete_row") for name in second)


def read_only(name: str, value: bool) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": value}}


def test_one_list_is_read_at_a_time() -> None:
    """APP-H-25: a change while a list is read has it read once more; two lists never become one."""
    stage = Stage().to_live(tools={"listChanged": True})
    for _ in range(3):
        stage.view.list_app_tools(stage.now)
    (first,) = stage.drain()
    (page,) = stage.answers(first, {"tools": [read_only("both", True)], "nextCursor": "2"})
    assert page["params"] == {"cursor": "2"}
    (second,) = stage.answers(page, {"tools": [read_only("old", True)]})
    assert [each.name for each in stage.view.app_tools] == ["both", "old"]
    assert second["params"] == {}
    assert stage.answers(second, {"tools": [read_only("new", True), read_only("both", False)]}) == []
    assert [each.name for each in stage.view.app_tools] == ["new", "both"]
    with pytest.raises(LocalProtocolError, match="read-only"):
        stage.view.call_app_tool("both", {}, stage.now)


@pytest.mark.parametrize("end", ["error", "rubbish", "silence"])
def test_a_list_that_fails_does_not_end_listing(end: str) -> None:
    stage = Stage().to_live(tools={})
    stage.view.list_app_tools(stage.now)
    stage.view.list_app_tools(stage.now)
    (first,) = stage.drain()
    if end == "silence":
        told = stage.passes(30)
        assert [message["method"] for message in told] == ["notifications/cancelled", "tools/list"]
    else:
        error = {"code": -32603, "message": "no"} if end == "error" else None
        told = stage.answers(first, {"tools": 7}, error)
    stage.answers(told[-1], {"tools": [LOOK]})
    assert [each.name for each in stage.view.app_tools] == ["look"]
    stage.view.list_app_tools(stage.now)
    assert len(stage.drain()) == 1
