"""Types msgspec does not know, first with stand-ins, then with pydantic itself."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import os
import pathlib
import types
from typing import Any

import msgspec
import pytest

from mcpd.errors import ArgumentsError
from mcpd.protocol.types.features import TextContent
from mcpd.server.functions.results import to_builtins
from mcpd.server.functions.signature import bind
from mcpd.server.functions.type_hooks import Definitions, dec_hook, enc_hook, output_hook, problem
from mcpd.server.registry.content import resource_contents, tool_result
from mcpd.server.registry.tools import typed_check


class Model:
    """What makes a class a pydantic model to us."""

    def __init__(self, **members: Any) -> None:
        self.members = members

    @classmethod
    def model_validate_json(cls, text: bytes) -> Model:
        return cls(**msgspec.json.decode(text, type=dict[str, int]))

    @classmethod
    def model_json_schema(cls, ref_template: str, mode: str) -> dict[str, Any]:
        return {"type": "object", "title": mode}

    def model_dump(self, mode: str, by_alias: bool) -> Any:
        return {"members": self.members, "mode": mode, "by_alias": by_alias}


class Broken(Model):
    @classmethod
    def model_json_schema(cls, ref_template: str, mode: str) -> dict[str, Any]:
        raise RuntimeError("no schema")


class Silent(Broken):
    @classmethod
    def model_construct(cls) -> Silent:
        return cls()


def test_a_model_comes_in_and_goes_out() -> None:
    def tool(model: Model, models: list[Model] = []) -> Model:  # noqa: B006
        return model

    callee = bind(tool)
    assert callee.call(b'{"model":{"a":1}}').members == {"a": 1}
    assert callee.call(b'{"model":{"a":1},"models":[{"b":2}]}').members == {"a": 1}
    with pytest.raises(ArgumentsError, match=r"models\[0\]: Expected `int`, got `str`"):
        callee.call(b'{"model":{"a":1},"models":[{"b":"x"}]}')
    open_object = {"type": "object", "additionalProperties": True}
    assert callee.input_schema["properties"]["model"] == {"title": "validation", **open_object}
    assert callee.output_schema == open_object
    assert to_builtins([Model(a=1)]) == [{"members": {"a": 1}, "mode": "json", "by_alias": True}]


def test_a_model_without_a_schema_is_any_object(caplog: pytest.LogCaptureFixture) -> None:
    def tool(model: Broken) -> None: ...

    assert bind(tool).input_schema["properties"]["model"] == {"type": "object", "additionalProperties": True}
    assert "no JSON schema for Broken" in caplog.text


def test_errors_without_a_list_of_them() -> None:
    class Plain(Model):
        @classmethod
        def model_validate_json(cls, text: bytes) -> Model:
            raise ValueError("not like this")

    with pytest.raises(ValueError, match="^not like this$"):
        dec_hook(Plain, {})


def test_paths() -> None:
    def tool(path: pathlib.Path, pure: pathlib.PurePosixPath = pathlib.PurePosixPath("a")) -> Any:  # noqa: B008
        return path, pure

    callee = bind(tool)
    assert callee.call(b'{"path":"x/y"}') == (pathlib.Path("x/y"), pathlib.PurePosixPath("a"))
    with pytest.raises(ArgumentsError, match="path: Expected `str`"):
        callee.call(b'{"path":3}')
    assert callee.input_schema["properties"] == {
        "path": {"type": "string"},
        "pure": {"type": "string", "default": "a"},
    }
    assert msgspec.json.encode({"p": pathlib.Path("x")}, enc_hook=enc_hook) == b'{"p":"x"}'


def test_collections_go_out_as_json_has_them() -> None:
    values = (
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (collections.ChainMap({"a": 1}), {"a": 1}),
        (collections.deque([1, 2]), [1, 2]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        ({"a": 1}.items(), [["a", 1]]),
    )
    for value, expected in values:
        assert msgspec.json.decode(msgspec.json.encode(value, enc_hook=enc_hook)) == expected


class Label(str):
    """A str with a look of its own, as markupsafe's and BeautifulSoup's are."""

    __slots__ = ()

    def __str__(self) -> str:
        return "<label>"


def _derived(kind: type) -> Any:
    return type(f"Own{kind.__name__}", (kind,), {})


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (str, ("hello",)),
        (bytes, (b"\x00\xff",)),
        (bytearray, (b"\x00\xff",)),
        (int, (3,)),
        (float, (1.5,)),
        (decimal.Decimal, ("1.50",)),
        (datetime.datetime, (2026, 1, 2, 3, 4, 5)),
        (datetime.date, (2026, 1, 2)),
        (datetime.time, (3, 4, 5)),
        (datetime.timedelta, (1, 2, 3)),
    ],
)
def test_what_is_derived_from_a_plain_type_is_written_like_it(kind: type, arguments: tuple[Any, ...]) -> None:
    own, plain = _derived(kind)(*arguments), kind(*arguments)
    encoder = msgspec.json.Encoder(enc_hook=enc_hook)
    assert encoder.encode({"a": own}) == encoder.encode({"a": plain})
    assert to_builtins([own]) == to_builtins([plain])
    if kind is not bytearray and kind is not bytes:
        assert encoder.encode({own: 1}) == encoder.encode({plain: 1})


def test_a_str_is_written_as_what_it_holds_not_as_what_it_looks_like() -> None:
    assert to_builtins({"title": Label("hello")}) == {"title": "hello"}
    assert tool_result(Label("hello"), False).content == [TextContent("hello")]
    assert tool_result([Label("hello")], False).content == [TextContent("hello")]
    assert [type(block.text) for block in tool_result([Label("hello")], False).content] == [str]
    assert type(resource_contents(Label("hello"), "x://y", None)[0].text) is str


class Grid:
    """What numpy's arrays and numbers have."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    def tolist(self) -> Any:
        return self if self._plain is None else self._plain


