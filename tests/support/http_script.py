"""An HTTP server in raw bytes for clients to be tested against: a test writes what each request is answered by.

    async def answer(asked: Asked, write: Write) -> None:
        await write(reply(200, {"jsonrpc": "2.0", "id": asked.id, "result": {}}))

    async with scripted(answer) as server:
        async with Client(server.url) as client: ...

`legacy` and `modern` answer what a client says before it asks anything, so that a test is about the rest. No HTTP
library has a part in it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

__all__ = [
    "MODERN", "Answer", "Asked", "Cut", "Scripted", "Write", "event", "events_head", "legacy", "modern", "reply",
    "result", "scripted", "text_result",
]  # fmt: skip

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"


class Asked:
    """One request, as it came."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        """By names in lower case."""
        self.body = body
        self.message: dict[str, Any] = json.loads(body) if body[:1] in (b"{", b"[") else {}

    @property
    def id(self) -> Any:
        """The id of the JSON-RPC request."""
        return self.message.get("id")

    @property
    def rpc(self) -> str:
        """Its JSON-RPC method; the HTTP method if it has no body."""
        return str(self.message.get("method", self.method))


Write = Callable[[bytes], Awaitable[None]]
Answer = Callable[[Asked, Write], Awaitable[object]]


class Scripted:
    """What the server saw."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.peers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    @property
    def open(self) -> int:
        """How many connections there are that neither end has closed."""
        return sum(not reader.at_eof() and not writer.is_closing() for reader, writer in self.peers)

    def of(self, rpc: str) -> list[Asked]:
        """The requests of this JSON-RPC or HTTP method."""
        return [one for one in self.asked if one.rpc == rpc]


class Cut(Exception):
    """Raised by an answer: the connection is closed, without a word."""


@asynccontextmanager
async def scripted(answer: Answer, *, tls: ssl.SSLContext | None = None, path: str = "/mcp") -> AsyncIterator[Scripted]:
    """A server on the loopback, closed at the end with all its connections."""
    server = Scripted()
    serving: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        server.peers.append((reader, writer))

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            while (asked := await _read(reader)) is not None:
                server.asked.append(asked)
                await answer(asked, write)
        except (Cut, OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            serving.discard(task)
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{port}{path}"
    try:
        yield server
    finally:
        listening.close()
        for task in list(serving):
            task.cancel()
        if serving:
            await asyncio.wait(serving)


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    length = int(headers.get("content-length", "0"))
    return Asked(method, path, headers, await reader.readexactly(length))


# ------------------------------------------------------------------------------------------ bytes of answers


def reply(status: int, body: Any = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """A whole answer: bytes as they are, everything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Content-Length": str(len(data)), **(headers or {})}
    if data and "Content-Type" not in fields:
        fields["Content-Type"] = "text/plain" if isinstance(body, bytes) else "application/json"
    lines = [f"HTTP/1.1 {status} Reason", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


def events_head(headers: Mapping[str, str] | None = None) -> bytes:
    """The head of an event stream that ends with the connection."""
    fields = {"Content-Type": "text/event-stream", "Connection": "close", **(headers or {})}
    return (
        b"HTTP/1.1 200 OK\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in fields.items()) + b"\r\n"
    )


def event(message: Any, event_id: str = "", name: str = "", retry: int | None = None) -> bytes:
    """One event; a message of None is an empty one."""
    data = "" if message is None else message if isinstance(message, str) else json.dumps(message)
    lines = [f"event: {name}"] if name else []
    lines += [f"id: {event_id}"] if event_id else []
    lines += [f"retry: {retry}"] if retry is not None else []
    return ("\n".join([*lines, f"data: {data}"]) + "\n\n").encode()


def result(asked: Asked, value: Any) -> dict[str, Any]:
    """The answer to a request."""
    return {"jsonrpc": "2.0", "id": asked.id, "result": value}


def legacy(
    answer: Answer, *, session: str | None = "s-1", version: str = "2025-11-25", tools: Any = (), **capabilities: Any
) -> Answer:
    """A server with sessions: shakes hands, has no GET stream and ends sessions. `answer` gets everything else."""

    async def respond(asked: Asked, write: Write) -> None:
        if asked.rpc == "server/discover":
            await write(reply(400, b"no such thing"))
        elif asked.rpc == "initialize":
            about = {"name": "raw", "version": "1"}
            offered = {"tools": {}, **capabilities}
            found = {"protocolVersion": version, "capabilities": offered, "serverInfo": about}
            await write(reply(200, result(asked, found), {"Mcp-Session-Id": session} if session else None))
        elif asked.rpc == "notifications/initialized":
            await write(reply(202))
        elif asked.rpc == "tools/list" and tools:
            await write(reply(200, result(asked, {"tools": list(tools)})))
        elif asked.rpc in ("GET", "DELETE") and await answer(asked, write) is None:
            await write(reply(405 if asked.rpc == "GET" else 200))
        elif asked.rpc not in ("GET", "DELETE"):
            await answer(asked, write)

    return respond


def modern(answer: Answer, *, tools: Any = (), **capabilities: Any) -> Answer:
    """A server without sessions. `answer` gets everything but `server/discover` and, with tools, their list."""

    async def respond(asked: Asked, write: Write) -> None:
        if asked.rpc == "server/discover":
            found = {
                "resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}, **capabilities},
                "ttlMs": 0, "cacheScope": "private",
            }  # fmt: skip
            await write(reply(200, result(asked, found)))
        elif asked.rpc == "tools/list" and tools:
            listed = {"resultType": "complete", "tools": list(tools), "ttlMs": 0, "cacheScope": "private"}
            await write(reply(200, result(asked, listed)))
        else:
            await answer(asked, write)

    return respond


def text_result(asked: Asked, text: str) -> dict[str, Any]:
    """The answer to a call."""
    return result(asked, {"resultType": "complete", "content": [{"type": "text", "text": text}]})
