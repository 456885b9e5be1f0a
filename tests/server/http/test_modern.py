"""POST of 2026-07-28 over real sockets: the order of the checks, the statuses, streams, and leaving."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.clock import until
from support.http_peer import BOTH, META, MODERN, call, envelope, modern, post, request, serving
from support.http_stage import Stage
from support.wire_schema import Conversation

VERSION = {"MCP-Protocol-Version": MODERN}
ECHO = {"name": "echo", "arguments": {"text": "héllo ✓ \u2028"}}


def without(key: str) -> dict[str, Any]:
    """An envelope that lacks a key."""
    return {name: value for name, value in envelope().items() if name != META + key}


async def test_a_request_is_answered_as_one_json_object() -> None:
    """S26-050, S26-055, S26-043, S26-044: POST to one path, an answer in UTF-8, without a session."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.modern("tools/call", ECHO)
        assert answer.status == 200
        assert answer["content-type"] == "application/json"
        assert answer["content-length"] == str(len(answer.body))
        assert "✓".encode() in answer.body
        assert answer.json["result"]["content"][0]["text"] == "héllo ✓ \u2028"
        assert "mcp-session-id" not in answer
        assert "date" in answer
        assert "server" not in answer


async def test_many_requests_on_one_connection() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        for number in range(20):
            answer = await peer.ask(
                modern("tools/call", {"name": "echo", "arguments": {"text": str(number)}}, id=number)
            )
            assert answer.json["result"]["content"][0]["text"] == str(number)
            assert answer.json["id"] == number


@pytest.mark.parametrize("id", [0, -1, 2**53, "", "a", "ä"])
async def test_ids_come_back_as_they_are(id: Any) -> None:
    """S26-003."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.modern("tools/list", id=id)
        assert answer.json["id"] == id
        assert type(answer.json["id"]) is type(id)


async def test_nothing_is_remembered_between_requests() -> None:
    """S26-018, S26-036: the same id twice at once, and capabilities of one request mean nothing to the next."""
    stage = Stage()
    async with serving(stage.server) as port:
        first, second = await port.connect(), await port.connect()
        first.send(modern("tools/call", {"name": "wait", "arguments": {"door": "a"}}, id=7))
        second.send(modern("tools/call", {"name": "wait", "arguments": {"door": "b"}}, id=7))
        assert {await stage.entered.get(), await stage.entered.get()} == {"a", "b"}
        stage.open("b")
        assert (await second.answer()).json["id"] == 7
        stage.open("a")
        assert (await first.answer()).json["id"] == 7
        able = envelope({"elicitation": {}})
        asked = await port.modern("tools/call", {"name": "ask_name"}, meta=able)
        assert asked.json["result"]["resultType"] == "input_required"
        assert (await port.modern("tools/call", {"name": "ask_name"})).code == -32021


# ------------------------------------------------------------------------------ the order of checks


@pytest.mark.parametrize("key", ["protocolVersion", "clientCapabilities"])
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "initialize", "no/such/method"])
async def test_a_missing_meta_key_is_named(method: str, key: str) -> None:
    """S26-029, S26-030: -32602 and 400, before any look at the method or its params."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(modern(method, meta=without(key)))
        assert (answer.status, answer.code) == (400, -32602)
        assert answer.json["id"] == 1
        assert META + key in answer.error["message"]
        assert answer.error["data"] == {"missing": [META + key]}


