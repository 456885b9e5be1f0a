"""How generated schemas are said plainly; tests/clients asks those who have to read them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mcpd.server.functions.plain_schema import Direction, plain

INTEGER, STRING, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}


@pytest.mark.parametrize(
    ("direction", "given", "said"),
    [
        ("input", {"type": "array", "items": True}, {"type": "array", "items": {}}),
        ("input", {"type": "array", "items": False}, {"type": "array", "items": {}, "maxItems": 0}),
        ("input", {"anyOf": [False, INTEGER]}, {"anyOf": [{"not": {}}, INTEGER]}),
        (
            "output",
            {"type": "array", "prefixItems": [INTEGER, INTEGER], "items": False},
            {"type": "array", "items": INTEGER, "maxItems": 2},
        ),
        (
            "output",
            {"type": "array", "prefixItems": [{**INTEGER, "title": "x"}, {**INTEGER, "default": 1}], "maxItems": 2,
             "description": "Mine."},
            {"type": "array", "items": INTEGER, "maxItems": 2,
             "description": "Mine.\n\nItems in this order: x, integer"},
        ),
        # More may follow, of any kind.
        ("output", {"type": "array", "prefixItems": [INTEGER]}, {"type": "array", "items": {}}),
        ("input", {"type": "array", "items": INTEGER, "uniqueItems": True}, {"type": "array", "items": INTEGER}),
        ("input", {"const": "a"}, {"type": "string", "enum": ["a"]}),
        ("input", {"enum": [True, 1, 1.5]},
         {"anyOf": [{"type": "boolean", "enum": [True]}, {"type": "integer", "enum": [1]},
                    {"type": "number", "enum": [1.5]}]}),
        ("input", {"enum": [None]}, {**NULL}),
        ("input", {"enum": ["a", None], "type": ["string", "null"], "title": "t"},
         {"anyOf": [{"type": "string", "enum": ["a"]}, NULL], "title": "t"}),
        ("input", {"anyOf": [{"enum": ["a", 1], "description": "d"}, NULL]},
         {"description": "d",
          "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}, NULL]}),
        ("input", {"anyOf": [INTEGER], "title": "t"}, {"type": "integer", "title": "t"}),
        ("input", {"oneOf": [INTEGER, STRING], "discriminator": {}}, {"anyOf": [INTEGER, STRING]}),
        ("input", {"oneOf": [INTEGER, STRING]}, {"oneOf": [INTEGER, STRING]}),
        ("input", {"allOf": [INTEGER], "description": "d"}, {"type": "integer", "description": "d"}),
        ("input", {"type": "object"}, {"type": "object", "additionalProperties": True}),
        ("input", {"type": "object", "additionalProperties": {}}, {"type": "object", "additionalProperties": True}),
        ("input", {"type": "object", "additionalProperties": False},
         {"type": "object", "properties": {}, "additionalProperties": False}),
        ("input", {"type": "object", "patternProperties": {r"\Aa\Z": INTEGER}},
         {"type": "object", "additionalProperties": INTEGER, "propertyNames": {"type": "string", "pattern": "^a$"}}),
        ("input", {"type": "object", "properties": {}, "required": []}, {"type": "object", "properties": {}}),
        ("input", {**STRING, "format": "decimal"}, {"anyOf": [{"type": "number"}, STRING]}),
        ("output", {**STRING, "format": "decimal"}, STRING),
        ("input", {"anyOf": [{**STRING, "format": "decimal"}, NULL]}, {"anyOf": [{"type": "number"}, STRING, NULL]}),
        ("input", {**STRING, "format": "file-path"}, STRING),
        ("input", {**STRING, "format": "uuid4"}, {**STRING, "format": "uuid"}),
        ("input", {**STRING, "format": "uri"}, {**STRING, "format": "uri"}),
        ("output", {**STRING, "format": "uri"}, STRING),
        ("output", {**STRING, "format": "date-time"}, STRING),
        ("output", {**STRING, "format": "date"}, {**STRING, "format": "date"}),
        ("output", {**STRING, "format": "aware date-time"}, {**STRING, "format": "date-time"}),
        ("input", {**INTEGER, "format": "int64"}, INTEGER),
        ("output", {"type": "number", "multipleOf": 0.1}, {"type": "number"}),
        ("input", {"type": "number", "multipleOf": 0.1}, {"type": "number", "multipleOf": 0.1}),
        ("input", {**STRING, "pattern": r"(?i)a"}, STRING),
        ("output", {**STRING, "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}, STRING),
        # What is data, or an author's own, is nobody's schema.
        ("input", {**STRING, "default": {"enum": [1]}, "x-own": {"type": "object"}, "widget": {"const": 1}},
         {**STRING, "default": {"enum": [1]}, "x-own": {"type": "object"}, "widget": {"const": 1}}),
        ("input", {"type": "object", "properties": {"const": {"const": 1}}},
         {"type": "object", "properties": {"const": {**INTEGER, "enum": [1]}}}),
    ],
)  # fmt: skip
def test_what_is_said(direction: Direction, given: Any, said: Any) -> None:
    before = copy.deepcopy(given)
    assert plain(given, direction) == said
    assert given == before
