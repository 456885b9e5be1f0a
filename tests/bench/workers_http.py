"""What a second process brings: answers per second of one process and of `--workers 2`, side by side over HTTP.

`.venv/bin/python tests/bench/workers_http.py [ROUNDS [SECONDS]]`: an echo, and a tool that computes for 5 ms, of
2026-07-28, asked by `wrk` (Debian's package) over 64 connections for so many seconds in turns. Printed is the median of
the ratios, and that of the least disturbed round: that in which one process did most. Other programs do not disturb the
processor time of an answer, which is printed too, for `wrk` also: on two cores, where the client runs as well, two
workers can give at most `2 / (workers + wrk)` where one process gives `1 / one`. To be run on a machine that does
nothing else.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

SERVER = """
from time import perf_counter
from mcpd import Server
server = Server("bench")

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
async def compute(text: str) -> str:
    end = perf_counter() + 0.005
    while perf_counter() < end:
        pass
    return text
"""
META = "io.modelcontextprotocol/"
ENVELOPE = {
    f"{META}protocolVersion": "2026-07-28",
    f"{META}clientCapabilities": {},
    f"{META}clientInfo": {"name": "wrk", "version": "4"},
}
REACH = {"echo": 1.5, "compute": 1.6}


def script(tool: str) -> str:
    """What `wrk` sends, in its own language."""
    params = {"name": tool, "arguments": {"text": "hello"}, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    lines = [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
    return "\n".join(['wrk.method = "POST"', f"wrk.body = [=[{body}]=]", *lines])


def start(folder: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    """A server, and its URL."""
    command = [sys.executable, "-m", "mcpd", "serve", "--http", ":0", *options, str(folder / "server.py")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url, said = "", ""
    for line in process.stderr:
        said += line
        found = re.search(r"listening on (http://\S+)", line)
        url = found[1] if found else url
        if url and ("warning" in line or "workers (pid" in line or "Config" in line):
            break
    assert url, said
    return process, url


def used(process: subprocess.Popen[str]) -> float:
    """The processor time of a process and its children, in seconds."""
    folders = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    found = 0.0
    for pid in folders:
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if process.pid in (pid, int(words[1])):
            found += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return found


def rate(url: str, lua: Path, seconds: int) -> float:
    """Answers per second; each was 200."""
    command = ["wrk", "-t1", "-c64", f"-d{seconds}s", "-s", str(lua), url]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in told, told
    found = re.search(r"Requests/sec:\s+([\d.]+)", told)
    assert found is not None, told
    return float(found[1])


def _of_wrk() -> float:
    """The processor time of all children that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> None:
    """Measure, and print."""
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed: apt-get install wrk")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server.py").write_text(SERVER)
        one, two = start(folder), start(folder, "--workers", "2")
        try:
            for tool, reach in REACH.items():
                lua = folder / f"{tool}.lua"
                lua.write_text(script(tool))
                found: list[tuple[float, float]] = []
                times = [used(one[0]), used(two[0]), _of_wrk()]
                for _ in range(rounds):
                    found.append((rate(one[1], lua, seconds), rate(two[1], lua, seconds)))
                times = [
                    after - before for before, after in zip(times, (used(one[0]), used(two[0]), _of_wrk()), strict=True)
                ]
                answers = [sum(each) * seconds for each in zip(*found, strict=True)]
                alone, workers = (took / count * 1e6 for took, count in zip(times, answers, strict=False))
                client = times[2] / sum(answers) * 1e6
                single, both = max(found)
                print(
                    f"{tool}: --workers 2 gives {median(b / s for s, b in found):.2f} times one process, the median of "
                    f"{rounds} rounds, "
                    f"{both / single:.2f} in the least disturbed round ({single:.0f}/s, {both:.0f}/s), reach {reach}; "
                    f"processor time of an answer: one {alone:.0f} us, workers {workers:.0f} us, wrk {client:.0f} us, "
                    f"so at most {min(2.0, 2 / (workers + client) * alone):.2f} on two cores"
                )
        finally:
            for process, _ in (one, two):
                process.terminate()
                process.communicate()


if __name__ == "__main__":
    main()
