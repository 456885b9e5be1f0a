"""A request whose head came before is not parsed again, and is read and answered as if it were."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
from typing import Any

import httptools
import pytest
from support.clock import until
from support.http_peer import call, modern, post, serving
from support.http_stage import Stage

from mcpd import Context, Server
from mcpd.http import HttpSettings
from mcpd.http.http1 import Http1Protocol
from mcpd.http.known_head import ANSWERED, KnownHead
from mcpd.http.request import SAME_HEAD, WHOLE_BODY

Found = tuple[str, str, list[tuple[bytes, bytes]], bytes]


class Parsed:
    """What the parser finds: the requests that end in some bytes, and whether it takes all of these."""

    def __init__(self, data: bytes) -> None:
        self.requests: list[Found] = []
        self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.requests.clear()

    def on_message_begin(self) -> None:
        self._url, self._body = b"", b""
        self._headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.requests.append((self._parser.get_method().decode(), self._url.decode(), self._headers, self._body))

    def scope(self) -> dict[str, Any]:
        ((method, path, headers, _),) = self.requests
        return {"method": method, "path": path, "headers": headers, "more": "as it is"}


def learned(data: bytes) -> KnownHead | None:
    return KnownHead.learn(data, Parsed(data).scope())


def numbered(number: int, body: str = "") -> bytes:
    return modern("tools/call", {"name": "echo", "arguments": {"text": body}}, id=number)


HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: %b\r\nAccept: */*\r\n\r\n"


def test_what_is_known_again_is_what_the_parser_would_find() -> None:
    """Whatever is changed in a request: if it counts as known, the parser finds just that one, whole, in it."""
    chance = random.Random(19)
    known = learned(HEAD % b"12" + b"x" * 12)
    assert known is not None
    hits = 0
    for _ in range(20_000):
        size = chance.choice([0, 1, 9, 12, 100, 1000])
        said = chance.choice([b"%d", b"%d", b"%03d", b"+%d", b"%d ", b" %d", b"0x%x", b"%d,1", b"%d\t"])
        data = bytearray(HEAD % (said % chance.choice([size, size, size, size + 1])) + b"x" * size)
        for _ in range(chance.choice([0, 0, 1, 2])):
            place = chance.randrange(len(data))
            data[place : place + chance.randrange(2)] = chance.choice([b"\r", b"\n", b"\0", b"0", b" ", b":", b"\r\n"])
        whole = bytes(data)
        if (found := known.read(whole)) is not None:
            hits += 1
            body = found.pop(WHOLE_BODY)
            (one,) = Parsed(whole).requests
            assert (found["method"], found["path"], found["headers"], body) == one
            assert found["more"] == "as it is"
    assert 1000 < hits < 19_000


@pytest.mark.parametrize(
    "data",
    [
        b"GET /mcp HTTP/1.1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nContent-Length:2\r\n\r\nab",
        b"POST /mcp HTTP/1.1\r\nContent-Length:1\r\n\r\n1",
        b"POST /mcp HTTP/1.1\r\nContent-Length: 2 \r\n\r\nab",
        b"POST /mcp HTTP/1.1\r\nX: content-length: 2\r\nContent-Length: 2\r\n\r\nab",
        b"POST /mcp?content-length HTTP/1.1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /mcp HTTP/1.1\r\nContent-Length: 0000000002\r\n\r\nab",
        b"POST /mcp HTTP/1.1\r\nContent-Length: 2\r\n\r\nab\r\n",
        b"\r\n\r\nPOST /mcp HTTP/1.1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /mcp HTTP/1.1\r\nX: %b\r\nContent-Length: 2\r\n\r\nab" % (b"x" * 5000),
    ],
)
def test_what_is_not_as_simple_is_not_kept(data: bytes) -> None:
    assert learned(data) is None


NOBODY = {"client": None, "server": None, "state": None}
"""What is not a head's, and filled in by the connection to which it comes."""


def test_what_an_application_does_to_a_scope_stays_there() -> None:
    data = HEAD % b"2" + b"ab"
    known = learned(data)
    assert known is not None
    first = known.read(data) or {}
    first["headers"].clear()
    first["more"] = "changed"
    second = known.read(data) or {}
    assert second == {**Parsed(data).scope(), **NOBODY, WHOLE_BODY: b"ab", SAME_HEAD: {}}


# --------------------------------------------------------------------------- through a connection


