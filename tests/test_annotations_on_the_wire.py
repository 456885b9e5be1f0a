"""Functions annotated as the first pages of other frameworks do it, called over a transport."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import re
from typing import Annotated, Any, Literal, TypedDict

import pydantic
import pytest
from msgspec import Meta, Struct
from pydantic import Field
from support.wires import MODERN, each_version, memory_wire

from mcpd import Context, Server

STRUCTURED = ("2025-06-18", "2025-11-25")
"""Legacy versions with structured content, which is an object there."""


class Weather(pydantic.BaseModel):
    """What the weather is."""

    temperature: float = Field(description="In degrees Celsius.")
    wind: Literal["none", "some"] = "none"


class Place(TypedDict):
    latitude: float
    longitude: float


class Level(enum.Enum):
    LOW = "low"
    HIGH = 2


@dataclasses.dataclass
class Table:
    number: int
    seats: int = 4


@dataclasses.dataclass
class Bar:
    stools: int


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(**kwargs: Any) -> Any:
        return function(**kwargs)

    return wrapper


def make_server() -> Server:
    server = Server("t")

    @server.tool
    def add(a: int, b: int = Field(2, ge=0, description="The second.")) -> int:
        return a + b

    @server.tool
    async def weather(
        ctx: Context,
        city: str = Field(description="Where.", min_length=2),
        unit: Annotated[Literal["c", "f"] | None, Field(description="Which.")] = None,
    ) -> Weather:
        return Weather(temperature=21.5)

    @server.tool
    def search(
        terms: list[Annotated[str, Field(min_length=1)]],
        tags: Annotated[list[str] | None, Field(max_length=2)] = None,
        limit: Annotated[int | None, Meta(ge=1)] = None,
        level: Level = Level.LOW,
    ) -> dict[str, Any]:
        return {"terms": terms, "tags": tags, "limit": limit, "level": level}

    @server.tool
    def book(what: Table | Bar) -> Table | Bar:
        return what

    @server.tool
    def seat(table: Table) -> Table:
        return table

    @server.tool
    def places() -> list[Place]:
        return [{"latitude": 1.0, "longitude": 2.0}]

    @server.tool
    @logged
    def wrapped(a: int, b: str = "b") -> str:
        return f"{a}{b}"

    @server.tool
    def mail(to: Annotated[str, pydantic.AfterValidator(_lower)], secret: pydantic.SecretStr | None = None) -> str:
        return f"{to} {secret}"

    return server


def _lower(value: str) -> str:
    if "@" not in value:
        raise ValueError("no address")
    return value.lower()


@each_version
async def test_annotations_of_other_frameworks(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        tools = {tool["name"]: tool["inputSchema"] for tool in (await wire.result("tools/list"))["tools"]}
        assert tools["add"]["properties"]["b"] == {
            "type": "integer", "minimum": 0, "description": "The second.", "default": 2,
        }  # fmt: skip
        assert tools["weather"]["properties"]["unit"]["description"] == "Which."
        assert tools["weather"]["required"] == ["city"]
        assert tools["search"]["properties"]["terms"]["items"]["minLength"] == 1
        for name, arguments, said in (
            ("add", {"a": 1}, "3"),
            ("add", {"a": 1, "b": None}, "3"),
            ("add", {"a": "1", "b": "4"}, "5"),
            ("weather", {"city": "Bern"}, '{"temperature":21.5,"wind":"none"}'),
            ("search", {"terms": ["a"], "level": 2}, '{"terms":["a"],"tags":null,"limit":null,"level":2}'),
            ("seat", {"table": {"number": 4}}, '{"number":4,"seats":4}'),
            ("book", {"what": {"number": 4}}, '{"number":4,"seats":4}'),
            ("book", {"what": {"stools": 4}}, '{"stools":4}'),
            ("wrapped", {"a": 1}, "1b"),
            ("mail", {"to": "A@B"}, "a@b None"),
            ("mail", {"to": "A@B", "secret": "s"}, "a@b **********"),
        ):
            result = await wire.call(name, **arguments)
            assert result["content"] == [{"type": "text", "text": said}], name
            assert "isError" not in result or not result["isError"]
        for name, arguments, said in (
            ("add", {"a": 1, "b": -1}, "b: Expected `int` >= 0"),
            ("weather", {"city": "B"}, "city: Expected `str` of length >= 2"),
            ("search", {"terms": [""]}, r"terms\[0\]: Expected `str` of length >= 1"),
            ("search", {"terms": [], "tags": ["a", "b", "c"]}, "tags: Expected `array` of length <= 2"),
            ("search", {"terms": [], "limit": 0}, "limit: Expected `int` >= 1"),
            ("book", {"what": {}}, "what: Table.number: Field required; Bar.stools: Field required"),
            ("mail", {"to": "x"}, "to: Value error, no address"),
        ):
            result = await wire.call(name, **arguments)
            assert result["isError"]
            assert re.fullmatch(said, result["content"][0]["text"])


@dataclasses.dataclass
class Order:
    dish: str
    number: int = 1
    notes: list[str] = dataclasses.field(default_factory=list)
    table: Table | None = None
    tip: int | None = 5


class Guest(Struct, tag=True):
    name: str
    seats: int = 2


class Group(Struct, tag=True):
    name: str
    seats: int = 8
    leader: str = "nobody"


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: str = "Rex"


class Extras(pydantic.BaseModel):
    bread: int = Field(3, ge=0)
    drinks: list[str] = []


class Maybe(TypedDict, total=False):
    at: int


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"order": {"dish": "soup", "number": None, "notes": None}}, ["soup", 1, [], None, 5]),
        ({"order": {"dish": "soup", "tip": None}}, ["soup", 1, [], None, None]),
        ({"order": {"dish": "soup", "table": {"number": 3, "seats": None}}}, ["soup", 1, [], [3, 4], 5]),
        ({"orders": [{"dish": "a"}, {"dish": "b", "number": None}]}, [["a", 1], ["b", 1]]),
        ({"by_name": {"x": {"dish": "c", "number": None}}}, {"x": 1}),
        ({"who": {"type": "Group", "name": "n", "seats": None}}, ["Group", 8]),
        ({"pet": {"kind": "dog", "name": None}}, "kind='dog' name='Rex'"),
        ({"where": {"stools": 3}}, "Bar(stools=3)"),
        ({"where": {"number": 3, "seats": None}}, "Table(number=3, seats=4)"),
        ({"extras": {"bread": None, "drinks": None}}, [3, []]),
        ({"maybe": {"at": None}}, []),
        ({"order": None, "orders": None, "extras": None}, "nothing"),
    ],
)
async def test_null_for_a_member_that_has_a_default_means_the_default(arguments: Any, said: Any) -> None:
    """As for parameters, however deep: models write null for what they leave open. S26-108: the rest is validated."""
    server = Server("t")

    @server.tool
    def take(
        order: Order = Order("none"),  # noqa: B008
        orders: list[Order] = [],  # noqa: B006
        by_name: dict[str, Order] = {},  # noqa: B006
        who: Guest | Group | None = None,
        where: Table | Bar | None = None,
        pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None,
        extras: Extras = Extras(),  # noqa: B008
        maybe: Maybe = {},  # noqa: B006
    ) -> Any:
        if orders:
            return [[each.dish, each.number] for each in orders]
        if by_name:
            return {name: each.number for name, each in by_name.items()}
        if who is not None:
            return [type(who).__name__, who.seats]
        if where is not None:
            return repr(where)
        if pet is not None:
            return str(pet)
        if "maybe" in arguments:
            return list(maybe)
        if "extras" in arguments and arguments["extras"] is not None:
            return [extras.bread, extras.drinks]
        if order.dish == "none":
            return "nothing"
        table = order.table and [order.table.number, order.table.seats]
        return [order.dish, order.number, order.notes, table, order.tip]

    async with memory_wire(server, MODERN) as wire:
        result = await wire.call("take", **arguments)
        assert not result.get("isError"), result
        assert result["content"][0]["text"] == (
            said if isinstance(said, str) else json.dumps(said, separators=(",", ":"))
        )
        for wrong in ({"order": {"dish": None}}, {"orders": [None]}, {"order": {"dish": "a", "notes": [None]}}):
            assert (await wire.call("take", **wrong))["isError"]


@pytest.mark.parametrize("version", STRUCTURED)
async def test_wrapped_results_carry_the_mark_by_which_fastmcp_unwraps_them(version: str) -> None:
    server = make_server()

    @server.tool
    def places_or_none() -> list[Place] | None:
        return None

    async with memory_wire(server, version) as wire:
        for name, arguments, expected in (
            ("places", {}, [{"latitude": 1.0, "longitude": 2.0}]),
            ("add", {"a": 1}, 3),
            ("places_or_none", {}, None),
            ("book", {"what": {"stools": 4}}, {"stools": 4}),
        ):
            result = await wire.call(name, **arguments)
            assert result["structuredContent"] == {"result": expected}, name
            assert result["_meta"] == {"fastmcp": {"wrap_result": True}}
        for name, arguments in (
            ("seat", {"table": {"number": 4}}),
            ("weather", {"city": "Bern"}),
            ("wrapped", {"a": 1}),
        ):
            result = await wire.call(name, **arguments)
            assert "fastmcp" not in result.get("_meta", {})
            assert "result" not in result.get("structuredContent", {})
        schemas = [tool.get("outputSchema", {}) for tool in (await wire.result("tools/list"))["tools"]]
        assert not any(key.startswith("x-") for schema in schemas for key in schema)  # strict validators refuse it


@each_version
async def test_the_mark_is_only_where_results_are_wrapped(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        result = await wire.call("add", a=1)
        assert ("fastmcp" in result.get("_meta", {})) == (version in STRUCTURED)
        if version == MODERN:
            assert result["structuredContent"] == 3


async def test_the_mark_stands_beside_other_meta() -> None:
    from mcpd.protocol.types.features import CallToolResult

    server = Server("t")

    @server.tool
    def tool() -> CallToolResult:
        return CallToolResult(content=[], structured_content=[1], meta={"a": 1, "fastmcp": {"b": 2}})

    async with memory_wire(server, "2025-11-25") as wire:
        result = await wire.call("tool")
        assert result["structuredContent"] == {"result": [1]}
        assert result["_meta"] == {"a": 1, "fastmcp": {"b": 2, "wrap_result": True}}


@each_version
async def test_aliases_in_prompts_and_templates(version: str) -> None:
    server = Server("t")

    @server.prompt
    def ask(question: str, tone: str = Field("kind", alias="the-tone", description="How.")) -> str:
        return f"{question} {tone}"

    @server.resource("notes://{day}")
    def note(on: str = Field(alias="day")) -> str:
        return on

    async with memory_wire(server, version) as wire:
        (prompt,) = (await wire.result("prompts/list"))["prompts"]
        assert prompt["arguments"] == [
            {"name": "question", "required": True},
            {"name": "the-tone", "description": "How.", "required": False},
        ]
        got = await wire.result("prompts/get", {"name": "ask", "arguments": {"question": "q", "the-tone": "rude"}})
        assert got["messages"][0]["content"]["text"] == "q rude"
        read = await wire.result("resources/read", {"uri": "notes://today"})
        assert read["contents"][0]["text"] == "today"


@each_version
async def test_a_long_uri_is_cut_in_the_message_alone(version: str) -> None:
    server = Server("t")

    @server.resource("x://here")
    def here() -> str:
        return ""

    uri = "x://" + "a" * 500
    async with memory_wire(server, version) as wire:
        error = await wire.error("resources/read", {"uri": uri})
        assert error["message"] == f"Resource not found: {uri[:200]}…"
        assert error["data"] == {"uri": uri}
