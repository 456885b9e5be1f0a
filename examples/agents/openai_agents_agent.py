"""An agent of the OpenAI Agents SDK that uses the tools of several MCP servers.

    pip install mcpd-server openai-agents
    python openai_agents_agent.py gpt-5 "What time is it in Zurich?" mcp.json

`mcp.json` is a file with `mcpServers`, as hosts have it. A server that does not come is left out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from agents import Agent, FunctionTool, Model, RunContextWrapper, Runner

from mcpd import ClientGroup, ToolError
from mcpd.client.target import Target
from mcpd.client.tool_function import AwaitedToolFunction


def as_tool(function: AwaitedToolFunction) -> FunctionTool:
    """A tool with the schema that its server gave. If it fails, the model reads why."""

    async def call(context: RunContextWrapper[Any], arguments: str) -> Any:
        try:
            value = await function(**json.loads(arguments or "{}"))
        except ToolError as error:
            return f"The tool failed: {error}"
        return value if isinstance(value, str) else json.dumps(value, default=repr)

    return FunctionTool(
        name=function.__name__,
        description=function.__doc__ or "",
        params_json_schema=function.schema,
        on_invoke_tool=call,
        strict_json_schema=False,
    )


async def ask(model: Model | str, question: str, servers: Mapping[str, Target] | str) -> str:
    """The model's answer, which it finds with the tools of these servers, by name, or of those in a file."""
    async with ClientGroup(servers) as group:
        tools = [as_tool(function) for function in await group.tool_functions()]
        agent = Agent(name="helper", model=model, tools=tools)
        return str((await Runner.run(agent, question)).final_output)


if __name__ == "__main__":
    print(asyncio.run(ask(*sys.argv[1:4])))
