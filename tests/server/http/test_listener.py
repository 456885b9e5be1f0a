"""The listening sockets, and what uvicorn's protocol does not do by itself: limits of heads, upgrades, ending."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import Child
from support import websocket_peer
from support.clock import turns, until
from support.http_peer import BOTH, Peer, Port, call, envelope, events, initialize, modern, post, request, serving
from support.http_stage import Stage
from support.websocket_peer import TEXT, Peer as WebSocketPeer, frame, upgrade

from mcpd.errors import ConfigurationError
from mcpd.server.http import HttpSettings
from mcpd.server.http.listener import HttpListener
from mcpd.transports.guards import Access

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
PONG = b'{"jsonrpc":"2.0","id":1,"result":{}}'

# ----------------------------------------------------------------------------------------- addresses


async def test_a_unix_socket_is_for_this_user(tmp_path: Path) -> None:
    path = tmp_path / "mcpd.sock"
    stage = Stage()
    async with serving(stage.server, address=f"unix:{path}") as port:
        assert str(path) in port.listener.url
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        peer = Peer(*await asyncio.open_unix_connection(path))
        assert (await peer.ask(post(PING))).body == PONG
        await peer.aclose()
    assert not path.exists()


async def test_a_unix_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mcpd.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    stage = Stage()
    async with serving(stage.server, address=f"unix:{path}"):
        with pytest.raises(ConfigurationError, match="in use"):
            async with serving(stage.server, address=f"unix:{path}"):
                pass
        peer = Peer(*await asyncio.open_unix_connection(path))
        assert (await peer.ask(post(PING))).body == PONG
        await peer.aclose()


@pytest.mark.parametrize("path", ["/no/such/folder/x.sock", "/etc/passwd", "/" + "x" * 200])
async def test_a_unix_path_that_cannot_be(path: str) -> None:
    stage = Stage()
    with pytest.raises(ConfigurationError, match="Cannot listen on unix:"):
        async with serving(stage.server, address=f"unix:{path}"):
            pass


async def test_wider_addresses_need_a_token() -> None:
    """D9."""
    stage = Stage()
    with pytest.raises(ConfigurationError, match="--token-file"):
        async with serving(stage.server, address="0.0.0.0:0"):
            pass
    async with serving(stage.server, access=Access(token="t"), address="0.0.0.0:0") as port:
        assert port.listener.url == f"http://127.0.0.1:{port.number}/mcp"
        assert (await port.ask(post(PING))).status == 401
        assert (await port.ask(post(PING, {"Authorization": "Bearer t"}))).status == 200


async def test_nothing_stays_open_when_listening_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    app = stage.server.asgi_app()
    made: list[socket.socket] = []

    async def fail(loop: object, factory: object, sock: socket.socket, backlog: int) -> None:
        made.append(sock)
        raise OSError("no")

    monkeypatch.setattr(type(asyncio.get_running_loop()), "create_server", fail)
    with pytest.raises(OSError, match="no"):
        await HttpListener(app, "127.0.0.1:0").start(stage.server.connect)
    assert made[0].fileno() == -1


def test_without_httptools_it_says_what_to_install(child: Child, tmp_path: Path) -> None:
    (tmp_path / "httptools.py").write_text("raise ModuleNotFoundError('no httptools', name='httptools')\n")
    env = {**child.env, "PYTHONPATH": os.pathsep.join([str(tmp_path), child.env["PYTHONPATH"]])}
    done = subprocess.run(
        child.mcpd("serve", "--http", "127.0.0.1:0"), env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode != 0
    assert "pip install 'mcpd-server[http]'" in done.stderr
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------------------------------------- HTTP


async def test_requests_in_one_write_are_answered_in_order() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        peer.send(b"".join(post(call("ping", id=number)) for number in range(5)))
        for number in range(5):
            assert (await peer.answer()).json["id"] == number


async def test_http_1_0_and_connection_close() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        for data in (post(PING, {"Connection": "close"}), post(PING).replace(b"HTTP/1.1", b"HTTP/1.0")):
            peer = await port.connect()
            answer = await peer.ask(data)
            assert answer.body == PONG
            assert answer["connection"] == "close"
            assert await peer.rest() == b""


@pytest.mark.parametrize("wish", ["websocket", "h2c"])
async def test_a_wish_for_another_protocol_in_http_1_0_is_ignored(wish: str) -> None:
    """RFC 9110 7.8; and the answer is one that HTTP/1.0 knows."""
    stage = Stage()
    more = {
        "Connection": "Upgrade",
        "Upgrade": wish,
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "A" * 22 + "==",
    }
    async with serving(stage.server) as port:
        for asked, status in ((request("GET", "/mcp", list(more.items())), 405), (post(PING, more), 200)):
            peer = await port.connect()
            answer = await peer.ask(asked.replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert answer.status == status
            assert answer["connection"] == "close"
            assert await peer.rest() == b""


async def test_a_stream_for_http_1_0_has_no_chunks() -> None:
    """RFC 9112 6.1: it ends with the connection. Proxies ask so, unless they are told otherwise."""
    stage = Stage()
    async with serving(stage.server) as port:
        steps = {"name": "count", "arguments": {"steps": 3, "door": "d"}}
        for asked in (modern("tools/call", steps, meta=envelope(progressToken=1)), post(call("ping"))):
            peer = await port.connect()
            peer.send(asked.replace(b"HTTP/1.1", b"HTTP/1.0"))
            answer = await peer.head()
            stage.open("d")
            assert "transfer-encoding" not in answer
            assert answer["connection"] == "close"
            body = await peer.rest()
            if answer["content-type"] == "application/json":
                assert len(body) == int(answer["content-length"])
            else:
                assert "content-length" not in answer
                found = [json.loads(event["data"]) for event in events(body)]
                assert [message.get("method") for message in found] == ["notifications/progress"] * 3 + [None]


TRAILING = [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json"), ("Accept", BOTH)]


@pytest.mark.parametrize("in_one", [True, False])
async def test_trailers_are_no_headers(in_one: bool) -> None:
    """RFC 9110 6.5.1: whoever guards us has not seen them; and it does not depend on how bytes arrive."""
    stage = Stage()
    async with serving(stage.server, access=Access(token="secret-of-the-test")) as port:
        head = request("POST", "/mcp", TRAILING)
        body = b"%x\r\n%b\r\n0\r\nAuthorization: Bearer secret-of-the-test\r\nX-Last: 1\r\n\r\n" % (len(PING), PING)
        peer = await port.connect()
        if in_one:
            peer.send(head + body)
        else:
            peer.send(head)
            await peer.writer.drain()
            peer.send(body)
        assert (await peer.answer()).status == 401


async def test_trailers_have_a_limit() -> None:
    """Whether or not the request was answered already."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_head_bytes=5000)) as port:
        for kind in (TRAILING, [*TRAILING, ("Origin", "http://evil.example.com")]):
            for end in (b"\r\n", b""):
                peer = await port.connect()
                peer.send(request("POST", "/mcp", kind) + b"0\r\n")
                with suppress(ConnectionError):
                    for _ in range(100):
                        peer.send(b"X: " + b"y" * 1000 + end)
                        await peer.writer.drain()
                        await asyncio.sleep(0)
                rest = await peer.rest()
                assert rest.count(b"HTTP/1.1 ") <= 1


