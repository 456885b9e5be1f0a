"""llama-index: `McpToolSpec`, which makes a pydantic model of each input schema; arguments go through that model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from calling import Loaded, Target, content, main
from llama_index.core.tools import FunctionTool
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def loaded(tool: FunctionTool) -> Loaded:
    """A tool whose arguments are held against its model first, as structured prediction does."""

    async def call(arguments: dict[str, Any]) -> Any:
        complaint = None
        try:
            tool.metadata.fn_schema.model_validate(arguments)
        except ValueError as error:
            complaint = str(error)
        return {**content((await tool.acall(**arguments)).raw_output), "complaint": complaint}

    return Loaded(call, tool.metadata.to_openai_tool(skip_length_check=True))


async def tools_of(session: ClientSession, without: list[str]) -> list[FunctionTool]:
    """All tools but some: the framework can choose them by name."""
    names = [tool.name for tool in (await session.list_tools()).tools if tool.name not in without]
    return await McpToolSpec(session, allowed_tools=names).to_tool_list_async()


@asynccontextmanager
async def opened(target: Target, without: list[str]) -> AsyncIterator[dict[str, Loaded]]:
    """Over HTTP with its own client; that one starts a new server for each call over stdio, so there with a session."""
    if target.url is not None:
        tools = await tools_of(BasicMCPClient(target.url), without)
        yield {tool.metadata.name: loaded(tool) for tool in tools}
        return
    parameters = StdioServerParameters(command=target.command[0], args=target.command[1:])
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = await tools_of(session, without)
        yield {tool.metadata.name: loaded(tool) for tool in tools}


main(opened)
