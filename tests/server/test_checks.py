"""What `mcpd check` warns of: what works in itself, and still trips hosts, frameworks or models."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from abc import ABC
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct
from support.wires import MODERN, memory_wire

from mcpd import (
    CallToolResult,
    ContentBlock,
    Context,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    Server,
    image,
    text,
)
from mcpd.server.checks import summary


class Colour(enum.Enum):
    RED = "red"


class Plain:
    """What nothing can write."""

    def __init__(self, name: str) -> None:
        self.name = name


class Text(str):
    """A str with a name."""


class Base(ABC):  # noqa: B024 - what is derived from it may be anything
    """Never seen by itself."""


class Parent:
    """A plain class with a child that is data."""


@dataclasses.dataclass
class Child(Parent):
    name: str


class Point(Struct):
    x: int


def found(*functions: Callable[..., Any], **options: Any) -> list[tuple[bool, str]]:
    """(whether it is an error, its text) of each problem of a server with these tools."""
    server = Server("t")
    for function in functions:
        server.add_tool(function, **options)
    return [(problem.is_error, str(problem)) for problem in server.problems()]


def test_nothing_is_wrong_with_what_is_right() -> None:
    def dig(
        ctx: Context,
        deep: int,
        wide: float = 1,
        colour: Colour = Colour.RED,
        where: Path = Path("."),
        when: datetime.date = datetime.date(2026, 11, 22),
        tags: list[str] = [],  # noqa: B006
        point: Point = Point(1),  # noqa: B008
        note: str | None = None,
        count: Annotated[int, Meta(ge=1)] = 1,
        data: bytes = b"",
        anything: Any = 3,
    ) -> str:
        """Dig.

        Args:
            ctx: The context.
            deep: How deep.
        """
        return ""

    def more(**others: int) -> None:
        """More.

        Args:
            seeds: One of them.
        """

    assert found(dig, more) == []


@pytest.mark.parametrize("name", ["water.now", "x" * 65])
def test_names_that_some_hosts_refuse(name: str) -> None:
    def dig() -> None:
        """Dig."""

    ((is_error, said),) = found(dig, name=name)
    assert not is_error
    assert "some hosts accept only 1 to 64 letters, digits, '_' and '-'" in said
    assert found(dig, name="x" * 64) == []


def test_what_is_not_described() -> None:
    def dig() -> None: ...

    assert found(dig) == [(False, "tool dig: no description: models choose tools by it; write a docstring")]
    assert found(dig, description="Dig.") == []
    server = Server("t")

    def plan() -> str: ...

    server.prompt(plan)
    assert [str(problem) for problem in server.problems()] == [
        "prompt plan: no description: people choose prompts by it; write a docstring"
    ]


def test_a_docstring_that_describes_what_is_not_there() -> None:
    def dig(deep: int) -> None:
        """Dig.

        Args:
            depth: How deep.
        """

    ((is_error, said),) = found(dig)
    assert (is_error, said) == (
        False,
        "tool dig: its docstring describes 'depth', which is not a parameter; the parameters are deep",
    )


def test_parameters_without_annotation() -> None:
    def dig(deep, wide: int):  # type: ignore[no-untyped-def]
        """Dig."""

    assert found(dig) == [(False, "tool dig: parameter 'deep' has no annotation: models may send anything")]


def test_a_context_without_annotation() -> None:
    def dig(ctx, wide: int):  # type: ignore[no-untyped-def]
        """Dig."""

    async def fill(context):  # type: ignore[no-untyped-def]
        """Fill."""

    async def rake(ctx=None):  # type: ignore[no-untyped-def]
        """Rake."""

    assert [found(one) for one in (dig, fill, rake)] == [
        [(False, f"tool {name}: parameter {parameter!r} has no annotation{rest}")]
        for name, parameter, rest in (
            ("dig", "ctx", ", so clients must send it; for the context of the request write ctx: SyncContext"),
            ("fill", "context", ", so clients must send it; for the context of the request write context: Context"),
            ("rake", "ctx", ": models may send anything"),
        )
    ]


def test_defaults_that_only_json_would_fit() -> None:
    """They reach the function as they are written: no colour has a value, no path exists."""

    def dig(
        colour: Colour = "red",  # type: ignore[assignment]
        where: Path = ".",  # type: ignore[assignment]
        when: datetime.date | None = "2026-11-22",  # type: ignore[assignment]
        point: Point = {"x": 1},  # type: ignore[assignment]  # noqa: B006
        either: str | Path = ".",
        price: decimal.Decimal = 1,  # type: ignore[assignment]
        deep: float = 1,
        tags: Sequence[str] = (),
    ) -> None:
        """Dig."""

    assert [said.partition("the default of ")[2] for _, said in found(dig)] == [
        "'colour' does not fit its annotation: Expected Colour, got str",
        "'where' does not fit its annotation: Expected Path, got str",
        "'when' does not fit its annotation: Expected date, got str",
        "'point' does not fit its annotation: Expected Point, got dict",
    ]


def test_defaults_of_a_wrong_type() -> None:
    def dig(deep: int = "long", count: Annotated[int, Meta(ge=1)] = 0, tags: list[int] = ["a"]) -> None:  # type: ignore[assignment, list-item]  # noqa: B006
        """Dig."""

    assert [said.partition("the default of ")[2] for _, said in found(dig)] == [
        "'deep' does not fit its annotation: Expected int, got str",
        "'count' does not fit its annotation: Expected int >= 1",
        "'tags' does not fit its annotation: Expected int, got str",
    ]


@pytest.mark.parametrize("returns", [Plain, list[Plain], Plain | None, dict[str, Plain]])
def test_plain_classes_as_a_result_fail(returns: Any) -> None:
    def bed() -> Any:
        """Find a bed."""

    bed.__annotations__["return"] = returns
    ((is_error, said),) = found(bed)
    assert is_error
    assert "it returns Plain, which cannot be written as JSON: make it a dataclass" in said


@pytest.mark.parametrize(
    "returns",
    [
        str, None, Any, object, Point, list[Point], Child, Base, Parent, Path, ImageContent, list[ContentBlock],
        CallToolResult, datetime.date, "Point", Callable[[], Child],
    ],
)  # fmt: skip
def test_results_that_may_well_work(returns: Any) -> None:
    def bed() -> Any:
        """Find a bed."""

    bed.__annotations__["return"] = returns
    assert [said for is_error, said in found(bed) if is_error] == []


def test_what_pydantic_writes_does_not_fail() -> None:
    pytest.importorskip("pydantic")

    def turn(by: complex) -> complex:
        """Turn a number."""
        return by * 1j

    assert found(turn) == []


def test_content_is_no_plain_class() -> None:
    def photo() -> list[ImageContent]:
        """Take a photo."""
        return [image(b"", "image/png")]

    def both() -> tuple[ContentBlock, ...]:
        """Say it and show it."""
        return text("a"), image(b"", "image/png")

    assert found(photo, both) == []


@pytest.mark.parametrize(
    ("returns", "value", "named"),
    [
        (int, 1, "int"),
        (str | int, 1, "int"),
        (dict, {"role": "user"}, "dict"),
        (list[dict[str, str]], [{"role": "user", "content": "x"}], "list[dict[str, str]]"),
        (Point, Point(1), "Point"),
        (Plain, Plain("a"), "Plain"),
        (None, None, "None"),
        (bytes | str, b"x", "bytes"),
    ],
)
async def test_results_of_which_no_prompt_can_be_made(returns: Any, value: Any, named: str) -> None:
    """Without this the author learns of it from the log, when a client asks for the prompt."""

    def plan() -> Any:
        """Plan a season."""
        return value

    plan.__annotations__["return"] = returns
    server = Server("t")
    server.add_prompt(plan)
    (problem,) = server.problems()
    assert (problem.is_error, problem.where) == (True, "prompt plan")
    assert problem.text.startswith(f"it returns {named}, for which each call fails: return text, content blocks")
    async with memory_wire(server, MODERN) as wire:
        assert (await wire.error("prompts/get", {"name": "plan"}))["code"] == -32603


@pytest.mark.parametrize(
    "returns",
    [
        str, Any, object, "str", str | None, Text, list, list[str], list[Any], list[str | ContentBlock], ImageContent,
        PromptMessage, list[PromptMessage], GetPromptResult, tuple[str, str], list[tuple[str, str]], Base, Parent,
        Sequence[str], Annotated[str, "said"], list[dict[str, str] | PromptMessage],
    ],
)  # fmt: skip
def test_results_of_which_a_prompt_may_well_be_made(returns: Any) -> None:
    def plan() -> Any:
        """Plan a season."""

    plan.__annotations__["return"] = returns
    server = Server("t")
    server.add_prompt(plan)
    assert server.problems() == []


def test_a_resource_that_cannot_be_read() -> None:
    server = Server("t")

    @server.resource("bed://south")
    def south() -> Plain:
        return Plain("south")

    @server.resource("photo://{name}")
    def photo(name: str) -> bytes:
        return b""

    (problem,) = server.problems()
    assert (problem.is_error, problem.where) == (True, "resource bed://south")


def test_an_empty_server() -> None:
    server = Server("t")
    (problem,) = server.problems()
    assert not problem.is_error
    assert "it offers nothing" in problem.text
    server.add_text("a://b", "text", name="b")
    assert server.problems() == []


def test_a_server_with_events_only() -> None:
    server = Server("t")

    @server.event("seed.sown", payload=Point, on=("x",))
    def sown(event: Point, x: int | None = None) -> bool:
        """A seed was sown."""
        return True

    assert server.problems() == []


def test_counting() -> None:
    server = Server("t")
    assert summary([]) == ""
    assert summary(server.problems()) == "1 warning"
    server.completion("a", prompt="none")(lambda typed: [])
    server.completion("b", prompt="none")(lambda typed: [])
    assert summary(server.problems()) == "2 problems and 1 warning"
