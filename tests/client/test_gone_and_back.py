"""Servers that go and come back while a client listens, and that write without end beside what they answer."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from support.clock import until
from support.http_peer import serving
from support.memory import resident

from mcpd import Callbacks, Client, Server
from mcpd.client import eras, link
from mcpd.client.http import exchange
from mcpd.errors import RemoteError

MB = 1024 * 1024


def make_server() -> tuple[Server, asyncio.Event]:
    server, called = Server("there"), asyncio.Event()

    @server.tool
    async def forever() -> str:
        called.set()
        await asyncio.Event().wait()
        return ""

    server.add_text("notes://a", "x", name="a")
    return server, called


@pytest.mark.medium
@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_an_http_server_that_goes_and_comes_back(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits hears of it at once; what the client listens to is listened to again, without a request."""
    monkeypatch.setattr(link, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(eras, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(exchange, "_RETRY_SECONDS", 0.05)
    heard: asyncio.Queue[str] = asyncio.Queue()
    callbacks = Callbacks(list_changed=heard.put_nowait, resource_updated=heard.put_nowait)

    (first, called), (second, _) = make_server(), make_server()
    async with serving(first) as port:
        client = Client(f"http://127.0.0.1:{port.number}/mcp", callbacks, version=version)
        await client.open()
        await client.subscribe("notes://a")
        waiting = asyncio.create_task(client.call_tool("forever"))
        await called.wait()
    with pytest.raises(RemoteError, match="The server is shutting down"):
        await waiting
    while not heard.empty():
        heard.get_nowait()

    async with serving(second, address=f"127.0.0.1:{port.number}"):
        # What changed meanwhile was not heard, so that everything may have: that is told once it listens again.
        told = {await asyncio.wait_for(heard.get(), 20) for _ in range(3)}
        assert told <= {"tools", "resources", "prompts", "notes://a"}
        await client.ping()

        async def changed() -> bool:
            second.resource_updated("notes://a")
            return "notes://a" in [heard.get_nowait() for _ in range(heard.qsize())]

        while not await changed():
            await client.ping()
        await client.aclose()


FLOOD = """
import json, os, sys, threading
def flood():
    while True:
        os.write(2, b"x" * 65535 + b"\\n")
threading.Thread(target=flood, daemon=True).start()
for line in sys.stdin:
    message = json.loads(line)
    if message.get("id") is None:
        continue
    result = {}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_a_server_that_floods_its_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read as fast as it writes, answers, and little of it is passed on; how much was left out is said."""
    kept = os.dup(2)
    with open(tmp_path / "stderr", "wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        begin = resident()
        async with Client([sys.executable, "-S", "-c", FLOOD], version="2025-11-25") as client:
            assert client._open is not None
            copy = client._open.channel._stderr  # type: ignore[attr-defined]
            await until(lambda: copy.dropped_bytes > 50 * MB)
            for _ in range(10):
                await client.ping()
            assert resident() - begin < 32 * MB
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    written = (tmp_path / "stderr").read_bytes()
    assert len(written) < 8 * MB
    assert b"wrote to stderr were left out" in written[-200:]
