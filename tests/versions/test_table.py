"""The version table against the official schemas: which methods, which members, which shapes each version has.

Spec: protocol-versions.md sections 2 to 4; spec/mcp-<version>/schema.json.
"""

from __future__ import annotations

import copy
import gc
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from msgspec import UNSET, Raw, Struct, structs
from support.wire_schema import VERSIONS, _schema, validate
from support.wires import LEGACY, MODERN, each_version

from mcpd.errors import (
    HeaderMismatch,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    ResourceNotFound,
    UnsupportedVersion,
    UrlElicitationRequired,
)
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.types import base, features, interaction
from mcpd.protocol.types.base import EmptyResult, Icon, Result
from mcpd.protocol.types.features import (
    Annotations,
    AnyValue,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    ToolExecution,
)
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Version

IDENTITY = Raw(b'{"io.modelcontextprotocol/serverInfo":{"name":"t","version":"1"}}')
V0, V1, V2, V3, V4, V5 = VERSIONS


def wire(value: Any) -> Any:
    return json.loads(encode(value))


def shaped(version: str, value: Any) -> Any:
    """What a version writes, as JSON."""
    return wire(table.get(version).shape(value))


# -------------------------------------------------------------------------------------- methods

# Tasks are experimental in 2025-11-25 and an extension since; this server offers neither.
NOT_OFFERED = {f"tasks/{name}" for name in ("get", "update", "cancel", "result", "list")}
NOT_OFFERED |= {"notifications/tasks", "notifications/tasks/status"}


@each_version
def test_each_version_has_the_methods_of_its_schema(shared: Path, version: str) -> None:
    """protocol-versions 2; no row, no method."""
    ours, schema = table.get(version), _schema(version)
    assert set(ours.requests) == set(schema.requests["client"]) - NOT_OFFERED
    # Progress of a client is dropped, in 2026-07-28 as before.
    dropped = {"notifications/progress"} if version == MODERN else set()
    assert set(ours.notifications) - dropped == set(schema.notifications["client"]) - NOT_OFFERED
    assert ours.server_requests == set(schema.requests["server"]) - NOT_OFFERED
    assert ours.server_notifications == set(schema.notifications["server"]) - NOT_OFFERED


def test_what_is_no_row_is_no_method() -> None:
    assert table.get(V4).lookup("server/discover") is None
    assert table.get(V5).lookup("initialize") is None
    assert table.get(V0).lookup("notifications/cancelled") is None
    assert table.get(V4).lookup("") is None
    assert table.is_known_method("server/discover")
    assert table.is_known_method("initialize")
    assert not table.is_known_method("tasks/list")


def test_versions_are_listed_newest_first_and_made_once() -> None:
    assert list(table.SUPPORTED) == list(reversed(VERSIONS))
    assert (*table.LEGACY, *table.MODERN) == VERSIONS
    assert table.get(V3) is table.get(V3)
    assert repr(table.get(V3)) == "<Version 2025-06-18>"
    for unknown in ("2025-06-19", "", "1", "latest"):
        with pytest.raises(KeyError):
            table.get(unknown)


@pytest.mark.parametrize("offer", [*LEGACY, V5, "2030-01-01", "", None, 1, 2.0, [V3], {}])
def test_negotiation_never_gives_a_modern_version(offer: Any) -> None:
    """S25-022, S25-023."""
    expected = offer if isinstance(offer, str) and offer in LEGACY else V4
    assert table.negotiate(offer).name == expected


@pytest.mark.parametrize(
    ("version", "null_id", "batches", "modern"),
    [(V0, True, False, False), (V1, True, False, False), (V2, True, True, False), (V3, True, False, False),
     (V4, False, False, False), (V5, False, False, True)],
)  # fmt: skip
def test_traits(version: str, null_id: bool, batches: bool, modern: bool) -> None:
    own = table.get(version)
    assert (own.has_null_id, own.has_batches, own.is_modern) == (null_id, batches, modern)


# -------------------------------------------------------------------------------------- members

