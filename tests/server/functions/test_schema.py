"""JSON Schemas of arguments and results."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from msgspec import Meta

from mcpd.server.functions.signature import bind


class Color(enum.Enum):
    """Colours."""

    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    """A point."""

    x: int
    y: int = 0


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    corners: list[Point] = []
    color: Color = Color.RED


class Tree(msgspec.Struct):
    children: list[Tree] = []


class Row(NamedTuple):
    n: int
    name: str = "x"


class Entry(TypedDict, total=False):
    n: int


POINT = {
    "type": "object",
    "title": "Point",
    "description": "A point.",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
    "required": ["x"],
}
COLOR = {"type": "string", "title": "Color", "description": "Colours.", "enum": ["red", "blue"]}


def test_the_example_of_the_architecture_page() -> None:
    def forecast(city: str, days: Annotated[int, Meta(ge=1, le=14)] = 3) -> list[Point]:
        """Forecast for a city.

        Args:
            city: City name.
            days: Days ahead.
            moon: There is no such parameter.
        """
        raise NotImplementedError

    callee = bind(forecast)
    assert callee.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "City name."},
            "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 3, "description": "Days ahead."},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert callee.output_schema == {
        "type": "array",
        "items": POINT,
    }


def test_no_arguments() -> None:
    """2025-11-25 server/tools: the recommended schema of a tool without parameters, with the member vendors want."""

    def ping() -> None: ...

    assert bind(ping).input_schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_shared_types_stand_where_they_are_used() -> None:
    def draw(shape: Shape, to: Point | None = None, colors: list[Color] = [Color.RED]) -> None:  # noqa: B006
        """Draw.

        :param shape: What to draw.
        :param to: Where to.
        """

    schema = bind(draw).input_schema
    assert schema["properties"] == {
        "shape": {
            "type": "object",
            "title": "Shape",
            "description": "What to draw.",
            "properties": {
                "corners": {"type": "array", "items": POINT, "default": []},
                "color": {**COLOR, "default": "red"},
            },
            "additionalProperties": False,
        },
        "to": {"anyOf": [POINT, {"type": "null"}], "default": None, "description": "Where to."},
        "colors": {"type": "array", "items": COLOR, "default": ["red"]},
    }
    assert "$defs" not in schema


def test_a_type_named_like_the_function() -> None:
    class tool_arguments(msgspec.Struct):  # noqa: N801
        n: int

    def tool(a: tool_arguments) -> None: ...

    schema = bind(tool).input_schema
    assert schema["properties"].keys() == {"a"}
    assert schema["properties"]["a"]["properties"] == {"n": {"type": "integer"}}


def test_a_description_of_ones_own_comes_first() -> None:
    Described = Annotated[str, Meta(description="Mine.")]  # noqa: N806

    def tool(
        a: Described,
        b: Described | None = None,
        c: Annotated[Point, Meta(description="Mine.")] | None = None,
        d: Annotated[Described | None, Meta(description="Mine too.")] = None,
        e: Annotated[Annotated[list[str], Meta(description="Mine.")] | None, Meta(max_length=3)] = None,
        f: list[Described | None] = [],  # noqa: B006
    ) -> None:
        """Tool.

        Args:
            a: Theirs.
            b: Theirs.
            c: Theirs.
            d: Theirs.
            e: Theirs.
        """

    properties = bind(tool).input_schema["properties"]
    assert properties["a"]["description"] == "Mine."
    # Where a client looks: at the property, not at its branch beside null.
    optional = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert properties["b"] == {"description": "Mine.", **optional}
    assert properties["c"]["description"] == "Mine."
    assert properties["c"]["anyOf"][0]["description"] == "A point."  # of the type, wherever it is used
    assert properties["d"]["description"] == "Mine too."
    assert properties["e"]["description"] == "Mine."
    assert properties["e"]["anyOf"][0] == {"type": "array", "items": {"type": "string"}, "maxItems": 3}
    assert properties["f"]["items"] == {"description": "Mine.", "anyOf": [{"type": "string"}, {"type": "null"}]}


def test_what_is_said_of_an_optional_member_stands_at_the_member() -> None:
    class Order(msgspec.Struct):
        note: Annotated[str, Meta(description="A note.", max_length=9)] | None = None

    def tool(order: Order) -> Order: ...

    for schema in (bind(tool).input_schema["properties"]["order"], bind(tool).output_schema):
        assert schema is not None
        assert schema["properties"]["note"] == {
            "description": "A note.", "anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}], "default": None,
        }  # fmt: skip


def test_further_arguments() -> None:
    def tool(a: int = 1, **rest: Point) -> None: ...

    schema = bind(tool).input_schema
    assert schema["additionalProperties"] == POINT


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list, {"type": "array", "items": {}}),
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
        (Color, {"type": "string", "enum": ["red", "blue"], "description": "Colours."}),
        (datetime.datetime, {"type": "string"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (decimal.Decimal, {"type": "string"}),
        (
            Point,
            {
                "type": "object",
                "description": "A point.",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
            },
        ),
        (Entry, {"type": "object", "properties": {"n": {"type": "integer"}}}),
        (
            Row,
            {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "description": "Items in this order: n, name",
                "minItems": 1,
                "maxItems": 2,
            },
        ),
        (
            Tree,
            {
                "type": "object",
                "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []}},
                "$defs": {
                    "Tree": {
                        "title": "Tree",
                        "type": "object",
                        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []}},
                    }
                },
            },
        ),
        (str, None),
        (None, None),
        (Any, None),
    ],
)
def test_output(hint: Any, schema: dict[str, Any] | None) -> None:
    def tool():  # type: ignore[no-untyped-def]
        return None

    tool.__annotations__ = {"return": hint}
    assert bind(tool).output_schema == schema


@dataclasses.dataclass
class Everything:
    when: datetime.datetime
    ids: set[uuid.UUID]
    shape: Shape
    tree: Tree
    pair: tuple[int, Row]
    options: dict[Color, Entry]
    data: bytes | None = None


def test_schemas_are_valid_ones() -> None:
    """S25-013, S26-020: JSON Schema 2020-12; judged by a validator that is not ours."""
    jsonschema_rs = pytest.importorskip("jsonschema_rs")

    def tool(all: Everything, more: list[Everything | None] = [], **rest: Everything) -> Everything:  # noqa: B006
        return all

    callee = bind(tool)
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    for schema in (callee.input_schema, callee.output_schema):
        assert schema is not None
        jsonschema_rs.meta.validate({**dialect, **schema})
    value = {
        "when": "2026-01-02T03:04:05Z",
        "ids": ["12345678-1234-5678-1234-567812345678"],
        "shape": {"corners": [{"x": 1}]},
        "tree": {"children": [{"children": []}]},
        "pair": [1, [2, "y"]],
        "options": {"red": {"n": 1}},
        "data": "aGk=",
    }
    arguments = {"all": value, "more": [None, value], "other": value}
    jsonschema_rs.Draft202012Validator(callee.input_schema).validate(arguments)
    result = msgspec.json.decode(msgspec.json.encode(callee.call(msgspec.json.encode(arguments))))
    jsonschema_rs.Draft202012Validator(callee.output_schema).validate(result)
    del arguments["all"]["shape"]
    assert not jsonschema_rs.Draft202012Validator(callee.input_schema).is_valid(arguments)


class Size(enum.Enum):
    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


def test_the_values_of_an_enum_stand_in_the_order_in_which_they_were_written() -> None:
    def tool(size: Size, sizes: list[Size] | None = None) -> list[Size]:
        return [size]

    callee = bind(tool)
    assert callee.input_schema["properties"]["size"]["enum"] == ["small", "medium", "large"]
    assert callee.output_schema is not None
    assert callee.output_schema["items"]["enum"] == ["small", "medium", "large"]
