"""What one call of each kind takes, in counts: instructions and blocks of memory under callgrind, system calls under
strace, and functions of Python under `sys.setprofile`, with those that are entered most.

    .venv/bin/python tests/bench/profile_rows.py [--only "stdio, one" ...] [--package FOLDER]

Nothing is timed, so that a busy machine disturbs nothing. Each count is that of many calls less that of few, by the
difference of calls: start and end of the server are not in it, but in the rows of a start, which have all of a process
that has answered `initialize`. Instructions and blocks are of user mode; the kernel's share is in the system calls.
Needs valgrind and strace, a row with Redis its server; takes a minute a row. `--package` takes mcpd from another
checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[2]
LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
FEW, MANY = 512, 2560

COUNTING = """
from collections import Counter

counts = Counter()

def entered(frame, event, argument):
    if event == "call":
        code = frame.f_code
        place = code.co_filename.rpartition("/mcpd/")[2] if "/mcpd/" in code.co_filename else ""
        counts[place and place + ":" + code.co_qualname] += 1
"""
SERVER = (
    COUNTING
    + """
import json, sys
from mcpd import Context, Server
server = Server("profile")

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
def plain(text: str) -> str:
    return text

@server.tool
async def steps(text: str, *, ctx: Context) -> str:
    for number in range(3):
        await ctx.progress(number + 1, total=3, message="on the way")
    return text

@server.tool
async def watch() -> str:
    counts.clear()
    sys.setprofile(entered)
    return "watched"

@server.tool
async def told() -> str:
    sys.setprofile(None)
    return json.dumps(counts.most_common(60))
"""
)

LISTED = """
for number in range(1000):
    async def tool(text: str, times: int = 1) -> str:
        return text
    tool.__name__ = f"tool{number}"
    server.tool(tags={"even" if number % 2 == 0 else "odd"})(tool)
"""
RULE = """
@server.visibility
KIND seen(entry, ctx):
    return "admin" not in entry.tags
"""
CLIENT = (
    COUNTING
    + """
import asyncio, json, sys
from mcpd import Client

async def main(server, calls, names):
    async with Client(server) as client:
        await client.call_tool("echo", {"text": "hello"})
        if names:
            sys.setprofile(entered)
        for _ in range(calls):
            await client.call_tool("echo", {"text": "hello"})
        sys.setprofile(None)
    if names:
        print(json.dumps(counts.most_common(60)))

asyncio.run(main(sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3))
"""
)
TOKEN = "0123456789abcdef0123456789abcdef"

ROWS: Mapping[str, tuple[str, str, str, int]] = {
    # transport, version, tool, how many in flight
    "stdio, one": ("stdio", LEGACY, "echo", 1),
    "stdio, 64": ("stdio", LEGACY, "echo", 64),
    "stdio, one, 2026-07-28": ("stdio", MODERN, "echo", 1),
    "stdio, 64, 2026-07-28": ("stdio", MODERN, "echo", 64),
    "plain function, one": ("stdio", LEGACY, "plain", 1),
    "plain function, 64": ("stdio", LEGACY, "plain", 64),
    "WebSocket, one": ("ws", LEGACY, "echo", 1),
    "WebSocket, 64": ("ws", LEGACY, "echo", 64),
    "HTTP": ("http", MODERN, "echo", 1),
    "HTTP, session": ("http", LEGACY, "echo", 1),
    "HTTP, a token": ("http", MODERN, "echo", 1),
    "HTTP, a token, session": ("http", LEGACY, "echo", 1),
    "HTTP, Redis": ("http", MODERN, "echo", 1),
    "HTTP, Redis, session": ("http", LEGACY, "echo", 1),
    "events": ("http", MODERN, "steps", 1),
    "events, session": ("http", LEGACY, "steps", 1),
    "list of 1,000": ("stdio", LEGACY, "tools/list", 1),
    "list of 1,000, async def rule": ("stdio", LEGACY, "tools/list", 1),
    "list of 1,000, def rule": ("stdio", LEGACY, "tools/list", 1),
    "client, WebSocket": ("client", LEGACY, "echo", 1),
    "start, starter": ("start", LEGACY, "", 1),
    "start, file": ("start", LEGACY, "", 1),
    "start, folder": ("start", LEGACY, "", 1),
}


class Stdio:
    """A server on pipes."""

    option = ("--stdio",)

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process

    def exchange(self, messages: list[bytes], answers: int) -> list[Any]:
        """Send all, and read so many answers."""
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        pipe_in.write(b"".join(message + b"\n" for message in messages))
        pipe_in.flush()
        return [json.loads(pipe_out.readline()) for _ in range(answers)]


class WebSocket:
    """A server on a port, spoken to by the library's own client."""

    option = ("--ws",)

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        asked = connect(f"ws://127.0.0.1:{port}/mcp", compression=None, proxy=None)
        self._socket = ExitStack().enter_context(asked)  # until the process ends

    def exchange(self, messages: list[bytes], answers: int) -> list[Any]:
        """See `Stdio`."""
        for message in messages:
            self._socket.send(message, text=True)
        return [json.loads(self._socket.recv()) for _ in range(answers)]