def test_arrays_and_their_numbers_are_written_as_lists_and_numbers() -> None:
    assert to_builtins({"mean": Grid(1.5), "all": Grid([[1, 2], [3, 4]])}) == {"mean": 1.5, "all": [[1, 2], [3, 4]]}
    assert array.array("i", [1, 2]).tolist() == to_builtins(array.array("i", [1, 2]))
    with pytest.raises(TypeError, match="Grid cannot be written as JSON"):
        to_builtins(Grid(None))


def test_what_cannot_go_out_says_what_can() -> None:
    with pytest.raises(TypeError, match="object cannot be written as JSON; use str"):
        enc_hook(object())
    with pytest.raises(NotImplementedError, match="object cannot be read from JSON; use str"):
        dec_hook(object, 1)
    with pytest.raises(NotImplementedError):
        Definitions("validation").hook(object)


def test_a_type_that_names_what_is_not_there() -> None:
    @dataclasses.dataclass
    class Wrong:
        a: Nowhere  # type: ignore[name-defined]  # noqa: F821

    assert problem(Wrong) == "the name 'Nowhere' in its definition is not defined"
    assert problem(list[int]) is None
    assert "at least one item" in str(problem(enum.Enum("Empty", {})))
    assert "PathLike cannot be read" in str(problem(os.PathLike))


def test_a_default_inside_a_type_that_msgspec_cannot_show() -> None:
    """msgspec would fail on it only when the tools are listed."""

    @dataclasses.dataclass
    class Options:
        root: pathlib.Path = pathlib.Path("x")

    assert "Path" in str(problem(Options))


def test_recursive_types_come_to_an_end() -> None:
    assert problem(Tree) is None


class Tree(msgspec.Struct):
    children: list[Tree] = []


# ----------------------------------------------------------------------------------- pydantic


@pytest.fixture
def pydantic() -> Any:
    return pytest.importorskip("pydantic")


