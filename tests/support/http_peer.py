"""HTTP clients in raw bytes, and a server for them to talk to.

`serving` listens on the loopback with the real listener (uvicorn's protocol), `Port.connect` gives a connection on
which a test writes bytes and reads answers; `post`, `modern`, `legacy` build the bytes of usual requests. No HTTP or
MCP client library has a part in it. What the server says as JSON-RPC is held against its version's schema.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from support.wire_schema import Conversation

from mcpd import Server
from mcpd.server.http import HttpApp, HttpSettings
from mcpd.server.http.listener import HttpListener
from mcpd.transports.address import parse
from mcpd.transports.guards import Access

__all__ = [
    "BOTH",
    "CLIENT",
    "MODERN",
    "Answer",
    "Peer",
    "Port",
    "Session",
    "call",
    "envelope",
    "initialize",
    "modern",
    "post",
    "request",
    "serving",
]

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
CLIENT = {"name": "raw", "version": "1"}
BOTH = "application/json, text/event-stream"
TIMEOUT = 60.0

_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_NAMES |= dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
_NO_ACCESS_RULES = Access()
_DEFAULTS = HttpSettings()

Headers = dict[str, str | None]

# -------------------------------------------------------------------------------------- requests


def request(
    method: str, path: str, headers: Iterable[tuple[str, str]] = (), body: bytes = b"", host: str = "localhost"
) -> bytes:
    """An HTTP request, with a length if it has a body."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers)]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def post(message: Any, headers: Headers | None = None, path: str = "/mcp", host: str = "localhost") -> bytes:
    """A POST of a message (bytes as they are). A header of None is left out of the usual ones."""
    body = message if isinstance(message, bytes) else json.dumps(message, ensure_ascii=False).encode()
    usual: Headers = {"Content-Type": "application/json", "Accept": BOTH, **(headers or {})}
    kept = [(name, value) for name, value in usual.items() if value is not None]
    return request("POST", path, kept, body, host)


