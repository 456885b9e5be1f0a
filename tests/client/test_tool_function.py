"""Tools as functions: names, signatures, annotations and docstrings from schemas, values and errors from results."""

from __future__ import annotations

import inspect
import typing
from typing import Any, Literal

import pytest
from msgspec import Struct

from mcpd import CallToolResult, Client, Server, Tool, ToolError, sync
from mcpd.client.tool_function import AwaitedToolFunction, SchemaTypes, awaited_functions, plain_functions
from mcpd.errors import ConfigurationError
from mcpd.protocol.versions.table import SUPPORTED

each_version = pytest.mark.parametrize("version", SUPPORTED)


class Point(Struct):
    x: float
    y: float = 0
    label: str | None = None


def make_server() -> Server:
    server = Server("s")

    @server.tool
    def draw(
        points: list[Point], colour: Literal["red", "green"] = "red", width: int = 2, note: str | None = None
    ) -> list[Point]:
        """Draw points.

        Args:
            points: What to draw.
            colour: With which pen.
        """
        return points[:width]

    @server.tool(name="make-point")
    def make_point(x: float) -> Point:
        return Point(x)

    @server.tool
    def fails() -> None:
        raise ToolError("no way")

    return server


def functions_of(schema: dict[str, Any], *names: str) -> list[AwaitedToolFunction]:
    """Of tools that give their arguments back."""

    async def call(name: str, arguments: dict[str, Any]) -> CallToolResult:
        return CallToolResult(content=[], structured_content=arguments)

    return awaited_functions([Tool(name=name, input_schema=schema) for name in names], (), call)


async def test_a_function_looks_as_if_somebody_had_written_it() -> None:
    async with Client(make_server()) as client:
        draw, make_point, _ = await client.tool_functions()
    assert inspect.iscoroutinefunction(draw)
    assert (draw.__name__, make_point.__name__, make_point.tool.name) == ("draw", "make_point", "make-point")
    assert draw.__doc__ == "Draw points.\n\nArgs:\n    points: What to draw.\n    colour: With which pen."

    parameters = inspect.signature(draw).parameters
    assert list(parameters) == ["points", "colour", "width", "note"]
    assert [one.default for one in parameters.values()] == [inspect.Parameter.empty, "red", 2, None]
    hints = typing.get_type_hints(draw)
    assert hints["colour"] == Literal["red", "green"]
    assert (hints["width"], hints["note"]) == (int, str | None)
    (point,) = typing.get_args(hints["points"])
    assert (point.__name__, point.__required_keys__, point.__optional_keys__) == ("Point", {"x"}, {"y", "label"})
    assert typing.get_type_hints(point) == {"x": float, "y": float, "label": str | None}
    assert typing.get_origin(hints["return"]) is list
    assert draw.schema["required"] == ["points"]


@each_version
async def test_it_gives_values_and_raises_tool_error(version: str) -> None:
    async with Client(make_server(), version=version) as client:
        draw, make_point, fails = await client.tool_functions()
        points = await draw([{"x": 1}, {"x": 2}], width=1)
        point = await make_point(x=3)
        if version >= "2025-06-18":  # before that there is text alone
            assert points == [{"x": 1.0, "y": 0, "label": None}]
            assert point == {"x": 3.0, "y": 0, "label": None}
        else:
            assert points == '[{"x":1.0,"y":0,"label":null}]'
        with pytest.raises(ToolError, match="no way"):
            await fails()
        with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
            await draw([], size=1)
        with pytest.raises(TypeError, match="missing a required argument: 'points'"):
            await draw()


@each_version
def test_those_of_the_sync_client_are_plain(version: str) -> None:
    with sync.Client(make_server(), version=version) as client:
        draw, fails = client.tool_functions("draw", "fails", timeout=5)
        assert not inspect.iscoroutinefunction(draw)
        assert len(draw([{"x": 1}])) > 0
        with pytest.raises(ToolError, match="no way"):
            fails()
        with pytest.raises(ConfigurationError, match="no tool 'drew'; similar or available tools: draw"):
            client.tool_functions("drew")


