"""What metrics and traces cost a call over stdio or HTTP: CPU time of the server, and instructions under callgrind.

Servers that differ in nothing but what watches them are open at once, and each answers a small batch of calls in its
turn, one after the other. Of each batch the CPU time of the server's process is taken (user and system, in nanoseconds,
from /proc/PID/task/*/schedstat), and held against that of the bare server next to it in time; of all rounds the median
is said. With `--instructions` nothing is timed: valgrind counts instructions of N and of M calls, and what is said is
the difference for one. It sees nothing of what the kernel does for a call, so that shares come out larger.
`--http` asks over one connection of HTTP that stays open; 2025-11-25 has a session there, 2026-07-28 none.
`--package FOLDER` takes mcpd from there: another state of the code, beside which this one is counted.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec.json import encode

ROOT = Path(__file__).resolve().parents[2]

SERVER = """
from mcpd import Server
server = Server("echo")

@server.tool
async def echo(text: str) -> str:
    return text
"""

# A program's own provider, with a sampler that takes nothing: what tracing costs where it is on for a few.
UNSAMPLED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
trace.set_tracer_provider(TracerProvider(sampler=ALWAYS_OFF))
"""

# What counts, without the thread that adds up once a second: valgrind makes of a second's calls a few dozen, so that
# what is done each second would look like a part of each call.
COUNTED = (
    SERVER
    + """
from mcpd.server.observe.metrics import Meter
server.add_observer(Meter(server.catalog.tools.find_enabled))
"""
)

LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"


class Peer:
    """A server on stdio, and its one client."""

    def __init__(
        self, text: str, options: Sequence[str], version: str, package: Path = ROOT, prefix: Sequence[str] = (),
        capabilities: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        self._folder = tempfile.TemporaryDirectory()
        target = Path(self._folder.name, "server.py")
        target.write_text(text)
        line = [*prefix, sys.executable, "-m", "mcpd", "serve", "--no-reload", "--control", "never"]
        environment = {
            **os.environ, "PYTHONHASHSEED": "0", "OTEL_SDK_DISABLED": "" if "trace" in text else "true",
        }  # fmt: skip
        self._cwd = package  # it comes before all other folders
        self.process = self._start([*line, *options, str(target)], environment, is_counted=bool(prefix))
        self._meta: Mapping[str, object] = {}
        self._version = version
        self._number = 0
        if version == LEGACY:
            client = {"name": "bench", "version": "1"}
            self._ask(
                "initialize", {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": client}
            )
            self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        else:
            self._meta = {"_meta": {f"{META}protocolVersion": version, f"{META}clientCapabilities": capabilities or {}}}

    def _start(self, line: list[str], environment: Mapping[str, str], *, is_counted: bool) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*line, "--stdio"], env=environment, cwd=self._cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if is_counted else subprocess.DEVNULL,
        )  # fmt: skip

    def calls(self, count: int) -> None:
        """So many, one after the other."""
        for _ in range(count):
            self._ask("tools/call", {"name": "echo", "arguments": {"text": "x" * 200}, **self._meta})

    def lists(self, count: int) -> None:
        """So many lists of tools, one after the other."""
        for _ in range(count):
            self._ask("tools/list", self._meta)

    def cpu_ns(self) -> int:
        """The CPU time of all its threads until now."""
        folder = Path(f"/proc/{self.process.pid}/task")
        return sum(int((each / "schedstat").read_text().split()[0]) for each in folder.iterdir())

    def close(self) -> str:
        """End it; what it wrote to stderr, if that is kept."""
        _, told = self.process.communicate()
        self._folder.cleanup()
        return told.decode() if told else ""

    def _ask(self, method: str, params: Mapping[str, object]) -> None:
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert b'"result"' in _open(self.process.stdout).readline()

    def _write(self, message: Mapping[str, object]) -> None:
        pipe = _open(self.process.stdin)
        pipe.write(encode(message) + b"\n")
        pipe.flush()


