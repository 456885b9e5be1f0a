"""A user who edits a server while a session of the official Python client, of either line, stays attached to it.

    echo '{"command": [...], "edits": [{"write": {path: text}, "tool": "more", "says": "m", "lists": ["tools"]}]}' | …

Each edit writes files, waits until the server says which lists have changed, and calls a tool: the report has what was
heard, and what the tool said. Of `lists` the number counts.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client


async def main() -> None:
    wanted = json.loads(sys.stdin.read())
    command, *arguments = wanted["command"]
    heard: list[str] = []
    come, arrived = anyio.create_memory_object_stream[None](1000)

    async def hear(message: Any) -> None:
        message = getattr(message, "root", message)
        if method := getattr(message, "method", None):
            heard.append(method)
            come.send_nowait(None)

    report: list[dict[str, Any]] = []
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write, message_handler=hear) as session:
        await session.initialize()
        await session.list_tools()
        for edit in wanted["edits"]:
            del heard[:]
            for path, text in edit["write"].items():
                Path(path).write_text(text, encoding="utf-8")
            with anyio.fail_after(30):
                while len(heard) < len(edit["lists"]):
                    await arrived.receive()
            tools = sorted(tool.name for tool in (await session.list_tools()).tools)
            said = await session.call_tool(edit["tool"], edit.get("arguments", {}))
            report.append({"heard": sorted(heard), "tools": tools, "said": said.content[0].text})
    print(json.dumps(report))


anyio.run(main)
