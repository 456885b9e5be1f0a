"""pydantic-ai: `MCPToolset`, its tools as an agent gets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from calling import Loaded, Target, main
from fastmcp.client.transports import StdioTransport
from pydantic_ai import RunContext, RunUsage
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import ToolsetTool


def loaded(toolset: MCPToolset[None], context: RunContext[None], name: str, tool: ToolsetTool[None]) -> Loaded:
    """A tool through the toolset, arguments validated as an agent does."""

    async def call(arguments: dict[str, Any]) -> Any:
        valid = tool.args_validator.validate_python(arguments)
        return await toolset.call_tool(name, valid, context, tool)

    definition = tool.tool_def
    return Loaded(call, {"schema": definition.parameters_json_schema, "returns": definition.return_schema})


@asynccontextmanager
async def opened(target: Target, without: list[str]) -> AsyncIterator[dict[str, Loaded]]:
    toolset: MCPToolset[None] = MCPToolset(target.url or StdioTransport(target.command[0], target.command[1:]))
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    async with toolset:
        tools = await toolset.get_tools(context)
        yield {name: loaded(toolset, context, name, tool) for name, tool in tools.items()}


main(opened)
