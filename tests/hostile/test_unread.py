"""What is written and that nobody reads: it takes of the memory that all connections have, and ends where that does.

On stdio, where an answer becomes an error then: `test_budget.py`.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.clock import until
from support.http_peer import call, modern, serving
from support.http_stage import Stage
from support.websocket_peer import frame
from support.wires import MODERN, websocket_wire

from mcpd import Server
from mcpd.protocol.budget import BUDGET, SMALL
from mcpd.server.http.http1 import Http1Protocol

pytestmark = pytest.mark.slow

MIB = 1024 * 1024

HANDSHAKE = (
    b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gc.collect()
    assert BUDGET.used == 0
    yield
    gc.collect()
    assert BUDGET.used == 0
    BUDGET.most = 0


async def test_results_on_a_websocket_that_nobody_reads() -> None:
    """Calls that run end all at once: what waits for one that does not read ends its connection, and it hears why."""
    BUDGET.most = 8 * MIB
    stage = Stage()

    @stage.server.tool
    async def large() -> str:
        stage.entered.put_nowait("in")
        await stage.door("go").wait()
        return "x" * MIB

    async with websocket_wire(stage.server, MODERN) as other:
        reader, writer = await asyncio.open_connection(
            *other.connection.channel._transport.get_extra_info("sockname")[:2]
        )
        transport: Any = writer.transport
        try:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            messages = [call("initialize", hello, 0)]
            messages += [call("tools/call", {"name": "large"}, number) for number in range(1, 31)]
            writer.write(HANDSHAKE + b"".join(frame(1, json.dumps(message).encode()) for message in messages))
            for _ in range(30):
                await stage.entered.get()
            transport.pause_reading()
            stage.door("go").set()
            await until(lambda: BUDGET.used > MIB)
            assert BUDGET.used <= 5 * MIB
            assert await other.text("echo", text="small") == "small"
            transport.resume_reading()
            said = await reader.read()
            assert b"no memory is left for what waits to be read" in said[-200:]
            assert said.count(b'"result":') < 31
            await until(lambda: BUDGET.used <= 0)
        finally:
            transport.abort()


async def test_answers_over_http_that_nobody_reads() -> None:
    """The kernel takes some of each; of the rest some wait, and are counted, and the connections of the others end."""
    server = Server("large answers")
    answered = 0

    @server.tool
    async def large(size: int) -> str:
        nonlocal answered
        answered += 1
        return "x" * size

    def ask(size: int) -> bytes:
        return modern("tools/call", {"name": "large", "arguments": {"size": size}})

    BUDGET.most = 24 * MIB
    async with serving(server) as port:
        peers = []
        for _ in range(8):
            peers.append(await port.connect())
            peers[-1].writer.transport.pause_reading()  # type: ignore[attr-defined]
            peers[-1].send(ask(8 * MIB))
        await until(lambda: answered == 8)
        assert (await port.ask(ask(10))).status == 200
        there = [one for one in gc.get_objects() if isinstance(one, Http1Protocol)]
        waiting = sum(one.transport.get_write_buffer_size() for one in there)
        assert MIB < waiting <= 24 * MIB
        assert waiting <= BUDGET.used + 8 * SMALL
        for peer in peers:
            peer.abort()
        await until(lambda: BUDGET.used <= 0)