@pytest.mark.parametrize(
    "message",
    [
        call("server/discover"),
        call("server/discover", {}),
        call("initialize", {"protocolVersion": MODERN}),
        call("ping"),
        call("tools/list"),
        call("tools/list", {"_meta": {}}),
        call("tools/list", {"_meta": None}),
    ],
    ids=json.dumps,
)
async def test_the_modern_header_alone_is_not_enough(message: dict[str, Any]) -> None:
    """S26-029: no envelope, but the header of 2026-07-28: malformed, and never a legacy request."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post(message, {**VERSION, "Mcp-Method": message["method"]}))
        assert (answer.status, answer.code) == (400, -32602)
        assert answer.error["data"]["missing"] == [f"{META}protocolVersion", f"{META}clientCapabilities"]


@pytest.mark.parametrize("meta", [{f"{META}protocolVersion": 5}, {f"{META}clientCapabilities": []}, 7, []])
async def test_a_meta_of_the_wrong_type_is_refused(meta: Any) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        whole = {**envelope(), **meta} if isinstance(meta, dict) else meta
        answer = await port.ask(modern("tools/list", meta=whole))
        assert (answer.status, answer.code) == (400, -32602)


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
async def test_modern_methods_sent_bare_are_malformed_modern_requests(method: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post(call(method)))
        assert (answer.status, answer.code) == (400, -32602)


@pytest.mark.parametrize("version", [None, "2025-11-25", "2026-07-2", "2026-07-28, 2026-07-28", "v999.0.0", ""])
async def test_the_version_header_is_held_against_the_body(version: str | None) -> None:
    """S26-060, S26-063, S26-073: absent or different is 400 and -32020, even if the method does not exist."""
    stage = Stage()
    async with serving(stage.server) as port:
        for method in ("tools/list", "no/such/method"):
            answer = await port.ask(modern(method, headers={"MCP-Protocol-Version": version}))
            assert (answer.status, answer.code) == (400, -32020)
            assert answer.json["id"] == 1
            assert "MCP-Protocol-Version" in answer.error["message"]


async def test_a_header_mismatch_is_told_before_an_unserved_version() -> None:
    """S26-060 before S26-061."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(modern("server/discover", meta=envelope(version="v999.0.0")))
        assert (answer.status, answer.code) == (400, -32020)


@pytest.mark.parametrize("version", ["v999.0.0", "2025-11-25", "2027-01-01", ""])
async def test_an_unserved_version_lists_those_that_are_served(version: str) -> None:
    """S26-038, S26-061: 400, -32022, the list of discover, what was asked for, and the id."""
    stage = Stage()
    async with serving(stage.server) as port:
        for method in ("server/discover", "no/such/method"):
            headers = {"MCP-Protocol-Version": version}
            answer = await port.ask(modern(method, headers=headers, meta=envelope(version=version)))
            assert (answer.status, answer.code) == (400, -32022)
            assert answer.json["id"] == 1
            assert answer.error["data"]["requested"] == version
        discovered = (await port.modern("server/discover")).json["result"]
        assert answer.error["data"]["supported"] == discovered["supportedVersions"]


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "no/such/method"],
)
async def test_a_method_that_does_not_exist_is_404(method: str) -> None:
    """S26-062: -32601 with the id, whatever its params."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.modern(method)
        assert (answer.status, answer.code) == (404, -32601)
        assert answer.json["id"] == 1


async def test_a_method_whose_capability_is_not_offered_is_404() -> None:
    from mcpd import Server

    async with serving(Server("empty")) as port:
        for method in ("tools/call", "prompts/get"):
            answer = await port.modern(method, {"name": "x"})
            assert (answer.status, answer.code) == (404, -32601), method


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "no such tool"}),
        ("tools/list", {"cursor": "rubbish"}),
        ("tools/list", {"cursor": 5}),
        ("resources/read", {"uri": "stage://no/such"}),
        ("prompts/get", {"name": "no-such"}),
        ("subscriptions/listen", {"notifications": 5}),
    ],
)
async def test_wrong_params_have_no_status_of_their_own(method: str, params: dict[str, Any]) -> None:
    """Codes without a status in the specification are answered with 200."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(modern(method, params))
        assert (answer.status, answer.code) == (200, -32602)


async def test_a_call_without_a_name_is_wrong_params() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        assert (await port.ask(modern("tools/call", {}))).code == -32602
        # A header for what the body does not have is a mismatch, and told first.
        assert (await port.ask(modern("tools/call", {}, {"Mcp-Name": "echo"}))).code == -32020


