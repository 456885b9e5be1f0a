"""A listener is added as DEVELOPERS.md says, "Adding a listener", and serves in both eras what every other one does.

It speaks a framing of its own (four bytes of length, then the message) on a unix socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.clock import until
from support.ui_stage import BOTH_ERAS
from support.wires import LEGACY, MODERN, TIMEOUT, Wire

from mcpd import Context, Server
from mcpd.errors import ConfigurationError
from mcpd.protocol.channel import Accept, Listener, Receiver
from mcpd.protocol.principal import Origin
from mcpd.server.http import HttpSettings
from mcpd.server.http.listener import HttpListener
from mcpd.server.serving import Settings, serve, settings_for
from mcpd.transports.stdio import StdioListener
from mcpd.transports.websocket.server import WebSocketListener

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="unix sockets")


# ------------------------------------------------------------------- step 1: a channel, and a listener that makes it


class PrefixedChannel(asyncio.Protocol):
    """One client: messages with their length before them."""

    is_multiplexed = True
    peer = "a unix socket"

    def __init__(self, listener: PrefixedListener) -> None:
        self._listener = listener
        self._received = b""
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._listener.channels.add(self)
        self._receiver: Receiver = self._listener.accept(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4])
            if len(self._received) < end:
                return
            frame, self._received = self._received[4:end], self._received[end:]
            self._receiver.receive(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self._writable.set()
        self._listener.channels.discard(self)
        self._receiver.closed()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    @property
    def is_congested(self) -> bool:
        return not self._writable.is_set()

    def send(self, frame: bytes, related_request_id: Any = None, method: str | None = None) -> None:
        if not self._transport.is_closing():
            self._transport.write(len(frame).to_bytes(4) + frame)

    send_separately = send

    async def drain(self) -> None:
        await self._writable.wait()

    def origin(self, related_request_id: Any = None) -> Origin:
        return Origin("prefixed")

    def pause(self) -> None:
        self._transport.pause_reading()

    async def aclose(self, reason: str = "") -> None:
        self._transport.close()


class PrefixedListener:
    """Clients come to a path."""

    accept: Accept

    def __init__(self, path: str) -> None:
        self.url = f"prefixed:{path}"
        self.path = path
        self.channels: set[PrefixedChannel] = set()
        self.steps: list[str] = []

    async def start(self, accept: Accept) -> None:
        self.accept = accept
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(lambda: PrefixedChannel(self), self.path)
        except OSError as error:
            raise ConfigurationError(f"Cannot listen on {self.path}: {error.strerror}") from None
        self.steps.append("start")

    def pause(self) -> None:
        self._server.close()
        for channel in self.channels:
            channel.pause()
        self.steps.append("pause")

    async def aclose(self) -> None:
        for channel in list(self.channels):
            await channel.aclose()
        self.steps.append("aclose")


# ------------------------------------------------------------------------------- step 2: give it to a server, and try


def make_server() -> tuple[Server, asyncio.Event, asyncio.Event]:
    server = Server("t")
    begun, may_end = asyncio.Event(), asyncio.Event()

    @server.tool
    async def whence(ctx: Context) -> str:
        return ctx.transport

    @server.tool
    async def wait() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    return server, begun, may_end


@asynccontextmanager
async def client(listener: PrefixedListener, version: str) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_unix_connection(listener.path)
    wire = Wire(lambda frame: writer.write(len(frame).to_bytes(4) + frame))

    async def read() -> None:
        try:
            while True:
                wire.arrived(await reader.readexactly(int.from_bytes(await reader.readexactly(4))))
        except asyncio.IncompleteReadError:
            wire.arrived(None)

    reading = asyncio.create_task(read())
    await wire.open(version)
    yield wire
    writer.close()
    async with asyncio.timeout(TIMEOUT):
        await reading
    wire.check()


@asynccontextmanager
async def served(listener: Listener, server: Server, **settings: Any) -> AsyncIterator[asyncio.Task[None]]:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(server, Settings(listeners=[listener], announce=told.set_result, grace=TIMEOUT, **settings))
    )
    await asyncio.wait([serving, told], return_when=asyncio.FIRST_COMPLETED)
    if told.done():
        assert told.result() == listener.url
        yield serving
        serving.cancel()
    await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()


@BOTH_ERAS
async def test_clients_have_sessions_of_their_own(tmp_path: Path, version: str) -> None:
    server, begun, may_end = make_server()
    listener = PrefixedListener(str(tmp_path / "socket"))
    async with served(listener, server):
        async with client(listener, version) as one, client(listener, version) as other:
            waiting = one.ask("tools/call", {"name": "wait"})
            await begun.wait()
            assert await other.text("whence") == "prefixed"
            other.ask("tools/call", {"name": "wait"}, id=waiting)
            other.cancel(waiting)
            await other.quiet()
            may_end.set()
            assert (await one.answer(waiting))["result"]["content"][0]["text"] == "done"
    assert listener.steps == ["start", "pause", "aclose"]
    assert not listener.channels


@pytest.mark.usefixtures("default_sigterm")
async def test_when_it_stops_calls_are_answered_and_nobody_comes_in(tmp_path: Path) -> None:
    server, begun, may_end = make_server()
    listener = PrefixedListener(str(tmp_path / "socket"))
    async with served(listener, server) as serving, client(listener, MODERN) as wire:
        waiting = wire.ask("tools/call", {"name": "wait"})
        await begun.wait()
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), 15)
        async with asyncio.timeout(TIMEOUT):
            await until(lambda: "pause" in listener.steps)
        with pytest.raises(OSError):
            await asyncio.open_unix_connection(listener.path)
        may_end.set()
        assert (await wire.answer(waiting))["result"]["content"][0]["text"] == "done"
        async with asyncio.timeout(TIMEOUT):
            await asyncio.wait([serving])
    assert listener.steps == ["start", "pause", "aclose"]


async def test_an_address_that_cannot_be_used(tmp_path: Path) -> None:
    server, _, _ = make_server()
    with pytest.raises(ConfigurationError, match="Cannot listen on"):
        async with served(PrefixedListener(str(tmp_path / "no" / "socket")), server):
            raise AssertionError("it listens")


class PairListener:
    """One client over a socket that both have from the start; what serves has no end but the client's."""

    url = ""

    def __init__(self, ours: socket.socket) -> None:
        self._ours = ours

    async def start(self, accept: Accept) -> None:
        self._stdio = StdioListener(self._ours.fileno(), self._ours.fileno())
        await self._stdio.start(accept)

    def pause(self) -> None:
        self._stdio.pause()

    async def aclose(self) -> None:
        await self._stdio.aclose()
        self._ours.close()


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_with_the_only_client_serving_ends(version: str) -> None:
    server, _, _ = make_server()
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(serve(server, Settings(listeners=[PairListener(ours)])))
    reader, writer = await asyncio.open_connection(sock=theirs)
    wire = Wire(lambda frame: writer.write(frame + b"\n"))

    async def read() -> None:
        async for line in reader:
            wire.arrived(line.rstrip(b"\n"))

    reading = asyncio.create_task(read())
    await wire.open(version)
    assert await wire.text("whence") == "stdio"
    writer.write_eof()
    async with asyncio.timeout(TIMEOUT):
        await serving
        await reading
    writer.close()
    wire.check()


# --------------------------------------------------------------------------------- ours are listeners as any other


def test_ours_are_listeners() -> None:
    """What type checkers say of `serving.py`; and that HTTP, which answers without channels, tells its connections."""
    http = HttpListener(Server("t").asgi_app(settings=HttpSettings()), ":0")
    for listener in (http, WebSocketListener(":0")):
        assert listener.url == ""  # until it has started
        assert all(callable(getattr(listener, name)) for name in ("start", "pause", "aclose"))
    assert all(hasattr(connection, "finish") for connection in http.connections)
    assert not hasattr(WebSocketListener(":0"), "connections")


def test_run_serves_on_them_alone(tmp_path: Path) -> None:
    """stdin is served where nothing else is named."""
    listener = PrefixedListener(str(tmp_path / "socket"))
    assert settings_for(stdio=False, ws=None, http=None, listeners=[listener]).stdio is False
    assert settings_for(stdio=True, ws=None, http=None, listeners=[listener]).stdio is True
    assert settings_for(stdio=False, ws=None, http=None, listeners=[]).stdio is True
