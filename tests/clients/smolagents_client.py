"""smolagents: `MCPClient`, the tools as an agent gets them, with its own check of arguments."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from calling import Loaded, Target, ToolFailed, main
from mcp import StdioServerParameters
from smolagents import MCPClient
from smolagents.models import get_tool_json_schema
from smolagents.tools import Tool, validate_tool_arguments


def shown(result: Any) -> Any:
    """A picture has no JSON."""
    return {"format": result.format, "size": result.size} if hasattr(result, "size") else result


def loaded(text: Tool, structured: Tool) -> Loaded:
    """A tool in both of the ways that smolagents can read results."""

    def call(arguments: dict[str, Any]) -> Any:
        try:
            validate_tool_arguments(text, arguments)
            complaint = None
        except (ValueError, TypeError) as error:
            complaint = str(error)
        results = {"text": shown(text(**arguments)), "structured": shown(structured(**arguments))}
        for one in results.values():
            if isinstance(one, str) and one.startswith("Error"):
                raise ToolFailed(one)
        return {**results, "complaint": complaint}

    async def in_thread(arguments: dict[str, Any]) -> Any:
        return await asyncio.to_thread(call, arguments)

    facts = {"schema": get_tool_json_schema(structured)}
    try:
        facts["code"] = structured.to_code_prompt()
    except ValueError as error:  # it cannot write a schema that holds itself
        facts["error"] = str(error)
    return Loaded(in_thread, facts)


@asynccontextmanager
async def opened(target: Target, without: list[str]) -> AsyncIterator[dict[str, Loaded]]:
    """smolagents has no asynchronous side: it runs a loop of its own in a thread."""
    logging.getLogger("mcpadapt").setLevel(logging.ERROR)
    server: Any = {"url": target.url, "transport": "streamable-http"}
    if target.url is None:
        server = StdioServerParameters(command=target.command[0], args=target.command[1:])
    with MCPClient(server, structured_output=False) as texts, MCPClient(server, structured_output=True) as structured:
        yield {text.name: loaded(text, other) for text, other in zip(texts, structured, strict=True)}


main(opened)
