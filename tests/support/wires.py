"""The client's end of a connection, in raw bytes: what a test needs to see the server as a peer sees it.

    async with memory_wire(server) as wire:
        await wire.open("2025-06-18")
        answer = await wire.request("tools/call", {"name": "echo"})

`send` takes bytes as they are, so anything can be sent; whatever the server says is held against the
schema of the version in force, and against what was asked, by `wire_schema.Conversation`. A violation
fails the test at its next look at the wire, or at the end.

Four kinds: joined in memory, over pipes through the real stdio channel, over a WebSocket on the loopback,
and a `mcpd serve --stdio` child process. No client library has a part in it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NoReturn

import pytest
from conftest import Child
from support.clock import until
from support.websocket_peer import CLOSE, PING, PONG, TEXT, Peer, close_frame, frame
from support.wire_schema import VERSIONS, Conversation, SchemaViolation

from mcpd import Server
from mcpd.transports.memory import pair
from mcpd.transports.stdio import StdioChannel
from mcpd.transports.websocket.server import WebSocketListener

__all__ = [
    "CLIENT_INFO",
    "LEGACY",
    "MODERN",
    "ProcessWire",
    "Wire",
    "each_legacy",
    "each_version",
    "each_wire",
    "envelope",
    "initialize",
    "memory_wire",
    "process_wire",
    "stdio_wire",
    "websocket_wire",
]

MODERN = VERSIONS[-1]
LEGACY = VERSIONS[:-1]
META = "io.modelcontextprotocol/"
CLIENT_INFO = {"name": "wire", "version": "1"}

# Far more than any exchange takes, even while the machine is busy with something else.
TIMEOUT = 60.0

each_version = pytest.mark.parametrize("version", VERSIONS)
each_legacy = pytest.mark.parametrize("version", LEGACY)


def envelope(version: str = MODERN, capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """`params._meta` of a modern request; `more` are further keys below the protocol's prefix."""
    return {
        f"{META}protocolVersion": version,
        f"{META}clientCapabilities": capabilities or {},
        f"{META}clientInfo": CLIENT_INFO,
        **{META + key: value for key, value in more.items()},
    }