# Read from clients and never written to them, so that no version takes members from them.
FROM_CLIENTS = {"ElicitResult", "InputRequest", "ListRootsResult", "CreateMessageResult"}
STRUCTS: dict[str, type[Struct]] = {
    cls.__name__: cls
    for module in (features, base, features, features, features, interaction)
    for cls in vars(module).values()
    if isinstance(cls, type) and cls.__module__ == module.__name__ and cls.__name__ not in FROM_CLIENTS
}
STRUCTS["SamplingMessage"] = interaction.SamplingMessage
STRUCTS["InputRequiredResult"] = interaction.InputRequiredResult
# No definition of that name in the schemas: what a request's params hold is checked below.
NESTED_PARAMS: dict[type[Struct], str] = {
    base.ProgressParams: "ProgressNotification",
    base.CancelledParams: "CancelledNotification",
    base.LogMessageParams: "LoggingMessageNotification",
    features.ResourceUpdatedParams: "ResourceUpdatedNotification",
    base.InitializeParams: "InitializeRequest",
    features.CallToolParams: "CallToolRequest",
    features.GetPromptParams: "GetPromptRequest",
    features.ReadResourceParams: "ReadResourceRequest",
    interaction.CompleteParams: "CompleteRequest",
    interaction.CreateMessageParams: "CreateMessageRequest",
    interaction.ListenParams: "SubscriptionsListenRequest",
}
# (version, struct) -> members by which we differ, and why that is right.
DIFFERENCES: dict[tuple[str, str], set[str]] = {
    # Written beside the newer members, for clients of either kind (protocol-versions 4).
    (V0, "CallToolResult"): {"toolResult"},
    # Never written there: it becomes text.
    (V0, "EmbeddedResource"): {"annotations"},
    # The extension for tasks adds it: tasks-extension, task status notifications.
    (MODERN, "SubscriptionFilter"): {"taskIds"},
    # `extensions` is open: protocol-versions 3, note (a).
    **{(version, "ServerCapabilities"): {"extensions"} for version in LEGACY},
    **{(version, "ClientCapabilities"): {"extensions"} for version in LEGACY},
}


def known(version: Version, cls: type[Struct]) -> set[str]:
    """The members, by their names on the wire, that a version knows of a struct."""
    unknown = set(version._unknown_fields(cls))
    names = {info.encode_name for info in structs.fields(cls) if info.name not in unknown}
    tag = cls.__struct_config__.tag_field
    return names | ({tag} if tag else set())


def described(version: str, name: str) -> set[str] | None:
    """The members that the official schema names; None if the version has no such definition."""
    definition = _schema(version).closed_definitions.get(name)
    return None if definition is None else set(definition.get("properties", ()))


@each_version
@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_a_struct_has_the_members_of_its_version(shared: Path, version: str, name: str) -> None:
    """Nothing newer than the version, nothing that it has left out."""
    theirs = described(version, name)
    if theirs is None:
        return
    ours = known(table.get(version), STRUCTS[name])
    if version != MODERN:
        ours.discard("resultType")  # UNSET there, and so not written
    elif name.endswith("Result"):
        ours |= {"ttlMs", "cacheScope"} & theirs if issubclass(STRUCTS[name], msgspec.Struct) else set()
    if "_meta" not in theirs:
        ours.discard("_meta")  # allowed in every result and params, whether it is named or not
    assert ours ^ theirs <= DIFFERENCES.get((version, name), set())


@each_version
@pytest.mark.parametrize("cls", NESTED_PARAMS, ids=lambda cls: cls.__name__)
def test_params_have_the_members_of_their_version(shared: Path, version: str, cls: type[Struct]) -> None:
    definition = _schema(version).closed_definitions.get(NESTED_PARAMS[cls])
    if definition is None:
        return
    theirs = definition["properties"]["params"]
    if "$ref" in theirs:
        theirs = _schema(version).closed_definitions[theirs["$ref"].rpartition("/")[2]]
    ours = known(table.get(version), cls) - {"_meta"}
    missing = set(theirs["properties"]) - {"_meta"} - ours
    # Tasks of 2025-11-25 are asked for in params that this server has none of.
    assert missing <= ({"task"} if version == V4 else set())
    assert ours - set(theirs["properties"]) == set()


