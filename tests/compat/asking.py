"""The official client asks a server over stdio, or at an address, for all that it offers, and calls what it is told to.

    echo '{"command": ["mcpd", "serve", "--stdio", "old.py"], "calls": [{"tool": "echo"}]}' | python asking.py

Prints a report: what is listed, and for each call its result or its error.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl, BaseModel, FileUrl

SECONDS = timedelta(seconds=60)


def wire(model: BaseModel) -> Any:
    """As it travels."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def sample(_: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(type="text", text="a poem"), model="none"
    )


async def elicit(_: Any, params: Any) -> types.ElicitResult:
    if params.mode == "url":
        return types.ElicitResult(action="accept")
    values = {"string": "2024-12-26", "boolean": True, "integer": 3, "number": 1.5}
    members = params.requestedSchema["properties"]
    return types.ElicitResult(
        action="accept", content={name: values[member.get("type", "string")] for name, member in members.items()}
    )


async def roots(_: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///folder"))])


async def outcome(ask: Callable[[], Awaitable[BaseModel]]) -> Any:
    """A result, or what the error says."""
    try:
        return wire(await ask())
    except McpError as error:
        return {"error": wire(error.error)}


def some_calls(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A call that needs no arguments and changes nothing, by its name, and one that lacks arguments."""
    found = []
    for needs_arguments in (False, True):
        for tool in tools:
            is_harmless = re.search(
                r"(^|[_-])(get|list|show|info|status|version|help|check|about)([_-]|$)", tool["name"]
            )
            if bool(tool["inputSchema"].get("required")) is needs_arguments and (needs_arguments or is_harmless):
                found.append({"tool": tool["name"]})
                break
    return found


async def one(session: ClientSession, call: dict[str, Any]) -> Any:
    if "tool" in call:
        return await outcome(lambda: session.call_tool(call["tool"], call.get("arguments", {}), SECONDS))
    if "resource" in call:
        return await outcome(lambda: session.read_resource(AnyUrl(call["resource"])))
    if "prompt" in call:
        return await outcome(lambda: session.get_prompt(call["prompt"], call.get("arguments")))
    reference = types.PromptReference(type="ref/prompt", name=call["complete"])
    return await outcome(lambda: session.complete(reference, call["argument"]))


async def report(read: Any, write: Any, calls: list[dict[str, Any]] | None) -> dict[str, Any]:
    async with ClientSession(
        read, write, sampling_callback=sample, elicitation_callback=elicit, list_roots_callback=roots
    ) as session:
        said = wire(await session.initialize())
        lists = {
            "tools": await outcome(session.list_tools),
            "resources": await outcome(session.list_resources),
            "templates": await outcome(session.list_resource_templates),
            "prompts": await outcome(session.list_prompts),
        }
        made = some_calls(lists["tools"].get("tools", [])) if calls is None else calls
        answers = [await one(session, call) for call in made]
    return {"said": said, "lists": lists, "answers": answers, "calls": made}


async def main() -> None:
    wanted = json.load(sys.stdin)
    if "url" in wanted:
        async with streamable_http_client(wanted["url"]) as (read, write, _):
            found = await report(read, write, wanted["calls"])
    else:
        command, *arguments = wanted["command"]
        parameters = StdioServerParameters(
            command=command, args=arguments, env=dict(os.environ), cwd=wanted.get("folder")
        )
        async with stdio_client(parameters) as (read, write):
            found = await report(read, write, wanted["calls"])
    print(json.dumps(found))


anyio.run(main)
