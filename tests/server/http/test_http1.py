"""Answers on our own connections have the bytes of uvicorn's, and each leaves in as few writes as it can."""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar
from typing import Any

import pytest
from support.clock import Clock, until
from support.http_peer import Peer, call, envelope, modern, post, request, serving
from support.http_stage import Stage
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mcpd import Context, RouteRequest, RouteResponse, Server
from mcpd.server.http import HttpSettings
from mcpd.server.http.exchange import HttpState
from mcpd.server.http.http1 import Http1Protocol

PING = call("ping")
LARGE = "x" * 100_000


def large_server() -> Server:
    server = Server("large")

    @server.tool
    def large() -> str:
        return LARGE

    return server


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_large_answer(version: str) -> None:
    async with serving(large_server()) as port:
        params = {"name": "large", "arguments": {}}
        if version == "2026-07-28":
            answer = await port.modern("tools/call", params)
        else:
            answer = await (await port.open(version)).ask("tools/call", params)
    assert answer.json["result"]["content"] == [{"type": "text", "text": LARGE}]


async def test_a_head_without_a_body() -> None:
    async with serving(Stage().server) as port:
        await port.open()
        head = await port.connect()
        head.send(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await head.head())["content-length"] == "3"
        head.send(post(PING))
        assert (await head.answer()).json["result"] == {}


async def test_requests_behind_each_other() -> None:
    async with serving(large_server()) as port:
        peer = await port.connect()
        asked = [modern("tools/call", {"name": "large", "arguments": {}}, id=number) for number in range(8)]
        peer.send(b"".join(asked))
        assert [(await peer.answer()).json["id"] for _ in asked] == [*range(8)]


async def test_thousands_of_requests_in_one_write() -> None:
    """None begins inside the answer to another, which Python would soon refuse to nest."""
    async with serving(Stage().server) as port:
        peer = await port.connect()
        peer.send(get("/healthz") * 3000 + END)
        assert (await peer.rest()).count(b"HTTP/1.1 200 OK\r\n") == 3001


HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


async def test_only_a_get_opens_a_websocket() -> None:
    """RFC 6455 4.1. Any other method is answered as if it wished for nothing (RFC 9110 7.8)."""
    answers = await all_bytes(post(PING, {**HANDSHAKE}) + END, route_server())
    assert answers == await all_bytes(post(PING) + END, route_server())


async def test_a_websocket_behind_an_answer_that_is_read_late() -> None:
    """From then on its own protocol watches the reader; no limit of an answer over HTTP ends it."""
    clock = Clock()
    async with serving(route_server(), HttpSettings(write_timeout=2)) as port:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port.number, limit=1 << 17))
        peer.send(get("/answer/200/20000000"))
        connections = port.listener._state.connections
        await until(lambda: any(each.paused is not None and each._answering is None for each in connections))
        peer.send(request("GET", "/mcp", HANDSHAKE.items()))
        assert len((await peer.answer()).body) == 20_000_000
        assert (await peer.head()).status == 101
        for _ in range(3):
            await clock.advance(3)
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        peer.send(bytes([0x81, 0x80 | len(ping), 0, 0, 0, 0]) + ping)
        assert (await peer.reader.readexactly(2))[:1] == b"\x81"
        await peer.aclose()


async def test_no_request_sees_the_variables_of_another_on_its_connection() -> None:
    """Neither one that waited behind it, nor one that comes after the answers let the connection go on reading."""
    server, variable = Server("contexts"), ContextVar("variable", default="")

    @server.tool
    async def mark(text: str) -> str:
        before = variable.get()
        variable.set(text)
        return before

    async with serving(server) as port:
        peer = await port.connect()
        for count in (40, 1):
            asked = [modern("tools/call", {"name": "mark", "arguments": {"text": "seen"}}) for _ in range(count)]
            peer.send(b"".join(asked))
            found = [(await peer.answer()).json["result"]["content"][0]["text"] for _ in asked]
            assert found == [""] * count