# --------------------------------------------------------------------------- what changes, what not


def a_tool(**more: Any) -> Tool:
    return Tool(name="n", description="d", input_schema={"type": "object"}, **more)


def full_tool() -> Tool:
    return a_tool(
        title="T",
        icons=[Icon(src="https://x.example/i.png")],
        output_schema={"type": "object", "properties": {}},
        annotations=ToolAnnotations(read_only_hint=True),
        execution=ToolExecution(task_support="optional"),
        meta={"a/b": 1},
    )


@pytest.mark.parametrize(
    ("version", "members"),
    [
        (V0, set()),
        (V1, set()),
        (V2, {"annotations"}),
        (V3, {"annotations", "title", "outputSchema", "_meta"}),
        (V4, {"annotations", "title", "outputSchema", "_meta", "icons", "execution"}),
        (V5, {"annotations", "title", "outputSchema", "_meta", "icons"}),
    ],
)
def test_members_of_a_tool(version: str, members: set[str]) -> None:
    """protocol-versions 3, row Tool."""
    assert shaped(version, full_tool()).keys() - {"name", "description", "inputSchema"} == members


@each_version
def test_what_needs_no_change_is_the_very_same_object(version: str) -> None:
    own = table.get(version)
    for value in (a_tool(), ListToolsResult(tools=[a_tool(), a_tool()]), TextContent("x"), EmptyResult(),
                  features.Resource(uri="x:y", name="n", description="d", mime_type="t/x"),
                  features.GetPromptResult(messages=[features.PromptMessage("user", TextContent("x"))]),
                  "text", None, 5, {"a": 1}):  # fmt: skip
        assert own.shape(value) is value


@each_version
def test_nothing_given_is_ever_changed(version: str) -> None:
    own = table.get(version)
    for value in everything():
        before = copy.deepcopy(value) if not isinstance(value, ListToolsResult) else encode(value)
        own.shape(value)
        if isinstance(value, Result):
            own.shape_result(value, IDENTITY)
        after = value if not isinstance(value, ListToolsResult) else encode(value)
        assert after == before


def everything() -> list[Any]:
    icon = [Icon(src="https://x.example/i.png", sizes=["any"], theme="dark", mime_type="image/png")]
    notes = Annotations(audience=["user"], priority=0.5, last_modified="2025-01-01T00:00:00Z")
    blocks: list[Any] = [
        TextContent("t", notes, {"m": 1}),
        ImageContent(b"i", "image/png", notes, {"m": 1}),
        AudioContent(b"a", "audio/wav", notes, {"m": 1}),
        EmbeddedResource(TextResourceContents("x:t", "t", "text/plain", {"m": 1}), notes, {"m": 1}),
        EmbeddedResource(BlobResourceContents("x:b", b"b", None, {"m": 1}), notes, {"m": 1}),
        EmbeddedResource({"uri": "x:d", "text": "d"}),
        ResourceLink("x:l", "l", "L", "d", "t/x", 3, icon, notes, {"m": 1}),
    ]
    return [
        ListToolsResult(tools=[full_tool(), a_tool(output_schema={"type": "array"}), a_tool()], next_cursor="c"),
        CallToolResult(content=blocks, structured_content=[1], is_error=True, meta={"m": 1}),
        CallToolResult(content=[TextContent("1")], structured_content=1),
        CallToolResult(content=[], structured_content={"a": 1}),
        features.ReadResourceResult(
            contents=[TextResourceContents("x:t", "t", None, {"m": 1}), BlobResourceContents("x:b", b"")]
        ),
        features.GetPromptResult(messages=[features.PromptMessage("assistant", block) for block in blocks]),
        base.InitializeResult(
            protocol_version="x",
            capabilities=base.ServerCapabilities(completions={}, logging={}),
            server_info=base.Implementation(name="n", version="1", title="t", icons=icon, website_url="https://x"),
            instructions="i",
        ),
        features.Resource(uri="x:y", name="n", title="t", size=5, icons=icon, annotations=notes, meta={"m": 1}),
    ]


