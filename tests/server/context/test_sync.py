"""`SyncContext`: the context of plain functions, whose calls have done their work when they return."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.wires import LEGACY, MODERN, memory_wire

from mcpd import Context, Server, SyncContext
from mcpd.errors import RegistrationError
from mcpd.server.context import context


@dataclass
class Form:
    really: bool


def make_server() -> Server:
    server = Server("t")

    @server.tool
    def dig(ctx: SyncContext) -> str:
        assert isinstance(ctx, SyncContext)
        ctx.progress(1, total=2)
        answer = ctx.elicit("Sure?", Form)
        return str(answer.get().really)

    @server.tool
    def optional(ctx: SyncContext | None = None) -> str:
        return type(ctx).__name__

    return server


@pytest.mark.parametrize("version", [LEGACY[-1], "2025-06-18"])
async def test_a_plain_function_asks_and_goes_on(version: str) -> None:
    async with memory_wire(make_server(), version, capabilities={"elicitation": {}}) as wire:
        call = wire.ask("tools/call", {"name": "dig"}, meta={"progressToken": 1})
        assert (await wire.receive())["method"] == "notifications/progress"
        asked = await wire.receive()
        assert asked["method"] == "elicitation/create"
        wire.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"really": True}}})
        assert (await wire.answer(call))["result"]["content"][0]["text"] == "True"
        assert await wire.text("optional") == "SyncContext"


async def test_in_rounds_too() -> None:
    async with memory_wire(make_server(), MODERN, capabilities={"elicitation": {}}) as wire:
        first = await wire.call("dig")
        (key,) = first["inputRequests"]
        again = {
            "name": "dig", "requestState": first["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"really": True}}},
        }  # fmt: skip
        result = await wire.result("tools/call", again)
        assert result["content"][0]["text"] == "True"
        listed = (await wire.result("tools/list"))["tools"]
        assert all(tool["inputSchema"]["properties"] == {} for tool in listed)


def test_an_async_function_is_told_what_to_take() -> None:
    server = Server("t")

    async def dig(ctx: SyncContext) -> str:
        return "dug"

    with pytest.raises(RegistrationError, match="annotate the parameter as Context"):
        server.add_tool(dig)


def test_type_checkers_are_told_of_every_method() -> None:
    """What is written out for them has the names and parameters of what runs."""
    text = Path(context.__file__).read_text(encoding="utf-8")
    for name, member in vars(Context).items():
        if name.startswith("_"):
            continue
        assert f"def {name}(" in text, name
        if inspect.isfunction(member):
            for parameter in inspect.signature(member).parameters:
                assert parameter in text, (name, parameter)
