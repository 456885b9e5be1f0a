"""An agent of pydantic-ai that uses the tools of an MCP server.

    pip install mcpd-server pydantic-ai-slim[openai]
    python pydantic_ai_agent.py openai:gpt-5 "What time is it in Zurich?" uvx mcp-server-time

The tools are plain functions (`client.tool_functions()`), so that all there is to adapt is how a failure is said.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent, ModelRetry, Tool
from pydantic_ai.models import Model

from mcpd import Client, ToolError
from mcpd.client.tool_function import AwaitedToolFunction


def as_tool(function: AwaitedToolFunction) -> Tool[None]:
    """A tool with the schema that its server gave. If it fails, the model reads why, and may try again."""

    async def call(**arguments: Any) -> Any:
        try:
            return await function(**arguments)
        except ToolError as error:
            raise ModelRetry(str(error)) from error

    return Tool.from_schema(call, function.__name__, function.__doc__, function.schema)


async def ask(model: Model | str, question: str, server: str | Sequence[str]) -> str:
    """The model's answer, which it finds with the tools of a server: a URL, a file, or a command as a list."""
    async with Client(server) as client:
        agent = Agent(model, tools=[as_tool(function) for function in await client.tool_functions()])
        return (await agent.run(question)).output


if __name__ == "__main__":
    name, question, *command = sys.argv[1:]
    print(asyncio.run(ask(name, question, command)))