async def test_a_missing_capability_is_400() -> None:
    """S26-031, S26-032, S26-033."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.modern("tools/call", {"name": "ask_model"})
        assert (answer.status, answer.code) == (400, -32021)
        assert answer.error["data"]["requiredCapabilities"] == {"sampling": {}}


async def test_an_internal_error_says_nothing_of_the_machine() -> None:
    stage = Stage()
    stage.server.handlers["tools/list"] = lambda context, params: 1 / 0
    async with serving(stage.server) as port:
        answer = await port.modern("tools/list")
        assert (answer.status, answer.code) == (200, -32603)
        failed = await port.modern("tools/call", {"name": "fail"})
        assert failed.json["result"]["isError"] is True
        for body in (answer.body, failed.body):
            assert b"secret" not in body
            assert b".py" not in body


# --------------------------------------------------------------------------------- standard headers


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"Mcp-Method": None}, "Mcp-Method"),
        ({"Mcp-Method": "tools/list"}, "Mcp-Method"),
        ({"Mcp-Method": "TOOLS/CALL"}, "Mcp-Method"),
        ({"Mcp-Method": "tools/call, tools/call"}, "Mcp-Method"),
        ({"Mcp-Method": "=?base64?dG9vbHMvY2FsbA==?="}, "Mcp-Method"),
        ({"Mcp-Name": None}, "Mcp-Name"),
        ({"Mcp-Name": ""}, "Mcp-Name"),
        ({"Mcp-Name": "wait"}, "Mcp-Name"),
        ({"Mcp-Name": "ECHO"}, "Mcp-Name"),
        ({"Mcp-Name": "=?base64?d2FpdA==?="}, "Mcp-Name"),
        ({"Mcp-Name": "=?base64?ZWNobw?="}, "Mcp-Name"),
        ({"Mcp-Name": "=?base64?ZWNo!bw==?="}, "Mcp-Name"),
        ({"Mcp-Name": "=?base64?ZWNobw=="}, "Mcp-Name"),
        ({"Mcp-Name": "=?BASE64?ZWNobw==?="}, "Mcp-Name"),
        ({"Mcp-Name": "echo\xe4"}, "Mcp-Name"),
    ],
    ids=lambda value: str(value),
)
async def test_standard_headers_unlike_the_body(headers: dict[str, str | None], named: str) -> None:
    """S26-072, S26-073, S26-067: missing, different, badly encoded or with invalid characters: 400 and -32020."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(modern("tools/call", ECHO, headers))
        assert (answer.status, answer.code) == (400, -32020)
        assert answer.json["id"] == 1
        assert named in answer.error["message"]


