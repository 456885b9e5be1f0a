"""Servers that were written for another library, made of text, and asked on the wire."""

from __future__ import annotations

import textwrap
from types import ModuleType
from typing import Any

from support.wires import memory_wire

from mcpd import Server

__all__ = ["ask", "call", "module", "served", "texts"]


def module(text: str) -> ModuleType:
    """A module that was written for the other library."""
    made = ModuleType("theirs")
    exec(compile(textwrap.dedent(text), "theirs.py", "exec", dont_inherit=True), made.__dict__)
    return made


def served(text: str, name: str = "mcp") -> Server:
    """What serves the server of that name in it."""
    server: Server = getattr(module(text), name).__mcpd_server__()
    return server


async def ask(server: Server, version: str, method: str, params: dict[str, Any] | None = None) -> Any:
    """The answer to one request: its result, or its error."""
    async with memory_wire(server) as wire:
        await wire.open(version)
        answer = await wire.request(method, params or {})
        return answer.get("result", answer.get("error"))


async def call(server: Server, version: str, name: str, **arguments: Any) -> Any:
    """The result of a tool."""
    return await ask(server, version, "tools/call", {"name": name, "arguments": arguments})


def texts(result: Any) -> list[str]:
    """The texts of a result."""
    return [block["text"] for block in result["content"]]
