"""Schemas given as JSON: dialects, references, bounds, and tools that live by them.

Spec: 2025-11-25 and 2026-07-28 basic/index, JSON Schema usage; server/tools.
"""

from __future__ import annotations

import logging
import re
import socket
import sys
from typing import Any

import pytest
from msgspec.json import decode
from support.wires import LEGACY, MODERN, each_version, memory_wire

from mcpd import Context, Server
from mcpd.client import Client
from mcpd.errors import LocalProtocolError, RegistrationError, RemoteError
from mcpd.server.functions import json_schema
from mcpd.server.functions.json_schema import JsonSchema
from mcpd.types import CallToolResult

LATEST = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


# ----------------------------------------------------------------------------------- the schemas


def test_2020_12_is_the_default() -> None:
    """S25-013, S26-020: keywords that only this dialect has, or reads so."""
    schema = JsonSchema(
        {
            "type": "object",
            "properties": {"pair": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}},
            "unevaluatedProperties": False,
            "dependentRequired": {"a": ["b"]},
        },
        "it",
    )
    assert schema.problems({"pair": [1, "x"]}) == []
    assert schema.problems({"pair": ["x", 1]})
    assert schema.problems({"pair": [1, "x", 2]})
    assert schema.problems({"other": 1})


def test_another_dialect_is_named_and_obeyed() -> None:
    """S25-014, S26-021: `items` as a list means a tuple in draft 7, and nothing valid since 2020-12."""
    tuple_of_two = object_of(pair={"type": "array", "items": [{"type": "integer"}, {"type": "string"}]})
    schema = JsonSchema({"$schema": DRAFT_7, **tuple_of_two}, "it")
    assert schema.problems({"pair": [1, "x"]}) == []
    assert schema.problems({"pair": ["x", 1]})
    with pytest.raises(RegistrationError):
        JsonSchema(tuple_of_two, "it")


@pytest.mark.parametrize(
    "dialect", [LATEST, "https://json-schema.org/draft/2019-09/schema", DRAFT_7, DRAFT_7.rstrip("#"),
                "http://json-schema.org/draft-06/schema#", "http://json-schema.org/draft-04/schema#"],
)  # fmt: skip
def test_dialects_that_are_supported(dialect: str) -> None:
    assert JsonSchema({"$schema": dialect, "type": "string"}, "it").problems(5)


@pytest.mark.parametrize(
    "dialect", ["https://example.com/mine", "http://json-schema.org/draft-03/schema#", "", 5, None]
)
def test_a_dialect_that_is_not_supported_is_refused_clearly(dialect: Any) -> None:
    """S25-015, S26-022: the error names it, and what may stand there."""
    with pytest.raises(RegistrationError) as refused:
        JsonSchema({"$schema": dialect, "type": "object"}, "tool 'x', input schema")
    assert repr(dialect) in str(refused.value)
    assert "tool 'x', input schema" in str(refused.value)
    assert LATEST in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"type": "object", "required": "a"},
        {"type": "object", "properties": []},
        {"minimum": "3"},
        {"properties": {"a": {"pattern": "("}}},
        {"$ref": "#/$defs/nowhere"},
        {"type": "object", "x": object()},
    ],
)
def test_a_schema_that_is_not_valid_in_its_dialect_is_refused(schema: dict[str, Any]) -> None:
    """S25-016, S26-023: what is published is valid."""
    with pytest.raises(RegistrationError, match="it: "):
        JsonSchema(schema, "it")


def test_references_into_the_schema_itself() -> None:
    schema = JsonSchema(
        {
            "$defs": {
                "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"$ref": "#n"}}}
            },
            "$ref": "#/$defs/node",
            "properties": {"$ref": {"$anchor": "n", "type": "integer"}},
        },
        "it",
    )
    assert schema.problems({"next": {"next": {"n": 1}}, "$ref": 1}) == []
    assert schema.problems({"next": {"next": {"n": "x"}}}) != []


