"""A result does not leave in one piece with a notification of its own request: over pipes, sockets and WebSocket.

With the clients that need it: tests/official/test_progress.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.clock import until
from support.websocket_peer import PING, PONG, TEXT, Bare, frame

from mcpd import Context, Server
from mcpd.transports import stdio
from mcpd.transports.stdio import DelayedResults, StdioChannel, unread


class Nobody:
    """Takes what a channel reads, and does nothing with it."""

    def receive(self, frame: bytes) -> None: ...
    def receive_error(self, error: Exception) -> None: ...
    def closed(self, error: Exception | None = None) -> None: ...


Pair = tuple[int, int, int]


def _pipes() -> tuple[Pair, list[int]]:
    fd_in, writes = os.pipe()
    reads, fd_out = os.pipe()
    return (fd_in, fd_out, reads), [fd_in, writes, reads, fd_out]


def _sockets() -> tuple[Pair, list[int]]:
    near, far = (end.detach() for end in socket.socketpair())
    return (near, near, far), [near, far]


@pytest.fixture(params=[_pipes, _sockets], ids=["pipes", "sockets"])
def ends(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Where a channel reads and writes, and where we read what it wrote."""
    make: Callable[[], tuple[Pair, list[int]]] = request.param
    pair, opened = make()
    os.set_blocking(pair[2], False)
    yield pair
    for descriptor in opened:
        os.close(descriptor)


async def arrives(descriptor: int) -> bytes:
    """What the next read gives, as soon as there is something."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(descriptor, readable.set_result, None)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 1 << 20)


async def turns(number: int) -> None:
    """As long as the channel needs to look so many times."""
    for _ in range(number):
        await asyncio.sleep(stdio._TICK)


async def test_a_result_waits_until_what_went_before_it_was_read(ends: Pair) -> None:
    fd_in, fd_out, reads = ends
    channel = StdioChannel(fd_in, fd_out)
    channel.start(Nobody())
    channel.send(b"progress", related_request_id=1)
    channel.send_separately(b"result", related_request_id=1)
    channel.send(b"of another request", related_request_id=2)
    await turns(20)
    assert unread(fd_out) > 0
    assert os.read(reads, 1 << 20) == b"progress\nof another request\n"
    assert await arrives(reads) == b"result\n"
    assert unread(fd_out) == 0
    await channel.aclose()


async def test_a_result_does_not_wait_for_ever(ends: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads slowly gets both in one piece, but it gets them."""
    monkeypatch.setattr(stdio, "_HELD_SECONDS", 0.02)
    fd_in, fd_out, reads = ends
    channel = StdioChannel(fd_in, fd_out)
    channel.start(Nobody())
    channel.send(b"progress", related_request_id=1)
    channel.send_separately(b"result", related_request_id=1)
    before = unread(fd_out)
    await until(lambda: unread(fd_out) not in (0, before))
    assert os.read(reads, 1 << 20) == b"progress\nresult\n"
    await channel.aclose()


async def test_what_is_held_is_sent_before_the_end(ends: Pair) -> None:
    fd_in, fd_out, reads = ends
    channel = StdioChannel(fd_in, fd_out)
    channel.start(Nobody())
    channel.send(b"progress", related_request_id=1)
    channel.send_separately(b"result", related_request_id=1)
    closing = asyncio.create_task(channel.aclose())
    assert await arrives(reads) == b"progress\n"
    assert await arrives(reads) == b"result\n"
    await closing


async def test_little_is_held() -> None:
    """What waits here holds nobody back, so that it must not be much."""
    sent: list[bytes] = []
    held = DelayedResults(asyncio.get_running_loop(), sent.append, lambda: False)
    held.hold(b"x" * 600_000)
    assert sent == []
    held.hold(b"y" * 600_000)
    assert [frame[:1] for frame in sent] == [b"x", b"y"]
    held.hold(b"z")
    held.close()
    await held.settle()
    assert len(sent) == 2


async def test_over_websocket_a_result_waits_for_the_answer_to_a_ping() -> None:
    bare = Bare(answer=lambda frame: None)
    channel = bare.open().channel
    channel.send(b"progress 1", related_request_id=1)
    channel.send_separately(b"result 1", related_request_id=1)
    channel.send(b"progress 2", related_request_id=2)
    channel.send_separately(b"result 2", related_request_id=2)
    pings = [payload for opcode, payload in bare.frames() if opcode == PING]
    assert [payload for opcode, payload in bare.frames() if opcode == TEXT] == [b"progress 1", b"progress 2"]
    bare.channel.data_received(frame(PONG, b"mcpd-x") + frame(PONG, b"mcpd-") + frame(PONG, b"mcpd-999999999999"))
    assert len([opcode for opcode, _ in bare.frames() if opcode == TEXT]) == 2
    bare.channel.data_received(frame(PONG, pings[0]))
    await asyncio.sleep(0)
    assert [payload for opcode, payload in bare.frames() if opcode == TEXT][2:] == [b"result 1"]
    bare.channel.data_received(frame(PONG, pings[1]))
    await asyncio.sleep(0)
    assert [payload for opcode, payload in bare.frames() if opcode == TEXT][3:] == [b"result 2"]
    bare.lose()


async def test_a_client_that_answers_no_ping_gets_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_HELD_SECONDS", 0.01)
    bare = Bare(answer=lambda frame: None)
    channel = bare.open().channel
    channel.send(b"progress", related_request_id=1)
    channel.send_separately(b"result", related_request_id=1)
    await until(lambda: b"result" in [payload for _, payload in bare.frames()])
    bare.lose()


class Watched:
    """A channel that says how each frame was sent."""

    is_multiplexed = True
    is_congested = False

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []

    def send(self, frame: bytes, related_request_id: Any = None, method: str | None = None) -> None:
        self.sent.append(("send", frame))

    def send_separately(self, frame: bytes, related_request_id: Any = None, method: str | None = None) -> None:
        self.sent.append(("apart", frame))

    async def drain(self) -> None: ...
    async def aclose(self, reason: str = "") -> None: ...


async def test_only_a_call_that_said_something_is_answered_apart() -> None:
    """A plain call pays nothing: its answer leaves in the turn in which it is ready."""
    server = Server("apart")

    @server.tool
    async def quiet() -> str:
        return "quiet"

    @server.tool
    async def loud(ctx: Context) -> str:
        await ctx.progress(1, 1)
        return "loud"

    @server.tool
    async def logging(ctx: Context) -> str:
        await ctx.warning("careful")
        raise ValueError("failed")

    channel = Watched()
    connection = server.connect(channel)

    def ask(number: int, method: str, params: str) -> None:
        text = f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}'
        connection.receive(text.encode())

    ask(0, "initialize", '{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}')
    for number, name in enumerate(("quiet", "loud", "logging"), 1):
        ask(number, "tools/call", f'{{"name":"{name}","_meta":{{"progressToken":{number}}}}}')
        await until(lambda: not connection.session.in_flight)
    assert [how for how, _ in channel.sent] == ["send", "send", "send", "apart", "send", "apart"]
    assert [b"notifications/" in frame for _, frame in channel.sent] == [False, False, True, False, True, False]
    connection.abort()
    connection.closed()