class Http:
    """A server on a port, on one connection, with a session in older versions."""

    option = ("--http",)

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._lane = socket.create_connection(("127.0.0.1", port))
        self._session = b""
        self.more = b""
        """Another header, whole."""

    def exchange(self, messages: list[bytes], answers: int) -> list[Any]:
        """See `Stdio`; one after the other."""
        return [found for message in messages for found in self._post(message)][:answers]

    def _post(self, body: bytes) -> list[Any]:
        message = json.loads(body)
        head = b""
        if META in body.decode():
            name = message.get("params", {}).get("name", "")
            head = f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {message['method']}\r\nMcp-Name: {name}\r\n".encode()
        elif self._session:
            head = f"MCP-Protocol-Version: {LEGACY}\r\n".encode() + self._session
        head += self.more
        self._lane.sendall(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Accept: application/json, text/event-stream\r\n%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
        )
        data = b""
        while True:
            piece = self._lane.recv(1 << 16)
            assert piece, "the server closed the connection"
            data += piece
            head, end, text = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            if end and (len(text) == int(length[1]) if length else text.endswith(b"0\r\n\r\n") or b" 202 " in head):
                break
        session = re.search(rb"(?i)mcp-session-id: *[^\r]+\r\n", head + b"\r\n")
        self._session = self._session if session is None else session[0]
        lines = re.findall(rb"(?m)^(?:data: )?(\{.*\})\r?$", text)
        return [json.loads(line) for line in lines if b'"method"' not in line]


ENVIRONMENT = {"PYTHONHASHSEED": "0", "MCPD_CONTROL": "never", "PYTHONDONTWRITEBYTECODE": ""}
KINDS: Mapping[str, Any] = {"stdio": Stdio, "ws": WebSocket, "http": Http}


def run(row: str, package: Path, calls: int, tool: list[str], *, names: bool = False) -> tuple[str, Any]:
    """One server under `tool` that is asked so often; what it wrote to stderr, and the functions if asked for."""
    transport, version, called, together = ROWS[row]
    if transport == "client":
        return run_client(package, calls, tool, names=names)
    if transport == "start":
        return run_start(row.partition(", ")[2], package, tool), None
    kind = KINDS[transport]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        target = Path(folder, "server.py")
        target.write_text(server_of(row))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        options = kind.option if transport == "stdio" else (*kind.option, f"127.0.0.1:{port}")
        if "Redis" in row:
            options += ("--backplane", stack.enter_context(RedisServer()).url)
        token = {"MCPD_TOKEN": TOKEN} if "token" in row else {}
        key = {"MCPD_STATE_KEY": TOKEN} if "Redis" in row else {}
        process = subprocess.Popen(
            [*tool, sys.executable, "-m", "mcpd", "serve", "--no-reload", *options, str(target)],
            env={**os.environ, **ENVIRONMENT, **token, **key}, cwd=package,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if transport != "stdio":
            wait_for(port)
        client = kind(process, port)
        if token:
            client.more = b"Authorization: Bearer %b\r\n" % TOKEN.encode()
        meta: dict[str, Any] = {}
        if version == LEGACY:
            opening = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "profile", "version": "1"}}
            client.exchange([message("initialize", opening, 1)], 1)
            client.exchange([message("notifications/initialized", {})], 0)
        else:
            meta = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}}
        if called == "steps":
            meta["progressToken"] = 1

        def ask(name: str, first: int, many: int) -> list[Any]:
            given = {"text": "hello"} if name in ("echo", "plain", "steps") else {}
            method, params = "tools/call", {"name": name, "arguments": given, **({"_meta": meta} if meta else {})}
            if name == "tools/list":
                method, params = name, {}
            found: list[Any] = client.exchange([message(method, params, first + i) for i in range(many)], many)
            assert all("result" in one for one in found), found
            return found

        ask(called, 10, together)
        if names:
            ask("watch", 2, 1)
        for first in range(1000, 1000 + calls, together):
            ask(called, first, together)
        told = json.loads(ask("told", 3, 1)[0]["result"]["content"][0]["text"]) if names else None
        process.terminate()
        return process.communicate(timeout=60)[1].decode(errors="replace"), told


def server_of(row: str) -> str:
    """The text of a row's server."""
    rule = RULE.replace("KIND", row.split(", ")[1].removesuffix(" rule")) if row.endswith("rule") else ""
    return SERVER + (LISTED + rule if row.startswith("list") else "")