def initialize(version: Any, request_id: Any = 0, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    """An `initialize` request."""
    params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": CLIENT_INFO}
    return {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params}


class Wire:
    """One connection, seen from the client. `version` is the one it was opened in."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.version: str | None = None
        self.capabilities: dict[str, Any] = {}
        self.talk = Conversation()
        self.heard: list[Any] = []
        """Notifications and requests of the server that `request` and `answer` passed on the way."""
        self.connection: Any = None
        self._send = send
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self._ids = itertools.count(1000)
        self._stray: list[Any] = []
        self._violations: list[Exception] = []
        self.has_ended = False

    # -- sending -----------------------------------------------------------------------------

    def send(self, message: Any) -> None:
        """Send bytes as they are, or anything else as JSON."""
        if isinstance(message, bytes):
            try:
                # Invalid UTF-8 in a member that it does not read is nothing to the server.
                self.talk.client(json.loads(message.decode(errors="replace"), parse_constant=_no_constant))
            except (ValueError, RecursionError, SchemaViolation):
                pass  # the server has to make something of it; nobody else can
        else:
            self.talk.client(message)
            message = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        self._send(message)

    def ask(
        self, method: str, params: dict[str, Any] | None = None, *, meta: dict[str, Any] | None = None, id: Any = None
    ) -> Any:
        """Send a request in this connection's version, and give its id."""
        request_id = next(self._ids) if id is None else id
        if self.version == MODERN:
            meta = {**envelope(capabilities=self.capabilities), **(meta or {})}
        if meta:
            params = {**(params or {}), "_meta": meta}
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return request_id

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        self.send(message if params is None else {**message, "params": params})

    def cancel(self, request_id: Any) -> None:
        """Give a request up."""
        self.notify("notifications/cancelled", {"requestId": request_id})

    # -- receiving ---------------------------------------------------------------------------

    def arrived(self, frame: bytes | None) -> None:
        """What the transport calls for each frame, and with None at the end."""
        if frame is None:
            self.has_ended = True
            self._inbox.put_nowait(None)
            return
        try:
            if b"\n" in frame:
                raise SchemaViolation(f"a newline inside a message (S25-027): {frame!r}")
            message = json.loads(frame.decode(), parse_constant=_no_constant)
            self.talk.server(message)
        except Exception as violation:  # told to the test, which looks at the wire in its own time
            self._violations.append(violation)
            message = None
        self._inbox.put_nowait(message)

    async def receive(self) -> Any:
        """The next message, of whatever kind. Raises EOFError if the server has ended the connection."""
        if self._stray:
            return self._stray.pop(0)
        async with asyncio.timeout(TIMEOUT):
            message = await self._inbox.get()
        self.check()
        if message is None:
            self._inbox.put_nowait(None)
            raise EOFError("the server has ended the connection")
        return message

    async def answer(self, request_id: Any) -> Any:
        """The answer to a request; what comes before it is kept, calls and notifications in `heard`."""
        waiting = []
        try:
            while True:
                message = await self.receive()
                if isinstance(message, dict) and "method" in message:
                    self.heard.append(message)
                elif isinstance(message, dict) and _is_same(message.get("id"), request_id):
                    return message
                else:
                    waiting.append(message)
        finally:
            self._stray = waiting + self._stray

    async def request(
        self, method: str, params: dict[str, Any] | None = None, *, meta: dict[str, Any] | None = None, id: Any = None
    ) -> Any:
        """Send a request and wait for its answer."""
        return await self.answer(self.ask(method, params, meta=meta, id=id))

    async def result(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
        """The result of a request that has to succeed."""
        answer = await self.request(method, params, **more)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
        """The error of a request that has to fail."""
        answer = await self.request(method, params, **more)
        assert "error" in answer, answer
        return answer["error"]

    async def call(self, tool: str, meta: dict[str, Any] | None = None, /, **arguments: Any) -> Any:
        """The result of `tools/call`."""
        return await self.result("tools/call", {"name": tool, "arguments": arguments}, meta=meta)

    async def text(self, tool: str, **arguments: Any) -> str:
        """The one text that a tool gives."""
        result = await self.call(tool, **arguments)
        (block,) = result["content"]
        assert block["type"] == "text"
        return str(block["text"])

    async def open(self, version: str, capabilities: dict[str, Any] | None = None, **more: Any) -> Any:
        """Begin in that version: the result of `initialize` or of `server/discover`."""
        self.capabilities = capabilities or {}
        if version == MODERN:
            self.version = MODERN
            return await self.result("server/discover")
        self.send(initialize(version, "hello", capabilities))
        answer = await self.answer("hello")
        assert answer["result"]["protocolVersion"] == version, answer
        self.version = version
        self.notify("notifications/initialized")
        return answer["result"]

    async def quiet(self) -> None:
        """Prove that nothing is on its way: the next message is the answer to a question asked only now."""
        marker = f"quiet-{next(self._ids)}"
        self.ask("server/discover" if self.version == MODERN else "ping", id=marker)
        message = await self.receive()
        assert message.get("id") == marker, f"unexpected: {message}"

    async def end(self) -> list[Any]:
        """What the server still says until it ends the connection."""
        rest = []
        try:
            while True:
                rest.append(await self.receive())
        except EOFError:
            return rest

    def check(self) -> None:
        """Raise what was wrong with the messages so far."""
        if self._violations:
            raise self._violations[0]


def _no_constant(text: str) -> NoReturn:
    raise SchemaViolation(f"{text} is no JSON")


def _is_same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


# ------------------------------------------------------------------------------------- in memory


class _Ear:
    """The receiver that a channel of ours wants, for a wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def receive(self, frame: bytes) -> None:
        self._wire.arrived(frame)

    def receive_error(self, error: Exception) -> None:
        raise AssertionError(error)

    def closed(self, error: Exception | None = None) -> None:
        self._wire.arrived(None)


@asynccontextmanager
async def memory_wire(server: Server, version: str | None = None, **opening: Any) -> AsyncIterator[Wire]:
    """A wire to `server` in this event loop, opened in `version` if one is given."""
    near, far = pair()
    connection = server.connect(far)
    wire = Wire(near.send)
    wire.connection = connection
    near.start(_Ear(wire))
    far.start(connection)
    if version is not None:
        await wire.open(version, **opening)
    yield wire
    await _part(wire, near)


async def _part(wire: Wire, channel: Any) -> None:
    """End a connection the way a transport does, and see that nothing stays behind."""
    connection = wire.connection
    connection.abort()
    await connection.finish(TIMEOUT)
    await channel.aclose()
    async with asyncio.timeout(TIMEOUT):
        await until(lambda: wire.has_ended)
    wire.check()
    assert not connection.session.in_flight, f"left open: {list(connection.session.in_flight.by_id)}"


# ----------------------------------------------------------------------------------- over pipes


class _Lines:
    """Cuts chunks into lines; `rest` is what has no newline yet."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    @property
    def rest(self) -> bytes:
        return b"".join(self._parts)

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts.clear()
        if last:
            self._parts.append(last)
        return lines


class Pipes:
    """Two pipes with the client's ends in the event loop and the server's ends in a StdioChannel."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.fd_in, self.client_out = os.pipe()
        self.client_in, self.fd_out = os.pipe()
        os.set_blocking(self.client_in, False)
        os.set_blocking(self.client_out, False)
        self._lines = _Lines()
        self._unsent = b""
        self._is_hung_up = False

    def write(self, data: bytes) -> None:
        """Write `data`, what the pipe does not take now as soon as it can."""
        if not self._unsent:
            self._loop.add_writer(self.client_out, self._writable)
        self._unsent += data
        self._writable()

    def _writable(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self.client_out, self._unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent = b""
        if not self._unsent:
            self._loop.remove_writer(self.client_out)

    def listen(self, wire: Wire) -> None:
        """Cut what the server writes into lines, for `wire`."""

        def readable() -> None:
            chunk = os.read(self.client_in, 1 << 20)
            if not chunk:
                self._loop.remove_reader(self.client_in)
                wire.arrived(None)
                return
            for line in self._lines.feed(chunk):
                wire.arrived(line)

        self._loop.add_reader(self.client_in, readable)

    def stdin_watchdog(self) -> None:
        """Close the client's end of the server's input."""
        if not self._is_hung_up:
            self._is_hung_up = True
            self._loop.remove_writer(self.client_out)
            os.close(self.client_out)

    def close(self) -> None:
        """Close what is still open of the client's ends and of the server's input."""
        self._loop.remove_reader(self.client_in)
        self.stdin_watchdog()
        for fd in (self.fd_in, self.client_in):
            os.close(fd)


@asynccontextmanager
async def stdio_wire(server: Server, version: str | None = None, **opening: Any) -> AsyncIterator[Wire]:
    """A wire to `server` through the real stdio channel on pipes, in this process."""
    pipes = Pipes()
    channel = StdioChannel(pipes.fd_in, pipes.fd_out)
    connection = server.connect(channel)
    wire = Wire(lambda frame: pipes.write(frame + b"\n"))
    wire.connection = connection
    pipes.listen(wire)
    channel.start(connection)
    try:
        if version is not None:
            await wire.open(version, **opening)
        yield wire
        pipes.stdin_watchdog()
        connection.abort()
        await connection.finish(TIMEOUT)
    finally:
        await channel.aclose()
        os.close(pipes.fd_out)
    await wire.end()
    pipes.close()
    wire.check()
    assert not connection.session.in_flight, f"left open: {list(connection.session.in_flight.by_id)}"


# ------------------------------------------------------------------------------ over a WebSocket


@asynccontextmanager
async def websocket_wire(server: Server, version: str | None = None, **opening: Any) -> AsyncIterator[Wire]:
    """A wire to `server` through a WebSocket on the loopback, in this process."""
    connections = []

    def accept(channel: Any) -> Any:
        connections.append(server.connect(channel))
        return connections[-1]

    listener = WebSocketListener("127.0.0.1:0")
    await listener.start(accept)
    port = int(listener.url.rpartition(":")[2].partition("/")[0])
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))
    reading = None
    try:
        await peer.open()
        wire = Wire(lambda message: peer.send(frame(TEXT, message)))
        wire.connection = connection = connections[0]
        reading = asyncio.create_task(_read_websocket(peer, wire))
        if version is not None:
            await wire.open(version, **opening)
        yield wire
        connection.abort()
        await connection.finish(TIMEOUT)
        peer.send(close_frame(1000))
        await wire.end()
    finally:
        await listener.aclose()
        if reading is not None:
            await reading
        await peer.aclose()
    wire.check()
    assert not connection.session.in_flight, f"left open: {list(connection.session.in_flight.by_id)}"


async def _read_websocket(peer: Peer, wire: Wire) -> None:
    try:
        while True:
            opcode, payload = await peer.frame()
            if opcode == TEXT:
                wire.arrived(payload)
            elif opcode == PING:
                peer.send(frame(PONG, payload))
            else:
                assert opcode == CLOSE, f"a server sends text frames only: {opcode}"
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    wire.arrived(None)


OpenWire = Callable[..., AbstractAsyncContextManager[Wire]]

each_wire = pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire])


# -------------------------------------------------------------------------------- a child process


class ProcessWire(Wire):
    """A wire to a child process. `stderr` is what it said for people, `code` its exit code once it is gone."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        super().__init__(lambda frame: self.write(frame + b"\n"))
        self.process = process
        self.stderr = ""
        self.connection = None
        self._stdin = process.stdin
        self._readers = [
            asyncio.create_task(self._read(process.stdout)),
            asyncio.create_task(self._read_stderr(process.stderr)),
        ]

    @property
    def code(self) -> int | None:
        """The exit code, None while the process runs; -15 for one that a signal has ended."""
        return self.process.returncode

    def write(self, data: bytes) -> None:
        """Bytes as they are, without a newline at their end."""
        self._stdin.write(data)

    def stdin_watchdog(self) -> None:
        """Close the process's stdin."""
        self._stdin.close()

    async def wait(self) -> int:
        """Wait until the process is gone, and give its exit code."""
        async with asyncio.timeout(TIMEOUT):
            code = await self.process.wait()
            await asyncio.gather(*self._readers)
        self.check()
        return code

    async def said(self, text: str) -> None:
        """Wait until the process has said this on stderr."""
        async with asyncio.timeout(TIMEOUT):
            while text not in self.stderr:
                assert not self._readers[1].done(), f"{text!r} was never said, but: {self.stderr}"
                await asyncio.sleep(0.005)

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        lines = _Lines()
        while chunk := await stdout.read(1 << 20):
            for line in lines.feed(chunk):
                self.arrived(line)
        if lines.rest:
            self._violations.append(SchemaViolation(f"the last line is cut off: {lines.rest!r}"))
        self.arrived(None)

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(1 << 16):
            self.stderr += chunk.decode()

    async def close(self) -> None:
        """Whatever the test left of it is ended."""
        self.stdin_watchdog()
        try:
            async with asyncio.timeout(TIMEOUT):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
            self._violations.append(AssertionError(f"the process did not end after its stdin did: {self.stderr}"))
        await asyncio.gather(*self._readers)
        try:
            await self._stdin.wait_closed()
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.process._transport.close()  # type: ignore[attr-defined]


@asynccontextmanager
async def process_wire(
    child: Child, *arguments: str, version: str | None = None, env: dict[str, str] | None = None, **how: Any
) -> AsyncIterator[ProcessWire]:
    """A wire to `mcpd serve --stdio` with these further arguments; it has to end cleanly and without a traceback."""
    process = await asyncio.create_subprocess_exec(
        *child.mcpd("serve", "--stdio", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**{name: value for name, value in child.env.items() if name != "PYTHONUNBUFFERED"}, **(env or {})},
        **how,
    )
    wire = ProcessWire(process)
    try:
        if version is not None:
            await wire.open(version)
        yield wire
    finally:
        await wire.close()
    wire.check()
