"""Whole answers are written at once, past uvicorn's two messages, and look the same as through them."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest
from support.clock import until
from support.http_peer import Peer, call, envelope, modern, post, serving
from support.http_stage import Stage

from mcpd import Context, RouteRequest, RouteResponse, Server
from mcpd.http import HttpSettings, response_writer
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


# --------------------------------------------------------------------------- byte for byte as uvicorn


def route_server() -> Server:
    """A route that answers with the status, and as many bytes, as its path says."""
    server = Server("routes")

    @server.route("/answer/{status}/{size}", methods=["GET", "POST"], public=True)
    async def answer(request: RouteRequest) -> RouteResponse:
        return RouteResponse("x" * int(request.params["size"]), int(request.params["status"]))

    return server


async def all_bytes(data: bytes) -> bytes:
    """What a server answers to these bytes until it closes the connection, with the same Date in each answer."""
    async with serving(route_server(), HttpSettings(max_body_bytes=1000)) as port:
        peer = await port.connect()
        peer.send(data)
        return re.sub(rb"\r\ndate: [^\r]+", b"\r\ndate: now", await peer.rest())


def get(path: str, *, method: str = "GET", version: str = "1.1", last: bool = False, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if last:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


END = get("/healthz", last=True)
STATUSES = [status for status in range(200, 600) if status not in (204, 304)]

CONNECTIONS = {
    "many behind each other": (b"".join(get(f"/answer/200/{size}") for size in range(15)) + END, 15),
    "no body": (get("/answer/200/0") + get("/answer/204/0") + get("/answer/304/0") + END, 1),
    "sizes": (b"".join(get(f"/answer/200/{size}") for size in (1, 65_535, 65_536, 300_000)) + END, 4),
    "HEAD": (get("/answer/200/9", method="HEAD") + get("/answer/200/9") + END, 1),
    "HTTP/1.0": (get("/answer/200/9", version="1.0"), 0),
    "HTTP/1.0 that would stay": (get("/answer/200/9", version="1.0", Connection="keep-alive"), 0),
    "close at once": (get("/answer/200/9", last=True) + get("/answer/200/8"), 0),
    "close among others": (get("/answer/200/9", Connection="x, Close"), 0),
    "a body that is waited for": (
        get("/answer/200/9", method="POST", Content_Length="2", Expect="100-continue") + b"ab" + END,
        1,
    ),
    "a body in chunks": (
        get("/answer/200/9", method="POST", Transfer_Encoding="chunked") + b"2\r\nab\r\n0\r\n\r\n" + END,
        1,
    ),
    "a body too large": (get("/answer/200/9", method="POST", Content_Length="1001") + b"a" * 1001 + END, 0),
    "a body that nobody reads": (get("/nowhere", method="POST", Content_Length="2") + b"ab" + END, 1),
    "a body that is announced to nobody": (
        get("/nowhere", method="POST", Content_Length="2", Expect="100-continue") + b"ab" + END,
        1,
    ),
    "messages": (post(PING) + post(b"{") + post(b"[]") + modern("tools/list") + END, 4),
    "a wish for HTTP/2": (get("/answer/200/9", Connection="upgrade, HTTP2-Settings", Upgrade="h2c") + END, 1),
    "no HTTP behind it": (get("/answer/200/9") + b"\0\r\n\r\n", 0),
}


@pytest.mark.parametrize("name", CONNECTIONS)
async def test_a_connection_has_the_same_bytes_both_ways(
    name: str, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, count = CONNECTIONS[name]
    at_once = await all_bytes(data)
    assert sum(ways.taken) >= count
    assert at_once.startswith(b"HTTP/1.1 ")

    monkeypatch.setattr("mcpd.http.http1.answer_at_once", lambda *answer: False)
    assert at_once == await all_bytes(data)


async def test_an_event_stream_that_is_whole_has_the_same_bytes_both_ways(
    ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a tool says before its first wait leaves in one write with its answer."""
    server = Server("steps")

    @server.tool
    async def steps(text: str, *, ctx: Context) -> str:
        for number in range(3):
            await ctx.progress(number, message=text)
        return text

    def asked(meta: dict[str, Any]) -> dict[str, Any]:
        return {"name": "steps", "arguments": {"text": "on\nthe way"}, "_meta": {**meta, "progressToken": 1}}

    async def answers() -> bytes:
        async with serving(server) as port:
            peer = await port.connect()
            peer.send(modern("tools/call", params := asked(envelope()), meta=params["_meta"]))
            peer.send(post(call("tools/call", asked({}))) + END)
            return re.sub(rb"\r\ndate: [^\r]+", b"\r\ndate: now", await peer.rest())

    at_once = await answers()
    assert ways.taken == [True, True, False]
    assert at_once.count(b"notifications/progress") == 6
    assert at_once.count(b"\r\nx-accel-buffering: no\r\n") == 2
    monkeypatch.setattr("mcpd.http.http1.answer_at_once", lambda *answer: False)
    assert at_once == await answers()