def call(method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
    """A JSON-RPC request."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else {**message, "params": params}


def envelope(capabilities: dict[str, Any] | None = None, version: str = MODERN, **more: Any) -> dict[str, Any]:
    """`params._meta` of a modern request; `more` are bare keys."""
    return {
        f"{META}protocolVersion": version,
        f"{META}clientCapabilities": capabilities or {},
        f"{META}clientInfo": CLIENT,
        **more,
    }


def modern(
    method: str,
    params: dict[str, Any] | None = None,
    headers: Headers | None = None,
    *,
    id: Any = 1,
    meta: dict[str, Any] | None = None,
) -> bytes:
    """A request of 2026-07-28 as a conforming client sends it; `headers` change or drop (None) what it has."""
    whole = {**(params or {}), "_meta": envelope() if meta is None else meta}
    usual: Headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if method in _NAMES and _NAMES[method] in whole:
        usual["Mcp-Name"] = str(whole[_NAMES[method]])
    return post(call(method, whole, id), {**usual, **(headers or {})})


def initialize(version: str = "2025-11-25", id: Any = 0, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    """An `initialize` request."""
    params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": CLIENT}
    return call("initialize", params, id)


# --------------------------------------------------------------------------------------- answers


class Answer:
    """One HTTP answer. `body` is empty until the whole of it was read."""

    def __init__(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.status = status
        self.headers = headers
        self.body = b""

    def __getitem__(self, name: str) -> str:
        """The value of a header that has to be there once."""
        (value,) = [value for key, value in self.headers if key.lower() == name.lower()]
        return value

    def __contains__(self, name: str) -> bool:
        return any(key.lower() == name.lower() for key, _ in self.headers)

    @property
    def json(self) -> Any:
        """The body as JSON, which it has to say it is."""
        assert self["content-type"] == "application/json", (self.headers, self.body)
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def error(self) -> dict[str, Any]:
        """The error of a JSON-RPC error answer."""
        error: dict[str, Any] = self.json["error"]
        return error

    @property
    def code(self) -> int:
        """The code of that error."""
        return int(self.error["code"])

    @property
    def messages(self) -> list[Any]:
        """The JSON-RPC messages of the body, be it JSON or an event stream."""
        if self["content-type"] == "application/json":
            return [self.json]
        return [json.loads(event["data"]) for event in events(self.body) if event.get("data")]


def events(data: bytes) -> list[dict[str, str]]:
    """The events of a stream, fields by name; comments are left out, and what is no event yet."""
    found = []
    for block in data.decode().split("\n\n")[:-1]:
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if name:
                fields[name] = fields.get(name, "") + value.removeprefix(" ")
        if fields:
            found.append(fields)
    return found


class Peer:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._is_chunked = False
        self._unread = b""

    def send(self, data: bytes) -> None:
        """Write bytes."""
        self.writer.write(data)

    async def head(self) -> Answer:
        """The status and headers of the next answer."""
        async with asyncio.timeout(TIMEOUT):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        answer = Answer(int(first.split(" ")[1]), [tuple(line.split(": ", 1)) for line in lines])  # type: ignore[misc]
        self._is_chunked = "transfer-encoding" in answer
        return answer

    async def chunk(self, timeout: float | None = TIMEOUT) -> bytes:
        """The next piece of a chunked body; empty at its end."""
        async with asyncio.timeout(timeout):
            size = int(await self.reader.readline(), 16)
            data = await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        return data

    async def event(self, timeout: float | None = TIMEOUT) -> dict[str, str] | None:
        """The next event of a stream, comments left out; None at its end."""
        while True:
            block, found, rest = self._unread.partition(b"\n\n")
            if found:
                self._unread = rest
                parsed = events(block + b"\n\n")
                if parsed:
                    return parsed[0]
                continue
            data = await self.chunk(timeout)
            if not data:
                return None
            self._unread += data

    async def message(self) -> Any:
        """The next JSON-RPC message of a stream; events without data are passed over."""
        while True:
            event = await self.event()
            assert event is not None, "the stream has ended"
            if event.get("data"):
                return json.loads(event["data"])

    async def comment(self) -> bytes:
        """The next piece of a stream, which is to be a comment."""
        data = await self.chunk()
        assert data.startswith(b":"), data
        return data

    async def answer(self) -> Answer:
        """The next answer, whole."""
        answer = await self.head()
        async with asyncio.timeout(TIMEOUT):
            if self._is_chunked:
                parts = []
                while part := await self.chunk():
                    parts.append(part)
                answer.body = b"".join(parts)
            elif "content-length" in answer:
                answer.body = await self.reader.readexactly(int(answer["content-length"]))
        return answer

    async def ask(self, data: bytes) -> Answer:
        """Send a request and read its answer."""
        self.send(data)
        return await self.answer()

    async def rest(self) -> bytes:
        """All that still comes until the server closes the connection."""
        async with asyncio.timeout(TIMEOUT):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def abort(self) -> None:
        """Vanish, with a reset if anything is unread."""
        self.writer.transport.abort()

    async def aclose(self) -> None:
        """Close the connection."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


class Port:
    """A listening server, seen from outside; `app` and `listener` are its inside."""

    def __init__(self, listener: HttpListener) -> None:
        self.listener = listener
        self.app: HttpApp = listener.app
        self._peers: list[Peer] = []

    @property
    def number(self) -> int:
        """The TCP port."""
        return int(self.listener.url.split(":")[2].partition("/")[0])

    async def connect(self) -> Peer:
        """A new connection."""
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.number, limit=1 << 26))
        self._peers.append(peer)
        return peer

    async def ask(self, data: bytes) -> Answer:
        """One request on a connection of its own, with its answer."""
        peer = await self.connect()
        try:
            return await peer.ask(data)
        finally:
            await peer.aclose()

    async def modern(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Answer:
        """A conforming modern request; each message of its answer is held against the schema."""
        data = modern(method, params, **more)
        answer = await self.ask(data)
        talk = Conversation()
        talk.client(json.loads(data.partition(b"\r\n\r\n")[2]))
        for message in answer.messages:
            talk.server(message)
        return answer

    async def open(self, version: str = "2025-11-25", **more: Any) -> Session:
        """A legacy session, initialized."""
        session = Session(self, version)
        await session.open(**more)
        return session

    async def aclose(self) -> None:
        """Close all connections, then the server."""
        for peer in self._peers:
            peer.abort()
        await self.listener.aclose()


class Session:
    """A legacy client: keeps its session id, and holds all that it hears against the schema."""

    def __init__(self, port: Port, version: str) -> None:
        self.port = port
        self.version = version
        self.id = ""
        self.talk = Conversation()
        self.extra: Headers = {}

    @property
    def headers(self) -> Headers:
        """What every request of the session carries."""
        named = {"MCP-Protocol-Version": self.version} if self.version >= "2025-06-18" else {}
        return {"Mcp-Session-Id": self.id, **named, **self.extra}

    async def open(self, **more: Any) -> Any:
        """Initialize; gives the result."""
        hello = initialize(self.version, **more)
        self.talk.client(hello)
        answer = await self.port.ask(post(hello, self.extra))
        assert answer.status == 200, answer.body
        (message,) = answer.messages
        self.talk.server(message)
        self.id = answer["mcp-session-id"]
        answer = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (answer.status, answer.body) == (202, b"")
        return message["result"]

    def bytes(self, message: Any, headers: Headers | None = None) -> bytes:
        """The POST of a message."""
        self.talk.client(message)
        return post(message, {**self.headers, **(headers or {})})

    async def post(self, message: Any, headers: Headers | None = None) -> Answer:
        """POST a message; gives the whole answer."""
        answer = await self.port.ask(self.bytes(message, headers))
        if answer.status == 200:
            for heard in answer.messages:
                self.talk.server(heard)
        return answer

    async def ask(self, method: str, params: dict[str, Any] | None = None, id: Any = 1) -> Answer:
        """A request and its answer."""
        return await self.post(call(method, params, id))

    async def start(self, message: Any) -> Peer:
        """POST a message and leave the answer to be read."""
        peer = await self.port.connect()
        peer.send(self.bytes(message))
        return peer

    async def listen(self, last: str | None = None) -> Peer:
        """A GET stream, its head read; `last` is the last event id that was seen."""
        peer = await self.port.connect()
        peer.send(self.get(last))
        answer = await peer.head()
        assert (answer.status, answer["content-type"]) == (200, "text/event-stream")
        return peer

    def get(self, last: str | None = None) -> bytes:
        """The bytes of a GET."""
        headers = {"Accept": "text/event-stream", **self.headers}
        if last is not None:
            headers["Last-Event-ID"] = last
        return request("GET", "/mcp", [(name, value) for name, value in headers.items() if value is not None])

    def delete(self) -> bytes:
        """The bytes of a DELETE."""
        return request("DELETE", "/mcp", [(name, value) for name, value in self.headers.items() if value is not None])


@asynccontextmanager
async def serving(
    server: Server,
    settings: HttpSettings = _DEFAULTS,
    access: Access = _NO_ACCESS_RULES,
    address: str = "127.0.0.1:0",
    **more: Any,
) -> AsyncIterator[Port]:
    """The server on a free port of the loopback, closed at the end with all that is still connected to it."""
    app = server.http_app(access, settings, bound=parse(address).host, **more)
    listener = HttpListener(app, address, access)
    await listener.start(server.connect)
    port = Port(listener)
    try:
        yield port
    finally:
        await port.aclose()