def test_pydantic_models_in_arguments(pydantic: Any) -> None:
    class City(pydantic.BaseModel):  # type: ignore[misc]
        model_config = {"strict": True}
        name: str = pydantic.Field(description="As the post writes it.", min_length=2)
        founded: pathlib.Path | None = None
        parts: list[City] = []

    Trip = dataclasses.make_dataclass(  # noqa: N806 - msgspec sees no local names in strings
        "Trip", [("cities", list[City]), ("start", City | None, None)]
    )

    def tool(city: City, trip: Trip | None = None) -> list[City]:
        return [city, *(trip.cities if trip else [])]

    City.model_rebuild(_types_namespace={"City": City})
    callee = bind(tool)
    found = callee.call(b'{"city":{"name":"Bern"},"trip":{"cities":[{"name":"Rome","parts":[{"name":"EUR"}]}]}}')
    assert [city.name for city in found] == ["Bern", "Rome"]
    with pytest.raises(ArgumentsError) as caught:
        callee.call(b'{"city":{"name":"B","parts":[{}]}}')
    assert str(caught.value) == ("city: name: String should have at least 2 characters; parts.0.name: Field required")
    with pytest.raises(ArgumentsError, match=r"^trip\.cities\[0\]: name: Input should be a valid string$"):
        callee.call(b'{"city":{"name":"Bern"},"trip":{"cities":[{"name":3}]}}')
    schema = callee.input_schema
    assert schema["properties"]["city"] == {"$ref": "#/$defs/City"}
    assert schema["$defs"].keys() == {"City"}
    assert schema["properties"]["trip"]["anyOf"][0]["properties"]["cities"]["items"] == {"$ref": "#/$defs/City"}
    assert schema["$defs"]["City"]["properties"]["parts"]["items"] == {"$ref": "#/$defs/City"}
    assert callee.output_schema is not None
    assert callee.output_schema["items"] == {"$ref": "#/$defs/City"}
    assert to_builtins(found)[0] == {"name": "Bern", "founded": None, "parts": []}
    _is_valid(schema, {"city": {"name": "Bern"}, "trip": {"cities": []}})


def test_pydantic_models_of_one_name(pydantic: Any) -> None:
    first = pydantic.create_model("Item", a=(int, ...))
    second = pydantic.create_model("Item", b=(str, ...), inner=(pydantic.create_model("Part", c=(int, 1)), ...))
    third = msgspec.defstruct("Item", [("z", int)])
    second.__module__ = "other"

    def tool(one, two, three):  # type: ignore[no-untyped-def]
        return one, two, three

    tool.__annotations__ = {"one": first, "two": second, "three": third}
    schema = bind(tool).input_schema
    assert "$defs" not in schema
    members = [set(schema["properties"][name]["properties"]) for name in ("one", "two", "three")]
    assert members == [{"a"}, {"b", "inner"}, {"z"}]
    valid = {"one": {"a": 1}, "two": {"b": "x", "inner": {}}, "three": {"z": 1}}
    _is_valid(schema, valid)
    assert bind(tool).call(msgspec.json.encode(valid))[1].inner.c == 1


def test_pydantic_models_of_one_name_and_no_other(pydantic: Any) -> None:
    first, second = pydantic.create_model("Item", a=(int, ...)), pydantic.create_model("Item", b=(str, ...))
    second.__module__ = "other"

    def tool(one, two, again):  # type: ignore[no-untyped-def]
        return one, two, again

    tool.__annotations__ = {"one": first, "two": second, "again": list[first]}
    schema = bind(tool).input_schema
    assert "$defs" not in schema
    assert schema["properties"]["again"]["items"] == schema["properties"]["one"]
    _is_valid(schema, {"one": {"a": 1}, "two": {"b": "x"}, "again": [{"a": 1}]})


def test_pydantic_defaults_and_aliases(pydantic: Any) -> None:
    class Options(pydantic.BaseModel):  # type: ignore[misc]
        page_size: int = pydantic.Field(10, alias="pageSize")

    def tool(options: Options = Options(pageSize=3)) -> Options:  # noqa: B008
        return options

    callee = bind(tool)
    assert callee.input_schema["properties"]["options"]["default"] == {"pageSize": 3}
    assert callee.call(b'{"options":{"pageSize":"7"}}').page_size == 7
    assert callee.output_schema is not None
    assert to_builtins(callee.call(b"{}")) == {"pageSize": 3}
    assert set(callee.output_schema["properties"]) == {"pageSize"}


