"""Folders of people who mean harm, or have none, as processes serve them: reported, bounded, and nothing hangs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from conftest import Child
from support.clock import turns
from support.folders import write
from support.wires import MODERN, process_wire

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="as POSIX has files")]


async def test_what_ends_the_process_ends_it(tmp_path: Path, child: Child) -> None:
    """`os._exit` in a file that has changed: nothing runs after it. Its host sees the end, with that code."""
    write(tmp_path, {"tools/a.py": "def a() -> str:\n    return 'a'\n"})
    process = await asyncio.create_subprocess_exec(
        *child.mcpd("serve", "--stdio", "--reload", str(tmp_path)), env=child.env, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    await process.stdout.readline()
    write(tmp_path, {"tools/b.py": "import os\nos._exit(7)\n"})
    assert await asyncio.wait_for(process.wait(), 60) == 7
    process.stdin.close()


async def test_a_tree_that_grows_under_a_watch(tmp_path: Path, child: Child) -> None:
    """More folders than are watched, links round in circles, folders that come and go: the server answers."""
    write(tmp_path, {"tools/a.py": "def a() -> str:\n    return 'a'\n"})
    async with process_wire(child, "--reload", str(tmp_path), version=MODERN) as wire:
        assert await wire.text("a") == "a"
        for number in range(2100):
            (tmp_path / "tools" / f"d{number}").mkdir()
        (tmp_path / "tools" / "round").symlink_to(tmp_path / "tools")
        await wire.said("has more than 2000 folders")
        assert await wire.text("a") == "a"
        for number in range(2100):
            (tmp_path / "tools" / f"d{number}").rmdir()
        write(tmp_path, {"tools/b.py": "def b() -> str:\n    return 'b'\n"})
        async with asyncio.timeout(60):
            while "error" in await wire.request("tools/call", {"name": "b", "arguments": {}}):
                await turns(20)
    assert wire.code == 0
