"""Views that break the rules: each message is refused as it should be, reported, and the session goes on (APP-H-20)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import structs
from support.host_stage import SETTINGS, Stage

from mcpd.apps.host.view import ViewPhase
from mcpd.apps.host.view.events import Abort, AppToolAnswered, Ask, Closed, Failed, Finding, Forward, Live
from mcpd.apps.host.view.policy import ViewLimits


def goes_on(stage: Stage) -> None:
    """The View is live and served as if nothing had been."""
    stage.now += 10
    assert stage.state is ViewPhase.LIVE
    assert stage.requests("ping", request_id="still there")["result"] == {}
    stage.requests("tools/call", {"name": "refresh"}, request_id="work")
    stage.view.answer(stage.take(Forward)[-1].ask_id, {"content": []})
    assert stage.drain()[-1] == {"jsonrpc": "2.0", "id": "work", "result": {"content": []}}


MALFORMED: list[tuple[bytes, int, Any]] = [
    # message, code of the answer, its id
    (b"", -32700, None),
    (b"rubbish", -32700, None),
    (b'{"jsonrpc":"2.0","id":1', -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping"}x', -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"p\xff"}', -32700, None),
    (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refresh","arguments":{"a":"\xff"}}}',
        -32700,
        None,
    ),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", -32700, None),
    (b"null", -32600, None),
    (b"7", -32600, None),
    (b"{}", -32600, None),
    (b"[]", -32600, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
    (b'{"id":1,"method":"ping"}', -32600, 1),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600, 1),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600, 1),
    (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1,"error":"no"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}', -32602, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":7}', -32602, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}', -32602, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refresh","arguments":[]}}', -32602, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refresh","arguments":null}}', -32602, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["refresh"]}}', -32602, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refresh","_meta":7}}', -32602, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{}}', -32602, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 10_000 + b'"}', -32601, 1),
]


@pytest.mark.parametrize(("message", "code", "request_id"), MALFORMED, ids=lambda value: str(value)[:60])
def test_malformed_messages_are_refused_with_their_code(message: bytes, code: int, request_id: Any) -> None:
    """APP-H-20: S validate messages, refuse malformed; 1.4 for the codes."""
    stage = Stage().to_live()
    (answer,) = stage.says(message)
    assert (answer["error"]["code"], answer["id"]) == (code, request_id)
    assert len(answer["error"]["message"]) < 300
    finding = stage.only(Finding)
    assert finding.refused
    assert len(finding.text) <= 300
    assert len(finding.method) <= 100
    assert stage.take(Ask) == []
    goes_on(stage)


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "nothing/known"},
        {"jsonrpc": "2.0", "method": "ui/notifications/tool-input", "params": {"arguments": {}}},
        {"jsonrpc": "2.0", "method": "ui/notifications/sandbox-resource-ready", "params": {"html": "<p>"}},
        {"jsonrpc": "2.0", "method": "ui/notifications/sandbox-proxy-ready", "params": {}},
        {"jsonrpc": "2.0", "method": "ui/notifications/size-changed", "params": {"width": "x"}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}},
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": "host-1", "result": {}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": "?"}},
        {"jsonrpc": "2.0", "error": {"code": -1, "message": "?"}},
    ],
    ids=lambda message: str(message.get("method", message))[:60],
)
def test_what_cannot_be_answered_is_reported_and_ignored(message: dict[str, Any]) -> None:
    """APP-H-20: also answers to nothing we asked, and what only a host or a proxy may say (APP-X-05)."""
    stage = Stage().to_live()
    assert stage.says(message) == []
    assert stage.only(Finding).refused
    assert [type(event).__name__ for event in stage.happened if not isinstance(event, Live)] == ["Connected"]
    goes_on(stage)


def test_an_id_in_use_is_refused() -> None:
    """An answer to the second one would be taken for the first one's."""
    stage = Stage().to_live()
    stage.requests("tools/call", {"name": "refresh"}, request_id=1)
    assert stage.requests("tools/call", {"name": "refresh"}, request_id=1)["error"]["code"] == -32600
    assert stage.requests("tools/call", {"name": "refresh"}, request_id="1") is None
    assert len(stage.take(Forward)) == 2