@pytest.mark.parametrize("where", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize(
    "target", ["{url}", "{url}#/a", "file:///etc/passwd", "other.json", "//example.com/x", "urn:x:y"]
)
def test_references_out_of_the_schema_are_refused_and_never_fetched(where: str, target: str) -> None:
    """S26-024, S26-025: there is no mode in which they are."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.02)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        target = target.format(url=url)
        for schema in (
            {where: target},
            {"properties": {"a": {"items": [{where: target}]}}},
            {"$id": url, "allOf": [{where: target}]},
        ):
            with pytest.raises(RegistrationError, match="leads out|not valid|is not"):
                JsonSchema(schema, "it")
        with pytest.raises(TimeoutError):
            listener.accept()


def test_depth_and_size_are_bounded() -> None:
    def nested(levels: int) -> dict[str, Any]:
        schema: dict[str, Any] = {}
        for _ in range(levels):
            schema = {"not": schema}
        return schema

    JsonSchema(nested(json_schema.MAX_DEPTH), "it")
    for levels in (json_schema.MAX_DEPTH + 1, 5000):
        with pytest.raises(RegistrationError, match="deeper"):
            JsonSchema(nested(levels), "it")
    with pytest.raises(RegistrationError, match="more than"):
        JsonSchema({"description": "x" * json_schema.MAX_BYTES}, "it")


@pytest.mark.medium
def test_parts_that_are_shared_are_bounded_as_they_are_written() -> None:
    """As authors make them that put definitions where they are referred to: 2^40 strings, or without end."""

    def shared(levels: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(levels):
            schema = {"type": "object", "properties": {"a": schema, "b": schema}}
        return schema

    JsonSchema(shared(10), "it")
    for levels in (20, 40):
        with pytest.raises(RegistrationError, match="more than 1048576 bytes"):
            JsonSchema(shared(levels), "it")
    itself = object_of(a={"type": "integer"})
    itself["properties"]["b"] = itself
    with pytest.raises(RegistrationError, match="deeper"):
        JsonSchema(itself, "it")


def test_problems_are_named_by_path_and_few() -> None:
    schema = JsonSchema(object_of(a={"type": "array", "items": {"type": "integer"}}), "it")
    assert schema.problems({"a": [1, "x"]}) == ['a.1: "x" is not of type "integer"']
    assert len(schema.problems({"a": ["x"] * 1000})) == 20
    (long,) = schema.problems({"a": "x" * 100_000})
    assert len(long) < 1000


NESTED = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/list"}},
    "$defs": {"list": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/list"}}, {"type": "string"}]}},
}
"""A list of lists of lists, and in the innermost a text."""


def nested(levels: int, innermost: str) -> bytes:
    """As many as are asked for, the object counted."""
    return b'{"a":' + b"[" * (levels - 2) + innermost.encode() + b"]" * (levels - 2) + b"}"


def test_only_so_many_levels_of_a_value_are_looked_at() -> None:
    """However many Python reads: the library itself would end the process."""
    schema = JsonSchema(NESTED, "it")
    assert schema.problems(decode(nested(250, '"x"'))) == []
    (said,) = schema.problems(decode(nested(250, "1")))
    assert said.startswith("a: ")
    for levels in (251, 1000, 5000, 9000, 25_000):
        try:
            value = decode(nested(levels, '"x"'))
        except RecursionError:  # as many as this Python reads
            break
        assert schema.problems(value) == ["nested deeper than 250"]


@pytest.mark.parametrize("levels", [251, 1100, 9900, 25_000])
async def test_a_call_of_too_many_levels_is_an_error_and_nothing_else(levels: int) -> None:
    server = Server("nested")

    @server.tool(input_schema=NESTED)
    def take(given: dict[str, Any]) -> str:
        return "taken"

    async def called(levels: int) -> CallToolResult:
        value: Any = "x"
        for _ in range(levels - 2):
            value = [value]
        return await client.call_tool("take", {"a": value})

    async with Client(server) as client:
        try:
            said = str(await called(levels))
        except (LocalProtocolError, RemoteError) as error:  # more than this Python writes, or reads
            said = str(error)
        assert re.search("nested deeper than 250|cannot be (read|written|encoded) as JSON", said)
        assert not (await called(250)).is_error


@pytest.mark.parametrize(("levels", "text"), [(240, "taken"), (300, "nested deeper than 250")])
async def test_levels_of_a_list_that_came_as_a_text_count_too(levels: int, text: str) -> None:
    """However its brackets are written: a text with JSON is read where the schema wants a list."""
    lists = {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "string"}]}}
    server = Server("nested")

    @server.tool(input_schema=object_of(a={"$ref": "#/$defs/list"}) | {"$defs": {"list": lists}})
    def take(given: dict[str, Any]) -> str:
        return "taken"

    argument = b"\\u005b" * levels + b"\\u005d" * levels
    params = b'{"name":"take","arguments":{"a":"%b"}}' % argument
    async with memory_wire(server, LEGACY[-1]) as wire:
        wire.send(b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":%b}' % params)
        assert (await wire.answer(77))["result"]["content"][0]["text"].endswith(text)


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(RegistrationError, match=r"pip install 'mcpd-server\[schema\]'"):
        JsonSchema({}, "it")


# ---------------------------------------------------------------------------------- on the wire


INPUT = {
    "$schema": LATEST,
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "mode": {"enum": ["a", "b"]}},
    "required": ["n"],
    "if": {"properties": {"mode": {"const": "b"}}, "required": ["mode"]},
    "then": {"properties": {"n": {"maximum": 5}}},
    "additionalProperties": False,
}


def make_server() -> Server:
    server = Server("t")

    @server.tool(input_schema=INPUT, description="By hand")
    async def given(arguments: dict[str, Any], ctx: Context) -> str:
        return f"{arguments} {ctx.method}"

    @server.tool(input_schema={"type": "object"})
    def plain(arguments: dict[str, Any]) -> str:
        return str(arguments)

    @server.tool(output_schema=object_of(total={"type": "integer"}) | {"required": ["total"]})
    async def promises(total: Any = None, is_there: bool = True) -> Any:
        return {"total": total} if is_there else "text"

    @server.tool(output_schema={"type": "array", "maxItems": 2})
    async def at_most_two(count: int) -> Any:
        return list(range(count))

    return server


@each_version
async def test_the_schema_is_published_as_it_was_given(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        assert tools["given"]["inputSchema"] == INPUT
        assert tools["given"]["description"] == "By hand"


@each_version
async def test_arguments_are_held_against_the_schema(version: str) -> None:
    """S25-058, S26-108; numbers and objects that a model wrote as strings are read as such."""
    async with memory_wire(make_server(), version) as wire:
        assert await wire.text("given", n=9) == "{'n': 9} tools/call"
        assert await wire.text("given", n="9", mode="a") == "{'n': 9, 'mode': 'a'} tools/call"
        assert await wire.text("plain") == "{}"
        assert await wire.text("plain", anything=[1]) == "{'anything': [1]}"
        for wrong, named in (
            ({}, "n"),
            ({"n": 0}, "n"),
            ({"n": 9, "mode": "b"}, "n"),
            ({"n": 1, "mode": "c"}, "mode"),
            ({"n": 1, "x": 2}, "x"),
        ):
            result = await wire.call("given", **wrong)  # type: ignore[arg-type]
            assert result["isError"] is True
            assert named in result["content"][0]["text"]
        error = await wire.error("tools/call", {"name": "given", "arguments": [1]})
        assert error["code"] == -32602


@each_version
@pytest.mark.parametrize("arguments", [{"total": "x"}, {"total": 1.5}, {}, {"is_there": False}])
async def test_a_result_that_breaks_its_schema_is_the_servers_error(
    version: str, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """S25-057, S26-107: logged, and never sent as if it were right."""
    async with memory_wire(make_server(), version) as wire:
        with caplog.at_level(logging.ERROR, "mcpd"):
            result = await wire.call("promises", **arguments)  # type: ignore[arg-type]
        assert result["isError"] is True
        assert "structuredContent" not in result
        assert "output schema" in result["content"][0]["text"]
        assert "promises" in caplog.text


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_a_result_that_keeps_it_is_sent(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        assert (await wire.call("promises", total=5))["structuredContent"] == {"total": 5}
        two = (await wire.call("at_most_two", count=2))["structuredContent"]
        assert two == ([0, 1] if version == MODERN else {"result": [0, 1]})
        assert (await wire.call("at_most_two", count=3))["isError"] is True


@pytest.mark.parametrize(
    ("schema", "function"),
    [
        ({"type": "array"}, lambda arguments: ""),
        ({}, lambda arguments: ""),
        ({"type": "object"}, lambda: ""),
        ({"type": "object"}, lambda a, b: ""),
    ],
)
def test_input_schemas_and_functions_that_do_not_go_together(schema: Any, function: Any) -> None:
    """S25-056, S26-106: the root of an input schema is an object."""
    with pytest.raises(RegistrationError, match="input schema"):
        Server("t").add_tool(function, name="x", input_schema=schema)