async def test_a_slow_reader_is_waited_for() -> None:
    """What was written waits in the transport; the next answer waits for that, and none is lost."""
    async with serving(large_server()) as port:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port.number, limit=1 << 17))
        count = 200
        peer.send(b"".join(modern("tools/call", {"name": "large", "arguments": {}}, id=n) for n in range(count)))
        # The buffers are full, and an answer waits.
        await until(lambda: any(connection.paused for connection in port.listener._state.connections))
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


async def all_bytes(data: bytes, server: Server) -> bytes:
    """What a server answers to these bytes until it closes the connection, without the date."""
    async with serving(server, HttpSettings(max_body_bytes=1000)) as port:
        peer = await port.connect()
        peer.send(data)
        return re.sub(rb"date: [^\r]+\r\n", b"", await peer.rest())


async def bytes_of_uvicorn(data: bytes, server: Server) -> bytes:
    """What the same application answers under uvicorn."""
    app = server.asgi_app(settings=HttpSettings(max_body_bytes=1000))
    config = Config(app, ws="none", lifespan="off", server_header=False, date_header=False, log_config=None)  # type: ignore[arg-type]
    state, loop = ServerState(), asyncio.get_running_loop()
    listener = await loop.create_server(lambda: HttpToolsProtocol(config, state, {}), "127.0.0.1", 0)
    async with listener:
        peer = Peer(*await asyncio.open_connection(*listener.sockets[0].getsockname()[:2], limit=1 << 20))
        peer.send(data)
        answers = await peer.rest()
        await peer.aclose()
    await app.aclose()
    return answers


