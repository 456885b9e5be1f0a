"""The validator itself: it has to let right messages pass and catch every kind of wrong one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.wire_schema import (
    LEGACY,
    NEWEST,
    VERSIONS,
    Conversation,
    SchemaViolation,
    UnknownMethod,
    validate,
    validate_definition as check,
)

pytestmark = pytest.mark.usefixtures("shared")

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientCapabilities": {},
}
ECHO = {"name": "echo", "description": "Say it again", "inputSchema": {"type": "object", "properties": {}}}


def response(result: Any, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failure(code: int, message: str = "no", **members: Any) -> dict[str, Any]:
    request_id = members.pop("id", 1)
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message, **members}}


def request(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return message if params is None else {**message, "params": params}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def initialized_with(version: str, **more: Any) -> dict[str, Any]:
    server = {"name": "mcpd", "version": "1"}
    return response({"protocolVersion": version, "capabilities": {}, "serverInfo": server, **more})


def call_result(version: str, **members: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"content": [{"type": "text", "text": "hi"}], **members}
    if version == VERSIONS[0]:
        result["toolResult"] = "hi"
    if version == NEWEST:
        result.setdefault("resultType", "complete")
    return response(result)


# ------------------------------------------------------------------------------ the published examples

# Two examples lag behind the schema beside them: requests inside results have no id, reads want caching hints.
OUTDATED = {"list-roots-request.json", "read-resource-result-response.json"}


def test_every_published_example_meets_its_definition(shared: Path) -> None:
    files = sorted((shared / "spec" / "mcp-2026-07-28" / "examples").glob("*/*.json"))
    assert len(files) > 100
    for file in files:
        value = json.loads(file.read_text(encoding="utf-8"))
        if file.name in OUTDATED:
            with pytest.raises(SchemaViolation):
                check(NEWEST, file.parent.name, value)
        else:
            check(NEWEST, file.parent.name, value)


@pytest.mark.parametrize(
    ("folder", "method"),
    [
        ("CallToolResultResponse", "tools/call"),
        ("CompleteResultResponse", "completion/complete"),
        ("DiscoverResultResponse", "server/discover"),
        ("GetPromptResultResponse", "prompts/get"),
        ("ListPromptsResultResponse", "prompts/list"),
        ("ListResourcesResultResponse", "resources/list"),
        ("ListResourceTemplatesResultResponse", "resources/templates/list"),
        ("ListToolsResultResponse", "tools/list"),
        ("SubscriptionsListenResultResponse", "subscriptions/listen"),
    ],
)
def test_published_responses_validate_as_whole_messages(shared: Path, folder: str, method: str) -> None:
    for file in (shared / "spec" / "mcp-2026-07-28" / "examples" / folder).glob("*.json"):
        name = validate(NEWEST, "server", json.loads(file.read_text(encoding="utf-8")), method)
        assert folder == f"{name}Response"


@pytest.mark.parametrize(
    "folder", ["HeaderMismatchError", "MissingRequiredClientCapabilityError", "UnsupportedProtocolVersionError"]
)
def test_published_errors_validate_by_their_code(shared: Path, folder: str) -> None:
    for file in (shared / "spec" / "mcp-2026-07-28" / "examples" / folder).glob("*.json"):
        message = json.loads(file.read_text(encoding="utf-8"))
        assert validate(NEWEST, "server", message) == folder
        if folder != "HeaderMismatchError":
            del message["error"]["data"]
            with pytest.raises(SchemaViolation):
                validate(NEWEST, "server", message)


# ------------------------------------------------------------------------------------- the envelope


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "message",
    [
        [],
        "text",
        {"jsonrpc": "2.0"},
        {"jsonrpc": "2.0", "id": 1},
        {"id": 1, "result": {}},
        {"jsonrpc": "1.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": None, "result": {}},
        {"jsonrpc": "2.0", "id": True, "result": {}},
        {"jsonrpc": "2.0", "id": 1.0, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": []},
        {"jsonrpc": "2.0", "id": 1, "result": None},
        {"jsonrpc": "2.0", "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": -32603, "message": "both"}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "extra": 1},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": "-32603", "message": "text code"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603}},
        {"jsonrpc": "2.0", "id": 1, "error": {"message": "no code"}},
        {"jsonrpc": "2.0", "method": 5},
    ],
)
def test_what_is_no_message_is_refused_in_every_version(version: str, message: Any) -> None:
    with pytest.raises(SchemaViolation):
        validate(version, "server", message, "ping" if version in LEGACY else "tools/list")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("request_id", [0, -1, "", "a", 2**53])
def test_ids_are_strings_or_integers(version: str, request_id: Any) -> None:
    validate(version, "server", {**call_result(version), "id": request_id}, "tools/call")
    validate(version, "server", failure(-32601, id=request_id))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unreadable_id_is_null_at_first_and_left_out_later(version: str) -> None:
    with_null = failure(-32700, id=None)
    without = {key: value for key, value in with_null.items() if key != "id"}
    right, wrong = (without, with_null) if version >= "2025-11-25" else (with_null, without)
    validate(version, "server", right)
    with pytest.raises(SchemaViolation):
        validate(version, "server", wrong)


# -------------------------------------------------------------------- methods, results, notifications


@pytest.mark.parametrize("version", VERSIONS)
def test_lists_and_calls_in_every_version(version: str) -> None:
    hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if version == NEWEST else {}
    assert validate(version, "server", response({"tools": [ECHO], **hints}), "tools/list") == "ListToolsResult"
    contents = [{"uri": "a://b", "text": "x"}, {"uri": "a://b", "blob": "AAE="}]
    validate(version, "server", response({"contents": contents, **hints}), "resources/read")
    validate(version, "server", call_result(version, isError=True), "tools/call")
    for broken in ({"tools": [{"name": "echo"}]}, {"tools": {}}, {}, {"tools": [], "nextCursor": 5}):
        with pytest.raises(SchemaViolation):
            validate(version, "server", response({**broken, **hints}), "tools/list")
    # A well-known server sends `resources/read` results without the `uri`.
    with pytest.raises(SchemaViolation, match="uri"):
        validate(version, "server", response({"contents": [{"text": "x"}], **hints}), "resources/read")
    contents = [{"uri": "a://b", "blob": "not base64!"}]
    with pytest.raises(SchemaViolation):
        validate(version, "server", response({"contents": contents, **hints}), "resources/read")


@pytest.mark.parametrize(
    ("version", "direction", "message"),
    [
        ("2025-11-25", "client", request("server/discover")),
        ("2026-07-28", "client", request("initialize")),
        ("2026-07-28", "client", request("ping")),
        ("2026-07-28", "server", request("elicitation/create", {"message": "?", "requestedSchema": {}})),
        ("2025-03-26", "server", request("elicitation/create", {"message": "?", "requestedSchema": {}})),
        ("2024-10-07", "server", request("roots/list")),
        ("2024-10-07", "server", notification("notifications/cancelled", requestId=1)),
        ("2025-11-25", "server", notification("notifications/initialized")),
        ("2026-07-28", "server", notification("notifications/elicitation/complete", elicitationId="1")),
        ("2025-06-18", "server", notification("notifications/elicitation/complete", elicitationId="1")),
        ("2025-06-18", "server", request("tools/list")),
    ],
)
def test_a_method_that_this_side_does_not_have_is_unknown(version: str, direction: Any, message: Any) -> None:
    with pytest.raises(UnknownMethod):
        validate(version, direction, message)


def test_a_result_needs_a_known_method() -> None:
    with pytest.raises(UnknownMethod):
        validate(NEWEST, "server", response({"resultType": "complete"}), "ping")
    with pytest.raises(ValueError, match="which method"):
        validate(NEWEST, "server", response({"resultType": "complete"}))
    with pytest.raises(ValueError, match="no protocol version"):
        validate("2026-01-01", "server", response({}), "ping")


def test_server_requests_and_their_answers() -> None:
    ask = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    validate("2025-06-18", "server", request("elicitation/create", ask))
    for version in ("2025-06-18", "2025-11-25"):
        answer = response({"action": "accept", "content": {"name": "Ada", "score": 0.5}})
        validate(version, "client", answer, "elicitation/create")
    with pytest.raises(SchemaViolation):
        validate("2025-11-25", "client", response({"action": "maybe"}), "elicitation/create")
    # protocol-versions.md 3: some prose shows `pattern` in these schemas; no schema has it.
    ask["requestedSchema"]["properties"]["name"]["pattern"] = "^[a-z]+$"  # type: ignore[index]
    with pytest.raises(SchemaViolation, match="pattern"):
        validate("2025-06-18", "server", request("elicitation/create", ask))
    validate("2025-06-18", "server", request("elicitation/create", ask), closed=False)


@pytest.mark.parametrize("version", LEGACY)
def test_empty_legacy_results_are_empty(version: str) -> None:
    """protocol-versions.md 3: clients parse them strictly, so nothing but `_meta` may stand there."""
    validate(version, "server", response({}), "ping")
    validate(version, "server", response({"_meta": {"a/b": 1}}), "ping")
    with pytest.raises(SchemaViolation):
        validate(version, "server", response({"resultType": "complete"}), "ping")


# ------------------------------------------------------------------------ nothing newer than the version

NEWER = [
    # member of a tool, first version that has it
    ("annotations", {"readOnlyHint": True}, "2025-03-26"),
    ("title", "Echo", "2025-06-18"),
    ("outputSchema", {"type": "object"}, "2025-06-18"),
    ("_meta", {"a/b": 1}, "2025-06-18"),
    ("icons", [{"src": "data:image/png;base64,AAAA"}], "2025-11-25"),
    ("colour", "red", None),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("member", "value", "since"), NEWER, ids=[row[0] for row in NEWER])
def test_a_tool_has_no_member_newer_than_its_version(version: str, member: str, value: Any, since: str | None) -> None:
    hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if version == NEWEST else {}
    message = response({"tools": [{**ECHO, member: value}], **hints})
    if since is not None and VERSIONS.index(version) >= VERSIONS.index(since):
        validate(version, "server", message, "tools/list")
    else:
        with pytest.raises(SchemaViolation, match=member):
            validate(version, "server", message, "tools/list")
    validate(version, "server", message, "tools/list", closed=False)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("block", "since"),
    [
        ({"type": "text", "text": "x"}, "2024-10-07"),
        ({"type": "image", "data": "AA==", "mimeType": "image/png"}, "2024-10-07"),
        ({"type": "resource", "resource": {"uri": "a://b", "text": "x"}}, "2024-11-05"),
        ({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}, "2025-03-26"),
        ({"type": "resource_link", "uri": "a://b", "name": "b"}, "2025-06-18"),
    ],
    ids=["text", "image", "resource", "audio", "resource_link"],
)
def test_content_blocks_by_version(version: str, block: dict[str, Any], since: str) -> None:
    message = call_result(version)
    message["result"]["content"] = [block]
    if VERSIONS.index(version) >= VERSIONS.index(since):
        validate(version, "server", message, "tools/call")
    else:
        with pytest.raises(SchemaViolation):
            validate(version, "server", message, "tools/call")


@pytest.mark.parametrize("version", VERSIONS[:3])
def test_progress_messages_came_with_2025_03_26(version: str) -> None:
    message = notification("notifications/progress", progressToken=1, progress=0.5, total=1)
    validate(version, "server", message)
    message["params"]["message"] = "half"
    if version == "2025-03-26":
        validate(version, "server", message)
    else:
        with pytest.raises(SchemaViolation):
            validate(version, "server", message)


@pytest.mark.parametrize("version", LEGACY)
def test_extensions_are_negotiated_in_every_legacy_version(version: str) -> None:
    """protocol-versions.md 3, note (a): not in these schemas, but capabilities are an open set."""
    ui = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
    validate(version, "server", initialized_with(version, capabilities=ui), "initialize")
    with pytest.raises(SchemaViolation):
        validate(version, "server", initialized_with(version, capabilities={"tasks_of_ours": {}}), "initialize")


def test_the_schema_of_a_tool_stays_open() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    for version in VERSIONS[:-1]:
        validate(version, "server", response({"tools": [{**ECHO, "inputSchema": schema}]}), "tools/list")


# ------------------------------------------------------------------------------------------- 2024-10-07


def test_the_oldest_version_is_2024_11_05_less_what_came_later() -> None:
    oldest = VERSIONS[0]
    validate(oldest, "server", response({"toolResult": {"any": ["thing"]}}), "tools/call")
    with pytest.raises(SchemaViolation, match="toolResult"):
        validate(oldest, "server", response({"content": []}), "tools/call")
    validate(oldest, "server", initialized_with(oldest), "initialize")
    with pytest.raises(SchemaViolation, match="instructions"):
        validate(oldest, "server", initialized_with(oldest, instructions="use me"), "initialize")
    validate(oldest, "server", notification("notifications/message", level="info", data=1))
    with pytest.raises(SchemaViolation):
        validate(oldest, "server", notification("notifications/message", level="notice", data=1))
    resource = {"uri": "a://b", "name": "b"}
    validate(oldest, "server", response({"resources": [resource]}), "resources/list")
    with pytest.raises(SchemaViolation):
        validate(oldest, "server", response({"resources": [{**resource, "size": 3}]}), "resources/list")


# ------------------------------------------------------------------------------------------- 2026-07-28


def test_modern_results_say_their_type() -> None:
    """S26-005, S26-006, S26-081, S26-088, S26-128."""
    with pytest.raises(SchemaViolation):
        validate(NEWEST, "server", response({"content": []}), "tools/call")
    with pytest.raises(SchemaViolation, match="S26-006"):
        validate(NEWEST, "server", call_result(NEWEST, resultType="finished"), "tools/call")
    more = {"resultType": "input_required", "requestState": "opaque"}
    assert validate(NEWEST, "server", response(more), "tools/call") == "InputRequiredResult"
    with pytest.raises(SchemaViolation, match="S26-006"):
        validate(NEWEST, "server", response(more), "tools/list")
    with pytest.raises(SchemaViolation, match="S26-088"):
        validate(NEWEST, "server", response({"resultType": "input_required"}), "tools/call")
    with pytest.raises(SchemaViolation, match="ttlMs"):
        validate(NEWEST, "server", response({"resultType": "complete", "tools": []}), "tools/list")


@pytest.mark.parametrize("code", [-32002, -32042, -32000, -32019, -32023, -32099])
def test_modern_codes_are_the_defined_ones(code: int) -> None:
    """S26-010, S26-012, S26-014, S26-015."""
    with pytest.raises(SchemaViolation):
        validate(NEWEST, "server", failure(code))


def test_codes_of_single_versions() -> None:
    wanted = [{"mode": "url", "elicitationId": "1", "url": "https://example.com/", "message": "Visit"}]
    validate("2025-11-25", "server", failure(-32042, data={"elicitations": wanted}))
    with pytest.raises(SchemaViolation):
        validate("2025-11-25", "server", failure(-32042, data={}))
    with pytest.raises(SchemaViolation):
        validate("2025-06-18", "server", failure(-32042, data={"elicitations": wanted}))
    validate("2025-06-18", "server", failure(-32002, data={"uri": "a://b"}))
    validate(NEWEST, "server", failure(-32022, data={"supported": [NEWEST], "requested": "1"}))
    with pytest.raises(SchemaViolation):
        validate(NEWEST, "server", failure(-32022, data={"supported": NEWEST, "requested": "1"}))


# ----------------------------------------------------------------------------------------- conversations


def test_a_conversation_finds_version_and_methods_by_itself() -> None:
    talk = Conversation()
    talk.client(request("initialize", {"protocolVersion": "2025-03-26"}, 0))
    talk.server({**initialized_with("2025-03-26"), "id": 0})
    assert talk.version == "2025-03-26"
    talk.client([request("tools/list", None, "a"), request("ping", None, 1), notification("notifications/x")])
    assert talk.unanswered == ["a", 1]
    talk.server([response({"tools": [ECHO]}, "a"), response({}, 1)])
    assert talk.seen == ["InitializeResult", "ListToolsResult", "EmptyResult"]
    talk.client(request("tools/list", None, 2))
    with pytest.raises(SchemaViolation, match="title"):
        talk.server(response({"tools": [{**ECHO, "title": "too new"}]}, 2))


def test_a_conversation_in_both_eras() -> None:
    talk = Conversation()
    talk.client(request("server/discover", {"_meta": ENVELOPE}))
    hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
    talk.server(response({"supportedVersions": [NEWEST], "capabilities": {}, **hints}))
    talk.client(request("initialize", {"protocolVersion": "2025-06-18"}, 2))
    talk.server({**initialized_with("2025-06-18"), "id": 2})
    assert talk.version == "2025-06-18"


def test_a_conversation_refuses_what_nobody_asked_for() -> None:
    talk = Conversation()
    with pytest.raises(SchemaViolation, match="not open"):
        talk.server(response({}, 7))
    talk.client(request("tools/call", {"name": "echo", "_meta": {"progressToken": 1}}, 7))
    with pytest.raises(SchemaViolation, match="not open"):
        talk.server(call_result("2025-11-25") | {"id": "7"})
    talk.server(notification("notifications/progress", progressToken=1, progress=1))
    with pytest.raises(SchemaViolation, match="token"):
        talk.server(notification("notifications/progress", progressToken="1", progress=1))
    talk.server(call_result("2025-11-25") | {"id": 7})
    with pytest.raises(SchemaViolation, match="not open"):
        talk.server(call_result("2025-11-25") | {"id": 7})
    with pytest.raises(SchemaViolation, match="token"):
        talk.server(notification("notifications/progress", progressToken=1, progress=2))
    talk.server(failure(-32700, id=None))
    with pytest.raises(SchemaViolation):
        talk.server(5)
