"""Whole answers are written at once, past uvicorn's two messages, and look the same as through them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import until
from support.http_peer import Peer, call, modern, post, serving
from support.http_stage import Stage

from mcpd import Server
from mcpd.http import response_writer
from mcpd.http.response_writer import ResponseWriter, answer_at_once

PING = call("ping")
LARGE = "x" * 100_000


class Ways:
    """How the answers of a test were written: True for each that was written at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[bool] = []

        def at_once(*answer: Any) -> bool:
            self.taken.append(answer_at_once(*answer))
            return self.taken[-1]

        monkeypatch.setattr("mcpd.http.http1.answer_at_once", at_once)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


def large_server() -> Server:
    server = Server("large")

    @server.tool
    def large() -> str:
        return LARGE

    return server


@pytest.mark.parametrize("body", [PING, b"{", b"[]"])
async def test_both_ways_look_the_same(ways: Ways, body: Any) -> None:
    """An answer that ends its connection goes through uvicorn's messages; only that differs."""
    async with serving(Stage().server) as port:
        at_once = await port.ask(post(body))
        assert ways.taken == [True]
        by_messages = await port.ask(post(body, {"Connection": "close"}))
        assert ways.taken == [True, False]
    assert (at_once.status, at_once.body) == (by_messages.status, by_messages.body)
    assert [name for name, _ in at_once.headers] == ["date", "content-type", "content-length"]
    assert [*at_once.headers[1:], ("connection", "close")] == by_messages.headers[1:]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_large_answer(ways: Ways, version: str) -> None:
    async with serving(large_server()) as port:
        params = {"name": "large", "arguments": {}}
        if version == "2026-07-28":
            answer = await port.modern("tools/call", params)
        else:
            answer = await (await port.open(version)).ask("tools/call", params)
    assert ways.taken[-1]
    assert answer.json["result"]["content"] == [{"type": "text", "text": LARGE}]


async def test_what_needs_headers_of_its_own_goes_through_messages(ways: Ways) -> None:
    """A session's id; and a HEAD has no body."""
    async with serving(Stage().server) as port:
        await port.open()
        head = await port.connect()
        head.send(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await head.head())["content-length"] == "3"
        head.send(post(PING))
        assert (await head.answer()).json["result"] == {}
    assert ways.taken == [True]


async def test_requests_behind_each_other(ways: Ways) -> None:
    async with serving(large_server()) as port:
        peer = await port.connect()
        asked = [modern("tools/call", {"name": "large", "arguments": {}}, id=number) for number in range(8)]
        peer.send(b"".join(asked))
        assert [(await peer.answer()).json["id"] for _ in asked] == [*range(8)]


async def test_a_slow_reader_is_waited_for(ways: Ways) -> None:
    """What was written at once waits in the transport; the next answer waits for that, and none is lost."""
    async with serving(large_server()) as port:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port.number, limit=1 << 17))
        count = 200
        peer.send(b"".join(modern("tools/call", {"name": "large", "arguments": {}}, id=n) for n in range(count)))
        await until(lambda: False in ways.taken)  # the buffers are full, and an answer waits
        assert [(await peer.answer()).json["id"] for _ in range(count)] == [*range(count)]
        await peer.aclose()


class Written(asyncio.Transport):
    """A transport that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))


def test_head_and_body_are_one_write() -> None:
    transport = Written()
    writer = ResponseWriter(transport, lambda: False)
    writer.write_whole(b"head", b"body")
    large = b"b" * response_writer._JOINED_BYTES
    writer.write_whole(b"head", large)
    writer.is_over = True
    writer.write_whole(b"head", b"body")
    assert transport.writes == [b"headbody", b"head", large]


async def test_only_on_our_own_connections() -> None:
    async def send(message: Any) -> None:
        raise AssertionError("nothing is to be sent")

    assert not answer_at_once(send, 200, (b"content-type", b"text/plain"), b"")