@pytest.mark.parametrize("wrong", [b"GARBAGE\r\n\r\n", b"GET /mcp HTTP/1.1\r\nX: " + b"x" * 6000])
async def test_what_is_wrong_with_the_next_request_does_not_touch_this_ones_answer(wrong: bytes) -> None:
    """RFC 9112 9.3.2: answers come in the order of the requests, whole, before the connection ends."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_head_bytes=5000)) as port:
        steps = {"name": "count", "arguments": {"steps": 2, "door": "d"}, "_meta": {"progressToken": 1}}
        for message in (call("tools/call", steps), call("tools/call", {"name": "wait", "arguments": {"door": "d"}})):
            stage.doors.clear()
            peer = await port.connect()
            peer.send(post(message))
            await stage.entered.get()
            peer.send(wrong)
            await peer.writer.drain()
            await (await port.connect()).ask(post(PING))
            stage.open("d")
            answer = await peer.answer()
            assert answer.status == 200
            assert '"result"' in answer.text
            assert await peer.rest() == b""


async def test_a_client_that_leaves_is_noticed_behind_other_requests() -> None:
    """S26-058: leaving cancels the call, also if more was asked on the connection, and each next one in its turn."""
    stage = Stage()
    async with serving(stage.server) as port:
        ping = modern("tools/call", {"name": "echo", "arguments": {"text": "x"}})

        def wait(door: str) -> bytes:
            return modern("tools/call", {"name": "wait", "arguments": {"door": door}})

        for before in (b"", wait("open") + ping):
            stage.open("open")
            peer = await port.connect()
            peer.send(before + wait("shut") + ping * 2)
            while await stage.entered.get() != "shut":
                pass
            peer.abort()
            async with asyncio.timeout(60):
                while await stage.left.get() != "shut:cancelled":
                    pass
        # Many in a row are answered, in their order.
        peer = await port.connect()
        for number in range(100):
            peer.send(post({"jsonrpc": "2.0", "id": number, "method": "ping"}))
        assert [(await peer.answer()).json["id"] for _ in range(100)] == list(range(100))


async def test_a_silent_connection_is_given_up() -> None:
    """Also one that was served before, and one that begins and never comes to the point."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(head_timeout=0.05)) as port:
        silent, begun, served = [await port.connect() for _ in range(3)]
        begun.send(b"POST /mcp HTTP/1.1\r\nHo")
        assert (await served.ask(post(PING))).body == PONG
        served.send(b"POST /mcp HTTP/1.1\r\nHo")
        for peer in (silent, begun, served):
            assert await peer.rest() == b""


