"""How long a host waits for the first answer of an unchanged `mcp` 1.x server: under mcpd, and under `mcp` itself.

Both run interleaved, from the start of the process to the answer to `initialize`: `python tests/bench/first_answer.py`.
Needs `make setup`, which puts `mcp` 1.x into .tools/mcp1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
THEIRS = ROOT / ".tools" / "mcp1" / "bin" / "python"

SERVER = """
from mcp.server.fastmcp import FastMCP

mcp = FastMCP("old")


@mcp.tool()
def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b


if __name__ == "__main__":
    mcp.run()
"""

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


def first_answer(command: list[str], folder: Path) -> float:
    """Milliseconds until a server that is started now has answered."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=env
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(HELLO).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        took = time.perf_counter() - began
        process.stdin.close()
        process.wait(timeout=60)
    assert b'"serverInfo"' in line, line
    return took * 1000


def main() -> None:
    """Print the medians of both, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has mcpd")
    parser.add_argument("--theirs", default=str(THEIRS), help="the one that has mcp 1.x")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "old.py").write_text(SERVER, encoding="utf-8")
        commands = {
            "mcpd": [arguments.python, "-m", "mcpd", "serve", "--stdio", "old.py"],
            "mcp": [arguments.theirs, "old.py"],
        }
        for command in commands.values():  # once for the bytecode
            first_answer(command, folder)
        took: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(arguments.rounds):
            for name, command in commands.items():
                took[name].append(first_answer(command, folder))

    middle = {name: statistics.median(times) for name, times in took.items()}
    ratio = statistics.median(ours / theirs for ours, theirs in zip(took["mcpd"], took["mcp"], strict=True))
    print(f"mcpd {middle['mcpd']:.0f} ms, mcp {middle['mcp']:.0f} ms; ratio {ratio:.3f} (median of {arguments.rounds})")


if __name__ == "__main__":
    main()
