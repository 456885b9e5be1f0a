"""openai-agents: `MCPServerStdio`, with each schema converted to strict mode."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, FunctionTool, RunContextWrapper, set_tracing_disabled
from agents.mcp import MCPServer, MCPServerStdio, MCPServerStreamableHttp, MCPUtil
from agents.tool_context import ToolContext
from calling import CALL_TIMEOUT, Loaded, Target, content, main


class LastResult:
    """Keeps the last result of a server: the framework gives a model an error as any other text."""

    result: Any = None

    async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
        self.result = await super().call_tool(*args, **kwargs)  # type: ignore[misc]
        return self.result


class Stdio(LastResult, MCPServerStdio):
    pass


class Http(LastResult, MCPServerStreamableHttp):
    pass


def loaded(tool: FunctionTool, server: Stdio | Http) -> Loaded:
    """A tool called with JSON, as a model's answer has it."""

    async def call(arguments: dict[str, Any]) -> Any:
        text = json.dumps(arguments)
        output = await tool.on_invoke_tool(
            ToolContext(None, tool_name=tool.name, tool_call_id="1", tool_arguments=text), text
        )
        structured = content(server.result)["structured"]
        return {"output": output, "structured": structured}

    return Loaded(call, {"strict": tool.strict_json_schema, "schema": tool.params_json_schema})


@asynccontextmanager
async def opened(target: Target, without: list[str]) -> AsyncIterator[dict[str, Loaded]]:
    set_tracing_disabled(True)
    server: Any = Http({"url": target.url or ""}, client_session_timeout_seconds=CALL_TIMEOUT)
    if target.url is None:
        parameters = {"command": target.command[0], "args": target.command[1:]}
        server = Stdio(parameters, client_session_timeout_seconds=CALL_TIMEOUT)
    async with server:
        assert isinstance(server, MCPServer)
        agent = Agent("tester", mcp_servers=[server])
        tools = await MCPUtil.get_function_tools(
            server, True, RunContextWrapper(None), agent, failure_error_function=None
        )
        yield {tool.name: loaded(tool, server) for tool in tools}


main(opened)