async def test_arguments_are_sent_as_the_schema_calls_them() -> None:
    schema = {
        "properties": {
            "late": {"type": "string"},
            "user-id": {"type": "integer"},
            "user_id": {"type": "integer"},
            "class": {"type": ["string", "null"]},
            "self": {"enum": ["a", 1, True, None]},
            "2nd": {"const": 2},
            "free": {},
        },
        "required": ["user-id"],
        "additionalProperties": True,
    }
    (function,) = functions_of(schema, "a b")
    names = ["user_id", "late", "user_id_2", "class_", "self_", "_2nd", "free", "others"]
    assert (function.__name__, list(function.__signature__.parameters)) == ("a_b", names)
    assert function.__annotations__["self_"] == Literal["a", 1, True, None]
    assert await function(1) == {"user-id": 1}
    assert await function(1, late=None, class_=None, self_=None, more=2) == {
        "user-id": 1, "class": None, "self": None, "more": 2,
    }  # fmt: skip
    assert await function(**{"user-id": 3, "2nd": 2}) == {"user-id": 3, "2nd": 2}


def test_names_that_would_be_one_are_told_apart() -> None:
    functions = functions_of({}, "a-b", "a_b", "import", "", "é/ü")
    assert [function.__name__ for function in functions] == ["a_b", "a_b_2", "import_", "_", "é_ü"]


def test_what_is_for_pages_alone_is_no_function_for_a_model() -> None:
    shown = ({"visibility": value} for value in (["app"], ["model"], "app", 3, ["app", "model"]))
    tools = [Tool(name=f"t{number}", input_schema={}, meta={"ui": ui}) for number, ui in enumerate(shown)]
    functions = plain_functions(tools, (), lambda name, arguments: CallToolResult(content=[]))
    assert [function.__name__ for function in functions] == ["t1", "t4"]


def test_schemas_as_types() -> None:
    def read(schema: Any) -> Any:
        root = schema if isinstance(schema, dict) else {}
        return SchemaTypes(root).of(schema, "thing")

    assert read({"type": "string"}) is str
    assert read({"type": ["integer", "null"]}) == int | None
    assert read({"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]}) == float | bool | None
    assert read({"oneOf": [{"type": "string"}, {}]}) is Any
    assert read({"type": "array"}) == list[Any]
    assert read({"type": "array", "items": {"type": "array", "items": {"enum": [1, 2]}}}) == list[list[Literal[1, 2]]]
    assert read({"type": "object"}) == dict[str, Any]
    assert read({"type": "object", "additionalProperties": {"type": "integer"}}) == dict[str, int]
    assert read({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}) == dict[str, Any]
    assert read({"enum": [1.5, {}], "type": "number"}) is float
    assert read({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"}) is str
    assert read({"$ref": "https://elsewhere.example/schema"}) is Any
    assert read({"$ref": "#/nowhere/1"}) is Any
    for nonsense in (
        True,
        False,
        None,
        [],
        "x",
        {"type": 3},
        {"type": []},
        {"enum": []},
        {"anyOf": []},
        {"allOf": [1]},
    ):
        assert read(nonsense) is Any, nonsense

    merged = read(
        {
            "$defs": {"a": {"properties": {"x": {"type": "integer"}}, "required": ["x"]}},
            "allOf": [{"$ref": "#/$defs/a"}, {"type": "object", "properties": {"y": {"type": "string"}}}],
            "title": "my thing",
            "description": "A thing.",
        }
    )
    assert (merged.__name__, merged.__doc__, merged.__required_keys__) == ("MyThing", "A thing.", {"x"})
    assert read({"allOf": [{"type": "string"}], "description": "x"}) is str


def test_schemas_that_never_end_do() -> None:
    tree = {"properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}
    kind = SchemaTypes(tree).of({"$ref": "#"}, "tree")
    assert typing.get_type_hints(kind)["kids"] == list[dict[str, Any]]

    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"type": "array", "items": deep}
    assert SchemaTypes(deep).of(deep, "deep") is not None
    for size in (10, 19, 60):
        bomb: dict[str, Any] = {}
        for number in range(size):
            following = {"$ref": f"#/$defs/d{number + 1}"}
            bomb[f"d{number}"] = {"anyOf": [following, {"type": "array", "items": following}]}
        bomb[f"d{size}"] = {"type": "integer"}
        assert SchemaTypes({"$defs": bomb}).of({"$ref": "#/$defs/d0"}, "bomb") is not None
    loop = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert SchemaTypes(loop).of({"$ref": "#/$defs/a"}, "loop") is Any
