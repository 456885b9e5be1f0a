"""What a call costs in counts that do not scatter: steps, system calls, turns of the loop, memory; and what a start
imports.

Times are for `make bench`, on a quiet machine. A change that adds a step to each call shows here, wherever it runs.
Recorded is what was found, with little room: who makes it less writes the new number down (`docs/performance.md`).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

import pytest
from conftest import Child
from support.http_peer import modern, serving
from support.wires import LEGACY, MODERN, OpenWire, stdio_wire, websocket_wire
from test_imports import PLAIN_SERVER, loaded_at_start

import mcpd
from mcpd import Server

Most: TypeAlias = tuple[float, float, float]
"""Steps, system calls and turns of the loop for one call."""

PACKAGE = str(Path(mcpd.__file__).parent)
SYSTEM = {"posix", "nt", "select"}
TURN = asyncio.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
CALLS = 64
HELD_BLOCKS = str(Path(__file__).parent / "support" / "held_blocks.py")


class Counts:
    """Of the loop's thread: how often a function of mcpd is entered or resumed, how often one asks the system, and
    how often the loop turns."""

    def __init__(self) -> None:
        self.steps = 0
        self.system = 0
        self.turns = 0
        self._is_ours: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        is_ours = self._is_ours.get(code)
        if is_ours is None:
            is_ours = self._is_ours[code] = code.co_filename.startswith(PACKAGE)
        if event == "call":
            self.steps += is_ours
            self.turns += code is TURN
        elif event == "c_call" and is_ours and getattr(argument, "__module__", None) in SYSTEM:
            self.system += 1

    def check(self, most: Most) -> None:
        """Of 64 calls: no more for each than recorded."""
        found = (self.steps / CALLS, self.system / CALLS, self.turns / CALLS)
        print(f"{found[0]:.1f} steps, {found[1]:.2f} system calls, {found[2]:.2f} turns")
        assert all(one <= limit for one, limit in zip(found, most, strict=True)), f"{found} is more than {most}"


@contextmanager
def counting() -> Iterator[Counts]:
    counts = Counts()
    sys.setprofile(counts)
    try:
        yield counts
    finally:
        sys.setprofile(None)


# (the wire, version, tool, how many at a time): the most steps, system calls and turns for 64 calls. Of an end in the
# same process some turns are the client's.
ROWS: list[tuple[OpenWire, str, str, int, Most]] = [
    (stdio_wire, LEGACY[-1], "echo", 1, (15.5, 2, 3.5)),
    (stdio_wire, LEGACY[-1], "echo", 64, (12.5, 0.1, 0.1)),
    (stdio_wire, MODERN, "echo", 1, (15.5, 2, 3.5)),
    (stdio_wire, MODERN, "echo", 64, (12.5, 0.1, 0.1)),
    (stdio_wire, LEGACY[-1], "plain", 1, (59.5, 4, 5.5)),
    (stdio_wire, LEGACY[-1], "plain", 64, (34, 0.2, 0.2)),
    (websocket_wire, LEGACY[-1], "echo", 1, (17.5, 0, 4.5)),
    (websocket_wire, LEGACY[-1], "echo", 64, (13.5, 0, 0.1)),
]


@pytest.mark.parametrize(("open_wire", "version", "tool", "together", "most"), ROWS)
async def test_a_call_takes_no_more_than_recorded(
    open_wire: OpenWire, version: str, tool: str, together: int, most: Most
) -> None:
    server = Server("counts")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    def plain(text: str) -> str:
        return text

    async with open_wire(server, version) as wire:

        async def calls(count: int) -> None:
            for _ in range(count // together):
                asked = [wire.ask("tools/call", {"name": tool, "arguments": {"text": "a"}}) for _ in range(together)]
                for one in asked:
                    assert (await wire.answer(one))["result"]["content"][0]["text"] == "a"

        await calls(2 * CALLS)  # the first calls make what is kept
        with counting() as counts:
            await calls(CALLS)
    counts.check(most)


@pytest.mark.parametrize(("in_a_session", "most"), [(True, (47.5, 0, 3.5)), (False, (43.5, 0, 3.5))])
async def test_a_post_takes_no_more_than_recorded(in_a_session: bool, most: Most) -> None:
    server = Server("counts")

    @server.tool
    async def echo(text: str) -> str:
        return text

    call = {"name": "echo", "arguments": {"text": "a"}}
    async with serving(server) as port:
        session = await port.open() if in_a_session else None
        peer = await port.connect()

        async def calls(count: int) -> None:
            for number in range(count):
                if session is None:
                    peer.send(modern("tools/call", call))
                else:
                    peer.send(
                        session.bytes({"jsonrpc": "2.0", "id": number + 9, "method": "tools/call", "params": call})
                    )
                answer = await peer.answer()
                assert answer.status == 200
                assert b'"a"' in answer.body

        await calls(2 * CALLS)
        with counting() as counts:
            await calls(CALLS)
    counts.check(most)


# (version, the tool): how many blocks of memory a call holds while it waits.
HELD = {(LEGACY[-1], "waits"): 26, (MODERN, "waits"): 29, (LEGACY[-1], "blocks"): 38}


def test_a_call_that_waits_holds_no_more_memory_than_recorded(child: Child) -> None:
    rows = [text for row in HELD for text in row]
    counted = subprocess.run(
        [child.python, HELD_BLOCKS, *rows], env=child.env, capture_output=True, text=True, timeout=100, check=True
    )  # fmt: skip
    found = dict(zip(HELD, map(float, counted.stdout.split()), strict=True))
    print(found)
    assert all(found[row] <= most for row, most in HELD.items()), f"{found} is more than {HELD}"


@pytest.mark.parametrize(("is_file", "most"), [(False, 109), (True, 88)])
def test_a_start_imports_no_more_than_recorded(child: Child, tmp_path: Path, is_file: bool, most: int) -> None:
    (tmp_path / "plain.py").write_text(PLAIN_SERVER, encoding="utf-8")
    loaded = loaded_at_start(child, *([str(tmp_path / "plain.py")] if is_file else []))
    ours = sum(name.startswith("mcpd") for name in loaded)
    print(len(loaded), ours)
    assert ours <= most + (sys.version_info >= (3, 12))  # `dispatcher.eager`, beside what it builds on