class Reads:
    """How the requests of a test were read: True for each that was known."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: list[bool] = []
        read = KnownHead.read

        def watched(head: KnownHead, data: bytes) -> Any:
            found = read(head, data)
            self.known.append(found is not None)
            return found

        monkeypatch.setattr(KnownHead, "read", watched)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


LAST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
PING = post(call("ping"))
BODY = json.dumps(call("ping")).encode()
BEGUN = b"GET /foo HTTP/1.1\r\nHost: localhost\r\nX-Value: "
"""A request whose next bytes are the value of a header, whatever they look like."""
TIGHT = PING[: PING.index(b"\r\n\r\n")].replace(b"HTTP/1.1", b"HTTP/1.%d")
TIGHT = re.sub(rb"Content-Length: \d+", b"Content-Length:%d", TIGHT) + b"\r\n\r\n"
# What a client sends, each piece after the answers to the one before, and how many of them are known.
TALKS: dict[str, tuple[list[bytes], int]] = {
    "calls": ([numbered(number, "x" * number) for number in range(12)], 11),
    "errors": ([post(b"{"), post(b"[]"), post(b"{}"), PING], 3),
    "a body too large": ([PING, post(b"x" * 2000)], 1),
    "another token each time": ([post(call("ping"), {"Authorization": f"Bearer {n}"}) for n in range(8)], 0),
    "other headers between": ([PING, numbered(1), PING, PING, PING], 1),
    "two at once": ([PING, PING + PING, PING], 1),
    "behind an empty line": ([PING, b"\r\n" + PING, b"\r\n" + PING, PING], 1),
    "it is waited for": ([PING, PING.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"), PING], 0),
    "the client wishes to close": ([PING, PING.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")], 0),
    "the next begins in the same piece": ([PING, PING, PING + PING[:3], PING[3:], PING], 0),
    "another begins in the same piece": ([PING, PING + PING + BEGUN, PING], 0),
    "it begins behind two": ([PING, PING + PING + PING[:5], PING[5:], PING], 0),
    "no blank before the length": ([TIGHT % (1, 1) + b"1", TIGHT % (len(BODY), 1) + BODY], 0),
    "HTTP/1.0": ([PING, PING.replace(b"HTTP/1.1", b"HTTP/1.0")], 0),
}


async def talk(pieces: list[bytes]) -> bytes:
    """All that is answered, with the same Date in each answer."""
    async with serving(Stage().server, HttpSettings(max_body_bytes=1000)) as port:
        peer = await port.connect()
        answers = []
        for piece in pieces:
            peer.send(piece)
            for _ in range(piece.count(b"POST /mcp")):
                answer = await peer.answer()
                if answer.status == 100:
                    answer = await peer.answer()
                answers.append(b"%d %r %b" % (answer.status, answer.headers, answer.body))
        peer.send(LAST)
        answers.append(await peer.rest())
        return re.sub(rb"\bdate(: |', ')[^\r']+", b"date", b"".join(answers))


@pytest.mark.parametrize("name", TALKS)
async def test_a_talk_has_the_same_bytes_both_ways(name: str, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, known = TALKS[name]
    found = await talk(pieces)
    assert sum(reads.known) >= known

    monkeypatch.setattr(KnownHead, "learn", lambda data, scope, most: None)
    reads.known.clear()
    assert found == await talk(pieces)
    assert reads.known == []

    monkeypatch.setattr(Http1Protocol, "_is_simple", False)  # and as uvicorn has it from its parser
    assert found == await talk(pieces)


async def test_a_head_that_grows_by_its_digits_is_held_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the limit is: what the parser would refuse is refused."""
    large = post(call("ping", {"x": "y" * 5000}))
    size = PING.index(b"\r\n\r\n") + 4

    async def statuses(most: int) -> list[int]:
        async with serving(Stage().server, HttpSettings(max_head_bytes=most)) as port:
            peer = await port.connect()
            first = await peer.ask(PING)
            return [first.status, (await peer.ask(large)).status if first.status == 200 else 0]

    limits = range(size - 30, size + 12)
    found = [await statuses(most) for most in limits]
    assert [200, 431] in found
    assert [200, 200] in found

    monkeypatch.setattr(KnownHead, "learn", lambda data, scope, most: None)
    assert found == [await statuses(most) for most in limits]


