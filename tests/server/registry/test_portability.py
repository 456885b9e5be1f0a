"""What hosts and model vendors refuse of what is listed: told by `mcpd check` and `mcpd doctor` in the same words."""

from __future__ import annotations

from typing import Any

import pytest

from mcpd import Server
from mcpd.server.registry.portability import (
    input_schema_problems,
    instructions_problems,
    list_problems,
    resource_problems,
    tool_problems,
)


def said(schema: Any) -> list[str]:
    return [problem.text for problem in input_schema_problems("tool t", schema)]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a.b-c_D": {"type": "array", "items": {"enum": ["x", None]}}},
         "required": ["a.b-c_D"]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A"}},
         "$defs": {"A": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        {"type": "object", "properties": {"not": {"type": "string"}, "if": {}}, "required": ["not"]},
        {"type": "object", "additionalProperties": True, "required": ["anything"]},
    ],
)  # fmt: skip
def test_what_every_host_takes(schema: Any) -> None:
    assert said(schema) == []


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (None, "no inputSchema"),
        ([], "no inputSchema"),
        ({}, 'not of "type": "object"'),
        ({"type": "object", "oneOf": [{}]}, "has oneOf at the top"),
        ({"type": "object", "properties": {"a b": {}, "ü": {}, "x[]": {}, "y<": {}}}, "'a b', ü, 'x[]' and 1 more"),
        ({"type": "object", "properties": {"list": {"type": "array"}}}, "a list without items in list"),
        ({"type": "object", "properties": {"n": {"enum": [1, 2]}}}, "an enum with values that are not strings in n"),
        ({"type": "object", "properties": {"n": {"anyOf": [{"not": {}}]}}}, "has not, which Gemini's"),
        ({"type": "object", "properties": {"c": {"$ref": "#"}}}, "refers to itself"),
        ({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, "refers to itself"),
        ({"type": "object", "properties": {"c": {"$ref": "#/$defs/no"}}}, "to '#/$defs/no', which does not exist"),
        ({"type": "object", "properties": {"c": {"$ref": "https://x/y.json"}}}, "no host fetches"),
        ({"type": "object", "properties": {}, "required": ["gone"]}, "requires gone, but does not describe it"),
        ({"type": "object", "$defs": {"a": {"prefixItems": [{"type": "array"}]}}}, "a list without items at its top"),
    ],
)  # fmt: skip
def test_what_some_refuse(schema: Any, text: str) -> None:
    (found,) = said(schema)
    assert text in found


def test_schemas_of_any_depth_and_shape_end() -> None:
    deep: Any = {}
    for _ in range(500):
        deep = {"type": "object", "properties": {"x": deep}}
    assert said(deep) == []
    wide = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{m}"} for m in range(30)]} for n in range(30)}
    assert said({"type": "object", "$ref": "#/$defs/d0", "$defs": wide}) != []
    for odd in ({"properties": [], "required": {}, "anyOf": {}, "enum": 1, "$ref": 2, "items": True},):
        assert len(said({"type": "object"} | odd)) == 1


def test_a_tool_as_it_is_listed() -> None:
    tool = {
        "name": "a b",
        "description": "é" * 1025,
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "array"},
    }
    texts = [str(problem) for problem in tool_problems(tool, any_output=False)]
    assert texts[0].startswith("tool a b: its name: some hosts accept only 1 to 64")
    assert "cuts it after 2,048 bytes" in texts[1]
    assert "its outputSchema is not" in texts[2]
    assert len(list(tool_problems(tool, any_output=True))) == 2


def test_lists_instructions_and_resources() -> None:
    assert list(list_problems([f"t{n}" for n in range(100)], 99_000)) == []
    assert "Windsurf accepts at most 100" in str(*list_problems([f"t{n}" for n in range(101)]))
    assert "VS Code and OpenAI's models at most 128" in str(*list_problems([f"t{n}" for n in range(129)]))
    assert "listed 2 times" in str(*list_problems(["a", "a"]))
    assert "about 50,000 tokens" in str(*list_problems(["a"], 200_000))
    assert list(instructions_problems(None)) == list(instructions_problems("x" * 512)) == []
    assert "the first 512" in str(*instructions_problems("x" * 513))
    assert "2,048 bytes" in str(*instructions_problems("x" * 2049))
    assert list(resource_problems({"uri": "ui://x"})) == []
    assert "no scheme" in str(*resource_problems({"uri": "notes.txt"}))


def test_check_says_the_same() -> None:
    server = Server("garden")

    @server.tool(input_schema={"type": "object", "properties": {"a b": {"type": "array"}}})
    def water(arguments: dict[str, Any]) -> str:
        """Water."""
        return ""

    texts = [str(problem) for problem in server.problems()]
    assert len(texts) == 2
    assert texts[0].startswith("tool water: its arguments 'a b': Claude's models refuse all tools")
