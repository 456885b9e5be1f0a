"""What it costs to reach a server through `mcpd serve -- command` and `mcpd connect`, beside other proxies.

    .venv/bin/python tests/bench/mount_rows.py [--rounds 15] [--fastmcp PYTHON] [--mcp-proxy COMMAND]

The server is the same `echo` of mcpd everywhere, and all take turns in one run: it alone, mounted by mcpd, behind
FastMCP's proxy (a Python with `fastmcp`), and over HTTP behind `mcpd connect` and mcp-proxy. Of each: the time of a
round trip, and the processor time of a call in all its processes; then the first reply of the two that need a URL, with
the processor time until then and the memory. MNT-43 asks for at most 150 µs more, 2.5 times the processor time of the
server alone, a tenth of FastMCP's proxy, and a third of the first reply of mcp-proxy. Linux only.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
from pathlib import Path

from attach_rows import SERVER, Client

FASTMCP = """
import sys
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
create_proxy(StdioTransport(sys.argv[1], sys.argv[2:], keep_alive=True)).run(show_banner=False)
"""


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    tasks = Path(f"/proc/{pid}/task")
    children = [int(each) for task in tasks.iterdir() for each in (task / "children").read_text().split()]
    return [pid, *(each for child in children for each in family(child))]


def processor_seconds(pids: list[int]) -> float:
    """The processor time that all threads of these processes have taken."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def resident_bytes(pid: int) -> int:
    """The memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


class Row:
    """One way to the server, and what its calls took. `others` are processes that were started before."""

    def __init__(self, command: list[str], environment: dict[str, str], others: list[int]) -> None:
        self.client = Client(command, environment)
        self.client.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self._others = others
        self.trips: list[float] = []
        self.processor: list[float] = []

    def turn(self, calls: int, in_flight: int) -> None:
        """Make some calls."""
        pids = [*family(self.client.process.pid), *self._others]
        before = processor_seconds(pids)
        self.trips += self.client.trips(calls, in_flight)
        self.processor.append((processor_seconds(pids) - before) / (calls * in_flight))


def show(rows: dict[str, Row], in_flight: int) -> None:
    print(f"{in_flight} in flight         p50 of a round     processor time of a call")
    for name, row in rows.items():
        print(f"  {name:22}{statistics.median(row.trips) * 1e6:8.0f} µs     {min(row.processor) * 1e6:8.0f} µs least")
    direct, mounted = rows["direct"], rows["mcpd mounted"]
    added = statistics.median(mounted.trips) - statistics.median(direct.trips)
    ratio = min(mounted.processor) / min(direct.processor)
    print(f"  mounted: {added * 1e6:.0f} µs more in a round, {ratio:.2f} times the processor time")
    for name in rows.keys() & {"FastMCP's proxy", "mcp-proxy"}:
        ours = rows["mcpd connect" if name == "mcp-proxy" else "mcpd mounted"]
        print(f"  {name}: {min(rows[name].processor) / min(ours.processor):.1f} times the processor time of ours")


def first_replies(commands: dict[str, list[str]], environment: dict[str, str], rounds: int, folder: Path) -> None:
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in commands}
    for number in range(rounds):
        for name, command in commands.items():
            cache = folder / (f"cold{number}" if name.endswith("cold") else "cache")
            client = Client(command, {**environment, "XDG_CACHE_HOME": str(cache)})
            pid = client.process.pid
            found[name].append((client.seconds, processor_seconds([pid]), resident_bytes(pid)))
            client.end()
    for name, each in found.items():
        waited, processor, memory = zip(*each, strict=True)
        seconds = f"{min(waited) * 1000:7.0f} ms least, {statistics.median(waited) * 1000:5.0f} median"
        memories = f"{statistics.median(memory) / 2**20:5.1f} MB"
        print(f"  {name:22}{seconds}, processor {min(processor) * 1000:5.0f} ms, {memories}")


def measure(folder: Path, rounds: int, fastmcp: str, mcp_proxy: str) -> None:
    (folder / "server.py").write_text(SERVER)
    (folder / "proxy.py").write_text(FASTMCP)
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    mcpd = str(Path(sys.executable).with_name("mcpd"))
    direct = [mcpd, "serve", "--stdio", str(folder / "server.py")]
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    web = Client([*direct, "--http", address], environment)  # answers on stdio when it listens
    pid, url = web.process.pid, f"http://{address}/mcp"
    connect = {"mcpd connect": [mcpd, "connect", url], "mcpd connect, cold": [mcpd, "connect", url]}
    stdio = {"direct": direct, "mcpd mounted": [mcpd, "serve", "--stdio", "--", *direct]}
    if fastmcp:
        stdio["FastMCP's proxy"] = [fastmcp, str(folder / "proxy.py"), *direct]
    if mcp_proxy:
        connect["mcp-proxy"] = [mcp_proxy, "--transport", "streamablehttp", url]
    print("first reply")
    first_replies(connect, environment, rounds, folder)
    del connect["mcpd connect, cold"]
    for in_flight, calls in ((1, 50), (64, 4)):
        rows = {name: Row(command, environment, []) for name, command in stdio.items()}
        rows |= {name: Row(command, environment, [pid]) for name, command in connect.items()}
        for number in range(rounds + 1):
            for row in rows.values():
                row.turn(calls, in_flight)
                if not number:  # the first calls load modules
                    row.trips.clear()
                    row.processor.clear()
        show(rows, in_flight)
        for row in rows.values():
            row.client.end()
    web.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--fastmcp", default="", help="a Python with fastmcp")
    parser.add_argument("--mcp-proxy", default="", help="the command mcp-proxy")
    with tempfile.TemporaryDirectory() as folder:
        given = parser.parse_args()
        measure(Path(folder), given.rounds, given.fastmcp, given.mcp_proxy)


if __name__ == "__main__":
    main()