async def test_they_have_on_uvloop_too(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop that `mcpd serve --http` uses where it is installed."""
    uvloop = pytest.importorskip("uvloop")

    async def exchange() -> dict[str, bytes]:
        return {name: await all_bytes(data) for name, (data, _) in CONNECTIONS.items()}

    def run() -> dict[str, bytes]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(exchange())

    at_once = await asyncio.to_thread(run)
    assert sum(ways.taken) >= sum(count for _, count in CONNECTIONS.values())
    monkeypatch.setattr("mcpd.http.http1.answer_at_once", lambda *answer: False)
    assert at_once == await asyncio.to_thread(run)


async def test_every_status_has_the_same_bytes_both_ways(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those without a name."""

    async def answers() -> list[bytes]:
        found = []
        async with serving(route_server()) as port:
            peer = await port.connect()
            for status in STATUSES:
                answer = await peer.ask(get(f"/answer/{status}/3"))
                found.append(b"%d %r %b" % (answer.status, answer.headers[1:], answer.body))
        return found

    at_once = await answers()
    assert len(at_once) == len(STATUSES)
    assert 50 < sum(ways.taken) < len(STATUSES)
    monkeypatch.setattr("mcpd.http.http1.answer_at_once", lambda *answer: False)
    assert at_once == await answers()


# ------------------------------------------------------------------------------------ who has left


class Door:
    """A server with a route that waits until it is opened."""

    def __init__(self) -> None:
        self.server = Server("door")
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

        @self.server.route("/door", public=True)
        async def door() -> str:
            self.entered.set()
            await self.opened.wait()
            return "opened"


async def test_a_client_that_has_left_is_not_written_to(ways: Ways, caplog: pytest.LogCaptureFixture) -> None:
    door = Door()
    async with serving(door.server) as port:
        peer = await port.connect()
        peer.send(get("/door"))
        await door.entered.wait()
        peer.abort()
        await until(lambda: not port.listener._state.connections)
        door.opened.set()
        await until(lambda: ways.taken)
    assert ways.taken == [False]
    assert not caplog.records


async def test_a_server_that_stops_says_so(ways: Ways) -> None:
    """The connection ends behind the answer that is being given, and what waits behind that is answered too."""
    door = Door()
    async with serving(door.server) as port:
        one, two = await port.connect(), await port.connect()
        one.send(get("/door"))
        await door.entered.wait()
        two.send(get("/door") + get("/healthz"))
        await until(lambda: any(connection.pipeline for connection in port.listener._state.connections))
        port.listener.pause()
        door.opened.set()
        assert (await one.answer())["connection"] == "close"
        assert "connection" not in await two.answer()
        assert (await two.answer())["connection"] == "close"
        assert await one.rest() == await two.rest() == b""
    assert sorted(ways.taken) == [False, False, True]


async def test_the_log_of_a_programs_own_server_stays_its_own(ways: Ways, caplog: pytest.LogCaptureFixture) -> None:
    """Uvicorn has one log of accesses for all of a process: it is neither taken away nor written to."""
    access_log = logging.getLogger("uvicorn.access")
    assert access_log.propagate
    access_log.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.INFO, "uvicorn.access"):
            async with serving(route_server()) as port:
                assert (await port.ask(get("/healthz"))).status == 200
                assert (await port.ask(END)).status == 200
            assert caplog.handler in access_log.handlers
            assert access_log.propagate
    finally:
        access_log.removeHandler(caplog.handler)
    assert ways.taken == [True, False]
    assert not [record for record in caplog.records if record.name == "uvicorn.access"]


# ------------------------------------------------------------------------------------- the writer


class Written(asyncio.Transport):
    """A transport that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))


def test_head_and_body_are_one_write() -> None:
    transport = Written()
    writer = ResponseWriter(transport, None)
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
