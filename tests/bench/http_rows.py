"""HTTP in its kinds at 64 in flight: CPU time of the server for one call, beside raw uvicorn with httptools.

    .venv/bin/python tests/bench/http_rows.py [--rounds 9] [--package FOLDER]

All servers are open at once and take turns; a ratio is the median of those of neighbours in time, so that a machine
that others use disturbs it little. `events` says progress three times to a client that asked for it, and so answers
with an event stream; `json` is the same tool for a client that did not. `--package` measures the mcpd of another
checkout too, so that two states of the code are compared. The raw server is that of the harness in ../shared/bench.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ROOT.parent / "shared" / "bench" / "servers"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
TOKEN = "0123456789abcdef0123456789abcdef"
IN_FLIGHT, TURNS = 64, 12

SERVER = """
import sys
from mcpd import Context, Principal, Server
from mcpd.auth import StaticTokens
from mcpd.server.http import HttpSettings
kind, redis, token = sys.argv[1:4]
server = Server("bench", auth=StaticTokens({token: Principal("ada")}) if kind == "auth" else None)
@server.tool
async def echo(text: str) -> str:
    return text
@server.tool
async def steps(text: str, *, ctx: Context) -> str:
    for number in range(3):
        await ctx.progress(number + 1, total=3, message="on the way")
    return text
settings = HttpSettings(backplane=redis if kind == "redis" else None, idle_timeout=3600)
server.run(http="127.0.0.1:0", announce=lambda url: print(url, flush=True), http_settings=settings)
"""
RAW = """
import socket, sys, uvicorn
sys.path.insert(0, sys.argv[1])
from floor_asgi import app
listening = socket.create_server(("127.0.0.1", 0), backlog=128)
print("http://127.0.0.1:%d/mcp" % listening.getsockname()[1], flush=True)
config = uvicorn.Config(app, loop="asyncio", http="httptools", log_level="warning", access_log=False, ws="none",
    timeout_keep_alive=3600)
