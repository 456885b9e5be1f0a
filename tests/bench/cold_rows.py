"""How long a host waits for a server on stdio: from the start of its process to the first byte of its first answer.

    .venv/bin/python tests/bench/cold_rows.py [--rounds 31] [--python PYTHON]

The starter, a file with two tools and a resource, and a folder with tools, prompts, resources and an app
(`examples/garden`, and the same without the SQLite and dataclasses that it imports itself), each by `python -m mcpd`
and by the installed command, beside the harness's floor (asyncio and msgspec) and beside Python alone.
All take turns; the ratio is of the least of all rounds, as a start is the same work each time. Medians are told too.
Needs the harness in ../shared/bench, which is not part of the repository.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT.parent / "shared" / "bench" / "servers"
LIGHT = {
    "lifespan.py": """
from collections.abc import AsyncIterator

class Shared:
    db: dict[str, list[str]]

async def lifespan() -> AsyncIterator[Shared]:
    shared = Shared()
    shared.db = {"north": ["kale"], "south": ["beans", "mint"]}
    yield shared
""",
    "tools/beds.py": """
from msgspec import Struct

class Bed(Struct):
    name: str
    plants: list[str]

def list_beds() -> list[Bed]:
    "List the beds, and what grows in each."
    return []

def plant(bed: str, name: str) -> str:
    "Plant something in a bed."
    return name
""",
}
"""Files of the garden that import nothing of their own, in place of its own ones."""

HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}  # fmt: skip


def waited(command: list[str], folder: Path, *, answers: bool = True) -> float:
    """Milliseconds until the first byte; for a command that gives no answer, until it has ended."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MCPD_"))}
    env |= {"BENCH_COMMON": str(HARNESS), "XDG_CACHE_HOME": str(folder)}
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=env
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(HELLO).encode() + b"\n")
        process.stdin.flush()
        data = os.read(process.stdout.fileno(), 65536)
        took = (time.perf_counter() - began) * 1000
        process.stdin.close()
        process.wait(timeout=60)
    assert (b'"result"' in data) is answers, data
    return took


def main() -> None:
    """Prints the least and the median of each, and its ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31, help="of all commands in turn: %(default)s")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="of another environment")
    options = parser.parse_args()
    if not HARNESS.is_dir():
        parser.error("the floor is in ../shared/bench, which this checkout does not have beside it")

    # An environment's Python is a link: followed, it would be a Python without the environment's packages.
    python = str(options.python.absolute())
    script = str(options.python.absolute().with_name("mcpd"))
    garden = str(ROOT / "examples" / "garden")
    file = str(ROOT / "tests" / "bench" / "bench_server.py")
    commands = {
        "floor: asyncio and msgspec": [python, str(HARNESS / "floor_stdio.py")],
        "python -c pass": [python, "-c", "input()"],
        "python -c 'import asyncio, msgspec'": [python, "-c", "import asyncio, msgspec; input()"],
    }
    for name, served in {"starter": ["--demo"], "file": [file], "folder": [garden]}.items():
        commands[f"{name}, python -m mcpd"] = [python, "-m", "mcpd", "serve", "--stdio", *served]
        commands[f"{name}, mcpd"] = [script, "serve", "--stdio", *served]

    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        light = folder / "garden"
        shutil.copytree(garden, light, ignore=shutil.ignore_patterns("__pycache__"))
        for file, text in LIGHT.items():
            (light / file).write_text(text, encoding="utf-8")
        commands["light folder, python -m mcpd"] = [python, "-m", "mcpd", "serve", "--stdio", str(light)]
        commands["light folder, mcpd"] = [script, "serve", "--stdio", str(light)]
        times = {name: [] for name in commands}
        for number in range(options.rounds + 2):
            for name, command in commands.items():
                took = waited(command, folder, answers="-c" not in command)
                if number >= 2:  # the first ones write bytecode
                    times[name].append(took)

    floor, *_ = times.values()
    for name, found in times.items():
        least, middle = min(found), statistics.median(found)
        print(
            f"{name:36} {least:6.1f} ms, median {middle:6.1f}, "
            f"{least / min(floor):.2f}x the floor, medians {middle / statistics.median(floor):.2f}x"
        )


if __name__ == "__main__":
    main()
