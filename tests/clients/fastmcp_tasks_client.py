"""FastMCP's client with `fastmcp-tasks`, which drives tasks of 2026-07-28 by itself.

    python fastmcp_tasks_client.py http://127.0.0.1:8080/mcp
    python fastmcp_tasks_client.py mcpd serve --stdio server.py

Prints one object of JSON: what became of each of the calls below, and the questions that it was asked. Runs in an
environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import call_tool_task

CALLS: dict[str, dict[str, Any]] = {
    "greet": {"name": "Ada"},
    "slow_compute": {"seconds": 0.5, "label": "all"},
    "failing_job": {},
    "protocol_error_job": {},
    "confirm_delete": {"filename": "a.txt"},
    "multi_input": {},
    "test_tool_with_task": {},
}
ANSWERS = {"confirm": True, "name": "Ada"}


async def told(work: Awaitable[str]) -> str:
    """What became of something."""
    try:
        return await work
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def text(client: Client, name: str, arguments: dict[str, Any]) -> str:
    return (await client.call_tool(name, arguments)).content[0].text


async def cancelled(client: Client) -> str:
    task = await call_tool_task(client, "slow_compute", {"seconds": 3600})
    before = (await task.status()).status
    await task.cancel()
    return f"{before}, {(await task.wait()).status}"


async def main() -> None:
    words = sys.argv[1:]
    asked: list[str] = []

    async def answer(message: str, response_type: Any, params: Any, context: Any) -> dict[str, Any]:
        asked.append(message)
        return {name: ANSWERS[name] for name in params.requested_schema["properties"]}

    target = words[0] if words[0].startswith("http") else StdioTransport(words[0], words[1:])
    report: dict[str, Any] = {"asked": asked}
    async with Client(target, elicitation_handler=answer) as client:
        for name, arguments in CALLS.items():
            report[name] = await told(text(client, name, arguments))
        report["cancelled"] = await told(cancelled(client))
    print(json.dumps(report))


asyncio.run(main())