async def test_a_connection_that_nobody_uses_is_closed() -> None:
    """Not one whose answer is still to come."""
    stage = Stage()
    async with serving(stage.server, HttpSettings(idle_timeout=0.1)) as port:
        unused, waiting = await port.connect(), await port.connect()
        assert (await unused.ask(post(PING))).body == PONG
        waiting.send(modern("tools/call", {"name": "wait"}))
        assert await unused.rest() == b""
        stage.open()
        assert (await waiting.answer()).status == 200
        assert await waiting.rest() == b""


async def test_a_body_that_never_begins_is_given_up() -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(body_timeout=-0.95)) as port:
        peer = await port.connect()
        peer.send(post(PING).partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        assert await peer.rest() == b""
        await idle(port)


async def test_a_connection_too_many_is_503() -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_connections=2)) as port:
        peers = [await port.connect() for _ in range(2)]
        for peer in peers:
            await peer.ask(post(PING))
        answer = await (await port.connect()).answer()
        assert answer.status == 503
        peers[0].abort()
        await until(lambda: len(port.listener._state.connections) <= 1)
        assert (await port.ask(post(PING))).status == 200


async def idle(port: Port) -> None:
    """Wait until the server has no connection."""
    await until(lambda: not (port.listener._state.connections or port.listener._state.tasks))


# ----------------------------------------------------------------------------------------- WebSocket


@asynccontextmanager
async def websocket(port: Port, **how: str) -> AsyncIterator[WebSocketPeer]:
    peer = WebSocketPeer(*await asyncio.open_connection("127.0.0.1", port.number))
    try:
        await peer.open(**how)
        yield peer
    finally:
        await peer.aclose()


async def test_the_same_port_speaks_websocket() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        async with websocket(port, Sec_WebSocket_Protocol="mcp") as peer, websocket(port, path="/") as other:
            for one in (peer, other):
                one.send(frame(TEXT, PING))
                assert await one.text() == PONG
            assert (await port.ask(post(PING))).body == PONG
        assert len(port.app.connections) == 0


async def test_upgrades_are_guarded_like_requests() -> None:
    """S25-031, S26-052: 403 before it is a WebSocket."""
    stage = Stage()
    async with serving(stage.server, access=Access(token="t")) as port:
        for how, status in (
            ({"host": "evil.example.com"}, 403),
            ({"Origin": "http://evil.example.com"}, 403),
            ({}, 401),
            ({"Authorization": "Bearer t", "path": "/else"}, 404),
        ):
            peer = WebSocketPeer(*await asyncio.open_connection("127.0.0.1", port.number))
            peer.send(upgrade(**how))  # type: ignore[arg-type]
            assert (await peer.response())[0] == status
            await peer.aclose()
        async with websocket(port, Authorization="Bearer t") as peer:
            peer.send(frame(TEXT, PING))
            assert await peer.text() == PONG


