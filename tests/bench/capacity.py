"""What a node of a service takes: memory for each client that waits, in the node and in Redis, and CPU for each call.

    .venv/bin/python tests/bench/capacity.py [--many 2000]

Memory is resident memory of the process, over many of a kind; CPU is that of the node alone, whatever else the machine
does. What docs/several-processes.md says comes from here.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.drills import drill
from support.http_peer import Peer, Port, Session, call, initialize, modern, post, request
from support.service_stage import Service
from support.websocket_peer import upgrade

REPOSITORY = Path(__file__).resolve().parent.parent.parent
AT_ONCE = 50


def resident(pid: int) -> int:
    """Bytes of a process that are in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def session(port: Port) -> str:
    """A session, its connection closed."""
    answer = await port.ask(post(initialize()))
    return answer["mcp-session-id"]


async def idle(port: Port) -> Peer:
    """A connection on which something was asked."""
    peer = await port.connect()
    await peer.ask(modern("tools/list"))
    return peer


async def listener(port: Port) -> Peer:
    """A client of 2026-07-28 that listens."""
    peer = await port.connect()
    peer.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    await peer.head()
    await peer.message()
    return peer


async def stream(port: Port) -> Peer:
    """A session up to 2025-11-25 with its GET stream."""
    id = await session(port)
    peer = await port.connect()
    peer.send(request("GET", "/mcp", [("Accept", "text/event-stream"), ("Mcp-Session-Id", id)]))
    await peer.head()
    await peer.event()
    return peer


async def websocket(port: Port) -> Peer:
    """A WebSocket, not initialized."""
    peer = await port.connect()
    peer.send(upgrade())
    await peer.head()
    return peer


async def memory(served: Service, many: int) -> None:
    """Print what one of each kind takes."""
    port, pid = served.node(0), served.nodes[0].pid
    print(f"process without clients: {resident(pid) / 1024 / 1024:.1f} MiB", flush=True)
    kinds: dict[str, Callable[[Port], Awaitable[Any]]] = {
        "session, idle": session, "connection, idle": idle, "listener": listener,
        "session with a GET stream": stream, "WebSocket": websocket,
    }  # fmt: skip
    for name, make in kinds.items():
        for _ in range(AT_ONCE):
            await make(port)
        before = resident(pid)
        for _ in range(0, many, AT_ONCE):
            await asyncio.gather(*(make(port) for _ in range(AT_ONCE)))
        print(f"{name}: {(resident(pid) - before) / many / 1024:.1f} KiB in the node", flush=True)


async def in_redis(served: Service) -> None:
    """Print what is kept there of a session."""
    port = served.node(0)

    async def bytes_of(pattern: str, text: str) -> None:
        keys = (await served.redis.asay("KEYS", pattern)).split()
        sizes = [int(await served.redis.asay("MEMORY", "USAGE", key)) for key in keys]
        print(f"{text}: {sum(sizes) / len(sizes):.0f} bytes in Redis", flush=True)

    for _ in range(10):
        ended = Session(port, "2025-11-25")
        await ended.open()
        await ended.ask("resources/subscribe", {"uri": "drill://text"})
        if _ % 2:
            await port.ask(ended.delete())
    await bytes_of("mcpd:*:n:*", "process")
    await bytes_of("*:x", "session that its client ended")
    await bytes_of("*:m", "session with a log level or a watched resource")


async def calls(served: Service, many: int) -> None:
    """Print the CPU time of a call of a tool that does nothing."""
    port, pid = served.node(0), served.nodes[0].pid
    id = await session(port)
    params = {"name": "pid", "arguments": {}}
    kinds = {
        "2026-07-28": modern("tools/call", params),
        "2025-11-25": post(call("tools/call", params), {"Mcp-Session-Id": id, "MCP-Protocol-Version": "2025-11-25"}),
    }
    peer = await port.connect()
    for name, data in kinds.items():
        for _ in range(200):
            await peer.ask(data)
        before = cpu(pid)
        for _ in range(many):
            await peer.ask(data)
        took = (cpu(pid) - before) / many
        print(f"call in {name}: {took * 1e6:.0f} us of CPU, {1 / took:.0f} a second on one core", flush=True)


async def measure(served: Service, many: int) -> None:
    await memory(served, many)
    await in_redis(served)
    await calls(served, 3 * many)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=2000)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MCPD_", "MCP_"))}
    child = SimpleNamespace(python=sys.executable, env={**env, "PYTHONPATH": str(REPOSITORY)})
    with tempfile.TemporaryDirectory(prefix="mcpd-capacity-") as folder:
        with drill(child, Path(folder), number=1, proxies=()) as (served, _):
            asyncio.run(measure(served, options.many))


if __name__ == "__main__":
    main()