class HttpPeer(Peer):
    """A server on HTTP, and one connection to it."""

    def _start(self, line: list[str], environment: Mapping[str, str], *, is_counted: bool) -> subprocess.Popen[bytes]:
        self._session = b""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            number = listening.fileno()
            process = subprocess.Popen(
                [*line, "--http", f"fd://{number}"], env=environment, cwd=self._cwd, pass_fds=(number,),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE if is_counted else subprocess.DEVNULL,
            )  # fmt: skip
            self._lane = socket.create_connection(listening.getsockname())
        return process

    def close(self) -> str:
        """See `Peer`."""
        self._lane.close()
        self.process.terminate()
        return super().close()

    def _write(self, message: Mapping[str, object]) -> None:
        body = encode(message)
        head = f"MCP-Protocol-Version: {self._version}\r\nMcp-Method: {message['method']}\r\nMcp-Name: echo\r\n"
        self._lane.sendall(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Accept: application/json, text/event-stream\r\n%b%bContent-Length: %d\r\n\r\n%b"
            % (self._session, b"" if message["method"] == "initialize" else head.encode(), len(body), body)
        )
        if "id" not in message:
            self._answer()

    def _ask(self, method: str, params: Mapping[str, object]) -> None:
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        head, body = self._answer()
        assert b'"result"' in body, (head, body)
        if method == "initialize":
            match = re.search(rb"(?i)mcp-session-id: *[^\r]+\r\n", head)
            assert match is not None
            self._session = match[0]

    def _answer(self) -> tuple[bytes, bytes]:
        data = b""
        while True:
            piece = self._lane.recv(1 << 16)
            assert piece, "the server closed the connection"
            data += piece
            head, end, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            if end and len(body) == (0 if length is None else int(length[1])):
                return head + b"\r\n", body


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


VARIANTS: Mapping[str, tuple[str, Sequence[str]]] = {
    "bare": (SERVER, ()),
    "bare again": (SERVER, ()),
    "counted": (COUNTED, ()),
    "metrics": (SERVER, ("--metrics", "127.0.0.1:0")),
    "traced, unsampled": (UNSAMPLED + SERVER, ()),
}


def times(kind: type[Peer], package: Path, version: str, rounds: int, calls: int, only: Sequence[str]) -> None:
    """Print microseconds per call, and shares of the bare server's."""
    peers = {name: kind(*VARIANTS[name], version, package) for name in only}
    for peer in peers.values():
        peer.calls(500)
    found: dict[str, list[float]] = {name: [] for name in peers}
    for number in range(rounds):
        # Each of them comes first as often as any other: after a pause a server is slower.
        turned = [*peers.items()][number % len(peers) :] + [*peers.items()][: number % len(peers)]
        for name, peer in turned:
            before = peer.cpu_ns()
            peer.calls(calls)
            found[name].append((peer.cpu_ns() - before) / calls / 1000)
    for peer in peers.values():
        peer.close()
    for name, took in found.items():
        more = [one - bare for one, bare in zip(took, found["bare"], strict=True)]
        share = statistics.median(each / bare for each, bare in zip(more, found["bare"], strict=True))
        print(
            f"{version}  {name:18}  {statistics.median(took):6.2f} us, {statistics.median(more):+.2f} us, {share:+.1%}"
        )


def instructions(kind: type[Peer], package: Path, version: str, few: int, many: int, only: Sequence[str]) -> None:
    """Print instructions per call, and shares of the bare server's."""
    bare = 0.0
    for name, (text, options) in ((each, VARIANTS[each]) for each in only):
        counted = []
        for calls in (few, few, many):  # the first one compiles modules, and is not counted
            tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
            peer = kind(text, options, version, package, tool)
            peer.calls(calls)
            match = re.search(r"Collected : (\d+)", peer.close())
            assert match is not None
            counted.append(int(match[1]))
        each = (counted[2] - counted[1]) / (many - few)
        bare = bare or each
        print(f"{version}  {name:18}  {each:8.0f} instructions, {each / bare - 1:+.2%}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), choices=list(VARIANTS), help="beside the bare one")
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--versions", nargs="*", default=[LEGACY, MODERN], choices=[LEGACY, MODERN])
    parser.add_argument("--package", type=Path, default=ROOT)
    asked = parser.parse_args()
    wanted = ["bare", *(each for each in asked.only if each != "bare")]
    transport = HttpPeer if asked.http else Peer
    for each_version in asked.versions:
        if asked.instructions:
            instructions(transport, asked.package, each_version, 500, 3000, wanted)
        else:
            times(transport, asked.package, each_version, asked.rounds, asked.calls, wanted)
