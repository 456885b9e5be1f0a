"""The stage of `tests/server/processes`: wires to the server in `process_tools.py`, and looks at its processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.wires import MODERN, Wire, memory_wire

from mcpd import Server
from mcpd.server.processes import pool
from mcpd.server.processes.pool import Pool

TOOLS = Path(__file__).parent / "process_tools.py"


@asynccontextmanager
async def wire_to(server: Server, version: str = MODERN, **opening: Any) -> AsyncIterator[Wire]:
    """A wire to a server, whose lifespan is open meanwhile."""
    await server.open()
    async with memory_wire(server, version, **opening) as wire:
        yield wire
    await server.aclose()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pools() -> list[Pool]:
    """The pools of this event loop."""
    return list(pool._pools[asyncio.get_running_loop()].values())


async def begin(wire: Wire, tool: str, **arguments: Any) -> tuple[Any, int]:
    """Call a tool that does not end; the id of the request, and the process id that it reports."""
    params = {"name": tool, "arguments": arguments}
    request = wire.ask("tools/call", params, meta={"progressToken": f"p-{tool}"})
    message = await wire.receive()
    assert message["method"] == "notifications/progress", message
    return request, int(message["params"]["progress"])
