"""A server of raw HTTP, for tests of what clients make of odd answers: each request is given to a function."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

__all__ = ["Asked", "RawServer", "as_json", "raw_server", "reply"]


class Asked(NamedTuple):
    """One request. Names of headers are in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The body as JSON; {} if it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


class RawServer(NamedTuple):
    """Where it is, and what it was asked."""

    url: str
    asked: list[Asked]


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    """An answer; `content_type="…"` is the header Content-Type."""
    lines = [f"HTTP/1.1 {status} Some", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + body


def as_json(value: object, status: int = 200, **headers: str) -> bytes:
    """An answer that is JSON."""
    return reply(status, json.dumps(value).encode(), content_type="application/json", **headers)


@asynccontextmanager
async def raw_server(
    answer: Callable[[Asked], bytes | None], tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """Serve on a free port. What `answer` gives is written as it is; after None the connection stays silent."""
    asked: list[Asked] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            method, path, _ = first.split(" ", 2)
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            request = Asked(method, path, headers, body)
            asked.append(request)
            data = answer(request)
            if data is not None:
                writer.write(data)
                await writer.drain()
                if b"text/event-stream" not in data.partition(b"\r\n\r\n")[0] or b"Content-Length" in data:
                    writer.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield RawServer(f"{'https' if tls else 'http'}://127.0.0.1:{port}", asked)
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        await server.wait_closed()
