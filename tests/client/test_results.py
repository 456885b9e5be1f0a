"""`client.call(tool, …, returns=T)`: what a tool gave as a typed value, in each version, and what does not fit."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pytest
from pydantic import BaseModel
from support.wires import each_version

from mcpd import CallToolResult, ResultMismatch, Server, TextContent, ToolError, image
from mcpd.client.results import typed_value
from mcpd.errors import ConfigurationError
from mcpd.testing import TestClient


class Sky(Enum):
    CLEAR = "clear"
    GREY = "grey"


@dataclass
class Day:
    high: float
    on: datetime.date
    sky: Sky = Sky.GREY


class DayDict(TypedDict):
    high: float
    on: datetime.date


class DayStruct(msgspec.Struct):
    high: float
    on: datetime.date


class DayTuple(NamedTuple):
    high: float
    on: str


class DayModel(BaseModel):
    high: float
    on: datetime.date


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


@dataclass
class HasResult:
    result: int


@dataclass
class Lax:
    high: float = 0.0


FIRST = datetime.date(2026, 7, 28)
DAY = {"high": 21.5, "on": "2026-07-28"}


def make_server() -> Server:
    server = Server("weather")

    @server.tool
    def day(high: float = 21.5) -> Day:
        return Day(high, FIRST, Sky.CLEAR)

    @server.tool
    def days() -> list[Day]:
        return [Day(1, FIRST), Day(2, FIRST)]

    @server.tool
    def tree() -> Tree:
        return Tree("root", [Tree("leaf")])

    @server.tool
    def number() -> int:
        return 7

    @server.tool
    def maybe(is_there: bool) -> Day | None:
        return Day(3, FIRST) if is_there else None

    @server.tool
    def named() -> dict[str, int]:
        return {"result": 1}

    @server.tool
    def said(returns: str = "5") -> str:
        return returns

    @server.tool
    def nothing() -> None: ...

    @server.tool
    def picture() -> Any:
        return [image(b"\x89PNG", mime_type="image/png")]

    @server.tool
    def fails() -> Day:
        raise ToolError("no weather today")

    return server


@each_version
async def test_a_value_is_of_the_type_that_is_named(version: str) -> None:
    async with TestClient(make_server(), version=version) as client:
        assert await client.call("day", high=1, returns=Day) == Day(1, FIRST, Sky.CLEAR)
        assert await client.call("day", {"high": 1}, returns=DayStruct) == DayStruct(1, FIRST)
        found: DayDict = await client.call("day", returns=DayDict)
        assert found["on"] == FIRST
        assert await client.call("day", returns=DayModel) == DayModel(high=21.5, on=FIRST)
        assert await client.call("days", returns=list[Day]) == [Day(1, FIRST), Day(2, FIRST)]
        assert await client.call("days", returns=tuple[DayModel, DayModel]) == (
            DayModel(high=1, on=FIRST),
            DayModel(high=2, on=FIRST),
        )
        assert await client.call("tree", returns=Tree) == Tree("root", [Tree("leaf")])
        assert await client.call("number", returns=int) == 7
        assert await client.call("named", returns=dict[str, int]) == {"result": 1}
        assert await client.call("named", returns=HasResult) == HasResult(1)
        assert await client.call("maybe", is_there=True, returns=Day | None) == Day(3, FIRST)
        assert await client.call("maybe", is_there=False, returns=Day | None) is None
        assert await client.call("said", returns=str) == "5"
        assert await client.call("said", {"returns": "x"}, returns=int | str) == "x"
        assert await client.call("said", returns=int) == 5
        assert await client.call("nothing", returns=type(None)) is None


@each_version
async def test_what_does_not_fit_says_which_tool_and_where(version: str) -> None:
    class Wet(msgspec.Struct):
        rain: float

    async with TestClient(make_server(), version=version) as client:
        with pytest.raises(ResultMismatch) as caught:
            await client.call("days", returns=list[Annotated[Wet, "x"]])
        assert str(caught.value).startswith("tool days: the result is not list[")
        assert "[0]: Object missing required field `rain`" in caught.value.problem
        assert caught.value.tool == "days"
        with pytest.raises(ResultMismatch, match=r"^tool tree: the result is not \S+: children\[0\]\.name: Expected"):
            await client.call("tree", returns=msgspec.defstruct("T", [("children", list[HasName])]))
        with pytest.raises(ResultMismatch, match="^tool number: the result is not Day: Expected `object`, got `int`"):
            await client.call("number", returns=Day)
        with pytest.raises(ResultMismatch, match="^tool day: the result is not Strict: .*sky: "):
            await client.call("day", returns=Strict)
        with pytest.raises(ToolError, match="^no weather today$"):
            await client.call("fails", returns=Day)
        with pytest.raises(ResultMismatch, match="^tool picture: its content is image, not Day; use call_tool"):
            await client.call("picture", returns=Day)
        with pytest.raises(ResultMismatch, match="tool said: it has no structured content, and its text is not JSON"):
            await client.call("said", {"returns": "fine"}, returns=Day)


class HasName(msgspec.Struct):
    name: int


class Strict(BaseModel):
    sky: int


async def test_a_type_that_no_json_can_be_is_refused() -> None:
    async with TestClient(make_server()) as client:
        with pytest.raises(ConfigurationError, match=r"^call of tool day: returns=\S*Callable"):
            await client.call("day", returns=Callable[[int], str])


async def test_without_a_type_it_is_as_json_has_it() -> None:
    async with TestClient(make_server()) as client:
        assert await client.call("day") == {**DAY, "sky": "clear"}
        assert await client.call("said") == "5"


def given(structured: Any = msgspec.UNSET, *texts: str, **meta: Any) -> CallToolResult:
    """What somebody else's server may answer."""
    return CallToolResult(
        content=[TextContent(text=text) for text in texts], structured_content=structured, meta=meta or None
    )


@pytest.mark.parametrize(
    ("result", "returns", "value"),
    [
        (given({"result": [DAY]}), list[Day], [Day(21.5, FIRST)]),
        (given({"result": DAY}), Lax, Lax(21.5)),  # not Lax(), which any object would be
        (given({"result": DAY}), Lax | None, Lax(21.5)),
        (given({"result": 3}), HasResult, HasResult(3)),
        (given({"result": {"result": 3}}), HasResult, HasResult(3)),
        (given({"result": {"a": 1}}), dict[str, int], {"a": 1}),
        (given({"result": 1}), dict[str, int], {"result": 1}),
        (given({"result": 1}), object, {"result": 1}),
        (given({"result": 1}, fastmcp={"wrap_result": True}), object, 1),
        (given({"result": 1}, fastmcp={"wrap_result": True}), int, 1),
        (given(None), Lax | None, None),
        (given(msgspec.UNSET, '{"high": 1}', '{"high": 2}'), list[Lax], [Lax(1), Lax(2)]),
        (given(msgspec.UNSET, "one", "two"), Lax, "its text is not JSON for Lax: one"),
        (given(msgspec.UNSET), Lax, "Expected `object`, got `null`"),
        (given({"result": {"high": "x"}}), Lax, "high: Expected `float`, got `str`"),
    ],
)
def test_what_other_servers_answer(result: CallToolResult, returns: Any, value: Any) -> None:
    if isinstance(value, str):
        with pytest.raises(ResultMismatch) as caught:
            typed_value("theirs", result, returns)
        assert str(caught.value).startswith("tool theirs: ")
        assert value in str(caught.value)
    else:
        assert typed_value("theirs", result, returns) == value
