"""WebSocket on a port: handshakes, who may connect, how many, how it ends; by bytes and by the library's clients."""

from __future__ import annotations

import asyncio
import json
import signal
import struct
import subprocess
from typing import Any

import pytest
from conftest import Child
from support.clock import Clock, until
from support.websocket_peer import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    House,
    Peer,
    Recorder,
    close_frame,
    frame,
    raw,
    serving,
    upgrade,
)
from support.wires import each_version, initialize, websocket_wire
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as connect_sync

from mcpd import Context, Server
from mcpd.errors import ConfigurationError, ConnectionLost
from mcpd.protocol.channel import Channel
from mcpd.transports.guards import Access
from mcpd.transports.websocket.server import WebSocketListener

# --------------------------------------------------------------------------- the library's clients


async def test_asyncio_client() -> None:
    async with serving() as house, connect(house.url) as client:
        for text in ('{"a":1}', "grüße ☃ 🎉", "x" * 300, "y" * 70_000, ""):
            await client.send(text)
            # A str: it came as a text frame.
            assert await client.recv() == text
        guest = house.guests[0]
    assert guest.frames[1] == "grüße ☃ 🎉".encode()
    assert guest.ends == [None]


async def test_sync_client_of_the_library() -> None:
    def talk(url: str) -> list[Any]:
        with connect_sync(url, subprotocols=["mcp"]) as client:  # type: ignore[list-item]
            client.send('{"id":1}')
            return [client.subprotocol, client.recv()]

    async with serving() as house:
        assert await asyncio.to_thread(talk, house.url) == ["mcp", '{"id":1}']


async def test_a_message_of_many_megabytes_both_ways() -> None:
    big = "ä" * (8 << 20)
    async with serving() as house, connect(house.url, max_size=None, compression=None) as client:
        await client.send(big)
        assert await client.recv() == big


async def test_the_port_is_reached_as_localhost_too() -> None:
    async with serving(address=":0") as house, connect(house.url.replace("127.0.0.1", "localhost")) as client:
        await client.send("1")
        assert await client.recv() == "1"


# ------------------------------------------------------------------------------------ handshake


@pytest.mark.parametrize(
    ("offered", "chosen"), [("mcp", "mcp"), ("x, mcp, y", "mcp"), ("", None), ("x", None), ("MCP", None)]
)
async def test_subprotocol_mcp_is_taken_if_offered(offered: str, chosen: str | None) -> None:
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(upgrade(Sec_WebSocket_Protocol=offered))
        status, headers, _ = await peer.response()
        assert status == 101
        assert headers.get("sec-websocket-protocol") == chosen


