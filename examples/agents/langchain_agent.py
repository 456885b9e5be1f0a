"""A chat model of LangChain that uses the tools of an MCP server.

    pip install mcpd-server langchain langchain-openai
    python langchain_agent.py openai:gpt-5 "What time is it in Zurich?" uvx mcp-server-time

The loop is written out; the tools (`as_tool`) go to `create_agent` of LangChain or to LangGraph just as well.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from mcpd import Client, ToolError
from mcpd.client.tool_function import AwaitedToolFunction

MOST_TURNS = 20


def as_tool(function: AwaitedToolFunction) -> BaseTool:
    """A tool with the schema that its server gave. If it fails, the model reads why."""

    async def call(**arguments: Any) -> Any:
        try:
            return await function(**arguments)
        except ToolError as error:
            raise ToolException(str(error)) from error

    return StructuredTool(
        name=function.__name__,
        description=function.__doc__ or function.__name__,
        args_schema=function.schema,
        coroutine=call,
        handle_tool_error=True,
    )


async def ask(model: BaseChatModel, question: str, server: str | Sequence[str]) -> str:
    """The model's answer, which it finds with the tools of a server: a URL, a file, or a command as a list."""
    async with Client(server) as client:
        tools = {function.__name__: as_tool(function) for function in await client.tool_functions()}
        with_tools = model.bind_tools(list(tools.values()))
        messages: list[BaseMessage] = [HumanMessage(question)]

        for _ in range(MOST_TURNS):
            answer = await with_tools.ainvoke(messages)
            messages.append(answer)
            if not answer.tool_calls:
                return str(answer.text)
            messages += await asyncio.gather(*(tools[call["name"]].ainvoke(call) for call in answer.tool_calls))
    raise RuntimeError(f"the model had no answer after {MOST_TURNS} turns")


if __name__ == "__main__":
    from langchain.chat_models import init_chat_model

    name, question, *command = sys.argv[1:]
    print(asyncio.run(ask(init_chat_model(name), question, command)))
