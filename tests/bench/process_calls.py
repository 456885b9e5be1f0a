"""What a process of its own costs a tool: calls over stdio, one at a time, of the same function in a thread and in a
warm process, in turns; and the first call, for which a process imports the server, beside the start of the server.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from msgspec.json import encode

ROOT = Path(__file__).resolve().parents[2]

SERVER = """
from mcpd import Server
server = Server("echo")

@server.tool
def thread(text: str) -> str:
    return text

@server.tool(process=True)
def process(text: str) -> str:
    return text

@server.tool(process=True)
async def process_async(text: str) -> str:
    return text

@server.tool(process=True, calls=1)
def fresh_process(text: str) -> str:
    return text
"""

# Those of a group take turns; the end of a process that is used once would slow down the calls after it.
GROUPS = (("thread", "process", "process_async"), ("fresh_process",))


class Server:
    """`mcpd serve --stdio`, and how long its answers take, in milliseconds."""

    def __init__(self, path: Path) -> None:
        began = time.perf_counter()
        command = [sys.executable, "-m", "mcpd", "serve", "--stdio", str(path)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0
        info = {"name": "bench", "version": "1"}
        self._ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.start = (time.perf_counter() - began) * 1000

    def call(self, tool: str) -> float:
        began = time.perf_counter()
        answer = self._ask("tools/call", {"name": tool, "arguments": {"text": "hello"}})
        assert b"hello" in answer, answer
        return (time.perf_counter() - began) * 1000

    def close(self) -> None:
        _pipe(self._process.stdin).close()
        self._process.wait()
        _pipe(self._process.stdout).close()

    def _ask(self, method: str, params: object) -> bytes:
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return _pipe(self._process.stdout).readline()

    def _write(self, message: object) -> None:
        stdin = _pipe(self._process.stdin)
        stdin.write(encode(message) + b"\n")
        stdin.flush()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000, help="calls of each tool")
    parser.add_argument("--starts", type=int, default=7, help="starts of the server")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.py"
        path.write_text(SERVER)
        starts, firsts = [], []
        for _ in range(given.starts):
            server = Server(path)
            starts.append(server.start)
            server.call("thread")
            firsts.append(server.call("process"))
            server.close()
        print(f"start of the server {statistics.median(starts):6.1f} ms")
        print(f"first call          {statistics.median(firsts):6.1f} ms")

        server = Server(path)
        for group in GROUPS:
            rounds = [[server.call(tool) for tool in group] for _ in range(given.calls + 100)]
            for tool, took in zip(group, zip(*rounds[100:], strict=True), strict=True):
                print(f"{tool:19} {statistics.median(took):6.3f} ms")
        server.close()


if __name__ == "__main__":
    main()
