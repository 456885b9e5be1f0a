"""What a client that waits takes of a server's memory: a session, a listener, a WebSocket, a connection, in KiB.

    .venv/bin/python tests/bench/memory_rows.py [--many 2000] [--package FOLDER]

Resident memory that many of a kind add, apart from the first ones, which make what all share; each kind has a server of
its own, so that nothing freed by one is taken by the next. `--package` measures the mcpd of another checkout too.
`capacity.py` has the same of a node with a backplane, which keeps more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from capacity import AT_ONCE, idle, listener, resident, session, stream, websocket
from support.http_peer import Answer, Peer

ROOT = Path(__file__).resolve().parents[2]
KINDS = {
    "session, idle": session,
    "connection, idle": idle,
    "listener": listener,
    "session with a GET stream": stream,
    "WebSocket": websocket,
}
SERVER = """
from mcpd import Server
server = Server("memory")
@server.tool
async def echo(text: str) -> str:
    return text
server.run(http="127.0.0.1:0", announce=lambda url: print(url, flush=True))
"""


class Port:
    """Where a server listens, as `capacity` wants it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.peers: list[Peer] = []

    async def connect(self) -> Peer:
        """A connection, open until the server is ended."""
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.number))
        self.peers.append(peer)
        return peer

    async def ask(self, data: bytes) -> Answer:
        """One answer, on a connection that is closed then."""
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.number))
        answer = await peer.ask(data)
        await peer.aclose()
        return answer


async def each(package: Path, name: str, many: int) -> float:
    """KiB that one more takes."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MCPD_", "PYTHON"))}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=package,
        env={**env, "PYTHONPATH": str(package)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = Port(int(process.stdout.readline().rsplit(":", 1)[1].split("/")[0]))
        make = KINDS[name]
        for _ in range(5):
            await asyncio.gather(*(make(port) for _ in range(AT_ONCE)))
        before = resident(process.pid)
        for _ in range(0, many, AT_ONCE):
            await asyncio.gather(*(make(port) for _ in range(AT_ONCE)))
        return (resident(process.pid) - before) / many / 1024
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Print what one more of each kind takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=2000, help="of each kind: %(default)s")
    parser.add_argument("--package", type=Path, help="another folder that has mcpd/, measured beside")
    parser.add_argument("--only", default="", help="the kinds whose names begin so")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for name in KINDS:
        if name.startswith(options.only):
            found = [
                asyncio.run(each(package, name, options.many))
                for package in (ROOT, *([options.package] if options.package else []))
            ]
            print(f"{name:28} " + ", before ".join(f"{one:.1f} KiB" for one in found), flush=True)


if __name__ == "__main__":
    main()
