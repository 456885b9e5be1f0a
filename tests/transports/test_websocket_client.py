"""The client's end of a WebSocket, against a server in raw bytes and against our own listener."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.websocket_peer import BINARY, CLOSE, CONT, PING, PONG, TEXT, Recorder, echo, frame, serving

from mcpd import Client, Server
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import CannotConnect, ConfigurationError, ConnectionLost, HttpError, TransportError
from mcpd.transports.accepting import WebSocketLimits
from mcpd.transports.websocket import client as websocket_client
from mcpd.transports.websocket.client import open_websocket
from mcpd.transports.websocket.connection import WebSocketChannel
from mcpd.transports.websocket.server import WebSocketListener

pytestmark = pytest.mark.timeout(20)
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_client, "LIMITS", WebSocketLimits(close_timeout=0.1))


class Peer:
    """One connection to the raw server: its handshake is read, and what follows is up to the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.line = ""
        self.headers: dict[str, str] = {}

    async def handshake(self) -> None:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.line = head[0]
        self.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
        }

    def accept(self, *lines: str) -> None:
        key = self.headers["sec-websocket-key"].encode()
        token = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        fields = ["Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Accept: {token}", *lines]
        self.writer.write("\r\n".join(["HTTP/1.1 101 Switching Protocols", *fields, "", ""]).encode())

    def send(self, opcode: int, payload: bytes = b"", **how: Any) -> None:
        self.writer.write(frame(opcode, payload, mask=None, **how))

    async def frame(self) -> tuple[int, bytes]:
        """The next frame of the client, which has to be masked."""
        first, size = await self.reader.readexactly(2)
        assert size & 0x80
        size &= 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
        mask = await self.reader.readexactly(4)
        data = await self.reader.readexactly(size)
        key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        return first & 0xF, (int.from_bytes(data, "big") ^ key).to_bytes(size, "big")