@pytest.mark.parametrize("header", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
async def test_a_standard_header_comes_once(header: str) -> None:
    """Two values of one header are read differently by different ends."""
    stage = Stage()
    data = modern("tools/call", ECHO)
    name = header.encode()
    start = data.index(name)
    line = data[start : data.index(b"\r\n", start) + 2]
    async with serving(stage.server) as port:
        answer = await port.ask(data.replace(line, line + line))
        assert (answer.status, answer.code) == (400, -32020)
        assert "more than once" in answer.error["message"]


@pytest.mark.parametrize("spelled", ["mcp-method", "MCP-METHOD", "Mcp-method"])
async def test_header_names_are_compared_without_case(spelled: str) -> None:
    """S26-071."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(modern("tools/list", headers={"Mcp-Method": None, spelled: "tools/list"}))
        assert answer.status == 200


@pytest.mark.parametrize("value", ["  echo  ", "\techo\t", "=?base64?ZWNobw==?="])
async def test_blanks_around_values_and_base64_are_understood(value: str) -> None:
    """S26-064: an encoded Mcp-Name is decoded before it is compared; outer blanks do not count."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(modern("tools/call", ECHO, {"Mcp-Name": value}))
        assert answer.status == 200


async def test_names_that_are_no_header_values() -> None:
    """S26-064: a name outside ASCII travels as Base64, and only so."""
    stage = Stage()
    params = {"name": "Straße"}
    async with serving(stage.server) as port:
        answer = await port.ask(modern("prompts/get", params, {"Mcp-Name": "=?base64?U3RyYcOfZQ==?="}))
        assert (answer.status, answer.code) == (200, -32602)  # it agrees; only there is no such prompt
        raw = "Straße".encode().decode("latin-1")
        answer = await port.ask(modern("prompts/get", params, {"Mcp-Name": raw}))
        assert (answer.status, answer.code) == (400, -32020)


async def test_each_method_has_the_name_it_needs() -> None:
    """S26-072: params.name, params.uri, and none at all where there is nothing to name."""
    stage = Stage()
    async with serving(stage.server) as port:
        assert (await port.modern("resources/read", {"uri": "stage://text"})).status == 200
        assert (await port.modern("prompts/get", {"name": "greet", "arguments": {"name": "A"}})).status == 200
        assert (await port.modern("tools/list", headers={"Mcp-Name": "ignored"})).status == 200
        for method, params in (("resources/read", {"uri": "stage://text"}), ("prompts/get", {"name": "greet"})):
            answer = await port.ask(modern(method, params, {"Mcp-Name": None}))
            assert answer.code == -32020


# --------------------------------------------------------------------------- headers of tool arguments


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"place": None}, {}),
        ({"region": "unmirrored"}, {}),
        ({"place": "eu"}, {"Mcp-Param-Region": "eu"}),
        ({"place": "eu"}, {"MCP-PARAM-REGION": "eu"}),
        ({"place": "Hello"}, {"Mcp-Param-Region": "=?base64?SGVsbG8=?="}),
        ({"place": "SGVsbG8="}, {"Mcp-Param-Region": "SGVsbG8="}),
        ({"place": "=?base64?SGVsbG8="}, {"Mcp-Param-Region": "=?base64?SGVsbG8="}),
        ({"place": ""}, {"Mcp-Param-Region": ""}),
        ({"place": " padded "}, {"Mcp-Param-Region": "=?base64?IHBhZGRlZCA=?="}),
        ({"place": "=?base64?literal?="}, {"Mcp-Param-Region": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}),
        ({"place": "Hello, 世界"}, {"Mcp-Param-Region": "=?base64?SGVsbG8sIOS4lueVjA==?="}),
        ({"shard": 42}, {"Mcp-Param-Shard": "42"}),
        ({"shard": 42}, {"Mcp-Param-Shard": "42.0"}),
        ({"shard": -7}, {"Mcp-Param-Shard": "-7"}),
        ({"dry": True}, {"Mcp-Param-Dry-Run": "true"}),
        ({"dry": False}, {"Mcp-Param-Dry-Run": "false"}),
        ({}, {"Mcp-Param-Unknown": "anything \xe4"}),
    ],
    ids=lambda value: str(value),
)
async def test_mirrored_arguments_that_agree(arguments: dict[str, Any], headers: dict[str, str | None]) -> None:
    """S26-064, S26-066, S26-068, S26-070: decoded, compared as what they are, not asked for where there is nothing."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(modern("tools/call", {"name": "regional", "arguments": arguments}, headers))
        assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"place": "eu"}, {}),
        ({"place": ""}, {}),
        ({"place": "eu"}, {"Mcp-Param-Region": "us"}),
        ({"place": "eu"}, {"Mcp-Param-Region": "EU"}),
        ({"place": "eu"}, {"Mcp-Param-Region": "eu, eu"}),
        ({"place": "Hello"}, {"Mcp-Param-Region": "=?base64?SGVsbG8?="}),
        ({"place": "Hello"}, {"Mcp-Param-Region": "=?base64?SGVs!!!bG8=?="}),
        ({"place": "ä"}, {"Mcp-Param-Region": "\xe4"}),
        ({}, {"Mcp-Param-Region": "eu"}),
        ({"place": None}, {"Mcp-Param-Region": "eu"}),
        ({"place": {"not": "primitive"}}, {}),
        ({"place": ["eu"]}, {"Mcp-Param-Region": "eu"}),
        ({"shard": 42}, {"Mcp-Param-Shard": "43"}),
        ({"shard": 42}, {"Mcp-Param-Shard": "0x2a"}),
        ({"shard": 42}, {"Mcp-Param-Shard": "42.5"}),
        ({"shard": 2**53}, {"Mcp-Param-Shard": str(2**53)}),
        ({"dry": True}, {"Mcp-Param-Dry-Run": "True"}),
        ({"dry": True}, {"Mcp-Param-Dry-Run": "1"}),
        ("no object", {"Mcp-Param-Region": "eu"}),
    ],
    ids=lambda value: str(value),
)
async def test_mirrored_arguments_that_do_not(arguments: Any, headers: dict[str, str | None]) -> None:
    """S26-065, S26-066, S26-067, S26-069, S26-078: 400 and -32020 as plain JSON."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(modern("tools/call", {"name": "regional", "arguments": arguments}, headers))
        assert (answer.status, answer.code) == (400, -32020)
        assert "Mcp-Param-" in answer.error["message"]
        assert stage.entered.empty()


