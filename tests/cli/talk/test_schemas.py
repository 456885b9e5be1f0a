"""Schemas in a few words; hostile ones end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from mcpd.cli.talk.arguments import limits_text, read_schema, type_text


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string|null"),
        ({"enum": ["a", 1, None]}, "a|1|null"),
        ({"enum": list("abcdefg")}, "a|b|c|d|e|…"),
        ({"const": "x"}, "x"),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, "a|b"),
        ({"anyOf": [{"enum": ["a"]}, {"type": "null"}]}, "a"),
        ({"type": "array", "items": {"type": "integer"}}, "integer[]"),
        ({"type": "array", "items": {"type": ["integer", "null"]}}, "(integer|null)[]"),
        ({"type": "array"}, "any[]"),
        ({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}, "string[]|null"),
        ({"properties": {"a": {}}}, "object"),
        ({}, "any"),
        (True, "any"),
        ({"type": 5, "enum": "x", "anyOf": [3], "properties": []}, "any"),
    ],
)
def test_in_words(schema: Any, words: str) -> None:
    assert type_text(read_schema({"properties": {"x": schema}}).properties["x"]) == words


def test_references() -> None:
    schema = read_schema({
        "$defs": {
            "a/b": {"type": "integer"},
            "loop": {"$ref": "#/$defs/loop"},
            "deep": {"anyOf": [{"$ref": "#/$defs/deep"}]},
        },
        "properties": {
            "x": {"$ref": "#/$defs/a~1b", "description": "An x.\nMore."},
            "y": {"$ref": "#/$defs/loop"},
            "z": {"$ref": "#/$defs/deep"},
            "w": {"$ref": "https://elsewhere.example/"},
        },
    })  # fmt: skip
    assert [type_text(kind) for kind in schema.properties.values()] == ["integer", "any", "any", "any"]
    assert schema.properties["x"].description == "An x."


def test_an_array_in_itself_ends() -> None:
    schema = read_schema({"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"})
    assert type_text(schema) == "array" + 8 * "[]"


def test_members_of_all_of() -> None:
    schema = read_schema({"allOf": [{"properties": {"a": {}}, "required": ["a", 3]}, {"additionalProperties": False}]})
    assert list(schema.properties) == ["a"]
    assert schema.required == ["a"]
    assert schema.is_closed


def test_limits() -> None:
    assert limits_text(read_schema({"minimum": 1, "maximum": 12})) == "1 to 12"
    assert limits_text(read_schema({"minimum": 1})) == "1 or more"
    assert limits_text(read_schema({"maximum": 2.5})) == "2.5 or less"
    assert limits_text(read_schema({"minLength": 2, "format": "email"})) == "at least 2 characters, an e-mail address"
    assert limits_text(read_schema({"format": "odd"})) == "in the format odd"
    assert limits_text(read_schema({"minimum": "x", "format": 3})) == ""


def test_a_schema_that_is_none() -> None:
    for raw in (None, [], Raw(b"nonsense"), Raw(b"[]")):
        assert read_schema(raw).properties == {}
    assert list(read_schema(Raw(b'{"properties":{"a":{}}}')).properties) == ["a"]