async def test_a_client_that_never_writes_the_same_is_not_looked_at_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []
    learn = KnownHead.learn
    monkeypatch.setattr(KnownHead, "learn", lambda data, *more: learn(looked.append(data) or data, *more))
    await talk([post(call("ping"), {"X-Number": str(number)}) for number in range(10)])
    assert len(looked) == 4

    looked.clear()
    pairs = [post(call("ping"), {"X-Number": str(number // 2)}) for number in range(20)]
    await talk(pairs)
    assert len(looked) == 10


async def test_pieces_are_put_together(reads: Reads) -> None:
    async with serving(Stage().server) as port:
        peer = await port.connect()
        await peer.ask(PING)
        peer.send(PING[:-5])
        await until(lambda: reads.known == [False])
        peer.send(PING[-5:])
        assert (await peer.answer()).json["result"] == {}
        assert (await peer.ask(PING)).json["result"] == {}
    assert reads.known == [False, True]


async def test_a_client_that_leaves_ends_its_call(reads: Reads) -> None:
    server, started, ended = Server("waits"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait(is_long: bool, *, ctx: Context) -> str:
        started.set()
        try:
            await ctx.progress(1)
            if is_long:
                await asyncio.Event().wait()
        finally:
            ended.set()
        return "done"

    async with serving(server) as port:
        peer = await port.connect()
        await peer.ask(modern("tools/call", {"name": "wait", "arguments": {"is_long": False}}))
        started.clear()
        ended.clear()
        peer.send(modern("tools/call", {"name": "wait", "arguments": {"is_long": True}}))
        await started.wait()
        peer.abort()
        await asyncio.wait_for(ended.wait(), 5)
    assert reads.known == [True]


async def test_a_connection_that_waits_does_not_keep_its_last_request() -> None:
    async with serving(Stage().server) as port:
        for data in (PING, PING, LAST.replace(b"Connection: close\r\n", b"")):
            peer = await port.connect()
            await peer.ask(data)
        for connection in port.listener._state.connections:
            assert (connection.cycle, connection.scope) == (ANSWERED, None)


async def test_connections_share_a_head_and_nothing_that_is_theirs(reads: Reads) -> None:
    server, go, seen = Server("waits"), asyncio.Event(), asyncio.Semaphore(0)

    @server.tool
    async def wait(is_long: bool) -> str:
        if is_long:
            seen.release()
            await go.wait()
        return "done"

    def asked(is_long: bool) -> bytes:
        return modern("tools/call", {"name": "wait", "arguments": {"is_long": is_long}})

    async with serving(server) as port:
        peers = [await port.connect() for _ in range(2)]
        for peer in peers:
            await peer.ask(asked(False))
        one, other = port.listener._state.connections
        assert one._known is other._known is not None
        for peer in peers:
            peer.send(asked(True))
            await seen.acquire()
        assert reads.known == [True, True]
        scopes = [one.scope, other.scope]
        assert [scope["client"] for scope in scopes] == [one.client, other.client]
        assert one.client != other.client
        assert one.server is other.server is scopes[0]["server"]
        scopes[0]["state"]["mine"] = scopes[0]["headers"]
        assert scopes[1]["state"] == {}
        assert scopes[1]["headers"] is not scopes[0]["headers"]
        go.set()
        for peer in peers:
            assert (await peer.answer()).status == 200
        heads = port.listener._state.heads
        assert len(heads) == 1
        for peer in peers:
            peer.abort()
        await until(lambda: not port.listener._state.connections)
        del one, other, scopes
        gc.collect()
        assert not heads  # a head may hold a token: not longer than a connection of whoever sent it


async def test_a_connection_that_waits_long_keeps_no_head_and_no_parser(reads: Reads) -> None:
    async with serving(Stage().server, HttpSettings(max_body_bytes=1 << 20)) as port:
        peer = await port.connect()
        await peer.ask(post(call("ping", {"x": "y" * 100_000})))
        (connection,) = port.listener._state.connections
        assert connection._data == b""
        assert (await peer.ask(PING)).status == 200
        connection._idle_since -= 2
        connection.close_idle(0)
        assert (connection._known, connection.parser) == (None, None)
        reads.known.clear()
        for _ in range(3):
            assert (await peer.ask(PING)).status == 200
    assert reads.known == [True, True]


async def test_what_comes_while_a_known_request_is_answered_waits_its_turn(reads: Reads) -> None:
    server, go = Server("waits"), asyncio.Event()

    @server.tool
    async def wait(number: int) -> str:
        if number == 2:
            await go.wait()
        return str(number)

    def asked(number: int) -> bytes:
        return modern("tools/call", {"name": "wait", "arguments": {"number": number}}, id=number)

    async with serving(server) as port:
        peer = await port.connect()
        await peer.ask(asked(1))
        peer.send(asked(2))
        await until(lambda: reads.known == [True])
        (connection,) = port.listener._state.connections
        for number in (3, 4):
            peer.send(asked(number))
            await until(lambda number=number: len(connection.pipeline) == number - 2)
        go.set()
        assert [(await peer.answer()).json["id"] for _ in range(3)] == [2, 3, 4]
        assert (await peer.ask(asked(5))).json["id"] == 5
    assert reads.known == [True, True]