async def test_an_upgrade_to_anything_else_is_ignored() -> None:
    stage = Stage()
    java = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAAAAAMAAAAA"}
    async with serving(stage.server) as port:
        peer = await port.connect()
        for _ in range(2):
            assert (await peer.ask(post(PING, java))).body == PONG
        data = post(PING, java)
        for index in range(0, len(data), 40):
            peer.send(data[index : index + 40])
            await turns()
        assert (await peer.answer()).body == PONG
        assert (await peer.ask(post(PING))).body == PONG
        assert (await (await port.connect()).ask(b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n")).status == 405


# ------------------------------------------------------------------------------------------- ending


async def test_pausing_closes_what_is_idle_and_lets_calls_finish() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        quiet, waiting = await port.connect(), await port.connect()
        await quiet.ask(post(PING))
        waiting.send(modern("tools/call", {"name": "wait"}))
        await stage.entered.get()
        port.listener.pause()
        assert await quiet.rest() == b""
        with pytest.raises(OSError, match="refused|Connect call failed"):
            await port.connect()
        stage.open()
        answer = await waiting.answer()
        assert answer.json["result"]["content"][0]["text"] == "opened"
        assert await waiting.rest() == b""


async def test_closing_ends_everything() -> None:
    """Subscriptions with their result, GET streams and WebSockets, calls with an error, half a request with nothing."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        stream = await session.listen()
        await stream.event()
        subscribed, waiting, streaming, half = [await port.connect() for _ in range(4)]
        subscribed.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        await subscribed.head()
        await subscribed.message()
        waiting.send(modern("tools/call", {"name": "wait"}))
        await stage.entered.get()
        count = {"name": "count", "arguments": {"steps": 2, "door": "d"}}
        streaming.send(modern("tools/call", count, meta=envelope(progressToken=1)))
        await streaming.head()
        await streaming.message()
        half.send(post(PING)[:-3])
        called = await session.start(call("tools/call", {"name": "wait"}))
        await stage.entered.get()
        async with websocket(port) as socket_peer:
            await port.listener.aclose()
            assert (await subscribed.message())["result"]["resultType"] == "complete"
            assert await subscribed.event() is None
            assert await stream.event() is None
            assert "shutting down" in (await waiting.answer()).error["message"]
            assert "shutting down" in (await streaming.message())["error"]["message"]
            assert (await called.answer()).status == 200
            assert (await socket_peer.closing())[0] == 1001
            assert await half.rest() == b""
        await idle(port)
        assert not stage.server._connections


async def test_closing_does_not_wait_for_who_does_not_read() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(modern("resources/read", {"uri": "stage://long/30000000"}))
        await until(lambda: any(connection.paused for connection in port.listener._state.connections))
        async with asyncio.timeout(60):
            await port.listener.aclose()
        await idle(port)


async def test_a_server_on_uvloop() -> None:
    """The loop that `mcpd serve --http` uses where it is installed."""
    uvloop = pytest.importorskip("uvloop")

    async def exchange() -> None:
        stage = Stage()
        async with serving(stage.server) as port:
            session = await port.open()
            stream = await session.listen()
            await stream.event()
            stage.change()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            assert (await port.modern("tools/call", {"name": "echo_sync", "arguments": {"text": "x"}})).status == 200
            peer = await port.connect()
            peer.send(modern("tools/call", {"name": "wait"}))
            await stage.entered.get()
            peer.abort()
            assert await stage.left.get() == "door:cancelled"
            async with websocket(port) as socket_peer:
                socket_peer.send(frame(TEXT, PING))
                assert await socket_peer.text() == PONG
                await port.listener.aclose()
                assert (await socket_peer.closing())[0] == 1001

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(exchange())

    await asyncio.to_thread(run)


async def test_on_a_wide_address_any_ip_address_names_this_machine() -> None:
    stage = Stage()
    async with serving(stage.server, access=Access(insecure=True), address="0.0.0.0:0") as port:
        assert (await port.ask(post(initialize(), host="192.0.2.7"))).status == 200
        assert (await port.ask(post(initialize(), host="name.example.com"))).status == 403


@pytest.mark.parametrize("kind", ["http", "ws"])
async def test_tls_on_a_plain_port_is_logged_with_the_peer(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncExitStack() as stack:
        if kind == "http":
            url = (await stack.enter_async_context(serving(Stage().server))).listener.url
        else:
            url = (await stack.enter_async_context(websocket_peer.serving())).listener.url
        parts = urlsplit(url)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(parts.hostname, parts.port, ssl=ssl.create_default_context())
        assert "127.0.0.1 used TLS on a port without TLS" in caplog.text