# -------------------------------------------------------------------------------------- content


def blocks_in(version: str, *blocks: Any) -> list[Any]:
    written: list[Any] = shaped(version, CallToolResult(content=list(blocks)))["content"]
    return written


@pytest.mark.parametrize("version", [V0, V1])
def test_audio_becomes_text_before_2025_03_26(version: str) -> None:
    block = AudioContent(b"12345", "audio/wav")
    assert blocks_in(version, block) == [{"type": "text", "text": "[audio, audio/wav, 5 bytes]"}]
    assert blocks_in(V2, block)[0]["type"] == "audio"


@pytest.mark.parametrize("version", [V0, V1, V2])
def test_a_link_becomes_text_with_its_uri_before_2025_06_18(version: str) -> None:
    link = ResourceLink("x:y", "name", "Title", "What it is")
    assert blocks_in(version, link) == [{"type": "text", "text": "Title: x:y\nWhat it is"}]
    assert blocks_in(version, ResourceLink("x:y", "name"))[0]["text"] == "name: x:y"
    assert blocks_in(V3, link)[0]["type"] == "resource_link"


def test_an_embedded_resource_becomes_text_in_2024_10_07() -> None:
    assert blocks_in(V0, EmbeddedResource(TextResourceContents("x:y", "all of it")))[0] == {
        "type": "text",
        "text": "all of it",
    }
    assert blocks_in(V0, EmbeddedResource(BlobResourceContents("x:y", b"123")))[0]["text"] == (
        "[binary resource x:y, 3 bytes]"
    )
    assert blocks_in(V0, EmbeddedResource({"uri": "x:y", "text": "t"}))[0]["text"] == "t"
    assert blocks_in(V0, EmbeddedResource({"uri": "x:y", "blob": "AA=="}))[0]["text"] == "[binary resource x:y]"
    assert blocks_in(V1, EmbeddedResource(TextResourceContents("x:y", "t")))[0]["type"] == "resource"


@each_version
def test_annotations_of_what_became_text_are_those_of_the_version(version: str) -> None:
    notes = Annotations(audience=["assistant"], last_modified="2025-01-01")
    expected: dict[str, Any] = {"audience": ["assistant"], "lastModified": "2025-01-01"}
    if version in (V1, V2):
        del expected["lastModified"]
    for block in (AudioContent(b"", "audio/wav", notes), ResourceLink("x:y", "n", annotations=notes)):
        assert blocks_in(version, block)[0].get("annotations") == (None if version == V0 else expected)


@each_version
def test_metadata_of_content_and_contents_since_2025_06_18(version: str) -> None:
    has = version in (V3, V4, V5)
    embedded = EmbeddedResource(TextResourceContents("x:y", "t", None, {"a/b": 1}), None, {"a/b": 2})
    (block,) = blocks_in(version, embedded)
    assert ("_meta" in block) == has
    assert ("_meta" in block.get("resource", {})) == has
    read = features.ReadResourceResult(contents=[BlobResourceContents("x:y", b"", None, {"a/b": 1})])
    assert ("_meta" in shaped(version, read)["contents"][0]) == has


@each_version
def test_prompt_messages_hold_what_their_version_has(version: str) -> None:
    result = features.GetPromptResult(messages=[features.PromptMessage("user", ResourceLink("x:y", "n"))])
    kind = shaped(version, result)["messages"][0]["content"]["type"]
    assert kind == ("resource_link" if version in (V3, V4, V5) else "text")


# ---------------------------------------------------------------------------------- tools/call


