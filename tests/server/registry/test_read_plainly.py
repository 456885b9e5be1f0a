"""Functions of many tools are read by a short way: it gives what `inspect` and `typing` do, or leaves it to them."""

import enum
import inspect
import typing
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from support.wires import LEGACY, stdio_wire

from mcpd import Context, Server
from mcpd.server.functions.annotations import read_plainly


class Kind(enum.Enum):
    ONE = 1


def with_defaults(a: int, b: str = "x", *, c: bool = False, d: float) -> None: ...


def unannotated(a, b=1, *, c=None):  # type: ignore[no-untyped-def]
    return a


async def of_classes(when: datetime, ctx: Context, kind: Kind = Kind.ONE, nothing: None = None) -> dict:  # type: ignore[type-arg]
    return {}


def of_any() -> Any: ...


@pytest.mark.parametrize("function", [with_defaults, unannotated, of_classes, of_any, lambda a, b=2: a])
def test_a_function_that_is_nothing_else_is_read_as_python_reads_it(function: Any) -> None:
    plainly = read_plainly(function)
    assert plainly is not None
    parameters, hints = plainly
    by_python = list(inspect.signature(function).parameters.values())
    assert [(p.name, p.kind, p.default) for p in parameters] == [(p.name, p.kind, p.default) for p in by_python]
    resolved = typing.get_type_hints(function, include_extras=True)
    assert hints == {
        name: resolved.get(name, inspect.Parameter.empty) for name in [*(p.name for p in by_python), "return"]
    }


def generator():  # type: ignore[no-untyped-def]
    yield 1


def any_number(*args: int) -> None: ...


def any_names(**kwargs: int) -> None: ...


def by_position(a: int, /) -> None: ...


def method(self: int) -> None: ...


def wrapping(a: int) -> None: ...


wrapping.__wrapped__ = by_position  # type: ignore[attr-defined]


def of_text(a: "int") -> None: ...


def of_list(a: list[int]) -> None: ...


def of_union(a: int | None) -> None: ...


OTHERS = [generator, any_number, any_names, by_position, method, wrapping, of_text, of_list, of_union]


@pytest.mark.parametrize("function", [*OTHERS, partial(with_defaults, 1), Kind, Server("x").add_tool, 3])
def test_all_else_is_looked_at_closely(function: Any) -> None:
    assert read_plainly(function) is None


async def test_tools_are_called_as_they_were_read() -> None:
    server = Server("read")

    @server.tool
    async def spread(a: int, b: str = "x", *, c: bool = False) -> str:
        return f"{a} {b} {c}"

    @server.tool(structured_output=False)
    async def told(a: int) -> int:
        return a

    @server.tool
    def in_a_thread(a: int = 3) -> str:
        return str(a)

    async with stdio_wire(server, LEGACY[-1]) as wire:
        for _ in range(2):  # the first call makes what reads the arguments
            for name, arguments, text in [
                ("spread", {"a": 1, "c": True}, "1 x True"),
                ("spread", {"a": "2"}, "2 x False"),
                ("told", {"a": 4}, "4"),
                ("in_a_thread", {}, "3"),
                ("in_a_thread", {"a": 5}, "5"),
            ]:
                answer = await wire.answer(wire.ask("tools/call", {"name": name, "arguments": arguments}))
                assert [block["text"] for block in answer["result"]["content"]] == [text]
                assert not answer["result"].get("isError")
            refused = await wire.answer(wire.ask("tools/call", {"name": "spread", "arguments": {"a": "two"}}))
            assert refused["result"]["isError"]
