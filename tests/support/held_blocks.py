"""How many blocks of memory a call holds while it waits: counted in a process of its own, by `tests/test_counts.py`.

    python tests/support/held_blocks.py VERSION TOOL [VERSION TOOL …]

Blocks as Python's allocator counts them, of the whole process: in one that has run other tests, what these left behind
may still give some back and take others.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.wires import Wire, stdio_wire

from mcpd import Server

__all__ = ["blocks_of"]

TOGETHER = {"waits": 64, "blocks": 8}
"""The tools, and how many calls of one wait at a time."""


async def blocks_of(version: str, tool: str) -> float:
    """The blocks that one call of a tool holds; a few are of its client, in the same process."""
    server = Server("counts")
    loop = asyncio.get_running_loop()
    begun = asyncio.Semaphore(0)
    go_on = asyncio.Event()
    go_on_in_thread = threading.Event()

    @server.tool
    async def waits() -> str:
        begun.release()
        await go_on.wait()
        return ""

    @server.tool
    def blocks() -> str:
        loop.call_soon_threadsafe(begun.release)
        go_on_in_thread.wait()
        return ""

    async def held(wire: Wire, calls: int) -> int:
        """The blocks that so many calls hold while they wait."""
        before = _blocks_now()
        asked = [wire.ask("tools/call", {"name": tool}) for _ in range(calls)]
        for _ in asked:
            await begun.acquire()
        found = _blocks_now() - before

        go_on.set()
        go_on_in_thread.set()
        for one in asked:
            await wire.answer(one)
        go_on.clear()
        go_on_in_thread.clear()
        return found

    calls = TOGETHER[tool]
    async with stdio_wire(server, version) as wire:
        for _ in range(3):  # the first calls make what is kept
            await held(wire, calls)
        return min([await held(wire, calls) for _ in range(3)]) / calls


def _blocks_now() -> int:
    gc.collect()
    return sys.getallocatedblocks()


if __name__ == "__main__":
    for version, tool in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        print(asyncio.run(blocks_of(version, tool)))
