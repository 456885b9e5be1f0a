"""WebSocket clients in raw bytes, a server whose receivers remember all, and a channel without a network.

`serving` listens on the loopback, `raw` connects to it; `Bare` has a `Socket` in place of a transport, so that
a test decides byte by byte what arrives and what the peer takes. Nothing of the library under test is used to
build or to read a frame.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from mcpd.protocol.channel import Channel
from mcpd.protocol.defaults import MAX_FRAME_BYTES
from mcpd.transports.guards import Access, Guard
from mcpd.transports.websocket.client import ClientHandshake, Dialed
from mcpd.transports.websocket.connection import WebSocketChannel
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits, WebSocketListener

__all__ = [
    "BINARY",
    "CLOSE",
    "CONT",
    "MASK",
    "NO_ACCESS_RULES",
    "PING",
    "PONG",
    "TEXT",
    "Answer",
    "Bare",
    "House",
    "Peer",
    "Recorder",
    "Socket",
    "close_frame",
    "echo",
    "frame",
    "no_answer",
    "opened_client",
    "raw",
    "serving",
    "upgrade",
]

TEXT, BINARY, CONT, CLOSE, PING, PONG = 0x1, 0x2, 0x0, 0x8, 0x9, 0xA
MASK = b"\x37\xfa\x21\x3d"
NO_ACCESS_RULES = Access()
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

Answer = Callable[[bytes], bytes | None] | None

# ------------------------------------------------------------------------------------ the stage


class Recorder:
    """A receiver that remembers all, and answers each frame with what `answer` makes of it."""

    def __init__(self, channel: Channel, answer: Answer = None) -> None:
        self.channel = channel
        self.answer = answer
        self.frames: list[bytes] = []
        self.ends: list[Exception | None] = []
        self.changed = asyncio.Event()

    def receive(self, frame: bytes) -> None:
        assert type(frame) is bytes
        assert not self.ends, "a frame after the end"
        self.frames.append(frame)
        if self.answer is not None:
            answer = self.answer(frame)
            if answer is not None:
                self.channel.send(answer)
        self.changed.set()

    def receive_error(self, error: Exception) -> None:
        raise AssertionError(error)

    def closed(self, error: Exception | None = None) -> None:
        self.ends.append(error)
        self.changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def end(self) -> Exception | None:
        await self.until(lambda: self.ends)
        assert len(self.ends) == 1
        return self.ends[0]


class House:
    """A listener whose connections are recorders."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.guests: list[Recorder] = []
        self.listener: WebSocketListener
        self._came = asyncio.Event()

    def accept(self, channel: Channel) -> Recorder:
        guest = Recorder(channel, self.answer)
        self.guests.append(guest)
        self._came.set()
        return guest

    @property
    def url(self) -> str:
        return self.listener.url

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    async def guest(self, number: int = 0) -> Recorder:
        while len(self.guests) <= number:
            self._came.clear()
            await self._came.wait()
        return self.guests[number]


def echo(frame: bytes) -> bytes:
    return frame


def no_answer(frame: bytes) -> None:
    return None


@asynccontextmanager
async def serving(
    answer: Answer = echo,
    access: Access = NO_ACCESS_RULES,
    address: str = "127.0.0.1:0",
    **limits: Any,
) -> AsyncIterator[House]:
    house = House(answer)
    house.listener = WebSocketListener(address, access, WebSocketLimits(**{"close_timeout": 0.3, **limits}))
    await house.listener.start(house.accept)
    try:
        yield house
    finally:
        await house.listener.aclose()
        for channel in list(house.listener.endpoint.connections):
            raise AssertionError(f"left open: {channel}")


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bytes | None = MASK, rsv: int = 0) -> bytes:
    """A client's frame."""
    head = bytes([0x80 * fin | rsv << 4 | opcode])
    bit = 0 if mask is None else 0x80
    size = len(payload)
    if size < 126:
        head += bytes([bit | size])
    elif size < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    if mask is None:
        return head + payload
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


def close_frame(code: int, reason: str = "") -> bytes:
    return frame(CLOSE, struct.pack("!H", code) + reason.encode())