async def test_mirrored_arguments_are_checked_before_wrong_params() -> None:
    """The order of the checks: Mcp-Param before params."""
    stage = Stage()
    async with serving(stage.server) as port:
        params = {"name": "regional", "arguments": {"place": "eu"}, "requestState": 7}
        assert (await port.ask(modern("tools/call", params))).code == -32020
        assert (await port.ask(modern("tools/call", params, {"Mcp-Param-Region": "eu"}))).code == -32602


# --------------------------------------------------------------------------- notifications and the rest


@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/initialized", "notifications/no/such"])
async def test_notifications_are_taken_and_dropped(method: str) -> None:
    """S26-053, S26-016: 202 and no body, with the header or with an envelope alone."""
    stage = Stage()
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}}
    async with serving(stage.server) as port:
        waiting = await port.connect()
        waiting.send(modern("tools/call", {"name": "wait"}))
        await stage.entered.get()
        answer = await port.ask(post(message, VERSION))
        assert (answer.status, answer.body) == (202, b"")
        message["params"]["_meta"] = envelope()
        assert (await port.ask(post(message))).status == 202
        # A cancelled request is one whose connection was closed, and no other.
        stage.open()
        assert (await waiting.answer()).json["result"]["content"][0]["text"] == "opened"


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","method":5}',
        b'{"jsonrpc":"1.0","method":"notifications/x"}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}',
        b"7",
        b"[]",
        b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]',
    ],
)
async def test_what_is_refused_gets_an_error_status(body: bytes) -> None:
    """S26-054, S26-057: bad notifications, answers (the server asks nothing), batches: 400, with JSON-RPC in it."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post(body, VERSION))
        assert (answer.status, answer.code) == (400, -32600)


async def test_a_batch_with_an_envelope_in_it_is_no_batch_of_2025() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        batch = [call("tools/list", {}, 1), call("tools/list", {"_meta": envelope()}, 2)]
        answer = await port.ask(post(batch))
        assert (answer.status, answer.code) == (400, -32600)
        assert "id" not in answer.json


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a":"\xff"}', b"[" * 5000, b"nonsense", b"{}}"])
async def test_what_is_no_json_is_a_parse_error(body: bytes) -> None:
    """S26-007, S26-009: 400, -32700, and no id, for there is none."""
    stage = Stage()
    async with serving(stage.server) as port:
        data = post(body, VERSION)
        answer = await port.ask(data if body else data.replace(b"\r\n\r\n", b"\r\nContent-Length: 0\r\n\r\n"))
        assert (answer.status, answer.code) == (400, -32700)
        assert "id" not in answer.json


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_only_post(method: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        headers = [("MCP-Protocol-Version", MODERN), ("Accept", BOTH), ("Mcp-Session-Id", "x")]
        answer = await port.ask(request(method, "/mcp", headers))
        assert answer.status == 405
        assert answer["allow"] == "POST"


async def test_session_ids_and_last_event_ids_mean_nothing() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        for id in (session.id, "unknown"):
            answer = await port.modern("tools/list", headers={"Mcp-Session-Id": id, "Last-Event-ID": "1-1"})
            assert answer.status == 200
            assert "mcp-session-id" not in answer


# ------------------------------------------------------------------------------------------- streams


async def test_progress_makes_it_a_stream_that_ends_with_the_answer() -> None:
    """S26-055, S26-056, S26-057: notifications of this request, then its answer, and nothing else; no event ids."""
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        meta = envelope(progressToken="p")
        peer.send(modern("tools/call", {"name": "count", "arguments": {"steps": 3, "door": "d"}}, meta=meta))
        answer = await peer.head()
        assert answer.status == 200
        assert answer["content-type"] == "text/event-stream"
        assert answer["x-accel-buffering"] == "no"
        assert "no-cache" in answer["cache-control"]
        first, second = await peer.event(), await peer.event()
        assert first is not None
        assert second is not None
        assert set(first) == {"data"}
        assert json.loads(second["data"])["params"]["progress"] == 2
        await stage.entered.get()
        stage.open("d")
        assert (await peer.message())["params"]["progress"] == 3
        last = await peer.message()
        assert last["id"] == 1
        assert last["result"]["content"][0]["text"] == "counted 3"
        assert await peer.event() is None
        # The connection serves the next request.
        assert (await peer.ask(modern("tools/list"))).status == 200


async def test_what_is_said_without_a_pause_comes_as_one_body() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.modern(
            "tools/call", {"name": "count", "arguments": {"steps": 3}}, meta=envelope(progressToken=1)
        )
        assert "content-length" in answer
        assert [message.get("method") for message in answer.messages] == ["notifications/progress"] * 3 + [None]


async def test_without_a_token_or_a_level_nothing_is_streamed() -> None:
    """S26-139: no log message that the request did not ask for; and so plain JSON."""
    stage = Stage()
    async with serving(stage.server) as port:
        for name, arguments in (("count", {"steps": 3}), ("log", {"text": "x"})):
            answer = await port.modern("tools/call", {"name": name, "arguments": arguments})
            assert answer["content-type"] == "application/json"
        answer = await port.modern(
            "tools/call", {"name": "log", "arguments": {"text": "x"}}, meta=envelope() | {f"{META}logLevel": "info"}
        )
        assert [message.get("method") for message in answer.messages] == ["notifications/message", None]


async def test_a_question_is_a_result_and_never_a_request() -> None:
    """S26-042, S26-057, S26-080: the retry is another POST, with the state that was given."""
    stage = Stage()
    meta = envelope({"elicitation": {}}, progressToken=3)
    async with serving(stage.server) as port:
        answer = await port.modern("tools/call", {"name": "ask_name"}, meta=meta)
        (message,) = answer.messages
        result = message["result"]
        assert result["resultType"] == "input_required"
        params = {
            "name": "ask_name",
            "inputResponses": {"name": {"action": "accept", "content": {"name": "Ada"}}},
            "requestState": result["requestState"],
        }
        answer = await port.modern("tools/call", params, meta=meta, id=2)
        assert answer.json["result"]["content"][0]["text"] == "Hello, Ada!"


async def test_a_state_is_bound_to_who_got_it() -> None:
    """S26-086: with another credential the sealed state is no good."""
    stage = Stage()
    meta = envelope({"elicitation": {}})
    async with serving(stage.server) as port:
        ada, eve = {"Authorization": "Bearer ada"}, {"Authorization": "Bearer eve"}
        answer = await port.modern("tools/call", {"name": "ask_name"}, meta=meta, headers=ada)
        params = {"name": "ask_name", "requestState": answer.json["result"]["requestState"]}
        assert "error" in (await port.modern("tools/call", params, meta=meta, headers=eve)).json
        assert "result" in (await port.modern("tools/call", params, meta=meta, headers=ada)).json


# ------------------------------------------------------------------------------------------- leaving


@pytest.mark.parametrize("streams", [False, True])
async def test_leaving_is_cancelling(streams: bool) -> None:
    """S26-058, S26-059, S26-096: whoever closes the connection gave the request up, streamed or not."""
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        if streams:
            meta = envelope(progressToken=1)
            peer.send(modern("tools/call", {"name": "count", "arguments": {"steps": 2, "door": "d"}}, meta=meta))
            await peer.head()
            await peer.message()
            await stage.entered.get()
        else:
            peer.send(modern("tools/call", {"name": "wait"}))
            await stage.entered.get()
        assert len(port.app.connections) == 1
        await peer.aclose()
        if not streams:
            assert await stage.left.get() == "door:cancelled"
        await until(lambda: not port.app.connections)


async def test_leaving_one_request_leaves_the_others_alone() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        gone, stays = await port.connect(), await port.connect()
        gone.send(modern("tools/call", {"name": "wait", "arguments": {"door": "a"}}))
        stays.send(modern("tools/call", {"name": "wait", "arguments": {"door": "b"}}))
        await stage.entered.get()
        await stage.entered.get()
        gone.abort()
        assert await stage.left.get() == "a:cancelled"
        stage.open("b")
        assert (await stays.answer()).status == 200


# ----------------------------------------------------------------------------------------- listening


def listen(id: Any = 1, **wanted: Any) -> bytes:
    return modern("subscriptions/listen", {"notifications": wanted}, id=id)


async def test_a_subscription_is_a_stream_of_its_own() -> None:
    """S26-034, S26-092, S26-093: acknowledged first, then what was asked for, each with the subscription's id."""
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        data = listen("sub", toolsListChanged=True, resourceSubscriptions=["stage://text"])
        talk = Conversation()
        talk.client(json.loads(data.partition(b"\r\n\r\n")[2]))
        peer.send(data)
        answer = await peer.head()
        assert answer["content-type"] == "text/event-stream"
        first = await peer.message()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["stage://text"]}
        stage.change()
        second = await peer.message()
        assert second["method"] == "notifications/tools/list_changed"
        stage.server.resource_updated("stage://text")
        third = await peer.message()
        assert third["method"] == "notifications/resources/updated"
        for message in (first, second, third):
            talk.server(message)
            assert message["params"]["_meta"] == {f"{META}subscriptionId": "sub"}
        await peer.aclose()
        await until(lambda: not (port.app.connections or stage.server._connections))