@asynccontextmanager
async def raw_server(serve: Callable[[Peer], Awaitable[None]], **how: Any) -> AsyncIterator[str]:
    """A server of which each connection is `serve`d, then closed: gives its `host:port`."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, **how)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def answering(text: str) -> Callable[[Peer], Awaitable[None]]:
    async def serve(peer: Peer) -> None:
        await peer.handshake()
        peer.writer.write(text.encode("latin-1"))
        await peer.writer.drain()

    return serve


@asynccontextmanager
async def opened(url: str, **how: Any) -> AsyncIterator[tuple[WebSocketChannel, Recorder]]:
    channel = await open_websocket(url, **how)
    recorder = Recorder(channel)
    channel.start(recorder)
    try:
        yield channel, recorder
    finally:
        await channel.aclose()


# ---------------------------------------------------------------------------------------- handshake


async def test_the_handshake_offers_mcp_and_carries_headers() -> None:
    seen: list[Peer] = []

    async def serve(peer: Peer) -> None:
        await peer.handshake()
        seen.append(peer)
        peer.accept("Sec-WebSocket-Protocol: mcp")
        await peer.frame()

    async with raw_server(serve) as place:
        async with opened(f"ws://{place}/mcp?a=b", headers={"Authorization": "Bearer t", "X-A": "b"}):
            pass
    (peer,) = seen
    assert peer.line == "GET /mcp?a=b HTTP/1.1"
    assert peer.headers["host"] == place
    assert peer.headers["sec-websocket-protocol"] == "mcp"
    assert peer.headers["authorization"] == "Bearer t"
    assert peer.headers["x-a"] == "b"
    assert "sec-websocket-extensions" not in peer.headers
    assert "origin" not in peer.headers


@pytest.mark.parametrize(
    ("answer", "said", "kind"),
    [
        ("HTTP/1.1 401 Unauthorized\r\nContent-Length: 15\r\n\r\nNo token.\nMore.",
         "401 Unauthorized: No token; give a token with --token-file FILE", HttpError),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "403 Forbidden; it may require a token", HttpError),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404 Not Found; look at the path", HttpError),
        ("HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n", "For Streamable HTTP write http", HttpError),
        ("HTTP/1.1 200 OK\r\n\r\n<html>", "200 OK: <html>; is this the URL of a WebSocket", HttpError),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n\x1b[2Jlater", r"503 Busy: \\x1b\[2Jlater$", HttpError),
        ("HTTP/1.1 302 Found\r\nLocation: http://else.where/\r\n\r\n",
         "redirects to http://else.where/, which is not followed", HttpError),
        ("HTTP/1.1 302 Found\r\nLocation: /a\r\nLocation: /b\r\n\r\n", "redirects to /a, /b, which", HttpError),
        ("SSH-2.0-OpenSSH\r\n", "the server does not speak WebSocket: ", TransportError),
        ("", "the server does not speak WebSocket: connection closed while reading HTTP status line", CannotConnect),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "does not speak WebSocket: ", TransportError),
        ("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
         "does not speak WebSocket: ", TransportError),
    ],
)  # fmt: skip
async def test_a_refusal_says_status_and_first_line(answer: str, said: str, kind: type[Exception]) -> None:
    async with raw_server(answering(answer)) as place:
        with pytest.raises(TransportError, match=said) as raised:
            await open_websocket(f"ws://{place}/mcp?key=secret")
    assert isinstance(raised.value, HttpError) == issubclass(kind, HttpError)
    assert isinstance(raised.value, kind)
    assert str(raised.value).startswith(f"ws://{place}/mcp: ")
    assert "\n" not in str(raised.value)


async def test_a_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_client, "OPEN_SECONDS", 0.2)
    gone = asyncio.Event()

    async def serve(peer: Peer) -> None:
        await peer.handshake()
        assert await peer.reader.read() == b""
        gone.set()

    async with raw_server(serve) as place:
        with pytest.raises(TransportError, match=r"no answer within 0\.2 s"):
            await open_websocket(f"ws://{place}/mcp")
        await gone.wait()


async def test_nobody_there(free_port: int) -> None:
    with pytest.raises(
        TransportError, match=f"cannot connect to 127.0.0.1:{free_port}: .*; does the server run"
    ) as raised:
        await open_websocket(f"ws://127.0.0.1:{free_port}/mcp")
    assert isinstance(raised.value, CannotConnect)
    with pytest.raises(TransportError, match=r"mine: the name in no\.such\.name\.invalid:80 is not known"):
        await open_websocket("ws://no.such.name.invalid/mcp", name="mine")
    with pytest.raises(TransportError, match="cannot connect to unix:/nowhere/at.all: No such file"):
        await open_websocket("ws://localhost/mcp", socket="/nowhere/at.all")


@pytest.fixture
def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Host": "x"}, "the header Host cannot be set"),
        ({"Sec-WebSocket-Key": "x"}, "cannot be set"),
        ({"a b": "x"}, "cannot be set"),
        ({"A": "x\r\nB: y"}, "must be a single line of plain text"),
        ({"A": "\u20ac"}, "must be a single line of plain text"),
    ],
)
async def test_headers_that_cannot_be_sent(headers: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        await open_websocket("ws://127.0.0.1:1/mcp", headers=headers)


# ------------------------------------------------------------------------------------------ frames


async def test_frames_of_all_sizes_both_ways() -> None:
    async with serving(echo, max_frame_bytes=1 << 24) as house, opened(house.url) as (channel, recorder):
        sent = [b"x" * size for size in (0, 1, 125, 126, 65535, 65536, 1 << 20)]
        for each in sent:
            channel.send(each)
        await recorder.until(lambda: len(recorder.frames) == len(sent))
        assert recorder.frames == sent


async def test_what_comes_with_the_handshake_waits_for_start() -> None:
    async def serve(peer: Peer) -> None:
        await peer.handshake()
        peer.accept()
        peer.send(TEXT, b"early")
        peer.send(TEXT, b"in ", fin=False)
        peer.send(PING, b"p")
        peer.send(CONT, b"two", fin=True)
        assert await peer.frame() == (PONG, b"p")
        await peer.frame()

    async with raw_server(serve) as place:
        channel = await open_websocket(f"ws://{place}")
        await asyncio.sleep(0)
        recorder = Recorder(channel)
        channel.start(recorder)
        await recorder.until(lambda: len(recorder.frames) == 2)
        assert recorder.frames == [b"early", b"in two"]
        await channel.aclose()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (lambda peer: peer.send(CLOSE, struct.pack("!H", 1001) + b"bye\x1b"),
         r"the server closed the WebSocket: 1001 .*bye\\x1b"),
        (lambda peer: peer.send(BINARY, b"x"), "we closed the WebSocket: 1003 .*not a binary one"),
        (lambda peer: [peer.send(TEXT, b'"\xc3', fin=False), peer.send(CONT, b'"')],
         "we closed the WebSocket: 1007 .*not UTF-8: invalid continuation byte at byte 1"),
        (lambda peer: peer.send(TEXT, b"x" * 2000),
         r"sent a message of more than 1000 bytes .ClientLimits\.message_bytes"),
        (lambda peer: [peer.send(TEXT, b"x", fin=False), *(peer.send(CONT, b"x" * 500, fin=False) for _ in range(3))],
         "more than 1000 bytes"),
        (lambda peer: peer.writer.write(b"\xff\xff\xff\xff"), "we closed the WebSocket: 1002"),
        (lambda peer: peer.writer.write(b"\x81\x7f" + struct.pack("!Q", 1 << 30)), "more than 1000 bytes"),
        (lambda peer: peer.writer.transport.abort(), "the connection was cut"),
        (lambda peer: peer.writer.write_eof(), "the connection was cut"),
    ],
)  # fmt: skip
async def test_how_it_ends_is_said(script: Callable[[Peer], Any], said: str) -> None:
    async def serve(peer: Peer) -> None:
        await peer.handshake()
        peer.accept()
        peer.send(TEXT, b"before")
        await peer.writer.drain()
        assert await peer.frame() == (TEXT, b"go")
        script(peer)
        if not peer.writer.is_closing():
            await peer.reader.read()

    async with (
        raw_server(serve) as place,
        opened(f"ws://{place}", name="mine", max_frame_bytes=1000) as (channel, recorder),
    ):
        channel.send(b"go")
        error = await recorder.end()
        assert recorder.frames == [b"before"]
        assert isinstance(error, ConnectionLost)
        assert re.search(said, str(error)), error
        assert str(error).startswith("mine: ")


@pytest.mark.medium
async def test_while_it_is_paused_nothing_is_read() -> None:
    release = asyncio.Event()

    async def serve(peer: Peer) -> None:
        await peer.handshake()
        peer.accept()
        assert await peer.frame() == (TEXT, b"go")
        payload = b"x" * 65536
        peer.writer.transport.set_write_buffer_limits(high=0)
        for _ in range(2000):
            peer.send(TEXT, payload)
            try:
                async with asyncio.timeout(0.5):
                    await peer.writer.drain()
            except TimeoutError:
                break
        else:
            raise AssertionError("131 MB were taken by a client that reads nothing")
        release.set()
        peer.send(TEXT, b"last")
        await peer.frame()

    async with raw_server(serve) as place, opened(f"ws://{place}") as (channel, recorder):
        channel.pause()
        channel.send(b"go")
        await release.wait()
        assert not recorder.frames
        channel.resume()
        await recorder.until(lambda: recorder.frames[-1:] == [b"last"])
        assert len(recorder.frames) > 2


async def test_a_server_that_does_not_read() -> None:
    read_on, has_read = asyncio.Event(), asyncio.Event()

    async def serve(peer: Peer) -> None:
        await peer.handshake()
        peer.accept()
        await read_on.wait()
        for _ in range(100):
            await peer.frame()
        has_read.set()

    async with raw_server(serve) as place, opened(f"ws://{place}") as (channel, _):
        for _ in range(100):
            channel.send(b"x" * 200_000)
        assert channel.is_congested
        drained = asyncio.create_task(channel.drain())
        await asyncio.sleep(0)
        assert not drained.done()
        read_on.set()
        await drained
        assert not channel.is_congested
        await has_read.wait()


@pytest.mark.medium
async def test_pings_and_a_server_that_answers_none(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = WebSocketLimits(ping_interval=0.05, ping_timeout=0.2, close_timeout=0.1)
    monkeypatch.setattr(websocket_client, "LIMITS", limits)
    pings = 0

    async def serve(peer: Peer) -> None:
        nonlocal pings
        await peer.handshake()
        peer.accept()
        while (await peer.frame())[0] == PING:
            pings += 1
            if pings < 3:
                peer.send(PONG, b"mcpd")

    async with raw_server(serve) as place, opened(f"ws://{place}") as (_, recorder):
        error = await recorder.end()
        assert "no answer to a ping within 0.2 s" in str(error)
    assert pings == 3


async def test_closing_is_bounded() -> None:
    seen: list[tuple[int, bytes]] = []

    async def serve(peer: Peer) -> None:
        await peer.handshake()
        peer.accept()
        seen.append(await peer.frame())
        seen.append(await peer.frame())
        await peer.reader.read()

    async with raw_server(serve) as place:
        channel = await open_websocket(f"ws://{place}")
        channel.start(Recorder(channel))
        channel.send(b"last")
        async with asyncio.timeout(20):
            await channel.aclose()
            await channel.aclose()
        channel.send(b"dropped")
    assert seen == [(TEXT, b"last"), (CLOSE, struct.pack("!H", 1000))]


# -------------------------------------------------------------------- TLS, unix sockets, proxies


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", cert, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return cert, key


async def one_echo(peer: Peer) -> None:
    await peer.handshake()
    peer.accept()
    peer.send(*(await peer.frame()))
    await peer.frame()


async def test_tls(certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with raw_server(one_echo, ssl=context) as place:
        port = place.rpartition(":")[2]
        async with opened(f"wss://localhost:{port}/mcp", ca_file=str(certificate[0])) as (channel, recorder):
            channel.send(b"over TLS")
            await recorder.until(lambda: recorder.frames)

        with pytest.raises(TransportError, match=r"certificate of localhost:.* is not trusted: .*ca_file") as raised:
            await open_websocket(f"wss://localhost:{port}/mcp")
        assert type(raised.value) is TransportError
        with pytest.raises(TransportError, match=r"is not trusted: .*"):
            await open_websocket(f"wss://127.0.0.1:{port}/mcp", ca_file=str(certificate[0]))
        with pytest.raises(ConfigurationError, match="it contains no readable certificates"):
            await open_websocket(f"wss://localhost:{port}/mcp", ca_file="/nowhere.pem")

    async def no_tls(peer: Peer) -> None:
        await peer.reader.read(5)
        peer.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with raw_server(no_tls) as place:
        with pytest.raises(TransportError, match="TLS with .* failed: .*does it speak wss"):
            await open_websocket(f"wss://{place}/mcp")


async def test_unix_sockets(tmp_path: Path) -> None:
    path = str(tmp_path / "s")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await one_echo(Peer(reader, writer))
        finally:
            writer.close()

    server = await asyncio.start_unix_server(connected, path)
    async with opened("ws://localhost/mcp", socket=path) as (channel, recorder):
        channel.send(b"near")
        await recorder.until(lambda: recorder.frames)
    server.close()


def proxied(answer: str | None, seen: list[str]) -> Callable[[Peer], Awaitable[None]]:
    """A proxy that answers CONNECT so; with None it is the server behind it as well."""

    async def serve(peer: Peer) -> None:
        await peer.handshake()
        seen.extend([peer.line, peer.headers.get("proxy-authorization", "")])
        if answer is not None:
            peer.writer.write(answer.encode())
            return
        peer.writer.write(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
        await one_echo(peer)

    return serve


async def test_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ws_proxy", "http_proxy", "all_proxy", "no_proxy", "NO_PROXY", "ALL_PROXY", "WS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    seen: list[str] = []
    async with raw_server(proxied(None, seen)) as place:
        monkeypatch.setenv("http_proxy", f"http://me:pass%20word@{place}")
        async with opened("ws://mcp.example.com/mcp") as (channel, recorder):
            channel.send(b"far")
            await recorder.until(lambda: recorder.frames)
    assert seen == ["CONNECT mcp.example.com:80 HTTP/1.1", "Basic bWU6cGFzcyB3b3Jk"]

    for answer, said in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "the proxy 127.0.0.1:.* answered 407 Proxy Auth"),
        ("nonsense\r\n\r\n", "answered nothing to CONNECT"),
        ("", "closed the connection without an answer"),
        ("x" * 70_000, "answered nothing to CONNECT"),
    ]:
        async with raw_server(proxied(answer, [])) as place:
            monkeypatch.setenv("http_proxy", f"http://{place}")
            with pytest.raises(TransportError, match=said):
                await open_websocket("ws://mcp.example.com/mcp")

    monkeypatch.setenv("http_proxy", "socks5://me:secret@proxy:1")
    with pytest.raises(ConfigurationError, match="goes through http:// proxies only") as raised:
        await open_websocket("ws://mcp.example.com/mcp")
    assert "secret" not in str(raised.value)
    async with serving(echo) as house, opened(house.url):  # this machine's own are never asked of a proxy
        pass


async def test_tls_through_a_proxy(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    seen: list[str] = []

    async def serve(peer: Peer) -> None:
        await peer.handshake()
        seen.append(peer.line)
        peer.writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await peer.writer.drain()
        await peer.writer.start_tls(context)
        await one_echo(peer)

    monkeypatch.setattr(websocket_client, "is_loopback", lambda host: False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with raw_server(serve) as place:
        monkeypatch.setenv("wss_proxy", f"http://{place}")
        async with opened("wss://localhost/mcp", ca_file=str(certificate[0])) as (channel, recorder):
            channel.send(b"through")
            await recorder.until(lambda: recorder.frames)
    assert seen == ["CONNECT localhost:443 HTTP/1.1"]


# ------------------------------------------------------------------------------------- a whole client


async def test_a_client_of_a_url() -> None:
    server = Server("far")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    listener = WebSocketListener("127.0.0.1:0")
    await listener.start(server.connect)
    url = listener.url
    try:
        for version in (None, "2025-11-25"):
            async with Client(url, version=version) as client:
                assert await client.call("add", a=1, b=2) == 3
                assert await client.call("add", a=10**5, b=2) == 100_002
        async with Client(UrlTarget(url, {"X-Own": "1"})) as client:
            await client.ping()
    finally:
        await listener.aclose()
