"""A tool whose function is called with the values of its arguments at once answers as one that goes the plain way.

Design: architecture.md D1. The first call of a tool always goes the plain way; the short one is for those after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from support.wires import Wire, each_version, memory_wire

from mcpd import Context, Server, ToolError
from mcpd.server.functions.signature import Callee


@dataclass
class Point:
    x: int
    y: int = 0


def made() -> Server:
    server = Server("direct")

    @server.tool
    async def say(text: str, times: int = 1) -> str:
        return text * times

    @server.tool
    async def swapped(b: int, a: int) -> dict[str, int]:
        return {"a": a, "b": b}

    @server.tool
    async def place(point: Point) -> Point:
        return point

    @server.tool
    async def nothing() -> None:
        return None

    @server.tool
    async def refuse(text: str) -> str:
        if text == "bug":
            raise ValueError(text)
        raise ToolError(text)

    @server.tool
    async def by_name(text: str, *, loud: bool = False) -> str:
        return text.upper() if loud else text

    @server.tool
    async def open_ended(**more: int) -> str:
        return repr(sorted(more.items()))

    @server.tool
    async def who(text: str, context: Context) -> str:
        return f"{text} {context.request_id}"

    return server


CALLS: list[tuple[str, Any]] = [
    ("say", {"text": "ä"}),
    ("say", {"times": 2, "text": "b"}),
    ("say", {"text": "a", "times": "3"}),
    ("say", {"text": "a", "times": "three"}),
    ("say", {"text": 1}),
    ("say", {}),
    ("say", None),
    ("say", []),
    ("say", {"text": "a", "unknown": 1}),
    ("swapped", {"a": 1, "b": 2}),
    ("place", {"point": {"x": 1}}),
    ("place", {"point": {"x": 1, "y": "2"}}),
    ("place", {"point": '{"x": 3}'}),
    ("nothing", {}),
    ("nothing", None),
    ("refuse", {"text": "no"}),
    ("refuse", {"text": "bug"}),
    ("by_name", {"text": "a", "loud": True}),
    ("open_ended", {"a": 1, "b": 2}),
    ("who", {"text": "a"}),
]
SHORT = {"say", "swapped", "place", "nothing", "refuse", "by_name"}


async def answer(wire: Wire, name: str, arguments: Any) -> Any:
    wire.ask("tools/call", {"name": name} if arguments is None else {"name": name, "arguments": arguments}, id=7)
    return await wire.answer(7)


@each_version
async def test_the_short_way_answers_as_the_plain_one(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = made()
    async with memory_wire(short, version) as wire:
        for name in dict(CALLS):
            await answer(wire, name, {})
        said = [await answer(wire, name, arguments) for name, arguments in CALLS]

    monkeypatch.setattr(Callee, "direct", None)
    async with memory_wire(made(), version) as wire:
        plain = [await answer(wire, name, arguments) for name, arguments in CALLS]

    assert said == plain


@each_version
async def test_values_alone_go_the_short_way_and_nothing_else_does(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: set[str] = set()
    direct = vars(Callee)["direct"].func

    def watched(callee: Callee) -> Any:
        found = direct(callee)
        if found is None:
            return None
        decode, function = found

        async def called(**values: Any) -> Any:
            taken.add(callee.name)
            return await function(**values)

        return decode, called

    monkeypatch.setattr(Callee, "direct", property(watched))
    async with memory_wire(made(), version) as wire:
        for name, arguments in CALLS * 2:  # the first call of each goes the plain way
            await answer(wire, name, arguments)
    assert taken == SHORT