def run_client(package: Path, calls: int, tool: list[str], *, names: bool) -> tuple[str, Any]:
    """A client of ours and a server that does next to nothing, of which only the client is under `tool`."""
    bare = [sys.executable, str(ROOT / "tests" / "bench" / "bare_server.py")]
    with subprocess.Popen(bare, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        done = subprocess.run(
            [*tool, sys.executable, "-c", CLIENT, url, str(calls), *(["names"] if names else [])],
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(package)}, capture_output=True, cwd=package, check=True,
        )  # fmt: skip
        server.kill()
    return done.stderr.decode(errors="replace"), json.loads(done.stdout) if names else None


def run_start(target: str, package: Path, tool: list[str]) -> str:
    """A server on stdio that is asked once and ends; gives what it wrote to stderr."""
    opening = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "profile", "version": "1"}}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "server.py")
        file.write_text(SERVER)
        served = {"starter": ["--demo"], "file": [str(file)], "folder": [str(package / "examples" / "garden")]}[target]
        done = subprocess.run(
            [*tool, sys.executable, "-m", "mcpd", "serve", "--stdio", *served], cwd=package, capture_output=True,
            input=message("initialize", opening, 1) + b"\n", check=True,
            env={**os.environ, **ENVIRONMENT, "XDG_CACHE_HOME": folder},
        )  # fmt: skip
    assert b'"result"' in done.stdout, done.stdout
    return done.stderr.decode(errors="replace")


def wait_for(port: int) -> None:
    """Until somebody listens there; under valgrind that takes ten seconds."""
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"nobody listens on {port}")


def message(method: str, params: Mapping[str, Any], request_id: int | None = None) -> bytes:
    """A request, or a notification."""
    own = {} if request_id is None else {"id": request_id}
    return json.dumps({"jsonrpc": "2.0", **own, "method": method, "params": params}, separators=(",", ":")).encode()


def for_one(row: str, count: Callable[[int], list[float]]) -> list[float]:
    """What one call adds, by the counts of few and of many; of a start all of it."""
    if ROWS[row][0] == "start":
        return count(0)
    less = 32 if row.startswith("list") else 1  # one takes as long as many calls
    few, many = count(FEW // less), count(MANY // less)
    return [(after - before) / ((MANY - FEW) / less) for before, after in zip(few, many, strict=True)]


def under_callgrind(row: str, package: Path, calls: int) -> list[float]:
    """Instructions, and blocks of memory that were asked for."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no"]
        said, _ = run(row, package, calls, tool)
        text = out.read_text(errors="replace")
    total = re.search(r"Collected : (\d+)", said)
    assert total is not None, said
    taken = re.findall(r"^cfn=_Py(?:Object|Mem_Raw)_(?:Malloc|Calloc|Realloc)\n(?:.*\n)??calls=(\d+) ", text, re.M)
    return [float(total[1]), float(sum(map(int, taken)))]


def under_strace(row: str, package: Path, calls: int) -> list[float]:
    """System calls of all threads."""
    said, _ = run(row, package, calls, ["strace", "-f", "-c", "-q"])
    total = re.search(r"^100\.00\s+\S+\s+(?:\d+\s+)?(\d+)\s+(?:\d+\s+)?total$", said, re.M)
    assert total is not None, said[-2000:]
    return [float(total[1])]


def functions(row: str, package: Path) -> tuple[float, str]:
    """How many functions of mcpd one call enters or resumes, and those that it enters most."""
    calls = MANY // 32 if row.startswith("list") else MANY
    _, counts = run(row, package, calls, [], names=True)
    ours = [(name, count / calls) for name, count in counts if name]
    most = ", ".join(f"{name.partition(':')[2]} {count:.1f}" for name, count in ours[:3])
    return sum(count for _, count in ours if count > 0.01), most


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="*", default=list(ROWS), choices=list(ROWS), metavar="ROW", help="; ".join(map(repr, ROWS))
    )
    parser.add_argument("--package", type=Path, default=ROOT, help="another folder that has mcpd/")
    asked = parser.parse_args()
    print("| One call | Instructions | Blocks of memory | System calls | Functions of mcpd | Most often |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for row in asked.only:
        run(row, asked.package, FEW, [])  # compiles modules, which is not counted
        steps, most = (0.0, "") if ROWS[row][0] == "start" else functions(row, asked.package)
        instructions, blocks = for_one(row, lambda calls: under_callgrind(row, asked.package, calls))  # noqa: B023
        (system,) = for_one(row, lambda calls: under_strace(row, asked.package, calls))  # noqa: B023
        print(f"| {row} | {instructions:,.0f} | {blocks:,.0f} | {system:.2f} | {steps:.1f} | {most} |", flush=True)
