"""Forms by themselves: what becomes of types, and of values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field as dataclass_field
from datetime import date
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given, strategies as st
from msgspec import Meta, Struct, ValidationError
from pydantic import BaseModel, ConfigDict, Field, field_validator
from support.wire_schema import validate_definition

from mcpd.errors import LocalProtocolError
from mcpd.server.context.forms import check_values, choices, form_schema, read_form


class Size(enum.Enum):
    """How large."""

    SMALL = "s"
    LARGE = "l"
    MEDIUM = "m"


class Every(Struct, kw_only=True):
    text: Annotated[
        str,
        Meta(title="Text", description="Words", min_length=2, max_length=5, extra_json_schema={"format": "email"}),
    ]
    whole: Annotated[int, Meta(ge=1, le=9)]
    real: float
    flag: bool
    size: Size
    maybe: int | None = None
    maybe_size: Size | None = None
    sizes: Annotated[list[Size], Meta(min_length=1, max_length=2)]
    colors: list[Annotated[str, choices({"r": "Red"})]]
    pattern: Annotated[str, Meta(pattern="^a", extra_json_schema={"format": "regex"})] = "a"


def test_every_kind_of_field(shared: Any) -> None:
    schema, kind = form_schema(Every)
    assert kind is Every
    assert schema == {
        "type": "object",
        "properties": {
            "text": {
                "type": "string", "title": "Text", "description": "Words", "minLength": 2, "maxLength": 5,
                "format": "email",
            },
            "whole": {"type": "integer", "minimum": 1, "maximum": 9},
            "real": {"type": "number"},
            "flag": {"type": "boolean"},
            "size": {"type": "string", "description": "How large.", "enum": ["s", "l", "m"]},
            "maybe": {"type": "integer"},
            "maybe_size": {"type": "string", "description": "How large.", "enum": ["s", "l", "m"]},
            "sizes": {
                "type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["s", "l", "m"]},
            },
            "colors": {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}]}},
            "pattern": {"type": "string", "default": "a"},
        },
        "required": ["text", "whole", "real", "flag", "size", "sizes", "colors"],
    }  # fmt: skip
    for version in ("2025-11-25", "2026-07-28"):
        name = "ElicitRequestFormParams"
        validate_definition(version, name, {"mode": "form", "message": "", "requestedSchema": schema})


@dataclass
class Defaults:
    sizes: list[Size] = dataclass_field(default_factory=lambda: [Size.LARGE])
    size: Size = Size.MEDIUM
    n: int = 3


def test_defaults_of_every_kind() -> None:
    schema, _ = form_schema(Defaults)
    assert {name: member["default"] for name, member in schema["properties"].items()} == {
        "sizes": ["l"],
        "size": "m",
        "n": 3,
    }
    assert "required" not in schema


def test_a_schema_as_json_is_brought_to_what_a_form_can_hold() -> None:
    given_schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "x",
        "title": "Form",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "a": {"$ref": "#/$defs/A"},
            "b": {"type": "string", "format": "hostname", "pattern": "x", "examples": ["y"]},
            "c": {"anyOf": [{"type": "number"}, {"type": "null"}], "title": "C", "default": None},
            "d": {"type": "array", "items": {"oneOf": [{"const": "x", "title": "X"}]}},
        },
        "required": ["a"],
        "$defs": {"A": {"title": "A", "type": "integer", "minimum": 0}},
    }
    assert form_schema(given_schema)[0] == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 0},
            "b": {"type": "string"},
            "c": {"type": "number", "title": "C"},
            "d": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}},
        },
        "required": ["a"],
    }


class Inner(Struct):
    x: int


class Outer(Struct):
    inner: Inner


@pytest.mark.parametrize(
    ("form", "named"),
    [
        (bytes, "struct"),
        (dict[str, int], "struct"),
        (list[int], "value"),
        (Outer, "inner"),
        (TypedDict("T", {"union": int | str}), "union"),
        (TypedDict("T", {"numbers": Literal[1, 2]}), "numbers"),
        (TypedDict("T", {"texts": list[str]}), "texts"),
        (TypedDict("T", {"anything": Any}), "anything"),
        (TypedDict("T", {"nested": dict[str, int]}), "nested"),
        (object(), "form"),
    ],
)
def test_what_a_form_cannot_hold_is_named(form: Any, named: str) -> None:
    with pytest.raises(LocalProtocolError, match=named):
        form_schema(form)


SCHEMA = form_schema(Every)[0]
VALUES = {
    "text": "words", "whole": 3, "real": 1, "flag": True, "size": "l", "sizes": ["s", "m"], "colors": ["r"],
}  # fmt: skip


def test_values_become_the_type() -> None:
    assert read_form(VALUES, SCHEMA, Every) == Every(
        text="words",
        whole=3,
        real=1.0,
        flag=True,
        size=Size.LARGE,
        sizes=[Size.SMALL, Size.MEDIUM],
        colors=["r"],
    )
    assert read_form(VALUES, SCHEMA, None) == VALUES
    assert check_values({**VALUES, "whole": 4.0, "unknown": object}, SCHEMA)["whole"] == 4


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("text", "w"), ("text", "too long"), ("text", 5), ("text", None),
        ("whole", 0), ("whole", 10), ("whole", 1.5), ("whole", True), ("whole", "3"),
        ("real", "1"), ("real", True),
        ("flag", 1), ("flag", "true"),
        ("size", "x"), ("size", 1),
        ("sizes", []), ("sizes", ["s", "l", "m"]), ("sizes", ["x"]), ("sizes", "s"), ("sizes", [1]),
        ("colors", ["b"]), ("colors", [None]),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_named(name: str, wrong: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        read_form({**VALUES, name: wrong}, SCHEMA, None)


@pytest.mark.parametrize("name", ["text", "whole", "colors"])
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        read_form({key: value for key, value in VALUES.items() if key != name}, SCHEMA, Every)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(list(SCHEMA["properties"])), JSON))
def test_whatever_comes_is_read_or_refused(content: dict[str, Any]) -> None:
    try:
        read_form(content, SCHEMA, Every)
    except ValidationError:
        pass


# --------------------------------------------------------- what FastMCP and the official SDKs take too


@pytest.mark.parametrize(
    ("form", "member", "value", "read"),
    [
        (str, {"type": "string"}, "a", "a"),
        (int, {"type": "integer"}, 3, 3),
        (float, {"type": "number"}, 2, 2.0),
        (bool, {"type": "boolean"}, False, False),
        (Size, {"type": "string", "description": "How large.", "enum": ["s", "l", "m"]}, "l", Size.LARGE),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}, "a", "a"),
        (Annotated[int, Meta(ge=1)], {"type": "integer", "minimum": 1}, 1, 1),
        (
            Annotated[str, choices({"r": "Red"})],
            {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]},
            "r",
            "r",
        ),
        (list[Literal["b", "a"]], {"type": "array", "items": {"type": "string", "enum": ["b", "a"]}}, ["a"], ["a"]),
    ],
)
def test_one_field_alone(form: Any, member: dict[str, Any], value: Any, read: Any) -> None:
    schema, kind = form_schema(form)
    assert schema == {"type": "object", "properties": {"value": member}, "required": ["value"]}
    found = read_form({"value": value}, schema, kind)
    assert (found, type(found)) == (read, type(read))
    with pytest.raises(ValidationError, match="Expected a value for value"):
        read_form({}, schema, kind)


class Booking(BaseModel):
    model_config = ConfigDict(strict=True)

    name: str = Field(description="Who comes.", min_length=2)
    day: date
    guests: int = Field(2, ge=1, le=9)
    size: Size | None = None

    @field_validator("name")
    @classmethod
    def is_known(cls, name: str) -> str:
        if name == "nobody":
            raise ValueError("nobody comes")
        return name.title()


def test_a_pydantic_model(shared: Any) -> None:
    schema, kind = form_schema(Booking)
    assert schema["required"] == ["name", "day"]
    properties = schema["properties"]
    assert properties["name"] == {"type": "string", "title": "Name", "description": "Who comes.", "minLength": 2}
    assert properties["day"] == {"type": "string", "title": "Day", "format": "date"}
    assert properties["guests"] == {"type": "integer", "title": "Guests", "default": 2, "minimum": 1, "maximum": 9}
    assert properties["size"]["enum"] == ["s", "l", "m"]
    filled = read_form({"name": "ann", "day": "2026-11-22", "size": "l"}, schema, kind)
    assert filled == Booking(name="Ann", day=date(2026, 11, 22), size=Size.LARGE)
    with pytest.raises(ValidationError, match=r"^name: Value error, nobody comes$"):
        read_form({"name": "nobody", "day": "2026-11-22"}, schema, kind)
    with pytest.raises(ValidationError, match="maximum 9 for guests"):
        read_form({"name": "ann", "day": "2026-11-22", "guests": 10}, schema, kind)
