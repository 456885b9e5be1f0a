"""The call call's order rules, on their own."""

from __future__ import annotations

import pytest
from msgspec import Raw

from mcpd.apps.host.view.messages import TOOL_CANCELLED, TOOL_INPUT, TOOL_INPUT_PARTIAL, TOOL_RESULT
from mcpd.apps.host.view.outgoing import OpeningCall
from mcpd.errors import LocalProtocolError
from mcpd.protocol.types.features import CallToolResult, TextContent


def methods(call: OpeningCall) -> list[str]:
    return [method for method, _ in call.due()]


def test_everything_in_order_each_once() -> None:
    """APP-H-09, APP-H-10, APP-H-11."""
    call = OpeningCall()
    assert call.partial({"a": 1})
    assert call.partial({"a": 12})
    assert call.input({"a": 123})
    assert not call.partial({"a": 1})
    assert call.result({"content": []})
    assert not call.result({"content": []})
    assert not call.cancelled("late")
    assert call.ended
    due = list(call.due())
    assert [method for method, _ in due] == [TOOL_INPUT_PARTIAL, TOOL_INPUT, TOOL_RESULT]
    assert [params.arguments for _, params in due[:2]] == [Raw(b'{"a":12}'), Raw(b'{"a":123}')]
    assert methods(call) == []


def test_a_result_without_input_brings_an_empty_one() -> None:
    call = OpeningCall()
    call.result({"content": []})
    assert methods(call) == [TOOL_INPUT, TOOL_RESULT]
    with pytest.raises(LocalProtocolError, match="once"):
        call.input({})


def test_a_cancellation_needs_no_input_and_ends_it() -> None:
    call = OpeningCall()
    assert call.cancelled("stopped")
    assert not call.input({"a": 1})
    assert not call.partial({"a": 1})
    assert not call.result({})
    assert methods(call) == [TOOL_CANCELLED]


def test_input_is_given_once() -> None:
    call = OpeningCall()
    call.input(None)
    with pytest.raises(LocalProtocolError, match="once per View"):
        call.input({"a": 1})
    assert [params.arguments for _, params in call.due()] == [Raw(b"{}")]


def test_a_partial_is_taken_as_it_is_now() -> None:
    """PartialArguments gives the same dict each time; what waits must not change with it."""
    call, arguments = OpeningCall(), {"a": "x"}
    call.partial(arguments)
    arguments["a"] = "xyz"
    assert [params.arguments for _, params in call.due()] == [Raw(b'{"a":"x"}')]


def test_a_result_always_has_content() -> None:
    """mcp-apps-life-03: "Includes `content` array"."""
    call = OpeningCall()
    call.result({"structuredContent": {"t": 21}})
    _, (_, params) = call.due()
    assert bytes(params) == b'{"structuredContent":{"t":21},"content":[]}'
    call = OpeningCall()
    call.result(CallToolResult(content=[TextContent(text="x")], meta={"k": 1}))
    _, (_, params) = call.due()
    assert bytes(params) == b'{"_meta":{"k":1},"content":[{"type":"text","text":"x"}]}'


@pytest.mark.parametrize("value", [Raw(b"[1]"), [1], "x", {"a": object()}, {"a": "\ud83d"}])
def test_what_is_no_json_object_is_our_own_mistake(value: object) -> None:
    for method in (OpeningCall().input, OpeningCall().partial, OpeningCall().result):
        with pytest.raises(LocalProtocolError, match="JSON"):
            method(value)  # type: ignore[operator]
