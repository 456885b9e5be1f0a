"""Round trips of `mcpd.Client` over stdio and WebSocket, against the official clients, in one interleaved run.

    python tests/bench/client_streams.py [--official PYTHON_WITH_MCP_2] [--official1 PYTHON_WITH_MCP_1_AND_WS]

The server is mcpd's, and over WebSocket in a row of its own one that does next to nothing (`bare_server.py`): there
the clients differ by what they are. Clients take turns (`interleaved.py`). Each call is `echo` with 200 letters. Prints
microseconds for a call (the quickest batch/the median, and the processor's time of the client), one at a time and 16
at a time. Promised are at least 5 times as many calls for each second as the official client makes.

Of calls one after the other much of the time is the server's and the system's, which is the same for all. So two
floors are beside them: `bare` sends and reads the same bytes by blocking calls, `loop` by callbacks of asyncio's loop,
which is the least that a client of asyncio can do. Where `loop` is not 5 times as quick as the official client, no
client is.
A WebSocket client has only version 1 of the official one.

With one call at a time both ends mostly take turns on one processor, so that a call takes what both work together.
Where the system puts them on two, each wakes the other from its sleep, which costs more than the call: then the clock
scatters from 40 to 100 microseconds, and the quickest batches and the processor's time say more than the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from client_http import SERVER
from interleaved import TEXT, Call, Rounds, Worker, add_options, serve_batches

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODERN, LEGACY = "2026-07-28", "2025-11-25"
Serve = Callable[[Call], Awaitable[None]]
Ends = tuple[Callable[[bytes], object], Callable[[], bytes], int, Callable[[], object]]
"""Of a connection: how to send a message, how to read one, what to wait on, and how to end it."""


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


class Floor:
    """The same bytes each time, and no library."""

    def __init__(self, target: list[str], era: str) -> None:
        meta = {f"io.modelcontextprotocol/{name}": value for name, value in (
            ("protocolVersion", era), ("clientCapabilities", {}), ("clientInfo", {"name": "bare", "version": "1"})
        )}  # fmt: skip
        hello = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
        params: dict[str, object] = {"name": "echo", "arguments": {"text": TEXT}}
        if era == MODERN:
            params["_meta"] = meta
        message = _message("tools/call", params, 1)
        self._send, self._read, self.fd, self.end = _piped(target) if len(target) > 1 else _dialled(target[0])
        if era != MODERN:
            self._send(_message("initialize", hello, 0))
            self._read()
            self._send(_message("notifications/initialized", {}))
        self.ask = lambda: self._send(message)

    def take(self) -> None:
        """The answer."""
        assert TEXT.encode() in self._read()


async def bare(target: list[str], era: str, serve: Serve) -> None:
    """Written and read by blocking calls, one at a time: nothing is faster."""
    floor = Floor(target, era)

    async def call() -> None:
        floor.ask()
        floor.take()

    await serve(call)
    floor.end()


async def loop(target: list[str], era: str, serve: Serve) -> None:
    """Read when the event loop says that there is something, and the next one written there and then."""
    floor = Floor(target, era)
    running, left = asyncio.get_running_loop(), 0
    done: asyncio.Future[None] = running.create_future()

    def readable() -> None:
        nonlocal left
        floor.take()
        left -= 1
        if left:
            floor.ask()
        else:
            done.set_result(None)

    async def chain(calls: int) -> None:
        nonlocal left, done
        left, done = calls, running.create_future()
        floor.ask()
        await done

    running.add_reader(floor.fd, readable)
    await serve_batches(lambda: chain(1), chain)
    running.remove_reader(floor.fd)
    floor.end()


def _message(method: str, params: dict[str, object], id: int | None = None) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})}
    ).encode()


def _piped(command: list[str]) -> Ends:
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin is not None
    assert child.stdout is not None
    to_child, fd = child.stdin, child.stdout.fileno()

    def read() -> bytes:
        line = os.read(fd, 65536)
        while not line.endswith(b"\n"):
            line += os.read(fd, 65536)
        return line

    return lambda message: to_child.write(message + b"\n"), read, fd, child.kill


def _dialled(url: str) -> Ends:
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

    return send, lambda: connection.recv(65536), connection.fileno(), connection.close


CLIENTS = {"bare": bare, "loop": loop, "ours": ours, "official": official, "official1": official1}


def main() -> int:
    """Measure; 1 if the promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", help="a Python that has version 2 of the package mcp")
    parser.add_argument("--official1", help="a Python that has version 1 of it, with its extra ws")
    add_options(parser)
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
            over_websocket("websocket", [*serve, "--ws", "127.0.0.1:0", "--log-level", "info"], options),
            over_websocket("websocket, bare server", [sys.executable, str(HERE / "bare_server.py")], options),
        ]
    return 0 if all(kept) else 1


def over_websocket(name: str, serve: list[str], options: argparse.Namespace) -> bool:
    """A row of the WebSocket, which has one server for all."""
    server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert server.stdout is not None
    try:
        url = ""
        while not url:
            line = server.stdout.readline()
            assert line, "the server did not come up"
            url = next((word.rstrip(",;") for word in line.split() if word.startswith("ws://")), "")
        return measure(name, [url], LEGACY, {"official1": options.official1}, options)
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()


def measure(
    transport: str, target: list[str], era: str, others: dict[str, str | None], options: argparse.Namespace
) -> bool:
    """One row: whether it keeps what is promised."""
    pythons = {
        **dict.fromkeys(("bare", "loop", "ours"), sys.executable),
        **{name: python for name, python in others.items() if python},
    }
    workers = {
        name: Worker([python, __file__, "--client", name, "--era", era, "--", *target])
        for name, python in pythons.items()
    }
    rounds = Rounds(workers, options, ("bare", "loop"))
    is_kept = True
    for together in (1, 16):
        print(f"{transport}, {era}, {together:2} at a time, µs: {rounds.line(together)}")
        for other in others:
            if other not in workers:
                continue
            faster, quickest = rounds.ratio(other, "ours", together)
            print(f"    {faster:.1f} times as many calls as the official client (at least 5); quickest {quickest:.1f}")
            most = 0.0
            if together == 1:
                (without, _), (most, _) = (rounds.ratio(other, floor, 1) for floor in ("bare", "loop"))
                print(f"    at best {most:.1f} times with asyncio, {without:.1f} without")
            is_kept = is_kept and (faster >= 5 or 0 < most < 5)
    return is_kept


if __name__ == "__main__":
    sys.exit(main())
