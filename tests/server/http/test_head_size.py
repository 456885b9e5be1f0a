"""How large the head of a request may be, however it is cut and whatever it comes with; and empty lines before it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from support.clock import Clock, turns
from support.http_peer import Port, call, post, request, serving
from support.http_stage import Stage

from mcpd.server.http import HttpSettings

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
PONG = b'{"jsonrpc":"2.0","id":1,"result":{}}'


@pytest.mark.parametrize("head", ["many", "one", "endless"])
async def test_a_head_over_the_limit_is_431(head: str) -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_head_bytes=5000)) as port:
        peer = await port.connect()
        if head == "many":
            peer.send(request("GET", "/mcp", [(f"X-{number}", "x" * 50) for number in range(100)]))
        elif head == "one":
            peer.send(request("GET", "/mcp", [("X", "x" * 6000)]))
        else:
            peer.send(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: ")
            for _ in range(10):
                peer.send(b"x" * 1000)
                await asyncio.sleep(0)
        answer = await peer.answer()
        assert answer.status == 431
        assert "max_head_bytes" in answer.text
        assert await peer.rest() == b""
        # A body is no head: the same bytes there are welcome, also in one piece with it.
        assert (await port.ask(post(PING[:-1] + b" " * 6000 + b"}"))).body == PONG


async def answers(port: Port, *pieces: bytes) -> list[int]:
    """The status of each answer to what is sent in these pieces, each read on its own; the last one ends it."""
    peer = await port.connect()
    for piece in pieces:
        peer.send(piece)
        await peer.writer.drain()
        await (await port.connect()).ask(post(PING))  # by then it was read
    found = []
    with suppress(asyncio.IncompleteReadError):
        while True:
            found.append((await peer.answer()).status)
    return found


@pytest.mark.parametrize(
    ("url", "headers", "is_large"),
    [
        ("/mcp", 5000, False),
        ("/mcp", 5001, True),
        ("/mcp?" + "u" * 4900, 0, False),
        ("/mcp?" + "u" * 6000, 0, True),
    ],
)
async def test_what_is_too_large_does_not_depend_on_what_it_comes_with(url: str, headers: int, is_large: bool) -> None:
    """Of headers without a blank behind the colon each byte counts, and the first line is a part of the head."""
    head = f"GET {url} HTTP/1.1\r\nHost:localhost\r\nConnection:close\r\n".encode()
    left = headers - len(head) - 2
    while left > 0:
        size = left if left < 200 else 100
        head += b"X:" + b"x" * (size - 4) + b"\r\n"
        left -= size
    head += b"\r\n"
    status = 431 if is_large else 405
    async with serving(Stage().server, HttpSettings(max_head_bytes=5000)) as port:
        assert await answers(port, head) == [status]
        assert await answers(port, head[:-1], head[-1:]) == [status]
        assert await answers(port, head + post(PING)) == [status]
        assert await answers(port, post(PING) + head) == ([200] if is_large else [200, 405])
        assert await answers(port, post(PING) + head[:300], head[300:]) == [200, status]


async def test_a_head_over_the_limit_behind_another_request_ends_the_connection() -> None:
    """In the same piece with it, where nobody counts where it begins: the answer to that one is the last."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_head_bytes=5000)) as port:
        peer = await port.connect()
        peer.send(post(PING) + request("GET", "/mcp", [("X", "x" * 6000)]))
        answer = await peer.answer()
        assert (answer.body, answer["connection"]) == (PONG, "close")
        assert await peer.rest() == b""


@pytest.mark.parametrize("cut", [-2, 50, 3000])
async def test_such_a_head_in_pieces_is_431(cut: int) -> None:
    """Its first bytes came with the request before it."""
    large = request("GET", "/mcp", [("X", "x" * 6000)])
    async with serving(Stage().server, HttpSettings(max_head_bytes=5000)) as port:
        peer = await port.connect()
        peer.send(post(PING) + large[:cut])
        assert (await peer.answer()).body == PONG
        peer.send(large[cut:])
        assert (await peer.answer()).status == 431
        assert await peer.rest() == b""


async def test_an_empty_line_behind_a_request_changes_nothing() -> None:
    """RFC 9112 2.2: old clients send one behind a body. Nor does the beginning of a request while one is answered."""
    stage, clock = Stage(), Clock()
    async with serving(stage.server, HttpSettings(head_timeout=5)) as port:
        waiting = post(call("tools/call", {"name": "wait"}))
        peers = [await port.connect() for _ in range(2)]
        for peer, more in zip(peers, (b"\r\n", b"POST /m"), strict=True):
            peer.send(waiting)
            await stage.entered.get()
            peer.send(more)
        await turns()
        await clock.advance(10)
        stage.open()
        for peer in peers:
            assert (await peer.answer()).json["result"]["content"][0]["text"] == "opened"
        # But then it has to come.
        await clock.advance(6)
        assert await peers[1].rest() == b""
        assert (await peers[0].ask(post(PING))).body == PONG


@pytest.mark.parametrize("pieces", [[b"\r\n"], [b"\n"], [b"\r", b"\n"], [b"\r\n\r\n"]], ids=repr)
async def test_empty_lines_behind_an_answer_are_no_beginning(pieces: list[bytes]) -> None:
    """RFC 9112 2.2, however they are cut: no time begins in which a head has to come."""
    clock = Clock()
    async with serving(Stage().server, HttpSettings(head_timeout=5)) as port:
        peer = await port.connect()
        assert (await peer.ask(post(PING))).body == PONG
        for piece in pieces:
            peer.send(piece)
            await (await port.connect()).ask(post(PING))
        await clock.advance(10)
        assert (await peer.ask(post(PING))).body == PONG