uvicorn.Server(config).run([listening])
"""

ROWS: dict[str, tuple[str, str, str]] = {
    # its server, its version, its tool
    "raw": ("raw", MODERN, "echo"),
    MODERN: ("open", MODERN, "echo"),
    f"{LEGACY}, sessions": ("open", LEGACY, "echo"),
    "with a token": ("auth", MODERN, "echo"),
    "sessions with a token": ("auth", LEGACY, "echo"),
    "with Redis": ("redis", MODERN, "echo"),
    "sessions with Redis": ("redis", LEGACY, "echo"),
    "json": ("open", MODERN, "steps"),
    "events": ("open", MODERN, "steps"),
    "json, sessions": ("open", LEGACY, "steps"),
    "events, sessions": ("open", LEGACY, "steps"),
}
BESIDE = {"events": "json", "events, sessions": "json, sessions"}


class Row:
    """One kind of call, on 64 connections of its own, each with a session of its own where there are sessions."""

    def __init__(self, name: str, process: subprocess.Popen[str], port: int) -> None:
        self.server, self.version, self.tool = ROWS[name]
        self.process, self.port = process, port
        self._events = name.startswith("events")
        self._next = 10_000_000
        self._lanes = []
        for _ in range(IN_FLIGHT):
            lane = socket.create_connection(("127.0.0.1", port))
            lane.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lanes.append((lane, self._open(lane)))

    def _open(self, lane: socket.socket) -> str:
        """The session's header line; empty where there are none."""
        if self.version != LEGACY:
            return ""
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        lane.sendall(self._bytes({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, ""))
        head, _ = answer(lane)
        (line,) = [line for line in head.split("\r\n") if line.lower().startswith("mcp-session-id:")]
        lane.sendall(self._bytes({"jsonrpc": "2.0", "method": "notifications/initialized"}, line + "\r\n"))
        answer(lane)
        return line + "\r\n"

    def _bytes(self, message: dict[str, object], more: str) -> bytes:
        body = json.dumps(message, separators=(",", ":")).encode()
        if self.version == MODERN:
            more += f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: {self.tool}\r\n"
        elif more:
            more += f"MCP-Protocol-Version: {LEGACY}\r\n"
        if self.server == "auth":
            more += f"Authorization: Bearer {TOKEN}\r\n"
        head = (
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\n{more}Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _call(self, id: int, line: str) -> bytes:
        meta: dict[str, object] = {"progressToken": id} if self._events else {}
        if self.version == MODERN:
            prefix = "io.modelcontextprotocol/"
            meta |= {f"{prefix}protocolVersion": MODERN, f"{prefix}clientInfo": {"name": "bench", "version": "1"}}
            meta |= {f"{prefix}clientCapabilities": {}}
        params = {"_meta": meta, "name": self.tool, "arguments": {"text": f"hello {id}"}}
        return self._bytes({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}, line)

    def turns(self, count: int) -> float:
        """Microseconds of the server's CPU for one call, after so many on each connection."""
        work = []
        for _ in range(count):
            work.append([(lane, self._next + place, line) for place, (lane, line) in enumerate(self._lanes)])
            self._next += IN_FLIGHT
        ready = [[(lane, id, self._call(id, line)) for lane, id, line in turn] for turn in work]
        before = used(self.process.pid)
        answers = []
        for turn in ready:
            for lane, _, data in turn:
                lane.sendall(data)
            answers += [(id, answer(lane)) for lane, id, _ in turn]
        took = used(self.process.pid) - before
        for id, (head, body) in answers:
            assert head.startswith("HTTP/1.1 200"), head
            assert f"hello {id}".encode() in body, body
            assert body.count(b"notifications/progress") == (3 if self._events else 0), body
        return took / (count * IN_FLIGHT) * 1e6


def answer(lane: socket.socket) -> tuple[str, bytes]:
    """The head and the body of one answer."""
    data = b""
    while True:
        piece = lane.recv(1 << 16)
        if not piece:
            raise ConnectionError("the server closed a connection")
        data += piece
        head, end, body = data.partition(b"\r\n\r\n")
        if not end:
            continue
        lowered = head.lower()
        if b"content-length:" in lowered:
            if len(body) == int(lowered.split(b"content-length:")[1].split(b"\r\n")[0]):
                return head.decode(), body
        elif b"chunked" not in lowered or body.endswith(b"\r\n0\r\n\r\n"):
            return head.decode(), body


def used(pid: int) -> float:
    """The CPU seconds of a process, to the microsecond."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def main() -> None:
    """Take turns, and print what each costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="of all servers in turn: %(default)s")
    parser.add_argument("--package", type=Path, help="another folder that has mcpd/, measured as `before`")
    parser.add_argument("--only", default="", help="rows whose names begin so, comma separated")
    options = parser.parse_args()

    packages = {"": ROOT, **({"before: ": options.package} if options.package else {})}
    only = tuple(options.only.split(","))
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer()).url if shutil.which("redis-server") else ""
        rows: dict[str, Row] = {}
        started: dict[tuple[str, str], tuple[subprocess.Popen[str], int]] = {}
        for before, package in packages.items():
            for name, (kind, _, _) in ROWS.items():
                is_missing = (kind == "raw" and (before or not FLOORS.is_dir())) or (kind == "redis" and not redis)
                if is_missing or not name.startswith(("raw", *only)):
                    continue
                if (before, kind) not in started:
                    started[before, kind] = start(stack, kind, redis, package)
                rows[before + name] = Row(name, *started[before, kind])
        report(rows, options.rounds)


def start(stack: ExitStack, kind: str, redis: str, package: Path) -> tuple[subprocess.Popen[str], int]:
    """A server of that kind, ended with the stack; and its port."""
    command = ["-c", RAW, str(FLOORS)] if kind == "raw" else ["-c", SERVER, kind, redis, TOKEN]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MCPD_", "PYTHON"))}
    env |= {"PYTHONPATH": str(package), "MCPD_STATE_KEY": secrets.token_hex(16)} if kind != "raw" else {}
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env,
        cwd=package,  # with -c it comes before PYTHONPATH
    )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout is not None
    return process, int(process.stdout.readline().rsplit(":", 1)[1].split("/")[0])


def report(rows: dict[str, Row], rounds: int) -> None:
    """Measure, and print a line for each."""
    cost: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(rounds + 1):
        names = list(rows) if number % 2 else [*reversed(rows)]
        for name in names:
            took = rows[name].turns(TURNS)
            if number:  # the first warms up
                cost[name].append(took)
    for name, found in cost.items():
        before = "before: " if name.startswith("before: ") else ""
        other = BESIDE.get(name.removeprefix("before: "))
        beside = "raw" if other is None else before + other
        line = f"{name:32} {median(found):6.1f} us of CPU"
        if beside in cost and name != beside:
            line += f", rate {median(a / b for a, b in zip(cost[beside], found, strict=True)):.2f} of {beside}"
        if f"before: {name}" in cost:
            ratio = median(a / b for a, b in zip(cost[f"before: {name}"], found, strict=True))
            line += f", {ratio:.2f} of before"
        print(line, flush=True)


if __name__ == "__main__":
    main()