async def test_compression_is_not_taken() -> None:
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(upgrade(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"))
        status, headers, _ = await peer.response()
        assert status == 101
        assert "sec-websocket-extensions" not in headers


@pytest.mark.parametrize("path", ["/", "/mcp", "/mcp?session=1", "/?x"])
async def test_paths_that_are_served(path: str) -> None:
    async with serving() as house, raw(house, path=path) as peer:
        peer.send(frame(TEXT, b"1"))
        assert await peer.text() == b"1"


@pytest.mark.parametrize("path", ["/other", "/mcp/", "/mcp2", "//", "*", "/\x1b[2J"])
async def test_other_paths_are_not_found(path: str) -> None:
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(upgrade(path))
        status, _, body = await peer.response()
        assert status == 404
        assert "/mcp" in body
        assert "\x1b" not in body
        assert await peer.reader.read() == b""
        assert not house.guests


async def test_a_browser_that_comes_by_is_told_what_this_is() -> None:
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{house.port}\r\nAccept: text/html, */*\r\n\r\n".encode())
        status, headers, body = await peer.response()
        assert status == 426
        assert headers["upgrade"] == "websocket"
        assert headers["content-type"].startswith("text/plain")
        assert house.url in body
        assert await peer.reader.read() == b""


async def test_headers_that_come_twice() -> None:
    async with serving() as house:
        for origin, status in (("http://localhost", 101), ("http://evil.com", 403)):
            async with raw(house, is_open=False) as peer:
                peer.send(upgrade(Origin=origin, Accept="text/html\r\nAccept: text/plain"))
                assert (await peer.response())[0] == status


@pytest.mark.parametrize(
    "request_",
    [
        b'POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17\r\n\r\n{"jsonrpc":"2.0"}',
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\nHost: localhost\n\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
    ],
)
async def test_what_is_no_handshake_is_told_so(request_: bytes) -> None:
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(request_)
        status, _, body = await peer.response()
        assert status == 400
        assert "serves WebSocket only" in body
        assert await peer.reader.read() == b""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"Sec_WebSocket_Version": "8"}, 400),
        ({"Sec_WebSocket_Key": "short"}, 400),
        ({"Sec_WebSocket_Key": ""}, 400),
        ({"Upgrade": "h2c"}, 426),
        ({"Connection": "keep-alive"}, 426),
        ({"X_Long": "x" * 9000}, 431),
    ],
)
async def test_a_handshake_that_breaks_rfc_6455(change: dict[str, str], expected: int) -> None:
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(upgrade(**change))
        status, headers, body = await peer.response()
        # websockets before 17 only hangs up on headers that are too long; then we say 400.
        assert status == expected or (status, expected) == (400, 431)
        if status != 431:  # the library's own answer, before there is a request
            assert "application/json" in str(headers)
            assert json.loads(body)["error"]
            assert json.loads(body)["error_description"]


async def test_a_handshake_byte_by_byte() -> None:
    async with serving() as house, raw(house, is_open=False) as peer:
        for byte in upgrade():
            peer.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await peer.response())[0] == 101


async def test_frames_right_behind_the_handshake_are_answered_after_it() -> None:
    """The client does not wait for our answer, as it should: its frames count all the same."""
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(upgrade() + frame(PING, b"p") + frame(TEXT, b"1"))
        assert (await peer.response())[0] == 101
        assert await peer.frame() == (PONG, b"p")
        assert await peer.text() == b"1"


async def test_rubbish_behind_a_refused_handshake_changes_nothing() -> None:
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(upgrade("/other") + b"\x00\x01" * 100_000)
        assert (await peer.response())[0] == 404


async def test_a_silent_handshake_times_out() -> None:
    async with serving(open_timeout=0.05) as house, raw(house, is_open=False) as peer:
        peer.send(upgrade()[:40])
        try:
            assert await peer.reader.read() == b""
        except ConnectionResetError:
            pass
        assert not house.guests


async def test_a_connection_without_pings_outlives_the_handshake_time() -> None:
    clock = Clock()
    async with serving(open_timeout=30, ping_interval=0) as house, raw(house) as peer:
        await clock.advance(60)
        peer.send(frame(TEXT, b"1"))
        assert await peer.text() == b"1"


async def test_a_receiver_that_cannot_be_made_gives_500(caplog: pytest.LogCaptureFixture) -> None:
    def accept(channel: Channel) -> Recorder:
        raise RuntimeError("secret")

    listener = WebSocketListener("127.0.0.1:0")
    await listener.start(accept)
    house = House(None)
    house.listener = listener
    try:
        async with raw(house, is_open=False) as peer:
            peer.send(upgrade())
            status, _, body = await peer.response()
            assert status == 500
            assert "secret" not in body
        assert "secret" in caplog.text
    finally:
        await listener.aclose()


# --------------------------------------------------------------------------------------- guards


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("", 101),
        ("http://localhost:5173", 101),
        ("http://127.0.0.1", 101),
        ("https://evil.example.com", 403),
        ("null", 403),
        ("http://app.localhost:8080", 403),
        ("http://localhost.evil.com", 403),
    ],
)
async def test_origin_is_checked_on_the_upgrade(origin: str, status: int) -> None:
    """S25-030, S26-051: validate Origin on every connection; S25-031, S26-052: present but invalid gives 403."""
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(upgrade(Origin=origin))
        found, _, body = await peer.response()
        assert found == status
        assert (status == 101) == bool(house.guests)
        assert (status == 403) == ("--allow-origin" in body)


async def test_two_origins_are_one_too_many() -> None:
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(upgrade(Origin="http://localhost").replace(b"\r\n\r\n", b"\r\nOrigin: http://evil.com\r\n\r\n"))
        assert (await peer.response())[0] == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 101),
        ("127.0.0.1:80", 101),
        ("[::1]:8080", 101),
        ("evil.example.com", 403),
        (None, 400),
        ("localhost\r\nHost: localhost", 400),
    ],
)
async def test_host_is_checked_on_the_upgrade(host: str | None, status: int) -> None:
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(upgrade(host=host))
        found, _, body = await peer.response()
        assert found == status
        assert (status == 403) == ("--allow-host" in body)


async def test_what_the_library_says_of_a_connection_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Headers and frames may hold secrets."""
    caplog.set_level("DEBUG", "mcpd.websocket")
    async with websocket_wire(Server("quiet"), "2025-11-25") as wire:
        assert await wire.result("ping") == {}
    assert "connection open" not in caplog.text
    assert "ping" not in caplog.text


async def test_a_page_visited_by_the_user_learns_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A plain GET with a foreign Origin is refused before it is told what this is; the log says who was refused."""
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.com\r\n\r\n")
        assert (await peer.response())[0] == 403
    assert "127.0.0.1: 403 Origin 'http://evil.com'" in caplog.text


async def test_allowed_hosts_and_origins() -> None:
    access = Access(hosts=("mcp.example.com",), origins=("https://app.example.com",))
    async with serving(access=access) as house:
        async with raw(house, host="mcp.example.com", Origin="https://app.example.com"):
            pass
        async with raw(house, host="mcp.example.com:443", Origin="https://mcp.example.com"):
            pass


async def test_token() -> None:
    """D9; S25-154, S26-182: no session without the token, which is asked for where HTTP has a place for it."""
    async with serving(access=Access(token="s3cret")) as house:
        async with connect(house.url, additional_headers={"Authorization": "Bearer s3cret"}) as client:
            await client.send("1")
            assert await client.recv() == "1"
        for authorization in ("", "Bearer wrong", "Basic s3cret"):
            async with raw(house, is_open=False) as peer:
                peer.send(upgrade(Authorization=authorization))
                status, headers, body = await peer.response()
                assert status == 401
                assert headers["www-authenticate"].startswith("Bearer")
                assert "Authorization: Bearer" in body
        assert len(house.guests) == 1


async def test_a_wider_address_without_a_token_is_refused() -> None:
    """D9."""
    with pytest.raises(ConfigurationError, match="--token-file"):
        await WebSocketListener("0.0.0.0:0").start(House(None).accept)
    async with serving(address="0.0.0.0:0", access=Access(insecure=True)) as house, raw(house):
        pass


async def test_a_setting_that_is_no_good_leaves_no_socket_behind() -> None:
    with pytest.raises(ConfigurationError, match="--allow-host"):
        await WebSocketListener("127.0.0.1:0", Access(hosts=("/",))).start(House(None).accept)


async def test_a_port_in_use() -> None:
    async with serving() as house:
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{house.port} is in use"):
            await WebSocketListener(f"127.0.0.1:{house.port}").start(house.accept)


async def test_connections_are_limited() -> None:
    async with serving(max_connections=2) as house:
        async with connect(house.url), raw(house) as second:
            async with raw(house, is_open=False) as third:
                third.send(upgrade())
                status, headers, body = await third.response()
                assert status == 503
                assert "2 connections" in body
                assert "retry-after" in headers
            second.send(frame(TEXT, b"1"))
            assert await second.text() == b"1"
        await house.guests[1].end()
        async with raw(house):
            pass


async def test_clients_of_the_library_see_the_status() -> None:
    async with serving() as house:
        with pytest.raises(InvalidStatus) as caught:
            await connect(house.url, origin="https://evil.example.com").__aenter__()  # type: ignore[arg-type]
        assert caught.value.response.status_code == 403


# ------------------------------------------------------------------------------ MCP, with a server


def tools() -> Server:
    server = Server("house", version="1")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(1)
        await asyncio.Event().wait()
        return "never"

    return server


@each_version
async def test_each_version_s_messages_and_lifecycle(version: str) -> None:
    """S25-043: a custom transport keeps JSON-RPC format and lifecycle.

    S26-045: it keeps JSON-RPC, message patterns and per-request metadata.
    """
    async with websocket_wire(tools(), version) as wire:
        assert await wire.text("echo", text="grüße ☃ 🎉") == "grüße ☃ 🎉"
        listed = await wire.result("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["echo", "wait"]
        assert (await wire.error("no/such"))["code"] == -32601
        wire.send(b"{")
        answer = await wire.receive()
        assert answer["error"]["code"] == -32700
        await wire.quiet()


async def test_a_batch_is_one_frame_in_and_one_frame_out() -> None:
    async with websocket_wire(tools(), "2025-03-26") as wire:
        calls = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (1, 2)]
        wire.send(calls)
        answers = await wire.receive()
        assert sorted(answer["id"] for answer in answers) == [1, 2]


async def test_cancellation_is_as_on_stdio() -> None:
    async with websocket_wire(tools(), "2025-11-25") as wire:
        request_id = wire.ask("tools/call", {"name": "wait", "arguments": {}}, meta={"progressToken": 1})
        assert (await wire.receive())["method"] == "notifications/progress"
        wire.cancel(request_id)
        await wire.quiet()
        assert not wire.connection.session.in_flight


async def test_each_connection_has_its_own_session() -> None:
    """One server, three clients at once, each in its version and with the same ids."""
    server = tools()
    async with (
        websocket_wire(server, "2024-11-05") as old,
        websocket_wire(server, "2025-11-25") as new,
        websocket_wire(server, "2026-07-28") as modern,
    ):
        wires = (old, new, modern)
        for wire in wires:
            wire.ask("tools/call", {"name": "echo", "arguments": {"text": wire.version}}, id=7)
        for wire in wires:
            answer = await wire.answer(7)
            assert answer["result"]["content"][0]["text"] == wire.version
            assert ("resultType" in answer["result"]) == (wire is modern)


async def test_sigterm_while_a_call_runs(child: Child) -> None:
    """D11, in a real process: the call gets its grace time, then an error answer; then the connection is closed."""
    process = await asyncio.create_subprocess_exec(
        *child.mcpd("serve", "--ws", ":0", "--grace", "0.2"), stderr=asyncio.subprocess.PIPE, env=child.env
    )
    try:
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        url = next(word for word in line.split() if word.startswith("ws://"))
        hello = initialize("2025-11-25", 1)
        async with connect(url) as client, connect(url) as other:
            for each in (client, other):
                await each.send(json.dumps(hello))
                assert json.loads(await each.recv())["result"]["protocolVersion"] == "2025-11-25"
            await other.close()
            params = {"name": "count_slowly", "arguments": {"steps": 99, "seconds": 0.1}, "_meta": {"progressToken": 1}}
            await client.send(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}))
            assert json.loads(await client.recv())["method"] == "notifications/progress"
            process.send_signal(signal.SIGTERM)
            while (answer := json.loads(await client.recv())).get("id") != 2:
                pass
            assert "shutting down" in answer["error"]["message"]
            with pytest.raises(ConnectionClosed) as caught:
                await client.recv()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1001
        assert await process.wait() == 0
        assert "Traceback" not in (await process.stderr.read()).decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


# -------------------------------------------------------------------------------------- closing


async def test_200_connections_opened_and_dropped() -> None:
    async with serving() as house:
        for number in range(200):
            peer = Peer(*await asyncio.open_connection("127.0.0.1", house.port))
            if number % 4:
                await peer.open()
            if number % 4 > 1:
                peer.send(frame(TEXT, b"1"))
            if number % 4 > 2:
                peer.send(frame(TEXT, b"1" * 50)[:20])
            await peer.aclose()
        assert len(house.guests) == 150
        for guest in house.guests:
            assert isinstance(await guest.end(), ConnectionLost)
        async with raw(house) as peer:
            peer.send(frame(TEXT, b"1"))
            assert await peer.text() == b"1"
        await until(lambda: len(house.listener.endpoint.connections) <= 1)


async def test_the_server_says_that_it_stops() -> None:
    async with serving() as house:
        async with connect(house.url) as client, connect(house.url) as other:
            guest = await house.guest(1)
            guest.channel.send(b"last words")
            await house.listener.aclose()
            assert await other.recv() == "last words"
            for each in (client, other):
                with pytest.raises(ConnectionClosed) as caught:
                    await each.recv()
                assert caught.value.rcvd is not None
                assert caught.value.rcvd.code == 1001
                assert caught.value.rcvd.reason == "the server is shutting down"
                assert caught.value.rcvd_then_sent
        assert all(len(guest.ends) == 1 for guest in house.guests)
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", house.port)


async def test_closing_waits_for_no_client_for_ever() -> None:
    """One that does not answer the close frame, one that never reads, one in its handshake."""
    async with (
        serving(lambda frame: frame * 1_000_000, close_timeout=0.1) as house,
        raw(house) as silent,
        raw(house) as deaf,
        raw(house, is_open=False) as early,
    ):
        deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(12):
            deaf.send(frame(TEXT, b"1"))
        await house.guests[1].until(lambda: house.guests[1].channel.is_congested)
        await until(lambda: len(house.listener.endpoint.connections) >= 3)
        async with asyncio.timeout(60):
            await house.listener.aclose()
        assert not house.listener.endpoint.connections
        assert (await silent.frame())[1][:2] == struct.pack("!H", 1001)
        assert all(len(guest.ends) == 1 for guest in house.guests)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await early.response()


async def test_a_client_that_was_slow_still_gets_its_answers_when_the_server_stops() -> None:
    async with serving(lambda frame: frame * 1_000_000, close_timeout=60) as house, raw(house) as peer:
        for _ in range(20):
            peer.send(frame(TEXT, b"1"))
        guest = house.guests[0]
        await guest.until(lambda: guest.channel.is_congested)
        closing = asyncio.ensure_future(house.listener.aclose())
        for _ in range(len(guest.frames)):
            assert len(await peer.text()) == 1_000_000
        opcode, _ = await peer.frame()
        assert opcode == CLOSE
        peer.send(close_frame(1001))
        await closing
        assert len(guest.frames) < 20


# -------------------------------------------------------------------------------------- imports


def test_only_what_is_needed_is_imported(child: Child) -> None:
    """websockets has an asyncio server, clients and a legacy package; all we use is the protocol."""
    code = (
        "import sys, mcpd.transports.websocket.server; print(*(m for m in sys.modules if m.startswith('websockets')))"
    )
    found = subprocess.run([child.python, "-c", code], capture_output=True, text=True, check=True, env=child.env)
    assert "websockets.server" in found.stdout
    for unwanted in ("websockets.asyncio", "websockets.legacy", "websockets.sync", "websockets.client"):
        assert unwanted not in found.stdout


@pytest.mark.parametrize(("path", "status", "error"), [("/", 426, "upgrade_required"), ("/no", 404, "not_found")])
async def test_a_client_that_speaks_http_here_reads_json(path: str, status: int, error: str) -> None:
    """Its own length and type in place of the library's, once each."""
    async with serving() as house, raw(house, is_open=False) as peer:
        peer.send(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{house.port}\r\nAccept: */*\r\n\r\n".encode())
        got, headers, body = await peer.response()
        assert got == status
        assert headers["content-type"] == "application/json"
        assert int(headers["content-length"]) == len(body.encode())
        assert json.loads(body)["error"] == error
        assert await peer.reader.read() == b""
