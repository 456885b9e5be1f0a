"""The launch call's order rules, on their own."""

from __future__ import annotations

import pytest
from msgspec import Raw

from mcpd.apps.host.view.announcements import LaunchCall
from mcpd.apps.host.view.messages import TOOL_CANCELLED, TOOL_INPUT, TOOL_INPUT_PARTIAL, TOOL_RESULT
from mcpd.errors import LocalProtocolError
from mcpd.protocol.types.content import TextContent
from mcpd.protocol.types.tools import CallToolResult


def methods(launch: LaunchCall) -> list[str]:
    return [method for method, _ in launch.due()]


def test_everything_in_order_each_once() -> None:
    """APP-H-09, APP-H-10, APP-H-11."""
    launch = LaunchCall()
    assert launch.partial({"a": 1})
    assert launch.partial({"a": 12})
    assert launch.input({"a": 123})
    assert not launch.partial({"a": 1})
    assert launch.result({"content": []})
    assert not launch.result({"content": []})
    assert not launch.cancelled("late")
    assert launch.ended
    due = list(launch.due())
    assert [method for method, _ in due] == [TOOL_INPUT_PARTIAL, TOOL_INPUT, TOOL_RESULT]
    assert [params.arguments for _, params in due[:2]] == [Raw(b'{"a":12}'), Raw(b'{"a":123}')]
    assert methods(launch) == []


def test_a_result_without_input_brings_an_empty_one() -> None:
    launch = LaunchCall()
    launch.result({"content": []})
    assert methods(launch) == [TOOL_INPUT, TOOL_RESULT]
    with pytest.raises(LocalProtocolError, match="once"):
        launch.input({})


def test_a_cancellation_needs_no_input_and_ends_it() -> None:
    launch = LaunchCall()
    assert launch.cancelled("stopped")
    assert not launch.input({"a": 1})
    assert not launch.partial({"a": 1})
    assert not launch.result({})
    assert methods(launch) == [TOOL_CANCELLED]


def test_input_is_given_once() -> None:
    launch = LaunchCall()
    launch.input(None)
    with pytest.raises(LocalProtocolError, match="once per View"):
        launch.input({"a": 1})
    assert [params.arguments for _, params in launch.due()] == [Raw(b"{}")]


def test_a_partial_is_taken_as_it_is_now() -> None:
    """PartialArguments gives the same dict each time; what waits must not change with it."""
    launch, arguments = LaunchCall(), {"a": "x"}
    launch.partial(arguments)
    arguments["a"] = "xyz"
    assert [params.arguments for _, params in launch.due()] == [Raw(b'{"a":"x"}')]


def test_a_result_always_has_content() -> None:
    """mcp-apps-life-03: "Includes `content` array"."""
    launch = LaunchCall()
    launch.result({"structuredContent": {"t": 21}})
    _, (_, params) = launch.due()
    assert bytes(params) == b'{"structuredContent":{"t":21},"content":[]}'
    launch = LaunchCall()
    launch.result(CallToolResult(content=[TextContent(text="x")], meta={"k": 1}))
    _, (_, params) = launch.due()
    assert bytes(params) == b'{"_meta":{"k":1},"content":[{"type":"text","text":"x"}]}'


@pytest.mark.parametrize("value", [Raw(b"[1]"), [1], "x", {"a": object()}, {"a": "\ud83d"}])
def test_what_is_no_json_object_is_our_own_mistake(value: object) -> None:
    for method in (LaunchCall().input, LaunchCall().partial, LaunchCall().result):
        with pytest.raises(LocalProtocolError, match="JSON"):
            method(value)  # type: ignore[operator]
