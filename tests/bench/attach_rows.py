"""What `mcpd serve --stdio --attach` costs beside a process for each client.

    .venv/bin/python tests/bench/attach_rows.py [--rounds 31]

The first reply with a running daemon, beside a direct start and beside a Python that does nothing; a round trip, alone
and with 64 in flight, attached and direct in turns; the private memory of one more client. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SERVER = """
from mcpd import Server

server = Server("bench")


@server.tool
async def echo(text: str) -> str:
    return text
"""
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}  # fmt: skip
CALL = '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}\n'


class Client:
    """One client, and how long its first reply took."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        began = time.perf_counter()
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._number = 1
        self.write(json.dumps(HELLO) + "\n")
        self.read()
        self.seconds = time.perf_counter() - began

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def read(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def trips(self, rounds: int, in_flight: int) -> list[float]:
        """Seconds for each round of so many calls."""
        times = []
        for _ in range(rounds):
            text = "".join(CALL % (self._number + number) for number in range(1, in_flight + 1))
            self._number += in_flight
            began = time.perf_counter()
            self.write(text)
            for _ in range(in_flight):
                self.read()
            times.append(time.perf_counter() - began)
        return times

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def private_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Private_"))


def measure(folder: Path, rounds: int) -> None:
    file = folder / "server.py"
    file.write_text(SERVER)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    script = str(Path(sys.executable).with_name("mcpd"))
    direct = [script, "serve", "--stdio", str(file)]
    attached = [script, "serve", "--stdio", "--attach", str(file)]
    first = Client(attached, environment)
    daemon = next(int(path.stem.removeprefix("control-")) for path in (folder / "mcpd").glob("control-*.sock"))
    try:
        starts: dict[str, list[float]] = {"python -I -S -c pass": [], "attached": [], "direct": []}
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
            starts["python -I -S -c pass"].append(time.perf_counter() - began)
            for name, command in (("attached", attached), ("direct", direct)):
                client = Client(command, environment)
                starts[name].append(client.seconds)
                client.end()
        for name, seconds in starts.items():
            print(f"{name:22} {min(seconds) * 1000:6.1f} ms least, {statistics.median(seconds) * 1000:6.1f} median")

        alone = Client(direct, environment)
        for in_flight, count in ((1, 300), (64, 60)):
            times: dict[str, list[float]] = {"attached": [], "direct": []}
            for _ in range(max(rounds // 3, 3)):
                times["attached"] += first.trips(count, in_flight)
                times["direct"] += alone.trips(count, in_flight)
            for name, place in (("p50", 0.5), ("p99", 0.99)):
                own, other = (sorted(times[key])[int(len(times[key]) * place)] for key in ("attached", "direct"))
                print(f"{in_flight:2} calls, {name}: {own * 1e6:7.1f} µs, direct {other * 1e6:7.1f}, {own / other:.2f}")

        before = private_bytes(daemon)
        others = [Client(attached, environment) for _ in range(10)]
        waiting = statistics.mean(private_bytes(each.process.pid) for each in others)
        share = (private_bytes(daemon) - before) / len(others)
        whole = private_bytes(alone.process.pid)
        print(f"one more client: {(waiting + share) / 1024:.0f} KiB; a process of its own: {whole / 1024:.0f} KiB")
        for each in (*others, alone):
            each.end()
    finally:
        first.end()
        os.kill(daemon, signal.SIGTERM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), parser.parse_args().rounds)


if __name__ == "__main__":
    main()
