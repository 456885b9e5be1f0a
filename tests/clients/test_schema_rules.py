"""Every schema of ours keeps the rules, and validators of three drafts agree that our values fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from clients.schema_kinds import Kind, argument_kinds, function_of, kinds
from clients.schema_rules import Direction, broken
from clients.schema_servers import SERVERS, listed
from hypothesis import HealthCheck, given, settings
from support.wires import LEGACY, MODERN

from mcpd.server.functions.signature import bind
from mcpd.server.registry.content import encode_data

DRAFTS = (jsonschema_rs.Draft7Validator, jsonschema_rs.Draft201909Validator, jsonschema_rs.Draft202012Validator)

# Their schemas were given as JSON, and are left as they are.
OF_AUTHORS = {"json_schema_2020_12_tool"}

# Two schemas and some validators are made for each example.
ENOUGH = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.mark.parametrize("version", [LEGACY[0], LEGACY[-1], MODERN])
@pytest.mark.parametrize("name", SERVERS)
async def test_every_tool_keeps_the_rules(name: str, version: str, tmp_path: Path) -> None:
    tools = await listed(name, tmp_path, version)
    assert len(tools) > 2
    found = []
    for tool in tools:
        if tool["name"] in OF_AUTHORS:
            continue
        assert tool["inputSchema"].keys() >= {"type", "properties"}
        found += [f"{tool['name']}, input {line}" for line in broken(tool["inputSchema"], "input")]
        if "outputSchema" in tool:
            found += [f"{tool['name']}, output {line}" for line in broken(tool["outputSchema"], "output")]
    assert not found, "\n".join(found)


@ENOUGH
@given(argument_kinds(), kinds())
def test_generated_signatures_keep_the_rules(takes: list[Kind], returns: Kind) -> None:
    callee = bind(function_of(takes, returns))
    assert broken(callee.input_schema, "input") == []
    if callee.output_schema is not None:
        assert broken(callee.output_schema, "output") == []


@ENOUGH
@given(*[kinds().flatmap(lambda kind: kind.values.map(lambda value: (kind, value)))] * 2)
def test_what_fits_the_types_fits_the_schemas(taken: tuple[Kind, Any], given_back: tuple[Kind, Any]) -> None:
    """A schema admits at least what the function takes; of results it says nothing that may not hold, formats too."""
    function: Any = function_of([taken[0]], given_back[0])
    function.result = given_back[1]
    function.__globals__["made"] = function
    callee = bind(function)
    arguments = {"member_0": msgspec.json.decode(encode_data(taken[1]))}
    result = callee.call(msgspec.json.encode(arguments))
    for draft in DRAFTS:
        draft(callee.input_schema, validate_formats=False).validate(arguments)
        if callee.output_schema is not None:
            draft(callee.output_schema, validate_formats=True).validate(msgspec.json.decode(encode_data(result)))


BAD: list[tuple[Any, Direction, str]] = [
    ({"type": "object"}, "input", "no properties"),
    ({"type": "array"}, "output", "items are no schema"),
    ({"type": "array", "items": False}, "output", "False where a schema is expected"),
    ({"type": "array", "prefixItems": [{}], "items": {}}, "output", "keywords of no standard"),
    ({"enum": ["a"]}, "output", "an enum without a type"),
    ({"type": "string", "enum": ["a", 1]}, "output", "with other values"),
    ({"type": "integer", "enum": [True]}, "output", "with booleans"),
    ({"type": ["string", "null"]}, "output", "not one name"),
    ({"type": "string", "const": "a"}, "output", "keywords of no standard"),
    ({"type": "string", "format": "decimal"}, "input", "the format 'decimal'"),
    ({"type": "string", "format": "duration"}, "output", "the format 'duration'"),
    ({"anyOf": [{"type": "null"}]}, "output", "a choice of one"),
    ({"anyOf": [{"type": "null"}, {"anyOf": [{"type": "null"}, {}]}]}, "output", "a choice among choices"),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}}, "output", "a reference at the root"),
    (
        {"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {"type": "string"}}},
        "output",
        "does not contain itself",
    ),
    (
        {
            "type": "array",
            "items": {"$ref": "#/$defs/A"},
            "$defs": {
                "A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]},
                "B": {"type": "array", "items": {"$ref": "#/$defs/B"}},
            },
        },
        "output",
        "stands further on",
    ),
    ({"type": "array", "items": {"$ref": "#/$defs/A"}}, "output", "what is not there"),
    ({"type": "object", "properties": {}, "required": ["a"]}, "output", "not among the properties"),
    ({"type": "array", "items": {"type": "object", "additionalProperties": {}, "properties": {}}}, "output", "a map"),
]


@pytest.mark.parametrize(("schema", "direction", "said"), BAD)
def test_the_rules_can_be_broken(schema: Any, direction: Direction, said: str) -> None:
    assert said in "\n".join(broken(schema, direction))