def test_the_result_of_a_tool_in_2024_10_07() -> None:
    """protocol-versions 4: `toolResult` beside the newer members, the text of a single text block."""
    assert shaped(V0, CallToolResult(content=[TextContent("a")])) == {
        "content": [{"type": "text", "text": "a"}],
        "toolResult": "a",
    }
    two = shaped(V0, CallToolResult(content=[TextContent("a"), AudioContent(b"", "audio/wav")], is_error=True))
    assert (
        two["toolResult"]
        == two["content"]
        == [
            {"type": "text", "text": "a"},
            {"type": "text", "text": "[audio, audio/wav, 0 bytes]"},
        ]
    )
    assert two["isError"] is True
    assert shaped(V0, CallToolResult(content=[]))["toolResult"] == []


@pytest.mark.parametrize("value", [1, "x", None, [1], True, 0.5, [], Raw(b"[1]"), Raw(b"null")])
def test_structured_content_that_is_no_object_is_wrapped_before_2026_07_28(value: Any) -> None:
    result = CallToolResult(content=[], structured_content=value)
    plain = wire({"v": value})["v"]
    for version in (V0, V1, V2):
        assert "structuredContent" not in shaped(version, result)
    for version in (V3, V4):
        assert shaped(version, result)["structuredContent"] == {"result": plain}
    assert shaped(V5, result)["structuredContent"] == plain


@pytest.mark.parametrize("value", [{}, {"a": 1}, Raw(b'{"a":1}'), EmptyResult(), TextResourceContents("x:y", "t")])
def test_structured_content_that_is_an_object_stays(value: Any) -> None:
    for version in (V3, V4, V5):
        written = shaped(version, CallToolResult(content=[], structured_content=value))["structuredContent"]
        assert written == wire({"v": value})["v"]


@pytest.mark.parametrize("value", [1, {"a": 1}, None, Raw(b'{"a":1}')])
def test_what_a_schema_of_any_value_describes_is_wrapped_even_if_it_is_an_object(value: Any) -> None:
    """S25-057: the wrapped schema asks for `result`, so the content of such a tool has to have it."""
    result = CallToolResult(content=[], structured_content=AnyValue(value))
    plain = wire({"v": value})["v"]
    for version in (V3, V4):
        assert wire(table.get(version).shape_result(result, IDENTITY))["structuredContent"] == {"result": plain}
    assert wire(table.get(V5).shape_result(result, IDENTITY))["structuredContent"] == plain


@each_version
def test_no_structured_content_is_not_null(version: str) -> None:
    """protocol-versions 3: in 2026-07-28 null is a value."""
    assert "structuredContent" not in shaped(version, CallToolResult(content=[]))
    assert "structuredContent" not in shaped(version, CallToolResult(content=[], structured_content=UNSET))


OUTPUT_SCHEMAS: list[Any] = [
    {"type": "array", "items": {"$ref": "#/$defs/Item"}, "$defs": {"Item": {"type": "integer"}}},
    {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}], "$defs": {"A": {"type": "object"}}},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "number"},
    {"type": "array", "items": {"$ref": "#"}},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/anyOf/0"}}]},
    {"type": ["object", "null"], "properties": {"$ref": {"const": {"$ref": "#/x"}}}},
    True,
    {},
]


@pytest.mark.parametrize("schema", OUTPUT_SCHEMAS, ids=str)
def test_an_output_schema_of_another_root_is_wrapped_and_still_describes_the_content(schema: Any) -> None:
    """protocol-versions 3, downgrades: references lead where they led before."""
    import jsonschema_rs

    tool = a_tool(output_schema=schema)
    assert shaped(V5, tool).get("outputSchema", schema) == schema
    if not isinstance(schema, dict):
        return
    for version in (V3, V4):
        wrapped = shaped(version, tool)["outputSchema"]
        assert wrapped["type"] == "object"
        assert wrapped["required"] == ["result"]
        before, after = jsonschema_rs.validator_for(schema), jsonschema_rs.validator_for(wrapped)
        for value in ([1], [[1, []]], ["x"], 1, "x", None, {}, {"$ref": {"$ref": "#/x"}}, {"$ref": 1}, [[]]):
            assert before.is_valid(value) == after.is_valid({"result": value})