def test_a_pydantic_model_that_writes_itself_otherwise_than_it_reads_itself(pydantic: Any) -> None:
    """What goes out is checked against what the output schema requires, not by reading it as input."""

    class Price(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        net: int = pydantic.Field(validation_alias="in", serialization_alias="out")

        @pydantic.computed_field  # type: ignore[prop-decorator]
        @property
        def gross(self) -> int:
            return self.net * 2

    class Plain(pydantic.BaseModel):
        net: int

    check = typed_check(list[Price])
    assert check is not None
    assert check(to_builtins([Price(**{"in": 3})])) == []
    assert check([{"out": 3}]) == ["missing: gross"]
    assert check([3]) == ["missing: out, gross"]
    check = typed_check(Plain)
    assert check is not None
    assert check(to_builtins(Plain(net=3))) == []
    assert check({"net": "many"}) != []


def test_a_model_without_an_output_schema_may_write_anything() -> None:
    assert isinstance(output_hook(Silent, {"a": 1}), Silent)


def test_pydantic_field_beside_a_type(pydantic: Any) -> None:
    from typing import Annotated

    def tool(days: Annotated[int, pydantic.Field(ge=1, le=14, description="Days ahead.")] = 3) -> int:
        return days

    assert bind(tool).input_schema["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 14,
        "description": "Days ahead.",
        "default": 3,
    }
    with pytest.raises(ArgumentsError, match="days: Expected `int` <= 14"):
        bind(tool).call(b'{"days":15}')


def test_pydantic_dataclasses_are_read_by_pydantic(pydantic: Any) -> None:
    from pydantic.dataclasses import dataclass

    @dataclass
    class Span:
        start: int
        days: int = pydantic.Field(default=7, ge=1, description="How long.")

        @pydantic.field_validator("start")
        @classmethod
        def _is_even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("must be even")
            return value

    def tool(span, spans, maybe=None, default=Span(2)):  # type: ignore[no-untyped-def]  # noqa: B008
        return [span, *spans, maybe, default]

    tool.__annotations__ = {"span": Span, "spans": list[Span], "maybe": Span | None, "default": Span}
    callee = bind(tool)
    found = callee.call(b'{"span":{"start":2},"spans":[{"start":"4","days":1}],"maybe":{"start":6}}')
    assert found == [Span(2), Span(4, 1), Span(6), Span(2)]
    assert all(type(span) is Span for span in found)
    for wrong, said in (
        (b'{"span":{"start":1},"spans":[]}', "span: start: .*must be even"),
        (b'{"span":{"start":2,"days":0},"spans":[]}', "span: days: .*greater than or equal to 1"),
        (b'{"span":{"start":2},"spans":[{"start":3}]}', r"spans: 0.start: .*must be even"),
        (b'{"span":{"start":2},"spans":[],"maybe":{"start":3}}', "maybe: start: .*must be even"),
    ):
        with pytest.raises(ArgumentsError, match=said):
            callee.call(wrong)
    schema = callee.input_schema
    assert schema["properties"]["span"]["properties"]["days"]["minimum"] == 1
    assert schema["properties"]["default"]["default"] == {"start": 2, "days": 7}
    _is_valid(schema, {"span": {"start": 2}, "spans": [{"start": 2}]})


def test_attrs_classes() -> None:
    attrs = pytest.importorskip("attrs")

    @attrs.define
    class Point:
        x: int
        y: int = attrs.field(default=0, validator=attrs.validators.ge(0))

    def tool(point: Point) -> Point:
        return point

    callee = bind(tool)
    assert callee.call(b'{"point":{"x":"1"}}') == Point(1)
    with pytest.raises(ArgumentsError, match="point: 'y' must be >= 0"):
        callee.call(b'{"point":{"x":1,"y":-1}}')
    assert callee.output_schema is not None
    assert set(callee.output_schema["properties"]) == {"x", "y"}
    assert to_builtins(Point(1)) == {"x": 1, "y": 0}


def _is_valid(schema: dict[str, Any], value: Any) -> None:
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    jsonschema_rs.Draft202012Validator(schema).validate(value)
