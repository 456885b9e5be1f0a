"""langchain-mcp-adapters: `MultiServerMCPClient`; a call as a model makes it, and the message that answers it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from calling import Loaded, Target, ToolFailed, main
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


def loaded(tool: BaseTool) -> Loaded:
    """A tool by a call with an id, which gives the whole message."""

    async def call(arguments: dict[str, Any]) -> Any:
        message = await tool.ainvoke({"type": "tool_call", "id": "1", "name": tool.name, "args": arguments})
        if message.status == "error":
            raise ToolFailed(str(message.content))
        blocks = [{key: value for key, value in block.items() if key != "id"} for block in message.content]
        return {"content": blocks, "artifact": message.artifact}

    return Loaded(call, convert_to_openai_tool(tool))


@asynccontextmanager
async def opened(target: Target, without: list[str]) -> AsyncIterator[dict[str, Loaded]]:
    """One session for all calls."""
    connection: Any = {"transport": "streamable_http", "url": target.url}
    if target.url is None:
        connection = {"transport": "stdio", "command": target.command[0], "args": target.command[1:]}
    async with MultiServerMCPClient({"server": connection}).session("server") as session:
        yield {tool.name: loaded(tool) for tool in await load_mcp_tools(session)}


main(opened)