def test_an_object_schema_stays_the_same_object() -> None:
    schema = {"type": "object", "properties": {}}
    for version in (V3, V4, V5):
        assert table.get(version).shape(a_tool(output_schema=schema)).output_schema is schema


# ------------------------------------------------------------------------------------- results


@each_version
def test_an_empty_result_is_empty_in_legacy_versions(version: str) -> None:
    """protocol-versions 3: the TypeScript SDK parses `{}` strictly."""
    written = wire(table.get(version).shape_result(EmptyResult(), IDENTITY))
    assert written == ({} if version != MODERN else {"resultType": "complete", "_meta": json.loads(bytes(IDENTITY))})


@each_version
def test_result_type_and_hints_are_of_the_newest_version_alone(version: str) -> None:
    """S26-005, S26-128, S26-129."""
    result = ListToolsResult(tools=[], result_type="complete", ttl_ms=5, cache_scope="public")
    written = wire(table.get(version).shape_result(result, IDENTITY))
    if version == MODERN:
        assert (written["resultType"], written["ttlMs"], written["cacheScope"]) == ("complete", 5, "public")
    else:
        assert written == {"tools": []}


def test_hints_are_added_where_none_are_given() -> None:
    """Caching advice: 0 and private."""
    for result in (
        ListToolsResult(tools=[]),
        features.ListPromptsResult(prompts=[]),
        features.ListResourcesResult(resources=[]),
        features.ListResourceTemplatesResult(resource_templates=[]),
        features.ReadResourceResult(contents=[]),
        base.DiscoverResult(supported_versions=[], capabilities=base.ServerCapabilities()),
    ):
        written = wire(table.get(MODERN).shape_result(result, IDENTITY))
        assert (written["ttlMs"], written["cacheScope"]) == (0, "private")
    assert "ttlMs" not in wire(table.get(MODERN).shape_result(CallToolResult(content=[]), IDENTITY))


def test_the_servers_identity_joins_the_metadata_that_is_there() -> None:
    own = json.loads(bytes(IDENTITY))
    modern = table.get(MODERN)
    shaped = modern.shape_result(CallToolResult(content=[], meta={"a/b": 1}), IDENTITY)
    assert wire(shaped)["_meta"] == {**own, "a/b": 1}
    assert wire(modern.shape_result(CallToolResult(content=[], meta=Raw(b'{"x":1}')), IDENTITY))["_meta"] == {"x": 1}
    assert "_meta" not in wire(table.get(V4).shape_result(CallToolResult(content=[]), IDENTITY))


@each_version
def test_a_result_that_is_one_text_is_written_as_the_long_way_writes_it(version: str) -> None:
    """Most answers go a short way through `shape_result`; whatever a result has besides takes the long one."""
    of = table.get(version)
    some = Annotations(priority=1.0)
    results = [
        CallToolResult(content=[TextContent("a")]),
        CallToolResult(content=[TextContent("a")], is_error=True),
        CallToolResult(content=[TextContent("a", annotations=some)]),
        CallToolResult(content=[TextContent("a", meta={"b": 1})]),
        CallToolResult(content=[TextContent("a")], meta={"b": 1}),
        CallToolResult(content=[TextContent("a")], structured_content={"b": 1}),
        CallToolResult(content=[TextContent("a")], result_type="b"),
        CallToolResult(content=[TextContent("a"), TextContent("b")]),
        CallToolResult(content=[]),
    ]
    for result in results:
        before = encode(result)
        assert encode(of.shape_result(result, IDENTITY)) == encode(of._finish(result, IDENTITY))
        assert encode(result) == before


