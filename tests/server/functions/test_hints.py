"""Annotations of pydantic's and annotated-types', unions that msgspec cannot read, and defaults given by `Field`."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NewType

import annotated_types
import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st
from msgspec import Meta
from pydantic import Field

import mcpd.server.functions.hints
from mcpd.errors import ArgumentsError, RegistrationError
from mcpd.protocol.types.features import CallToolResult
from mcpd.server.functions.hints import readable
from mcpd.server.functions.results import to_builtins
from mcpd.server.functions.signature import Callee, bind
from mcpd.server.functions.type_hooks import StandIn
from mcpd.server.registry.content import encode_data, is_content
from mcpd.server.registry.tools import typed_check


def taking(hint: Any, *default: Any) -> Callee:
    """A function that gives back its parameter `x`."""

    def tool(x):  # type: ignore[no-untyped-def]
        return x

    tool.__annotations__ = {"x": hint, "return": hint}
    tool.__defaults__ = default
    return bind(tool)


def given_to(callee: Callee, value: Any) -> Any:
    return callee.call(msgspec.json.encode({"x": value}))


def as_json(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def refusal(callee: Callee, value: Any) -> str:
    with pytest.raises(ArgumentsError) as caught:
        given_to(callee, value)
    return str(caught.value)


def shown(callee: Callee) -> dict[str, Any]:
    found: dict[str, Any] = callee.input_schema["properties"]["x"]
    return found


def is_read_by_pydantic(callee: Callee) -> bool:
    return isinstance(callee.arguments.__annotations__["x"], StandIn)


# -- limits and texts at any depth, in msgspec's words -----------------------------------------


POSITIVE = Annotated[int, Field(ge=1)]


@pytest.mark.parametrize(
    ("hint", "wrong", "right"),
    [
        (list[POSITIVE], [0], [1]),
        (POSITIVE | None, 0, None),
        (dict[str, POSITIVE], {"a": 0}, {"a": 1}),
        (tuple[POSITIVE, str], [0, "a"], [1, "a"]),
        (tuple[POSITIVE, ...], [1, 0], [1, 1]),
        (list[dict[str, POSITIVE | None]], [{"a": 0}], [{"a": None}]),
        (list[NewType("Count", POSITIVE)], [0], [1]),
        (Annotated[list[str] | None, Field(max_length=2)], ["a", "b", "c"], None),
        (Annotated[int | None, Field(ge=1)], 0, None),
        (Annotated[int | None, Meta(ge=1)], 0, None),
        (list[Annotated[int | None, Meta(ge=1)]], [0], [None]),
        (Annotated[int | list[int], Field(ge=1, max_length=2)], [1, 2, 3], [0, 0]),
        (Annotated[int | list[int], Field(ge=1, max_length=2)], 0, 1),
        (Annotated[datetime.datetime | None, Meta(tz=True)], "2026-01-01T00:00:00", None),
        (list[Annotated[int, annotated_types.Interval(ge=1, lt=3)]], [3], [2]),
        (list[Annotated[str, annotated_types.Len(1, 2)]], ["abc"], ["ab"]),
        (pydantic.PositiveInt, 0, 1),
        (list[pydantic.conint(ge=2)], [1], [2]),  # type: ignore[misc]
    ],
)
def test_limits_at_any_depth_are_enforced_and_shown(hint: Any, wrong: Any, right: Any) -> None:
    callee = taking(hint)
    assert not is_read_by_pydantic(callee)
    assert as_json(given_to(callee, right)) == right
    assert refusal(callee, wrong).startswith("x")
    _agrees(callee, wrong, right)


def test_a_union_keeps_its_description_at_the_property_and_null_once() -> None:
    expected = {"description": "D", "anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert shown(taking(Annotated[int | None, Meta(description="D")])) == expected
    for hint in (
        Annotated[int | None, Meta(description="D")],
        Annotated[int, Meta(description="D")],
        Annotated[int | None, Field(description="D")],
        Annotated[int, "D"],
    ):
        assert shown(taking(hint, None)) == {**expected, "default": None}
    limited = taking(Annotated[int | None, Meta(ge=1, description="D")], None)
    assert shown(limited)["anyOf"] == [{"type": "integer", "minimum": 1}, {"type": "null"}]
    assert shown(limited)["description"] == "D"
    assert "required" not in limited.input_schema


def test_a_limit_that_fits_no_member_is_refused() -> None:
    with pytest.raises(RegistrationError, match="parameter 'x': max_length fits no member of int | None"):
        taking(Annotated[int | None, Meta(max_length=1)])


def test_texts_of_a_field() -> None:
    callee = taking(
        Annotated[str, Field(title="T", description="D", examples=["a"], json_schema_extra={"x-a": 1}, deprecated=True)]
    )
    assert shown(callee) == {
        "type": "string",
        "title": "T",
        "description": "D",
        "examples": ["a"],
        "x-a": 1,
        "deprecated": True,
    }


@given(
    low=st.integers(-5, 5),
    size=st.integers(0, 3),
    depth=st.lists(st.sampled_from(["list", "dict", "tuple", "optional"]), max_size=3),
    value=st.integers(-9, 9),
    kind=st.sampled_from(["field", "meta", "annotated_types"]),
)
def test_a_limit_is_kept_wherever_it_stands(low: int, size: int, depth: list[str], value: int, kind: str) -> None:
    high = low + size
    items = {
        "field": (Field(ge=low, le=high),),
        "meta": (Meta(ge=low, le=high),),
        "annotated_types": (annotated_types.Ge(low), annotated_types.Le(high)),
    }[kind]
    hint: Any = Annotated[(int, *items)]
    argument: Any = value
    for step in depth:
        hint, argument = {
            "list": (list[hint], [argument]),
            "dict": (dict[str, hint], {"k": argument}),
            "tuple": (tuple[str, hint], ["s", argument]),
            "optional": (hint | None, argument),
        }[step]
    callee = taking(hint)
    if low <= value <= high:
        assert as_json(given_to(callee, argument)) == argument
    else:
        assert "Expected `int`" in refusal(callee, argument)
    assert f'"minimum":{low}' in json.dumps(callee.input_schema, separators=(",", ":"))


# -- what only pydantic can read ---------------------------------------------------------------


def _upper(value: str) -> str:
    return value.upper()


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


@pytest.mark.parametrize(
    ("hint", "wrong", "value", "expected", "says"),
    [
        (Annotated[str, pydantic.AfterValidator(_upper)], 3, "a", "A", "valid string"),
        (Annotated[str, pydantic.BeforeValidator(str)], [], 3, "3", ""),
        (Annotated[int, pydantic.PlainValidator(int)], "x", "3", 3, "invalid literal"),
        (list[Annotated[int, pydantic.AfterValidator(_even)]], [2, 3], [2, "4"], [2, 4], "x: 1: Value error, must be"),
        (
            Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=2)],
            " a ",
            " ab ",
            "ab",
            "2 char",
        ),
        (pydantic.constr(pattern="^a"), "b", "ab", "ab", "pattern"),
        (pydantic.SecretStr, 3, "s", pydantic.SecretStr("s"), "valid string"),
        (pydantic.HttpUrl, "x", "http://a.b/c", pydantic.HttpUrl("http://a.b/c"), "valid URL"),
        (pydantic.Json[list[int]], "x", "[1]", [1], "Invalid JSON"),
        (Annotated[decimal.Decimal, Field(ge=1)], "0.5", "1.5", decimal.Decimal("1.5"), "greater than or equal"),
        (
            Annotated[datetime.date, annotated_types.Ge(datetime.date(2020, 1, 1))],
            "2019-01-01",
            "2020-01-02",
            datetime.date(2020, 1, 2),
            "greater than or equal",
        ),
        (Annotated[int, annotated_types.Predicate(lambda value: value > 2)], 1, 3, 3, "Predicate"),
        (ipaddress.IPv4Address, "x", "1.2.3.4", ipaddress.IPv4Address("1.2.3.4"), "valid IPv4"),
        (Annotated[Any, pydantic.AfterValidator(_even)], 3, 4, 4, "must be even"),
    ],
)
def test_what_only_pydantic_reads(hint: Any, wrong: Any, value: Any, expected: Any, says: str) -> None:
    callee = taking(hint)
    assert is_read_by_pydantic(callee)
    if says:
        assert says in refusal(callee, wrong)
    found = bind(_holder(hint)).call(msgspec.json.encode({"x": value}))
    assert found == [expected]
    assert "$mcpd" not in json.dumps(callee.input_schema)
    assert "$mcpd" not in json.dumps(callee.output_schema)


def _holder(hint: Any) -> Callable[..., Any]:
    """A function whose result shows what its parameter was, whatever pydantic would write for it."""

    def tool(x):  # type: ignore[no-untyped-def]
        return [x]

    tool.__annotations__ = {"x": hint}
    return tool


def test_the_description_of_what_pydantic_reads_stands_at_the_property() -> None:
    hint = Annotated[str, Field(description="D"), pydantic.AfterValidator(_upper)]
    assert shown(taking(hint)) == {"description": "D", "type": "string"}
    callee = taking(hint, None)
    assert shown(callee) == {"description": "D", "anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert given_to(callee, None) is None
    mixed = Annotated[list[Annotated[str, "A word."]], Meta(max_length=1), pydantic.AfterValidator(sorted)]
    assert shown(taking(mixed)) == {
        "type": "array",
        "items": {"type": "string", "description": "A word."},
        "maxItems": 1,
    }
    assert "at most 1 item" in refusal(taking(mixed), ["a", "b"])


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: str = Field(alias="dogName")


@dataclasses.dataclass
class Circle:
    radius: float
    label: str = "c"


@dataclasses.dataclass
class Square:
    side: float


class Mixed(enum.Enum):
    ONE = 1
    B = "b"


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        (Circle | Square, [({"radius": 1.0}, Circle(1.0)), ({"side": 2.0}, Square(2.0))]),
        (
            Annotated[Cat | Dog, Field(discriminator="kind")],
            [({"kind": "cat"}, Cat(kind="cat")), ({"kind": "dog", "dogName": "r"}, Dog(kind="dog", dogName="r"))],
        ),
        (Cat | str, [({"kind": "cat"}, Cat(kind="cat")), ("x", "x")]),
        (str | pathlib.Path, [("x", "x")]),
        (datetime.datetime | str, [("now", "now")]),
        (list[int] | list[str], [([1], [1]), (["a"], ["a"])]),
        (dict[str, list[Circle | Square]], [({"a": [{"side": 1.0}]}, {"a": [Square(1.0)]})]),
        (Mixed, [(1, Mixed.ONE), ("b", Mixed.B)]),
    ],
)
def test_unions_that_msgspec_cannot_tell_apart(hint: Any, values: list[tuple[Any, Any]]) -> None:
    callee = taking(hint)
    assert is_read_by_pydantic(callee)
    for value, expected in values:
        assert bind(_holder(hint)).call(msgspec.json.encode({"x": value})) == [expected]
        _is_valid(callee.input_schema, {"x": value})
        if callee.output_schema is not None:
            _is_valid(callee.output_schema, to_builtins(given_to(callee, value)))
    assert refusal(callee, {"no": "such"}).startswith("x: ")


def test_results_are_written_as_pydantic_writes_them() -> None:
    assert given_to(taking(Circle | Square), {"radius": 1}) == {"radius": 1.0, "label": "c"}
    assert given_to(taking(Cat | Dog), {"kind": "dog", "dogName": "r"}) == {"kind": "dog", "dogName": "r"}
    secret = taking(pydantic.SecretStr)
    assert given_to(secret, "s") == "**********"

    written = Annotated[float, pydantic.PlainSerializer(lambda value: f"{value:.1f}", return_type=str)]

    def tool() -> list[written]:  # type: ignore[valid-type]
        return [1.25]

    callee = bind(tool)
    assert callee.output_schema == {"type": "array", "items": {"type": "string"}}
    assert callee.call(b"{}") == ["1.2"]


async def test_results_of_coroutine_functions_are_written_by_pydantic_too() -> None:
    async def tool(ok: bool) -> Circle | Square:
        return Circle(1.0) if ok else "neither"  # type: ignore[return-value]

    callee = bind(tool)
    assert await callee.call(b'{"ok":true}') == {"radius": 1.0, "label": "c"}
    found = await callee.call(b'{"ok":false}')
    check = typed_check(callee.output_type)
    assert check is not None
    assert "Circle" in check(found)[0]
    assert check({"side": 1.0}) == []


def test_values_of_pydantic_types_inside_others_are_written_by_pydantic() -> None:
    assert to_builtins([pydantic.HttpUrl("http://a.b/"), pydantic.SecretStr("x")]) == ["http://a.b/", "**********"]


def test_without_pydantic_the_error_says_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcpd.server.functions.hints, "is_pydantic_here", lambda: False)
    for hint, texts in (
        (Circle | Square, ["cannot be told apart", "two parameters", "pip install pydantic"]),
        (str | pathlib.Path, ["cannot be told apart", "pip install pydantic"]),
        (Annotated[int, annotated_types.Predicate(bool)], ["Predicate", "pip install pydantic"]),
        (ipaddress.IPv4Address, ["IPv4Address cannot be read from JSON"]),
    ):
        with pytest.raises(RegistrationError) as caught:
            taking(hint)
        for text in texts:
            assert text in str(caught.value), hint
        assert "dataclass" not in str(caught.value).partition(";")[0]
    assert bind(lambda: None).output_type is None


class Left(msgspec.Struct):
    a: int


class Right(msgspec.Struct):
    b: int


class Limited(msgspec.Struct):
    a: Annotated[int, Field(ge=1)]


def test_structs_in_a_union_need_tags() -> None:
    with pytest.raises(
        RegistrationError, match=r"Left \| .*Right cannot be told apart in JSON; give each Struct a tag"
    ):
        taking(Left | Right)


def test_limits_in_a_struct_that_it_would_not_enforce_are_refused() -> None:
    with pytest.raises(
        RegistrationError, match=r"FieldInfo in Annotated in Limited.a \(write msgspec.Meta in a Struct"
    ):
        taking(list[Limited])


def test_what_pydantic_refuses_is_told() -> None:
    with pytest.raises(RegistrationError, match="parameter 'x': .*pydantic cannot read"):
        taking(Annotated[Callable[[int], int], pydantic.AfterValidator(_upper)])


@dataclasses.dataclass
class Order:
    count: Annotated[int, Field(ge=1, description="How many.")]
    note: str = Field(default="none", max_length=5)


def test_dataclasses_with_fields_of_pydantic() -> None:
    callee = taking(list[Order])
    assert is_read_by_pydantic(callee)
    assert bind(_holder(list[Order])).call(b'{"x":[{"count":2}]}') == [[Order(2, "none")]]
    assert "greater than or equal to 1" in refusal(callee, [{"count": 0}])
    assert "at most 5" in refusal(callee, [{"count": 1, "note": "longer"}])
    assert '"description": "How many."' in json.dumps(callee.input_schema)


@pytest.mark.medium
def test_pydantic_is_imported_only_for_what_needs_it() -> None:
    import subprocess

    program = (
        "import sys, dataclasses\n"
        "from mcpd.server.functions.signature import bind\n"
        "@dataclasses.dataclass\nclass A: a: int\n"
        "@dataclasses.dataclass\nclass B: b: int\n"
        "def plain(a: A, b: int | None = None, c: list[str] = []) -> dict[str, A]: ...\n"
        "def union(x: int) -> A | B: ...\n"
        "callee = bind(plain); callee.input_schema; callee.output_schema\n"
        "assert 'pydantic' not in sys.modules\n"
        "bind(union)\n"
        "assert 'pydantic' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


# -- defaults by Field -------------------------------------------------------------------------


# ruff: noqa: B008 - that is how it is written


def test_field_as_a_default() -> None:
    def tool(
        city: str = Field(description="Where.", min_length=2),
        days: int = Field(3, ge=1, le=14, description="How long."),
        tags: list[str] = Field(default_factory=list, examples=[["a"]]),
        unit: str | None = Field(default=None, title="Unit"),
        must: int = Field(...),
        shape: Circle | Square = Field(description="A shape."),
        word: str = Field("a", pattern="^a", json_schema_extra={"x-a": 1}),
        *,
        mail: str = Field("", alias="e-mail"),
    ) -> Any:
        return [city, days, tags, unit, must, shape, word, mail]

    callee = bind(tool)
    properties = callee.input_schema["properties"]
    assert callee.input_schema["required"] == ["city", "must", "shape"]
    assert properties["city"] == {"type": "string", "description": "Where.", "minLength": 2}
    days = {"type": "integer", "minimum": 1, "maximum": 14, "description": "How long.", "default": 3}
    assert properties["days"] == days
    assert (properties["tags"]["default"], properties["tags"]["examples"]) == ([], [["a"]])
    assert (properties["unit"]["default"], properties["unit"]["title"]) == (None, "Unit")
    assert properties["shape"]["description"] == "A shape."
    assert (properties["word"]["pattern"], properties["word"]["x-a"]) == ("^a", 1)
    assert "e-mail" in properties
    assert "mail" not in properties
    given = {"city": "Bern", "must": 1, "shape": {"side": 1}}
    assert callee.call(msgspec.json.encode(given)) == ["Bern", 3, [], None, 1, Square(1.0), "a", ""]
    found = callee.call(msgspec.json.encode({**given, "e-mail": "m", "days": "4"}))
    assert (found[1], found[-1]) == (4, "m")
    one, other = (callee.call(msgspec.json.encode(given))[2] for _ in range(2))
    assert one is not other
    with pytest.raises(ArgumentsError) as caught:
        callee.call(b'{"city":"B","must":1,"shape":{"side":1},"days":0,"mail":"x"}')
    lines = str(caught.value).splitlines()
    assert lines[:2] == ["city: Expected `str` of length >= 2", "days: Expected `int` >= 1"]
    assert lines[2].startswith("mail: Unknown argument; there are: city, days")
    assert callee.parameters[-1] == "e-mail"


def test_field_in_annotated_with_a_default_or_an_alias() -> None:
    assert taking(Annotated[int, Field(default=7)]).call(b"{}") == 7
    assert taking(Annotated[int, Field(default=7)], 8).call(b"{}") == 8
    assert taking(Annotated[int, Field(default_factory=lambda: 9)]).call(b"{}") == 9
    callee = taking(Annotated[int, Field(alias="y")])
    assert callee.call(b'{"y":1}') == 1
    assert list(callee.input_schema["properties"]) == ["y"]
    with pytest.raises(ArgumentsError, match="y: Missing, but required\nx: Unknown argument"):
        callee.call(b'{"x":1}')
    unannotated = taking(Any, Field(description="D"))
    assert shown(unannotated) == {"description": "D"}


def test_what_a_field_says_that_cannot_be_is_refused() -> None:
    def two(a: int, b: int = Field(alias="a")) -> None: ...

    with pytest.raises(RegistrationError, match="must be one name"):
        taking(Annotated[int, Field(validation_alias=pydantic.AliasChoices("a", "b"))])
    with pytest.raises(RegistrationError, match="without parameters"):
        taking(Annotated[int, Field(default_factory=lambda data: data["a"])])
    with pytest.raises(RegistrationError, match="function 'two'"):
        bind(two)


def test_null_means_the_default_where_it_is_no_value_itself() -> None:
    def tool(
        a: int = 3,
        b: str | None = "b",
        c: Any = 1,
        d: Circle | Square = Circle(1.0),
        e: int = Field(5),
        *,
        f: bool = True,
    ) -> Any:
        return [a, b, c, d, e, f]

    callee = bind(tool)
    assert callee.call(b'{"a":null,"b":null,"c":null,"d":null,"e":null,"f":null}') == [
        3, None, None, Circle(1.0), 5, True,
    ]  # fmt: skip
    assert callee.call_strings({"a": "4"}) == [4, "b", 1, Circle(1.0), 5, True]
    assert "a: Expected `int`, got `null`" in refusal(taking(int), None).replace("x:", "a:")

    def more(a: int = 1, **rest: int | None) -> Any:
        return a, rest

    assert bind(more).call(b'{"a":null,"z":null}') == (1, {"z": None})


# -- dataclasses keep their defaults -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Table:
    number: int
    seats: int = 4
    name: str = "t"


@dataclasses.dataclass
class Room:
    tables: list[Table]
    best: Table | None = None
    by_name: dict[str, Table] = dataclasses.field(default_factory=dict)
    size: int = 7


class Floor(msgspec.Struct):
    rooms: tuple[Room, ...]


def test_dataclasses_keep_their_defaults() -> None:
    callee = taking(Table)
    found = given_to(callee, {"number": 4})
    assert to_builtins(found) == {"number": 4, "seats": 4, "name": "t"}
    assert vars(found) == {"number": 4, "seats": 4, "name": "t"}
    assert to_builtins(callee.call(b'{"x":{"number":"4"}}')) == {"number": 4, "seats": 4, "name": "t"}
    room = {"tables": [{"number": 1}], "best": {"number": 2, "seats": 1}, "by_name": {"a": {"number": 3}}}
    full = {
        "tables": [{"number": 1, "seats": 4, "name": "t"}],
        "best": {"number": 2, "seats": 1, "name": "t"},
        "by_name": {"a": {"number": 3, "seats": 4, "name": "t"}},
        "size": 7,
    }
    assert to_builtins(given_to(taking(Room), room)) == full
    assert as_json(given_to(taking(Floor), {"rooms": [room]})) == {"rooms": [full]}

    def more(**rooms: Room) -> Any:
        return rooms

    assert to_builtins(bind(more).call(msgspec.json.encode({"a": room}))) == {"a": full}


def test_only_functions_with_such_dataclasses_pay_for_that() -> None:
    decoder = type(msgspec.json.Decoder(int).decode)

    def plain(a: int, b: list[str] = [], c: Left | None = None, d: Square | None = None) -> None: ...  # noqa: B006

    assert type(bind(plain)._decode) is decoder
    assert type(taking(Annotated[int, Field(ge=1)], 3)._decode) is decoder
    assert type(taking(Table)._decode) is not decoder


def _agrees(callee: Callee, wrong: Any, right: Any) -> None:
    import jsonschema_rs

    _is_valid(callee.input_schema, {"x": right})
    if not isinstance(wrong, str):
        assert not jsonschema_rs.Draft202012Validator(callee.input_schema).is_valid({"x": wrong})


def _is_valid(schema: dict[str, Any], value: Any) -> None:
    import jsonschema_rs

    jsonschema_rs.Draft202012Validator(schema).validate(value)


def test_readable_leaves_plain_hints_alone() -> None:
    for hint in (int, list[int], Table, dict[str, Left], int | None):
        assert readable(hint, "") is hint


# -- classes -----------------------------------------------------------------------------------


class Described(msgspec.Struct):
    a: Annotated[int, "The first."]
    b: Annotated[str, Field(description="The second.", title="B", examples=["x"])] = ""


class Profile:
    """A class as the official SDK takes it for a result."""

    name: str
    age: int | None
    _hidden: int = 1
    kinds: ClassVar[int] = 2

    def __init__(self, name: str, age: int | None = None) -> None:
        self.name = name
        self.age = age


class Opaque:
    def __init__(self) -> None:
        self.name = "x"


def test_texts_beside_the_fields_of_classes_are_shown() -> None:
    schema = taking(Described).input_schema["properties"]["x"]["properties"]
    assert schema["a"] == {"type": "integer", "description": "The first."}
    assert schema["b"] == {
        "type": "string", "title": "B", "description": "The second.", "examples": ["x"], "default": "",
    }  # fmt: skip


def test_a_class_with_annotated_attributes_is_a_result() -> None:
    def tool() -> Profile: ...  # type: ignore[empty-body]
    def other() -> Opaque: ...  # type: ignore[empty-body]

    callee = bind(tool)
    assert callee.output_schema is not None
    assert sorted(callee.output_schema["required"]) == ["age", "name"]
    assert to_builtins(Profile("a")) == {"name": "a", "age": None}
    _is_valid(callee.output_schema, to_builtins(Profile("a")))
    check = typed_check(callee.output_type)
    assert check is not None
    assert check(to_builtins(Profile("a"))) == []
    assert bind(other).output_schema is None
    with pytest.raises(TypeError, match="Opaque cannot be written"):
        to_builtins(Opaque())
    with pytest.raises(RegistrationError, match="Profile cannot be read"):
        taking(Profile)


def test_a_result_made_by_hand_may_name_the_class_of_its_data() -> None:
    def tool() -> Annotated[CallToolResult, Cat]:
        return CallToolResult(content=[], structured_content={"kind": "cat"})

    callee = bind(tool, is_content=is_content)
    assert callee.output_type is Cat
    assert callee.output_schema is not None
    assert callee.output_schema["properties"]["kind"] == {"type": "string", "enum": ["cat"]}


def test_a_model_that_is_not_written_by_alias() -> None:
    class Bed(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(serialize_by_alias=False, populate_by_name=True)
        ident: str = Field(alias="_id")

    def find() -> Bed:
        return Bed(_id="3")

    schema = bind(find).output_schema
    assert schema is not None
    assert list(schema["properties"]) == ["ident"]
    assert to_builtins(find()) == {"ident": "3"}


def test_keys_that_json_writes_as_words() -> None:
    assert encode_data({None: 1, True: 2, False: 3}) == b'{"null":1,"true":2,"false":3}'
