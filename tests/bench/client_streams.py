"""Round trips of `mcpd.Client` over stdio and WebSocket, against the official clients, in one interleaved run.

    python tests/bench/client_streams.py [--official PYTHON_WITH_MCP_2] [--official1 PYTHON_WITH_MCP_1_AND_WS]

The server is mcpd's in each row. One process for each client, all open at once; they take turns in small batches, so
that a machine that is busy for a while is so for all of them. Each call is `echo` with 200 letters. Prints medians of
microseconds for a call, one at a time and sixteen at a time. Promised is, of sixteen, at least 5 times as many calls
for each second as the official client makes. Of calls one after the other much of the time is the server's and the
system's, which is the same for both: what a program that sends and reads bare bytes needs is printed beside them.
A WebSocket client has only version 1 of the official one.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from client_http import SERVER, TEXT, Call, Worker, serve_batches

ROOT = Path(__file__).resolve().parents[2]
MODERN, LEGACY = "2026-07-28", "2025-11-25"
Serve = Callable[[Call], Awaitable[None]]


async def ours(target: list[str], era: str, serve: Serve) -> None:
    """`mcpd.Client`."""
    from mcpd import Client

    async with Client(target if len(target) > 1 else target[0], version=era) as client:

        async def call() -> None:
            result = await client.call_tool("echo", {"text": TEXT})
            assert not result.is_error

        await serve(call)


async def official(target: list[str], era: str, serve: Serve) -> None:
    """The official client, version 2, over stdio."""
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    started = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    async with Client(started, mode=era if era == MODERN else "legacy", cache=None) as client:

        async def call() -> None:
            result = await client.call_tool("echo", {"text": TEXT})
            assert not result.is_error

        await serve(call)


async def official1(target: list[str], era: str, serve: Serve) -> None:
    """The official client, version 1, over stdio or WebSocket."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    if len(target) == 1:
        from mcp.client.websocket import websocket_client

        streams = websocket_client(target[0])
    else:
        streams = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    async with streams as (read, write), ClientSession(read, write) as session:
        await session.initialize()

        async def call() -> None:
            result = await session.call_tool("echo", {"text": TEXT})
            assert not result.isError

        await serve(call)


async def bare(target: list[str], era: str, serve: Serve) -> None:
    """The same bytes each time, written and read by blocking calls, one at a time: nothing is faster."""
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in (
        ("protocolVersion", era), ("clientCapabilities", {}), ("clientInfo", {"name": "bare", "version": "1"})
    )}  # fmt: skip
    hello = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
    params: dict[str, object] = {"name": "echo", "arguments": {"text": TEXT}}
    if era == MODERN:
        params["_meta"] = meta
    message = _message("tools/call", params, 1)
    send, read, end = _piped(target) if len(target) > 1 else _dialled(target[0])
    if era != MODERN:
        send(_message("initialize", hello, 0))
        read()
        send(_message("notifications/initialized", {}))

    async def call() -> None:
        send(message)
        assert TEXT.encode() in read()

    await serve(call)
    end()


def _message(method: str, params: dict[str, object], id: int | None = None) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})}
    ).encode()


def _piped(command: list[str]) -> tuple[Callable[[bytes], object], Callable[[], bytes], Callable[[], object]]:
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin is not None
    assert child.stdout is not None
    to_child, lines = child.stdin, os.fdopen(child.stdout.fileno(), "rb", closefd=False)
    return lambda message: to_child.write(message + b"\n"), lines.readline, child.kill


def _dialled(url: str) -> tuple[Callable[[bytes], object], Callable[[], bytes], Callable[[], object]]:
    host, _, path = url.removeprefix("ws://").partition("/")
    address, _, port = host.partition(":")
    connection = socket.create_connection((address, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    key = base64.b64encode(bytes(16)).decode()
    connection.sendall(
        f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mcp\r\n\r\n".encode()
    )
    assert b" 101 " in connection.recv(4096)

    def send(message: bytes) -> None:
        # Masked by nothing but noughts, which leaves it as it is. No message here needs more than two bytes of length.
        size = len(message)
        head = bytes([0x81, 0x80 | size]) if size < 126 else bytes([0x81, 0xFE]) + size.to_bytes(2, "big")
        connection.sendall(head + bytes(4) + message)

    return send, lambda: connection.recv(65536), connection.close


CLIENTS = {"bare": bare, "ours": ours, "official": official, "official1": official1}


def main() -> int:
    """Measure; 1 if the promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", help="a Python that has version 2 of the package mcp")
    parser.add_argument("--official1", help="a Python that has version 1 of it, with its extra ws")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=320, help="in one batch")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--era", help=argparse.SUPPRESS)
    parser.add_argument("target", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        asyncio.run(CLIENTS[options.client](options.target, options.era, serve_batches))
        return 0

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.py"
        file.write_text(SERVER, encoding="utf-8")
        serve = [sys.executable, "-m", "mcpd", "serve", "--log-level", "error", str(file)]
        kept = [
            measure("stdio", [*serve, "--stdio"], MODERN, {"official": options.official}, options),
            measure("stdio", [*serve, "--stdio"], LEGACY, {"official1": options.official1}, options),
            over_websocket(serve, options),
        ]
    return 0 if all(kept) else 1


def over_websocket(serve: list[str], options: argparse.Namespace) -> bool:
    """The row of the WebSocket, which has one server for all."""
    server = subprocess.Popen(
        [*serve, "--ws", "127.0.0.1:0", "--log-level", "info"], stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert server.stderr is not None
    try:
        url = ""
        while not url:
            line = server.stderr.readline()
            assert line, "the server did not come up"
            url = next((word.rstrip(",;") for word in line.split() if word.startswith("ws://")), "")
        return measure("websocket", [url], LEGACY, {"official1": options.official1}, options)
    finally:
        server.terminate()
        server.wait(20)
        server.stderr.close()


def measure(
    transport: str, target: list[str], era: str, others: dict[str, str | None], options: argparse.Namespace
) -> bool:
    """One row: whether it keeps what is promised."""
    pythons = {
        "bare": sys.executable,
        "ours": sys.executable,
        **{name: python for name, python in others.items() if python},
    }
    workers = {
        name: Worker([python, __file__, "--client", name, "--era", era, "--", *target])
        for name, python in pythons.items()
    }
    found: dict[tuple[str, int], list[float]] = {}
    for number in range(options.rounds + 2):
        for together in (1, 16):
            for name, worker in workers.items():
                if name == "bare" and together > 1:
                    continue
                # The official client is slow: fewer calls take as long.
                calls = options.calls if name in ("bare", "ours") else options.calls // 4
                took = worker.batch(calls // 16 * 16, together)
                if number >= 2:
                    found.setdefault((name, together), []).append(took)
    for worker in workers.values():
        worker.end()

    is_kept = True
    for together in (1, 16):
        middle = {name: statistics.median(found[name, together]) for name in workers if (name, together) in found}
        said = ", ".join(f"{name} {us:.0f} µs" for name, us in middle.items())
        print(f"{transport}, {era}, {together:2} at a time: {said}")
        for other in others:
            if other not in workers:
                continue
            # Pairs of neighbours in time, so that what disturbs both does not count.
            pairs = zip(found[other, together], found["ours", together], strict=True)
            faster = statistics.median(a / b for a, b in pairs)
            promised = " (at least 5)" if together > 1 else ""
            print(f"    {faster:.1f} times as many calls as the official client{promised}")
            is_kept = is_kept and (faster >= 5 or not promised)
    return is_kept


if __name__ == "__main__":
    sys.exit(main())
