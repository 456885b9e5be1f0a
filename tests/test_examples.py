"""The servers in examples/: complete, without a word of `mcpd check`, and each tool answers in both eras."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY
from support.wires import LEGACY, MODERN, memory_wire

from mcpd import Server

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
ARGUMENTS: dict[str, dict[str, Any]] = {
    "advice": {"plant": "carrots"},
    "order": {"article": "Spade", "pieces": 2, "gift": True},
}


def load(path: Path) -> Server:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.server
    assert isinstance(server, Server)
    return server


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_every_tool_answers(path: Path, version: str) -> None:
    server = load(path)
    assert server.problems() == []
    async with memory_wire(server, version) as wire:
        tools = (await wire.result("tools/list"))["tools"]
        assert tools
        for tool in tools:
            called = {"name": tool["name"], "arguments": ARGUMENTS.get(tool["name"], {})}
            result = await wire.result("tools/call", called)
            assert result.get("isError") is not True, result
            assert result["content"]
