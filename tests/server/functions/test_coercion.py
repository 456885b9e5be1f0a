"""Coercion: what models mean, and nothing they do not."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcpd.server.functions.arguments import coerce, follow


def one(value: Any, schema: Any, **root: Any) -> Any:
    return coerce({"x": value}, {"type": "object", "properties": {"x": schema}, **root})["x"]


def same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
ARRAY = {"type": "array", "items": INTEGER}
OBJECT = {"type": "object", "properties": {"n": INTEGER}}
NESTED: dict[str, Any] = {"type": "object"}
for _ in range(20):
    NESTED = {"anyOf": [NESTED]}


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("3", INTEGER, 3),
        ("-2", INTEGER, -2),
        ("0", INTEGER, 0),
        ("123456789012345678901234567890", INTEGER, 123456789012345678901234567890),
        (3.0, INTEGER, 3),
        (-0.0, INTEGER, 0),
        ("3", NUMBER, 3),
        ("3.5", NUMBER, 3.5),
        ("-1e3", NUMBER, -1000.0),
        ("3.0", NUMBER, 3.0),
        ("true", BOOLEAN, True),
        ("false", BOOLEAN, False),
        ("True", BOOLEAN, True),
        ("False", {"anyOf": [BOOLEAN, {"type": "null"}]}, False),
        ("1", BOOLEAN, True),
        ("0", BOOLEAN, False),
        ("1", {"type": ["boolean", "integer"]}, 1),
        ("1", {"type": ["boolean", "number"]}, 1),
        ("null", {"type": "null"}, None),
        ("null", {"anyOf": [INTEGER, {"type": "null"}]}, None),
        ("3", {"anyOf": [INTEGER, {"type": "null"}]}, 3),
        ("3", {"type": ["integer", "null"]}, 3),
        ("[1, 2]", ARRAY, [1, 2]),
        (' [1, "2"] ', ARRAY, [1, 2]),
        (["1", 2.0], ARRAY, [1, 2]),
        ('{"n": "1"}', OBJECT, {"n": 1}),
        ({"n": "1", "m": "1"}, OBJECT, {"n": 1, "m": "1"}),
        ({"a": "1"}, {"type": "object", "additionalProperties": INTEGER}, {"a": 1}),
        (
            ["1", "x", "2"],
            {"type": "array", "prefixItems": [INTEGER, {"type": "string"}], "items": NUMBER},
            [1, "x", 2],
        ),
        ("2", {"enum": [1, 2]}, 2),
        ("7", {"enum": [1, 2]}, 7),
        ("true", {"const": True}, True),
        ("null", {"enum": [1, None]}, None),
        ("1.5", {"enum": [1.5, []]}, 1.5),
        ("3", {"allOf": [{"type": ["integer", "string"]}, {"type": ["integer", "null"]}]}, 3),
        ("3", {"oneOf": [INTEGER, BOOLEAN]}, 3),
        ("true", {"oneOf": [INTEGER, BOOLEAN]}, True),
        ('[{"n": "1"}]', {"type": "array", "items": OBJECT}, [{"n": 1}]),
        ({"n": "3"}, {"anyOf": [OBJECT, {"type": "null"}]}, {"n": 3}),
    ],
)
def test_what_can_only_be_meant_one_way_is_repaired(value: Any, schema: Any, expected: Any) -> None:
    found = one(value, schema)
    assert same(found, expected)


PERSON = {"type": "object", "properties": {"kind": {"enum": ["p"]}, "age": INTEGER}, "required": ["kind"]}
THING = {"type": "object", "properties": {"kind": {"enum": ["t"]}, "age": NUMBER}, "required": ["kind"]}


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ({"n": None, "m": 1}, OBJECT, {"m": 1}),
        ({"n": None, "b": "true"}, {"properties": {"n": INTEGER, "b": BOOLEAN}}, {"b": True}),
        ({"n": None}, {"properties": {"n": {"anyOf": [INTEGER, NUMBER]}}, "required": "n"}, {}),
        ({"kind": "p", "age": None}, {"anyOf": [PERSON, THING]}, {"kind": "p"}),
        ({"kind": "t", "age": "1.5"}, {"anyOf": [PERSON, THING]}, {"kind": "t", "age": 1.5}),
    ],
)
def test_null_that_can_only_mean_the_default_is_left_out(value: Any, schema: Any, expected: Any) -> None:
    assert same(coerce({"x": value}, {"properties": {"x": schema}}), {"x": expected})
    assert coerce({"x": None}, {"properties": {"x": INTEGER}}) == {}


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("3.0", INTEGER),
        ("3.5", INTEGER),
        ("+3", INTEGER),
        ("007", INTEGER),
        (" 3", INTEGER),
        ("3\n", INTEGER),
        ("1_0", INTEGER),
        ("٣", INTEGER),
        ("", INTEGER),
        ("9" * 5000, INTEGER),
        (3.5, INTEGER),
        (1e300, INTEGER),
        (math.inf, INTEGER),
        (math.nan, INTEGER),
        (3.0, NUMBER),
        ("inf", NUMBER),
        ("nan", NUMBER),
        ("1e999", NUMBER),
        (".5", NUMBER),
        ("0x1", NUMBER),
        ("yes", BOOLEAN),
        ("TRUE", BOOLEAN),
        ("2", BOOLEAN),
        (1, BOOLEAN),
        ("True", {"type": ["boolean", "string"]}),
        ("True", INTEGER),
        ("None", {"type": "null"}),
        ("null", INTEGER),
        ("true", INTEGER),
        (3, {"type": "string"}),
        (True, {"type": "string"}),
        (True, INTEGER),
        ("3", {"type": "string"}),
        ("3", {}),
        ("3", True),
        ("null", {"type": ["string", "null"]}),
        ("3", {"type": ["string", "integer"]}),
        ("3", {"anyOf": [INTEGER, {"type": "string"}]}),
        ("3", {"anyOf": [INTEGER, {}]}),
        ("3", {"anyOf": [INTEGER, {"enum": ["3"]}]}),
        ("[1]", {"anyOf": [ARRAY, {"type": "string"}]}),
        ("[1", ARRAY),
        ("[" * 5000, ARRAY),
        ('{"n": 1}', ARRAY),
        ("[1]", OBJECT),
        ("1, 2", ARRAY),
        ("3", {"enum": [1, "3"]}),
        ("3", {"$ref": "#/nowhere"}),
        ("3", {"$ref": "other.json#/x"}),
        ("3", {"$ref": 7}),
        ({"n": "1"}, {"anyOf": [OBJECT, {"type": "object"}]}),
        ({"ab": "1"}, {"type": "object", "patternProperties": {"a": {}}, "additionalProperties": INTEGER}),
        ([["1"]], {"type": "array", "items": "nonsense"}),
        (None, {"type": ["integer", "null"]}),
        (None, {"enum": [1, None]}),
        (None, {}),
        ({"n": None}, {"type": "object", "properties": {"n": INTEGER}, "required": ["n"]}),
        ({"n": None}, {"type": "object", "additionalProperties": INTEGER}),
        ({"n": None}, {"anyOf": [OBJECT, {"type": "object"}]}),
        ([None], {"type": "array", "items": INTEGER}),
        ("3", {"type": 7}),
        ("3", {"anyOf": [INTEGER, True]}),
        ("3", {"anyOf": [False, {"type": "string"}]}),
        ({"n": "3"}, NESTED),
    ],
)
def test_anything_else_stays_as_it_is(value: Any, schema: Any) -> None:
    arguments = {"x": value}
    assert coerce(arguments, {"type": "object", "properties": {"x": schema}}) is arguments


def test_unknown_names_and_odd_schemas_are_left_alone() -> None:
    arguments = {"y": "3"}
    for schema in ({}, {"properties": []}, {"properties": {"x": INTEGER}}, {"additionalProperties": False}):
        assert coerce(arguments, schema) is arguments
    assert coerce(arguments, {"additionalProperties": INTEGER}) == {"y": 3}


def test_the_input_is_not_changed() -> None:
    arguments = {"a": ["1"], "b": {"n": "2"}, "c": "3"}
    before = copy.deepcopy(arguments)
    schema = {"properties": {"a": ARRAY, "b": OBJECT, "c": INTEGER}}
    assert coerce(arguments, schema) == {"a": [1], "b": {"n": 2}, "c": 3}
    assert arguments == before


def test_local_references_are_followed() -> None:
    definitions = {"n/~ m": INTEGER, "p": {"$ref": "#/$defs/o"}, "o": OBJECT}
    assert one("3", {"$ref": "#/$defs/n~1~0 m"}, **{"$defs": definitions}) == 3
    assert one({"n": "3"}, {"$ref": "#/$defs/p"}, **{"$defs": definitions}) == {"n": 3}
    # Before draft 2019-09, nothing that stands beside a reference counts.
    assert one("3", {"$ref": "#/$defs/s", "type": "integer"}, **{"$defs": {"s": {"type": "string"}}}) == "3"


def test_recursive_schemas_come_to_an_end() -> None:
    tree = {"type": "object", "properties": {"value": INTEGER, "next": {"$ref": "#/$defs/tree"}}}
    deep: dict[str, Any] = {"value": "1"}
    for _ in range(500):
        deep = {"value": "1", "next": deep}
    found = one(deep, {"$ref": "#/$defs/tree"}, **{"$defs": {"tree": tree}})
    assert found["value"] == 1
    assert found["next"]["next"]["value"] == 1
    loop = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}, "c": {"anyOf": [{"$ref": "#/$defs/c"}, INTEGER]}}
    for name in loop:
        assert one("3", {"$ref": f"#/$defs/{name}"}, **{"$defs": loop}) == "3"
    assert follow({"$ref": "#/$defs/a"}, {"$defs": loop}) is None
    assert follow({"$ref": "#"}, {"type": "object"}) == {"type": "object"}


def test_schemas_that_share_much_are_looked_at_once() -> None:
    """Each definition names the next one twice: 2 to the power of 60 ways through."""
    definitions: dict[str, Any] = {
        str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}, {"$ref": f"#/$defs/{n + 1}"}]} for n in range(60)
    }
    definitions["60"] = INTEGER
    assert one("3", {"$ref": "#/$defs/0"}, **{"$defs": definitions}) == 3


# ----------------------------------------------------------------- what validates is never changed

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 3.0, -1.0])
TEXTS = st.sampled_from(["3", "-2", "3.0", "true", "null", "[1]", '["1"]', '{"a": "1"}', "x", ""])
JSON = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
LEAVES = (
    st.booleans()
    | st.builds(lambda name: {"type": name}, TYPES)
    | st.builds(lambda names: {"type": names}, st.lists(TYPES, min_size=1, max_size=3, unique=True))
    | st.builds(lambda values: {"enum": values}, st.lists(JSON, min_size=1, max_size=3))
    | st.builds(lambda value: {"const": value}, JSON)
    | st.builds(lambda name: {"$ref": f"#/$defs/{name}"}, st.sampled_from("ab"))
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(
            lambda keyword, branches: {keyword: branches},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | st.builds(
            lambda items, prefix: {"items": items, "prefixItems": prefix},
            inner,
            st.lists(inner, min_size=1, max_size=2),
        )
        | st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(
            lambda members, rest: {"properties": members, "additionalProperties": rest},
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            inner,
        )
        | st.builds(lambda name, schema: {"type": name, "not": schema}, TYPES, inner)
    ),
    max_leaves=6,
)


@given(arguments=st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), members=st.data())
def test_arguments_that_validate_are_never_changed(arguments: dict[str, Any], members: Any) -> None:
    """Judged by a validator that is not ours. 3.0 may become 3, which is the same number to it."""
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    schema = {
        "type": "object",
        "properties": {name: members.draw(SCHEMAS) for name in arguments},
        "$defs": {"a": members.draw(LEAVES), "b": members.draw(SCHEMAS)},
    }
    try:
        validator = jsonschema_rs.Draft202012Validator(schema)
        valid = validator.is_valid(arguments)
    except (jsonschema_rs.ValidationError, ValueError):  # references in a circle
        return
    found = coerce(arguments, schema)
    if valid:
        assert found == arguments
        assert validator.is_valid(found)


@given(arguments=st.dictionaries(st.text(max_size=3), JSON, max_size=3), schema=JSON | SCHEMAS)
def test_nothing_raises(arguments: dict[str, Any], schema: Any) -> None:
    coerce(arguments, {"properties": dict.fromkeys(arguments, schema)})
    coerce(arguments, schema if isinstance(schema, dict) else {})
