"""FastMCP's own client, which gives a program the value that a tool returned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, is_dataclass
from typing import Any

from calling import Loaded, Target, main
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


def plain(value: Any) -> Any:
    """The client makes classes of output schemas; their names and order are nobody's concern."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value) if value is not None and not isinstance(value, int | float | str) else value


@asynccontextmanager
async def opened(target: Target, without: list[str]) -> AsyncIterator[dict[str, Loaded]]:
    async with Client(target.url or StdioTransport(target.command[0], target.command[1:])) as client:

        def loaded(name: str) -> Loaded:
            async def call(arguments: dict[str, Any]) -> Any:
                result = await client.call_tool(name, arguments)
                blocks = [block.model_dump(mode="json", exclude_none=True) for block in result.content]
                return {"data": plain(result.data), "content": blocks, "structured": result.structured_content}

            return Loaded(call, {})

        yield {tool.name: loaded(tool.name) for tool in await client.list_tools()}


main(opened)
