"""How long a host waits for the first answer of a folder with documents, as a ratio to the built-in starter.

Both run interleaved over stdio, from the start of the process to the answer to `initialize`:
`python tests/bench/docs_start.py FOLDER [--rounds N]`, where FOLDER has the documents. With `--lists` the time to the
first list of tools and of resources is measured too.
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
from typing import Any

HELLO = {
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


def answers(command: list[str], folder: Path, requests: list[dict[str, Any]]) -> list[float]:
    """Milliseconds from the start of the process to each answer, one request after the other."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["XDG_CACHE_HOME"] = str(folder / "cache")
    began = time.perf_counter()
    found = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=env
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, request in enumerate(requests):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, **request}).encode() + b"\n")
            process.stdin.flush()
            while json.loads(process.stdout.readline()).get("id") != number:
                pass
            found.append((time.perf_counter() - began) * 1000)
        process.stdin.close()
        process.wait(timeout=60)
    return found


def main() -> None:
    """Prints the medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--lists", action="store_true")
    options = parser.parse_args()
    requests = [HELLO, {"method": "tools/list"}, {"method": "resources/list"}] if options.lists else [HELLO]

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        served = root / "served"
        served.mkdir()
        (served / "docs").symlink_to(options.folder.resolve())
        commands = {
            "starter": [sys.executable, "-m", "mcpd", "serve", "--stdio", "--demo"],
            "documents": [sys.executable, "-m", "mcpd", "serve", "--stdio", str(served)],
        }
        times: dict[str, list[list[float]]] = {name: [] for name in commands}
        for number in range(options.rounds + 2):
            for name, command in commands.items():
                took = answers(command, root, requests)
                if number >= 2:  # the first ones write bytecode
                    times[name].append(took)

    for at, request in enumerate(requests):
        medians = {name: statistics.median(one[at] for one in found) for name, found in times.items()}
        told = ", ".join(f"{name} {took:.0f} ms" for name, took in medians.items())
        print(f"{request['method']}: {told}, ratio {medians['documents'] / medians['starter']:.2f}")


if __name__ == "__main__":
    main()