def upgrade(path: str = "/mcp", host: str | None = "localhost", **headers: str) -> bytes:
    """A handshake; `headers` in underscores, an empty one is left out."""
    fields = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(b"0123456789abcdef").decode(),
        "Sec-WebSocket-Version": "13",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"GET {path} HTTP/1.1"] + ([f"Host: {host}"] if host is not None else [])
    lines += [f"{name}: {value}" for name, value in fields.items() if value]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Peer:
    """A client in raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def response(self) -> tuple[int, dict[str, str], str]:
        """Status, headers in lower case, body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(head[0].split()[1]), headers, body.decode()

    async def open(self, **how: Any) -> None:
        self.send(upgrade(**how))
        status, headers, body = await self.response()
        assert status == 101, body
        # RFC 6455 1.3: SHA-1 of the key and the protocol's own GUID.
        assert headers["sec-websocket-accept"] == "BACScCJPNqyz+UBoqMH89VmURoA="

    async def frame(self) -> tuple[int, bytes]:
        """The next frame: opcode and payload. A server's frames are whole and not masked."""
        first, size = await self.reader.readexactly(2)
        assert first & 0xF0 == 0x80
        assert not size & 0x80
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
        return first & 0xF, await self.reader.readexactly(size)

    async def text(self) -> bytes:
        opcode, payload = await self.frame()
        assert opcode == TEXT, (opcode, payload)
        return payload

    async def closing(self) -> tuple[int, str]:
        """Code and reason of the close frame that comes next, after which the connection is at its end."""
        opcode, payload = await self.frame()
        assert opcode == CLOSE, (opcode, payload)
        assert await self.reader.read() == b""
        (code,) = struct.unpack("!H", payload[:2])
        assert len(payload) <= 125
        return code, payload[2:].decode()

    async def aclose(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


@asynccontextmanager
async def raw(house: House, *, is_open: bool = True, **how: Any) -> AsyncIterator[Peer]:
    peer = Peer(*await asyncio.open_connection("127.0.0.1", house.port, limit=1 << 26))
    try:
        if is_open:
            await peer.open(**how)
        yield peer
    finally:
        await peer.aclose()


# ---------------------------------------------------------------------------- without a network


class Socket(asyncio.Transport):
    """A transport without a network: what is written is kept, and `room` bytes of it are taken by the peer."""

    def __init__(self, room: int = 1 << 60) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.room = room
        self.waiting = 0
        self.is_reading_now = True
        self.has_eof = self.is_aborted = self.is_full = False
        self.protocol: asyncio.Protocol
        self.high = self.low = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        assert low is not None
        self.high, self.low = high, low

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def write(self, data: Any) -> None:
        assert data
        assert not self.has_eof
        self.writes.append(bytes(data))
        self.waiting += len(data)
        self.take(0)
        if self.waiting > self.high and not self.is_full:
            self.is_full = True
            self.protocol.pause_writing()

    def take(self, size: int) -> None:
        """The peer takes this much more."""
        self.room += size
        taken = min(self.room, self.waiting)
        self.room -= taken
        self.waiting -= taken
        if self.is_full and self.waiting <= self.low:
            self.is_full = False
            self.protocol.resume_writing()

    def write_eof(self) -> None:
        self.has_eof = True

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.is_aborted

    def is_reading(self) -> bool:
        return self.is_reading_now

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.is_aborted:
            self.is_aborted = True
            self.protocol.connection_lost(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Bare:
    """A channel on a `Socket`, open and with a recorder."""

    def __init__(self, answer: Answer = echo, room: int = 1 << 60, **limits: Any) -> None:
        self.guests: list[Recorder] = []
        self.endpoint = Endpoint(self.accept, Guard(Access()), WebSocketLimits(**{"close_timeout": 5, **limits}))
        self.answer = answer
        self.channel = self.endpoint.connect()
        self.socket = Socket(room)
        self.socket.protocol = self.channel
        self.channel.connection_made(self.socket)

    def accept(self, channel: Channel) -> Recorder:
        self.guests.append(Recorder(channel, self.answer))
        return self.guests[-1]

    def open(self) -> Recorder:
        self.channel.data_received(upgrade())
        assert self.socket.writes.pop().startswith(b"HTTP/1.1 101 ")
        return self.guests[0]

    def frames(self) -> list[tuple[int, bytes]]:
        """All frames that were written."""
        return self.frames_of(self.socket.writes)

    @staticmethod
    def frames_of(writes: list[bytes]) -> list[tuple[int, bytes]]:
        """The frames in these writes of one end."""
        data, found = b"".join(writes), []
        while data:
            size, start = data[1] & 0x7F, 2
            if size == 126:
                (size,), start = struct.unpack("!H", data[2:4]), 4
            elif size == 127:
                (size,), start = struct.unpack("!Q", data[2:10]), 10
            key = data[start : start + 4] if data[1] & 0x80 else b""
            start += len(key)
            payload = data[start : start + size]
            found.append(
                (data[0] & 0xF, bytes(byte ^ key[at % 4] for at, byte in enumerate(payload)) if key else payload)
            )
            data = data[start + size :]
        return found

    def lose(self) -> None:
        self.socket.abort()


def opened_client(max_frame_bytes: int = MAX_FRAME_BYTES) -> tuple[WebSocketChannel, Socket]:
    """The client's end of a connection whose handshake is done, on a `Socket`."""
    channel = ClientHandshake(Dialed(urlsplit("ws://a/"), "it", None, None), "ws://a/", {}, max_frame_bytes).channel
    socket = Socket()
    socket.protocol = channel
    channel.connection_made(socket)
    request = socket.writes.pop().decode()
    key = next(line for line in request.splitlines() if line.lower().startswith("sec-websocket-key"))
    token = base64.b64encode(hashlib.sha1(key.split(": ")[1].encode() + _GUID).digest()).decode()
    channel.data_received(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        + f"Sec-WebSocket-Accept: {token}\r\n\r\n".encode()
    )
    return channel, socket
