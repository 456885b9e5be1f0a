"""What the clients in Python have in common: read the calls, open the tools of a server, call each, say what came.

    python smolagents_client.py http://127.0.0.1:8080/mcp  < calls.json
    python smolagents_client.py mcpd serve --stdio server.py  < calls.json

`calls.json` is `{"calls": [["add", {"a": 1}], …], "without": ["grow"]}`; tools to do without are not loaded, where
the framework can choose. What is printed is a line of JSON for each tool, `{"tool": …, "facts": …}`, then one for each
call, `{"call": 0, "result": …}` or `{"call": 0, "error": "…"}`. Runs in the framework's own environment.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

CALL_TIMEOUT = 60.0


class ToolFailed(Exception):
    """The framework reported a failed call in a way that is no exception; `str()` of it is what a model would read."""


class Target(NamedTuple):
    """The server: an address, or a command to start it."""

    url: str | None
    command: list[str]


class Loaded(NamedTuple):
    """A tool as the framework has it: how it is called, and what is told of it to a model."""

    call: Callable[[dict[str, Any]], Awaitable[Any]]
    facts: dict[str, Any]


Opened = Callable[[Target, list[str]], AbstractAsyncContextManager[dict[str, Loaded]]]


def main(opened: Opened) -> None:
    """Do what the command line and standard input ask for."""
    words = sys.argv[1:]
    target = Target(words[0], []) if words[0].startswith("http") else Target(None, words)
    asyncio.run(_use(opened, target, **json.load(sys.stdin)))


async def _use(opened: Opened, target: Target, calls: list[tuple[str, dict[str, Any]]], without: list[str]) -> None:
    async with opened(target, without) as tools:
        for name, tool in tools.items():
            _say({"tool": name, "facts": tool.facts})
        for index, (name, arguments) in enumerate(calls):
            try:
                async with asyncio.timeout(CALL_TIMEOUT):
                    _say({"call": index, "result": await tools[name].call(arguments)})
            except Exception as error:
                _say({"call": index, "error": f"{type(error).__name__}: {error}"})


def _say(record: dict[str, Any]) -> None:
    try:
        line = json.dumps(record, default=str)
    except ValueError as error:  # what holds itself
        line = json.dumps({**record, "facts": {"error": str(error)}})
    print(line, flush=True)


def content(result: Any) -> dict[str, Any]:
    """A result of the official package, as far as a model or a program looks at it; ToolFailed if it is an error."""
    wire = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    if wire.get("isError"):
        raise ToolFailed("\n".join(block.get("text", block["type"]) for block in wire["content"]))
    return {"content": wire["content"], "structured": wire.get("structuredContent")}