def get(path: str, *, method: str = "GET", version: str = "1.1", last: bool = False, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if last:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


END = get("/healthz", last=True)
STATUSES = [status for status in range(200, 600) if status not in (204, 304)]

CONNECTIONS = {
    "many behind each other": b"".join(get(f"/answer/200/{size}") for size in range(15)) + END,
    "no body": get("/answer/200/0") + get("/answer/204/0") + get("/answer/304/0") + END,
    "sizes": b"".join(get(f"/answer/200/{size}") for size in (1, 65_535, 65_536, 300_000)) + END,
    "HEAD": get("/answer/200/9", method="HEAD") + get("/answer/200/9") + END,
    "HTTP/1.0": get("/answer/200/9", version="1.0"),
    "HTTP/1.0 that would stay": get("/answer/200/9", version="1.0", Connection="keep-alive"),
    "close at once": get("/answer/200/9", last=True) + get("/answer/200/8"),
    "close among others": get("/answer/200/9", Connection="x, Close"),
    "a body that is waited for": get("/answer/200/9", method="POST", Content_Length="2", Expect="100-continue")
    + b"ab"
    + END,
    "a body in chunks": get("/answer/200/9", method="POST", Transfer_Encoding="chunked")
    + b"2\r\nab\r\n0\r\n\r\n"
    + END,
    "a body too large": get("/answer/200/9", method="POST", Content_Length="1001") + b"a" * 1001 + END,
    "a body that nobody reads": get("/nowhere", method="POST", Content_Length="2") + b"ab" + END,
    "a body that is announced to nobody": get("/nowhere", method="POST", Content_Length="2", Expect="100-continue")
    + b"ab"
    + END,
    "messages": post(PING) + post(b"{") + post(b"[]") + modern("tools/list") + END,
    "every status": b"".join(get(f"/answer/{status}/3") for status in STATUSES) + END,
}


@pytest.mark.parametrize("name", CONNECTIONS)
async def test_a_connection_has_the_bytes_of_uvicorn(name: str) -> None:
    ours = await all_bytes(CONNECTIONS[name], route_server())
    assert ours.startswith(b"HTTP/1.1 ")
    assert ours == await bytes_of_uvicorn(CONNECTIONS[name], route_server())


async def test_a_wish_for_another_protocol_is_passed_over() -> None:
    asked = get("/answer/200/9", Connection="upgrade, HTTP2-Settings", Upgrade="h2c")
    assert await all_bytes(asked + END, route_server()) == await all_bytes(get("/answer/200/9") + END, route_server())


async def test_what_is_no_http_ends_the_connection_behind_the_answers() -> None:
    answers = await all_bytes(get("/answer/200/9") + b"\0\r\n\r\n", route_server())
    assert answers.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"HTTP/1.1" not in answers[1:]


@pytest.mark.parametrize("target", ["http://localhost", "http://localhost?a=b"])
async def test_a_target_without_a_path_is_the_root(target: str) -> None:
    """RFC 9110 4.2.3."""
    assert await all_bytes(get(target) + END, route_server()) == await all_bytes(get("/") + END, route_server())


@pytest.mark.parametrize("target", ["http://localhost:99999/healthz", "http://localhost:/healthz"])
async def test_a_target_that_is_none_is_refused(target: str) -> None:
    assert (await all_bytes(get(target), route_server())).startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize("name", ["Connection", "proxy-connection"])
async def test_a_trailer_about_the_connection_is_refused(name: str) -> None:
    """RFC 9110 6.5.1 forbids it, and the parser would drop the next request."""
    body = f"2\r\nab\r\n0\r\n{name}: close\r\n\r\n".encode()
    answers = await all_bytes(get("/healthz", Transfer_Encoding="chunked") + body + END, route_server())
    assert answers.startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_a_body_that_waits_to_be_wanted_and_is_not() -> None:
    """The connection ends: what comes next on it may be the body, or the next request."""
    asked = get("/nowhere", method="POST", Content_Length="2", Expect="100-continue")
    answers = await all_bytes(asked, route_server())
    assert answers.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert b"\r\nconnection: close\r\n" in answers


async def test_a_client_of_http_1_0_is_not_told_to_continue() -> None:
    """RFC 9110 10.1.1, 15.2."""
    asked = get("/answer/200/9", method="POST", version="1.0", Content_Length="2", Expect="100-continue")
    assert (await all_bytes(asked + b"ab", route_server())).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_an_event_stream_that_is_whole_leaves_with_its_answer() -> None:
    """All that a tool says before its first wait."""
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

    written = await answers()
    assert written.count(b"notifications/progress") == 6
    assert written.count(b"\r\nx-accel-buffering: no\r\n") == 2
    assert written.count(b"\r\ncontent-length: ") == 3


async def test_they_are_the_same_on_uvloop() -> None:
    """The loop that `mcpd serve --http` uses where it is installed."""
    uvloop = pytest.importorskip("uvloop")

    async def exchange() -> dict[str, bytes]:
        return {name: await all_bytes(data, route_server()) for name, data in CONNECTIONS.items()}

    def run() -> dict[str, bytes]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(exchange())

    assert await asyncio.to_thread(run) == await exchange()


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


async def test_a_client_that_has_left_is_not_written_to(caplog: pytest.LogCaptureFixture) -> None:
    door = Door()
    async with serving(door.server) as port:
        peer = await port.connect()
        peer.send(get("/door"))
        await door.entered.wait()
        peer.abort()
        await until(lambda: not port.listener._state.connections)
        door.opened.set()
        await until(lambda: not port.listener._state.tasks)
    assert not caplog.records


async def test_a_server_that_stops_says_so() -> None:
    """The connection ends behind the answer that is being given, and what waits behind that is answered too."""
    door = Door()
    async with serving(door.server) as port:
        one, two = await port.connect(), await port.connect()
        one.send(get("/door"))
        await door.entered.wait()
        two.send(get("/door") + get("/healthz"))
        await until(lambda: any(connection._queue for connection in port.listener._state.connections))
        port.listener.pause()
        door.opened.set()
        assert (await one.answer())["connection"] == "close"
        assert "connection" not in await two.answer()
        assert (await two.answer())["connection"] == "close"
        assert await one.rest() == await two.rest() == b""


# ------------------------------------------------------------------------------------- the writer


class Written(asyncio.Transport):
    """A transport that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))


async def test_head_and_body_are_one_write() -> None:
    class Answers:
        settings = HttpSettings()
        body = b""

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(self.body))]}
            )
            await send({"type": "http.response.body", "body": self.body})

    app: Any = Answers()
    transport, connection = Written(), Http1Protocol(app, HttpState(), asyncio.Protocol)
    connection.connection_made(transport)
    for size, count in ((3, 1), (100_000, 2)):
        app.body = b"x" * size
        before = len(transport.writes)
        connection.data_received(get("/"))
        await until(lambda: not connection.state.tasks)
        assert len(transport.writes) - before == count
    connection.connection_lost(None)
