"""Round trips of `mcpd.Client` over HTTP, against a bare POST of its HTTP library and against the official client.

    python tests/bench/client_http.py --official PYTHON_WITH_MCP [--rounds 15] [--calls 300]

One mcpd server, one process for each client, all open at once; they take turns in small batches, so that a machine that
is busy for a while is so for all of them. Each call is `echo` with 200 letters. Prints medians of microseconds for a
call, one at a time and sixteen at a time, in both eras, and the ratios that are promised: at most 1.3 times the bare
POST's time, at least 5 times the official client's calls for each second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
SERVER = '''
from mcpd import Server
server = Server("bench", version="1")

@server.tool
async def echo(text: str) -> str:
    """Give it back."""
    return text
'''
TEXT = "x" * 200
ERAS = ("2026-07-28", "2025-11-25")
META = "io.modelcontextprotocol/"

Call = Callable[[], Awaitable[None]]


# ------------------------------------------------------------------------------- the clients, each in a process


async def ours(url: str, era: str, serve: Callable[[Call], Awaitable[None]]) -> None:
    """`mcpd.Client`."""
    from mcpd import Client

    async with Client(url, version=era) as client:

        async def call() -> None:
            result = await client.call_tool("echo", {"text": TEXT})
            assert not result.is_error

        await serve(call)


async def bare(url: str, era: str, serve: Callable[[Call], Awaitable[None]]) -> None:
    """The same bytes by aiohttp, and the answer as bytes."""
    import aiohttp
    from yarl import URL

    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": era,
    }
    usual = {"User-Agent": "mcpd/0", "Accept-Encoding": "gzip, deflate"}
    params: dict[str, object] = {"name": "echo", "arguments": {"text": TEXT}}
    target = URL(url)
    timeout = aiohttp.ClientTimeout(total=None, connect=10)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout, headers=usual) as session:
        if era == ERAS[0]:
            headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "echo"}
            about = {"name": "mcpd", "version": "0"}
            params["_meta"] = {
                f"{META}protocolVersion": era, f"{META}clientCapabilities": {}, f"{META}clientInfo": about,
            }  # fmt: skip
        else:
            hello = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            async with session.post(target, json=message, headers=headers) as reply:
                headers["Mcp-Session-Id"] = reply.headers["Mcp-Session-Id"]
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            async with session.post(target, json=ready, headers=headers) as reply:
                assert reply.status == 202
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        assert era != ERAS[0] or len(body) > 300

        count = 0

        async def call() -> None:
            nonlocal count
            count += 1
            # An id of its own for each: two open requests of a session cannot share one.
            sent = body.replace(b'"id": 1', b'"id": %d' % count, 1)
            async with session.post(target, data=sent, headers=headers, allow_redirects=False) as reply:
                assert reply.status == 200
                assert TEXT.encode() in await reply.read()

        await serve(call)


async def official(url: str, era: str, serve: Callable[[Call], Awaitable[None]]) -> None:
    """The official Python client."""
    from mcp import Client

    async with Client(url, mode=era if era == ERAS[0] else "legacy", cache=None) as client:

        async def call() -> None:
            result = await client.call_tool("echo", {"text": TEXT})
            assert not result.is_error

        await serve(call)


CLIENTS = {"ours": ours, "bare": bare, "official": official}


async def serve_batches(call: Call) -> None:
    """Batches as they are asked for on stdin: how many calls, and how many at a time."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        calls, together = map(int, line.split())

        async def some(number: int) -> None:
            for _ in range(number):
                await call()

        began = time.perf_counter()
        await asyncio.gather(*(some(calls // together) for _ in range(together)))
        print((time.perf_counter() - began) / calls * 1e6, flush=True)


# ------------------------------------------------------------------------------------------------- the run


class Worker:
    """One client in a process of its own."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def batch(self, calls: int, together: int) -> float:
        """Microseconds for one call."""
        print(calls, together, file=_open(self._process.stdin), flush=True)
        return float(_open(self._process.stdout).readline())

    def end(self) -> None:
        """Close its input, which ends it."""
        _open(self._process.stdin).close()
        self._process.wait(20)


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def main() -> int:
    """Measure; 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", help="a Python that has the package mcp; without it only the bare POST")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=320, help="in one batch")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--era", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        asyncio.run(CLIENTS[options.client](options.url, options.era, serve_batches))
        return 0

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = Path(os.environ.get("TMPDIR", "/tmp")) / f"client_http_{port}.py"
    code.write_text(SERVER, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mcpd",
        "serve",
        "--log-level",
        "warning",
        "--http",
        f"127.0.0.1:{port}",
        str(code),
    ]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        _await(port)
        kept = [_measure(f"http://127.0.0.1:{port}/mcp", era, options) for era in ERAS]
    finally:
        server.terminate()
        server.wait(20)
        code.unlink()
    return 0 if all(kept) else 1


def _await(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the server did not come up")


def _measure(url: str, era: str, options: argparse.Namespace) -> bool:
    pythons = {"bare": sys.executable, "ours": sys.executable}
    if options.official:
        pythons["official"] = options.official
    workers = {
        name: Worker([python, __file__, "--client", name, "--url", url, "--era", era])
        for name, python in pythons.items()
    }
    found: dict[tuple[str, int], list[float]] = {}
    for number in range(options.rounds + 2):
        for together in (1, 16):
            for name, worker in workers.items():
                # The official client is slow: fewer calls take as long.
                calls = options.calls // 4 if name == "official" else options.calls
                took = worker.batch(calls // 16 * 16, together)
                if number >= 2:
                    found.setdefault((name, together), []).append(took)
    for worker in workers.values():
        worker.end()

    is_kept = True
    for together in (1, 16):
        middle = {name: statistics.median(found[name, together]) for name in workers}
        print(f"{era}, {together:2} at a time: " + ", ".join(f"{name} {us:.0f} µs" for name, us in middle.items()))
        # Pairs of neighbours in time, so that what disturbs both does not count.
        ratio = statistics.median(a / b for a, b in zip(found["ours", together], found["bare", together], strict=True))
        print(f"    {ratio:.2f} times the bare POST (at most 1.3)")
        is_kept = is_kept and ratio <= 1.3
        if "official" in workers:
            pairs = zip(found["official", together], found["ours", together], strict=True)
            faster = statistics.median(a / b for a, b in pairs)
            print(f"    {faster:.1f} times as many calls as the official client (at least 5)")
            is_kept = is_kept and faster >= 5
    return is_kept


if __name__ == "__main__":
    sys.exit(main())
