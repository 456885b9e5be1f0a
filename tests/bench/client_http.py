"""Round trips of `mcpd.Client` over HTTP, against a bare POST of its HTTP library and against the official client.

    python tests/bench/client_http.py --official PYTHON_WITH_MCP [--rounds 15] [--calls 320]

One mcpd server, clients that take turns (`interleaved.py`). Each call is `echo` with 200 letters. Prints microseconds
for a call (the quickest batch/the median, and the processor's time of the client), one at a time and sixteen at a
time, in both eras, and the ratios that are promised: at most 1.3 times the bare POST's time, at least 5 times the
official client's calls for each second. `socket` is a program that writes and reads the same bytes by blocking calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from interleaved import TEXT, Call, Rounds, Worker, add_options, serve_batches

ROOT = Path(__file__).resolve().parents[2]
SERVER = '''
from mcpd import Server
server = Server("bench", version="1")

@server.tool
async def echo(text: str) -> str:
    """Give it back."""
    return text
'''
ERAS = ("2026-07-28", "2025-11-25")
META = "io.modelcontextprotocol/"

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


async def raw(url: str, era: str, serve: Callable[[Call], Awaitable[None]]) -> None:
    """The same bytes each time, written and read by blocking calls."""
    host, port = url.removeprefix("http://").partition("/")[0].split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        fields = {"MCP-Protocol-Version": era}

        def post(message: dict[str, object]) -> bytes:
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            fixed = {"Host": f"{host}:{port}", "Content-Type": "application/json", "Content-Length": str(len(body))}
            head = {**fixed, "Accept": "application/json, text/event-stream", **fields}
            lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
            return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body

        def exchange(request: bytes) -> bytes:
            connection.sendall(request)
            answer = connection.recv(65536)
            while b"\r\n\r\n" not in answer or not _is_whole(answer):
                answer += connection.recv(65536)
            return answer

        params: dict[str, object] = {"name": "echo", "arguments": {"text": TEXT}}
        about = {"name": "raw", "version": "1"}
        if era == ERAS[0]:
            fields |= {"Mcp-Method": "tools/call", "Mcp-Name": "echo"}
            params["_meta"] = {
                f"{META}protocolVersion": era, f"{META}clientCapabilities": {}, f"{META}clientInfo": about,
            }  # fmt: skip
        else:
            hello = {"protocolVersion": era, "capabilities": {}, "clientInfo": about}
            head = exchange(post({"id": 0, "method": "initialize", "params": hello})).decode()
            at = head.lower().index("mcp-session-id: ")
            fields["Mcp-Session-Id"] = head[at:].partition(": ")[2].partition("\r\n")[0]
            exchange(post({"method": "notifications/initialized"}))
        request = post({"id": 1, "method": "tools/call", "params": params})

        async def call() -> None:
            assert TEXT.encode() in exchange(request)

        await serve(call)


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return len(body) >= int(length or 0)


CLIENTS = {"socket": raw, "ours": ours, "bare": bare, "official": official}


# ------------------------------------------------------------------------------------------------- the run


def main() -> int:
    """Measure; 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", help="a Python that has the package mcp; without it only the bare POST")
    add_options(parser)
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
    pythons = dict.fromkeys(("socket", "bare", "ours"), sys.executable)
    if options.official:
        pythons["official"] = options.official
    workers = {
        name: Worker([python, __file__, "--client", name, "--url", url, "--era", era])
        for name, python in pythons.items()
    }
    rounds = Rounds(workers, options, ("socket",))
    is_kept = True
    for together in (1, 16):
        print(f"{era}, {together:2} at a time, µs: {rounds.line(together)}")
        ratio, quickest = rounds.ratio("ours", "bare", together)
        print(f"    {ratio:.2f} times the bare POST (at most 1.3); quickest {quickest:.2f}")
        is_kept = is_kept and ratio <= 1.3
        if "official" in workers:
            faster, quickest = rounds.ratio("official", "ours", together)
            print(f"    {faster:.1f} times as many calls as the official client (at least 5); quickest {quickest:.1f}")
            is_kept = is_kept and faster >= 5
    if "official" in workers:
        best, _ = rounds.ratio("official", "socket", 1)
        print(f"    one at a time at best {best:.1f} times: without any client library")
    return is_kept


if __name__ == "__main__":
    sys.exit(main())