async def test_each_subscription_gets_one_copy_and_only_what_it_wants() -> None:
    """S26-091."""
    stage = Stage()
    async with serving(stage.server) as port:
        peers = [await port.connect() for _ in range(3)]
        peers[0].send(listen(1, toolsListChanged=True))
        peers[1].send(listen(1, toolsListChanged=True))
        peers[2].send(listen(1, promptsListChanged=True))
        for peer in peers:
            await peer.head()
            await peer.message()
        stage.change()
        for peer in peers[:2]:
            assert (await peer.message())["method"] == "notifications/tools/list_changed"

        @stage.server.prompt
        async def another() -> str:
            return "x"

        assert (await peers[2].message())["method"] == "notifications/prompts/list_changed"
        stage.change()
        for peer in peers[:2]:
            assert (await peer.message())["method"] == "notifications/tools/list_changed"


async def test_the_server_ends_a_subscription_with_its_result() -> None:
    """S26-094 is for shared channels; over HTTP the result comes and the stream ends."""
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        peer.send(listen("sub", toolsListChanged=True))
        await peer.head()
        await peer.message()
        await port.app.aclose()
        last = await peer.message()
        assert last == {
            "jsonrpc": "2.0",
            "id": "sub",
            "result": {
                "resultType": "complete",
                "_meta": {f"{META}subscriptionId": "sub", f"{META}serverInfo": {"name": "stage", "version": "1"}},
            },
        }
        assert await peer.event() is None
