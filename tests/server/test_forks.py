"""Child processes that a tool forks and ends: the server goes on, whatever it is served over."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import Child

from mcpd import Client, TextContent

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="needs fork"),
    # What measures lines handles SIGTERM itself, under a lock that a forked child may find taken for ever.
    pytest.mark.unmeasured,
]

TOOLS = """
import multiprocessing, os, signal, time

def end(number: int) -> int:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
    process.start()
    os.kill(process.pid, number)
    process.join()
    return process.exitcode

@server.tool()
def plain(number: int) -> str:
    return str(end(number))

@server.tool()
async def in_loop(number: int) -> str:
    return str(end(number))

@server.tool()
def pool() -> str:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return str(pool.map(abs, range(-3, 0)))
"""
NATIVE = f"from mcpd import Server\nserver = Server('t')\n{TOOLS}"
COMPAT = f"from mcp.server.fastmcp import FastMCP\nserver = FastMCP('t')\n{TOOLS}"
PROGRAM = f"{NATIVE}\nif __name__ == '__main__':\n    server.run(stdio=True)\n"


async def use(client: Client) -> None:
    for tool in ("plain", "in_loop", "pool") * 2:
        arguments = {} if tool == "pool" else {"number": int(signal.SIGTERM)}
        (block,) = (await client.call_tool(tool, arguments)).content
        assert isinstance(block, TextContent)
        assert block.text == ("[3, 2, 1]" if tool == "pool" else f"-{int(signal.SIGTERM)}")


@contextmanager
def daemon(command: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("text", [NATIVE, COMPAT], ids=["native", "compat"])
async def test_on_stdio(child: Child, tmp_path: Path, text: str) -> None:
    (tmp_path / "server.py").write_text(text)
    async with Client(child.mcpd("serve", "--stdio", str(tmp_path / "server.py"))) as client:
        await use(client)


async def test_on_stdio_as_a_program(child: Child, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(PROGRAM)
    async with Client([child.python, str(tmp_path / "server.py")]) as client:
        await use(client)


@pytest.mark.parametrize("text", [NATIVE, COMPAT], ids=["native", "compat"])
@pytest.mark.parametrize("options", [("--http", ":0"), ("--ws", ":0"), ("--http", ":0", "--workers", "1")])
async def test_on_sockets(child: Child, tmp_path: Path, text: str, options: tuple[str, ...]) -> None:
    """It goes on, and the log says why it stops when it is stopped."""
    (tmp_path / "server.py").write_text(text)
    with daemon(child.mcpd("serve", *options, str(tmp_path / "server.py")), child.env) as process:
        assert process.stderr is not None
        while (found := re.search(r"listening on (\S+)", await asyncio.to_thread(process.stderr.readline))) is None:
            assert process.poll() is None
        async with Client(found[1]) as client:
            await use(client)
        process.terminate()
        rest = await asyncio.to_thread(process.stderr.read)
        assert process.wait() == 0
        assert ("stopping: the process received SIGTERM" in rest) is ("--workers" not in options)


async def test_ctrl_c_ends_a_child(child: Child, tmp_path: Path) -> None:
    """By a KeyboardInterrupt, or by the signal itself if that arrives while the child is made."""
    (tmp_path / "server.py").write_text(NATIVE)
    async with Client(child.mcpd("serve", "--stdio", str(tmp_path / "server.py"))) as client:
        for _ in range(2):
            (block,) = (await client.call_tool("plain", {"number": int(signal.SIGINT)})).content
            assert block in (TextContent("1"), TextContent(f"-{int(signal.SIGINT)}"))


SPAWN = """
import multiprocessing

def double(number: int) -> int:
    return 2 * number

def doubled() -> list[int]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(double, range(3))
"""
SPAWN_SERVER = f"from mcpd import Server\nserver = Server('t')\n{SPAWN}\nserver.tool(doubled)\n"


@pytest.mark.parametrize("name", ["server.py", "my-server.py", "40.py"])
async def test_a_spawned_pool_finds_the_file(child: Child, tmp_path: Path, name: str) -> None:
    """Its functions are pickled by the name of their module."""
    (tmp_path / name).write_text(SPAWN_SERVER)
    async with Client(child.mcpd("serve", "--stdio", str(tmp_path / name))) as client:
        result = await client.call_tool("doubled")
    assert result.structured_content == [0, 2, 4]


@pytest.mark.parametrize("name", ["my.server.py", "wave.py", "tools/doubled.py"])
def test_a_file_that_spawned_processes_cannot_import_is_named(child: Child, tmp_path: Path, name: str) -> None:
    is_tool = name.startswith("tools")
    (tmp_path / "tools").mkdir()
    (tmp_path / "mcpd.toml").touch()
    body = f"import multiprocessing\nmultiprocessing.set_start_method('spawn')\n{SPAWN if is_tool else SPAWN_SERVER}"
    (tmp_path / name).write_text(body)
    target = str(tmp_path if is_tool else tmp_path / name)
    said = subprocess.run(
        child.mcpd("check", target), env=child.env, check=False, capture_output=True, text=True
    ).stderr
    remedy = "move its functions into an installed package" if is_tool else "rename the file"
    assert f"these cannot import this file, so a pool waits forever; {remedy}" in said
