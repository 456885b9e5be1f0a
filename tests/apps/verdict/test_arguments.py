"""Arguments made from a schema: they have to be taken."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from mcpd.apps.verdict.calling import make_arguments

SCHEMAS: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({}, {}),
    ({"type": "object"}, {}),
    ({"properties": {"city": {"type": "string"}}, "required": ["city"]}, {"city": "Oslo"}),
    ({"properties": {"a": {"type": "integer", "default": 4}, "b": {"type": "integer"}}}, {"a": 4}),
    ({"properties": {"a": {"enum": ["x", "y"]}, "b": {"const": 1}}, "required": ["a"]}, {"a": "x", "b": 1}),
    ({"properties": {"a": {"type": "integer", "exclusiveMinimum": 10, "multipleOf": 7}}, "required": ["a"]}, {"a": 14}),
    ({"properties": {"a": {"type": "number", "maximum": -5}}, "required": ["a"]}, None),
    ({"properties": {"a": {"type": "string", "minLength": 30, "maxLength": 31}}, "required": ["a"]}, None),
    ({"properties": {"a": {"type": "string", "format": "date-time"}}, "required": ["a"]}, None),
    ({"properties": {"a": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}, "required": ["a"]}, {"a": False}),
    ({"properties": {"a": {"type": ["null", "array"], "items": {"type": "integer"}, "minItems": 2}}, "required": ["a"]},
     {"a": [1, 1]}),
    ({"properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"],
      "$defs": {"A": {"type": "object", "properties": {"n": {"type": "string"}, "next": {"$ref": "#/$defs/A"}},
                      "required": ["n"]}}}, {"a": {"n": "example"}}),
    ({"allOf": [{"properties": {"x": {"type": "boolean"}}, "required": ["x"]}], "type": "object"}, {"x": False}),
    ({"examples": [{"q": 1}], "type": "object"}, {"q": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "wanted"), SCHEMAS)
def test_made_arguments_fit(schema: dict[str, Any], wanted: dict[str, Any] | None) -> None:
    made = make_arguments(schema)
    assert wanted is None or made == wanted
    jsonschema_rs.validator_for({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}).validate(made)


def test_a_schema_without_end_ends() -> None:
    endless = {"properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    assert "a" in make_arguments(endless)
    assert make_arguments({"$ref": "#"}) == {}
    assert make_arguments({"properties": {"a": {"type": "string", "minLength": 10**9}}, "required": ["a"]})["a"]
