"""The three walks of DEVELOPERS.md: each function that a list names is entered by such a call, in that order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from conftest import REPOSITORY
from support.http_peer import serving
from support.profiled import profiled
from support.wires import MODERN, stdio_wire

import mcpd
from mcpd import Client, Server

PACKAGE = f"{Path(mcpd.__file__).parent}/"
MOST_LINES = 15


class Walk:
    """The functions of mcpd that are entered, in the order of their first call."""

    def __init__(self) -> None:
        self.entered: dict[str, None] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            module = code.co_filename.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")
            self.entered.setdefault(f"{module}:{code.co_qualname}")


def listed(title: str) -> list[str]:
    """The lines of the list below a heading of DEVELOPERS.md."""
    text = (REPOSITORY / "DEVELOPERS.md").read_text(encoding="utf-8")
    found = re.search(rf"^### {re.escape(title)}\n.*?```text\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return [line.split()[0] for line in found[1].splitlines()]


def check(title: str, walk: Walk) -> None:
    lines, entered = listed(title), list(walk.entered)
    assert 5 <= len(lines) <= MOST_LINES
    missing = [line for line in lines if line not in walk.entered]
    assert not missing, f"{title}: not entered: {missing}; these are: {entered}"
    assert lines == sorted(lines, key=entered.index), f"{title}: in this order: {entered}"


def make_server() -> Server:
    server = Server("walk")

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


async def test_a_call_over_stdio() -> None:
    walk = Walk()
    async with stdio_wire(make_server(), MODERN) as wire:
        await wire.text("echo", text="a")
        with profiled(walk):
            await wire.text("echo", text="a")
    check("`tools/call` over stdio", walk)


async def test_a_post() -> None:
    walk, call = Walk(), {"name": "echo", "arguments": {"text": "a"}}
    async with serving(make_server()) as port:
        await port.modern("tools/call", call)
        with profiled(walk):
            await port.modern("tools/call", call)
    check("A POST of 2026-07-28", walk)


async def test_a_call_of_a_client(tmp_path: Path) -> None:
    file, walk = tmp_path / "server.py", Walk()
    file.write_text(
        "from mcpd import Server\nserver = Server('w')\n\n@server.tool\ndef echo(text: str) -> str:\n    return text\n"
    )
    async with Client([sys.executable, "-m", "mcpd", "serve", "--stdio", str(file)]) as client:
        await client.call_tool("echo", {"text": "a"})
        with profiled(walk):
            await client.call_tool("echo", {"text": "a"})
    check("`Client.call_tool`", walk)


@pytest.mark.parametrize("word", ["protocol", "transports", "server", "client", "cli"])
def test_the_map_comes_first(word: str) -> None:
    first_screen = (REPOSITORY / "DEVELOPERS.md").read_text(encoding="utf-8").splitlines()[:45]
    assert any(f" {word} " in line for line in first_screen)


def test_it_can_be_read_in_ten_minutes() -> None:
    assert len((REPOSITORY / "DEVELOPERS.md").read_text(encoding="utf-8").split()) <= 2500