def test_what_a_version_does_not_know_is_not_read_whatever_it_is_called_inside() -> None:
    """The names of a class that was made for a version are no names of members (see `_reader`)."""
    read = table.get(V4).lookup("tools/call")
    assert read is not None
    fields = structs.fields(type(read(b'{"name":"a"}')))
    hidden = [info.encode_name for info in fields if info.name in ("input_responses", "request_state")]
    assert len(hidden) == 2
    assert all(len(name.split()[1]) == 32 for name in hidden)
    params = read(encode({"name": "a", "requestState": "b", "request_state": "b", "inputResponses": {}, "task": {}}))
    assert (params.request_state, bytes(params.input_responses), bytes(params.task)) == (None, b"", b"{}")
    assert isinstance(params, features.CallToolParams)


def test_the_bytes_of_a_list_are_kept_as_long_as_the_list() -> None:
    version = table.get(V2)
    page = ListToolsResult(tools=[full_tool()])
    first = version.shape_result(page, IDENTITY)
    assert isinstance(first, Raw)
    assert version.shape_result(page, IDENTITY) is first
    gc.collect()  # what earlier tests left to the collector is not counted
    number = len(version._kept)
    del page
    gc.collect()
    assert len(version._kept) == number - 1


# --------------------------------------------------------------------------------------- params


@each_version
def test_params_newer_than_the_version_are_not_read(version: str) -> None:
    own = table.get(version)
    read = own.lookup("tools/call")
    assert read is not None
    params = read(b'{"name":"n","task":{"ttl":1},"inputResponses":{},"requestState":"s"}')
    assert (bytes(params.task) != b"") == (version == V4)
    assert (params.request_state == "s") == (version == V5)
    complete = own.lookup("completion/complete")
    assert complete is not None
    params = complete(
        b'{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"},"context":{"arguments":{"b":"c"}}}'
    )
    assert (params.context is not None) == (version in (V3, V4, V5))


# --------------------------------------------------------------------------------------- errors


@each_version
def test_error_codes(version: str) -> None:
    """protocol-versions 3, error codes; S26-014, S26-015, S26-116."""
    own = table.get(version)
    assert own.error_code(ResourceNotFound("x:y")) == (-32602 if version == V5 else -32002)
    assert own.error_code(InvalidParams()) == -32602
    assert own.error_code(MethodNotFound()) == -32601
    assert own.has_error(UrlElicitationRequired) == (version == V4)
    assert own.has_error(ResourceNotFound)


def test_codes_that_are_new_with_2026_07_28() -> None:
    own = table.get(MODERN)
    assert own.error_code(HeaderMismatch()) == -32020
    assert own.error_code(MissingCapability({"sampling": {}})) == -32021
    assert own.error_code(UnsupportedVersion("x", [])) == -32022


@each_version
def test_log_levels_are_those_of_the_version(version: str) -> None:
    for level in base.LOG_LEVELS:
        written = shaped(version, base.LogMessageParams(level=level, data=1))["level"]
        if version == V0:
            four = {"notice": "info", "critical": "error", "alert": "error", "emergency": "error"}
            assert written == four.get(level, level)
        else:
            assert written == level


# ------------------------------------------------------------------- any result, in every version