def test_a_message_that_is_too_big() -> None:
    """3.4: message 4 MiB."""
    stage = Stage(structs.replace(SETTINGS, limits=ViewLimits(message_bytes=1000))).to_live()
    (answer,) = stage.says(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y" * 1000}}))
    assert answer["error"]["code"] == -32600
    assert stage.only(Finding).rule == "size"
    goes_on(stage)
    assert ViewLimits().message_bytes == 4 * 1024 * 1024


def test_a_text_is_as_long_as_its_bytes() -> None:
    """3.4: a program hands on what a page said as a str; the limit is the same."""
    stage = Stage(structs.replace(SETTINGS, limits=ViewLimits(message_bytes=1000))).to_live()
    ping = '{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "' + "€" * 400 + '"}}'
    assert len(ping) < 1000 < len(ping.encode())
    for message in (ping, ping.encode()):
        assert stage.says(message)[0]["error"]["code"] == -32600
        assert stage.only(Finding).rule == "size"
    goes_on(stage)


def test_a_text_with_half_a_character() -> None:
    """APP-H-20: refused like bytes that are no UTF-8."""
    stage = Stage().to_live()
    (answer,) = stage.says('{"jsonrpc":"2.0","id":9,"method":"ping","params":{"x":"\ud83d"}}')
    assert answer["error"]["code"] == -32700
    assert stage.only(Finding).rule == "parse"
    goes_on(stage)


def test_eight_requests_at_a_time() -> None:
    """3.4: 8 calls in flight per View; questions to the user count as well."""
    stage = Stage().to_live()
    for request_id in range(7):
        stage.requests("tools/call", {"name": "refresh"}, request_id=request_id)
    stage.requests("ui/open-link", {"url": "https://example.com"}, request_id=7)
    assert stage.requests("tools/call", {"name": "refresh"}, request_id=8)["error"]["code"] == -32000
    assert stage.only(Finding).rule == "limit"
    assert stage.requests("ping", request_id=9)["result"] == {}
    stage.view.answer(stage.take(Forward)[0].ask_id, {"content": []})
    assert stage.requests("tools/call", {"name": "refresh"}, request_id=8) is None


def test_asking_and_taking_back_gets_no_more_work_done() -> None:
    """A cancelled call keeps its place until the work on it has stopped."""
    stage = Stage().to_live()
    refused = 0
    for request_id in range(40):
        answer = stage.requests("tools/call", {"name": "refresh"}, request_id=request_id)
        refused += answer is not None
        stage.notifies("notifications/cancelled", {"requestId": request_id})
    assert (len(stage.take(Forward)), len(stage.take(Abort)), refused) == (8, 8, 32)


def test_two_hundred_messages_a_second() -> None:
    """3.4: 200/s; what is over is refused, with one finding a second, and the rest of the session is unharmed."""
    stage = Stage().to_live()
    stage.now += 10
    answers = [stage.requests("ping", request_id=n) for n in range(1000)]
    assert [("result" in answer) for answer in answers] == [True] * 200 + [False] * 800
    assert answers[-1]["error"]["code"] == -32000
    assert len(stage.take(Finding)) == 1
    for _ in range(1000):
        stage.notifies("ui/notifications/size-changed", {"height": 5})
        stage.says(b"rubbish")
        stage.says({"jsonrpc": "2.0", "id": "nothing", "result": {}})
    assert stage.take(Finding) == []
    assert stage.drain() == []
    goes_on(stage)


def test_a_flood_does_not_drown_the_answers_we_wait_for() -> None:
    stage = Stage().to_live()
    stage.view.teardown("x", stage.now)
    (request,) = stage.drain()
    for n in range(1000):
        stage.requests("ping", request_id=n)
    stage.answers(request)
    assert stage.only(Closed).clean


def test_nobody_else_answers_a_teardown() -> None:
    """Wrong ids: the View's own numbers, a guess, an id of another type."""
    stage = Stage().to_live()
    stage.view.teardown("x", stage.now)
    (request,) = stage.drain()
    for wrong in (0, 1, "1", "host-0", "host-2", None):
        stage.says({"jsonrpc": "2.0", "id": wrong, "result": {}})
    assert stage.state is ViewPhase.CLOSING
    assert request["id"] == "host-1"


# ------------------------------------------------------------------------------------- properties

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
anything = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=8), v, max_size=3)
)
methods = st.text(max_size=20) | st.sampled_from(
    [
        "ui/initialize",
        "ui/notifications/initialized",
        "ui/notifications/sandbox-proxy-ready",
        "ui/notifications/size-changed",
        "ui/notifications/request-teardown",
        "ui/open-link",
        "ui/message",
        "ui/update-model-context",
        "ui/request-display-mode",
        "ui/download-file",
        "tools/call",
        "tools/list",
        "resources/read",
        "prompts/list",
        "sampling/createMessage",
        "notifications/cancelled",
        "notifications/message",
        "notifications/tools/list_changed",
        "ping",
    ]
)
params = anything | st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["refresh", "delete_all", "x"]) | anything,
        "arguments": anything,
        "uri": anything,
        "url": st.sampled_from(["javascript:x", "https://e.example"]) | anything,
        "mode": st.sampled_from(["pip", "cinema"]) | anything,
        "role": st.just("user"),
        "content": anything | st.just([{"type": "text", "text": "x"}]),
        "structuredContent": anything,
        "contents": anything,
        "requestId": anything,
        "messages": anything,
        "level": anything,
        "width": anything,
        "cursor": anything,
        "_meta": anything | st.fixed_dictionaries({"progressToken": anything}),
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | anything,
        "id": st.integers(0, 3) | anything,
        "method": methods,
        "params": params,
        "result": anything,
        "error": anything,
    },
)
calls = st.builds(
    lambda method, request_id, given: {"jsonrpc": "2.0", "id": request_id, "method": method, "params": given},
    methods,
    st.integers() | st.text(max_size=3),
    params,
)


@given(st.lists(messages | calls | st.binary(max_size=30), max_size=12))
def test_no_message_ends_a_session_or_goes_without_its_one_answer(sent: list[Any]) -> None:
    """APP-H-20: whatever a View says, it is refused or done, and the View is still served afterwards."""
    stage = Stage().to_live()
    for message in sent:
        told = stage.says(message)
        for answer in told:
            if "error" in answer:
                assert answer["error"]["code"] in (-32700, -32600, -32601, -32602, -32000)  # never -32603
        if isinstance(message, dict) and is_request(message):
            replies = [answer for answer in told if "method" not in answer]
            asked = stage.take(Ask)
            assert len(replies) + len(asked) == 1
            for ask in asked:
                stage.view.deny(ask.ask_id, "no")
                stage.drain()
    assert stage.take(Failed) == stage.take(Closed) == stage.take(AppToolAnswered) == []
    if stage.state is ViewPhase.INIT:
        stage.initialized()
    goes_on(stage)


def is_request(message: dict[str, Any]) -> bool:
    request_id = message.get("id")
    return (
        message.get("jsonrpc") == "2.0"
        and isinstance(message.get("method"), str)
        and "id" in message
        and (isinstance(request_id, str) or type(request_id) is int)
    )