words = st.text(st.characters(codec="utf-8"), max_size=5)
uris = st.sampled_from(["x:y", "file:///a%20b", "ui://a/b"])
times = st.none() | st.just("2025-01-12T15:00:58Z")
icons = st.none() | st.lists(st.builds(Icon, src=st.just("https://x.example/i.png")), max_size=1)
metas = st.none() | st.just({"a/b": [1]})
notes = st.none() | st.builds(
    Annotations,
    audience=st.none() | st.just(["user"]),
    priority=st.none() | st.floats(0, 1),
    last_modified=times,
)
optional_words = st.none() | words
texts = st.builds(TextContent, words, notes, metas)
embedded_texts = st.builds(TextResourceContents, uris, words, optional_words, metas)
embedded_blobs = st.builds(BlobResourceContents, uris, st.binary(max_size=4), optional_words, metas)
blocks = st.one_of(
    texts,
    st.builds(ImageContent, st.binary(max_size=4), st.just("image/png"), notes, metas),
    st.builds(AudioContent, st.binary(max_size=4), st.just("audio/wav"), notes, metas),
    st.builds(EmbeddedResource, embedded_texts | embedded_blobs, notes, metas),
    st.builds(
        ResourceLink, uris, words, optional_words, optional_words, optional_words, st.none() | st.integers(0, 9), icons,
        notes, metas,
    ),
)  # fmt: skip
data = st.one_of(st.none(), st.booleans(), st.integers(), words, st.lists(words, max_size=2))
tool_structs = st.builds(
    Tool,
    name=words,
    title=optional_words,
    description=optional_words,
    icons=icons,
    input_schema=st.just({"type": "object"}),
    output_schema=st.none() | st.sampled_from([s for s in OUTPUT_SCHEMAS if isinstance(s, dict)]),
    annotations=st.none() | st.builds(ToolAnnotations, title=optional_words, read_only_hint=st.booleans()),
    execution=st.none() | st.just(ToolExecution(task_support="optional")),
    meta=metas,
)
about = {"name": words, "title": optional_words, "description": optional_words, "icons": icons, "meta": metas}
results: dict[str, st.SearchStrategy[Any]] = {
    "tools/list": st.builds(ListToolsResult, tools=st.lists(tool_structs, max_size=3), next_cursor=optional_words),
    "tools/call": st.builds(
        CallToolResult,
        content=st.lists(blocks, max_size=3),
        structured_content=st.just(UNSET) | data | st.builds(AnyValue, data) | st.dictionaries(words, data, max_size=2),
        is_error=st.booleans(),
        meta=metas,
    ),
    "resources/list": st.builds(
        features.ListResourcesResult,
        resources=st.lists(
            st.builds(
                features.Resource,
                uri=uris,
                mime_type=optional_words,
                size=st.none() | st.integers(0, 9),
                annotations=notes,
                **about,
            ),
            max_size=2,
        ),
    ),
    "resources/templates/list": st.builds(
        features.ListResourceTemplatesResult,
        resource_templates=st.lists(
            st.builds(
                features.ResourceTemplate,
                uri_template=st.just("x://{a}"),
                mime_type=optional_words,
                annotations=notes,
                **about,
            ),
            max_size=2,
        ),
    ),
    "resources/read": st.builds(
        features.ReadResourceResult, contents=st.lists(embedded_texts | embedded_blobs, max_size=2)
    ),
    "prompts/list": st.builds(
        features.ListPromptsResult,
        prompts=st.lists(
            st.builds(
                features.Prompt,
                arguments=st.none()
                | st.lists(
                    st.builds(
                        features.PromptArgument,
                        name=words,
                        title=optional_words,
                        description=optional_words,
                        required=st.booleans(),
                    ),
                    max_size=2,
                ),
                **about,
            ),
            max_size=2,
        ),
    ),
    "prompts/get": st.builds(
        features.GetPromptResult,
        messages=st.lists(
            st.builds(features.PromptMessage, st.sampled_from(["user", "assistant"]), blocks), max_size=2
        ),
        description=optional_words,
    ),
}


@pytest.mark.parametrize("method", results)
@settings(max_examples=40)
@given(drawn=st.data())
def test_any_result_is_valid_in_every_version(shared: Path, method: str, drawn: st.DataObject) -> None:
    result = drawn.draw(results[method])
    for version in VERSIONS:
        answer = wire(table.get(version).shape_result(result, IDENTITY))
        validate(version, "server", {"jsonrpc": "2.0", "id": 1, "result": answer}, method)


def test_classes_that_stand_by_name_are_there_and_only_those_of_questions_are() -> None:
    tables = [
        rows for version in VERSIONS for revision in [table._revision(version)]
        for rows in (revision.fields, revision.fields_gone, revision.back)
    ] + [table._NESTED]  # fmt: skip
    keys = {key for rows in tables for key in rows}
    names = {key for key in keys if isinstance(key, str)}
    assert {table._class(name).__module__ for name in names} == {table._INTERACTION}
    assert {table._class(name).__name__ for name in names} == names
    assert not {key for key in keys if not isinstance(key, str) and key.__module__ == table._INTERACTION}
