"""A POST over a connection of aiohttp's pool, written and read without aiohttp's session, request and response.

Those cost more than the exchange itself: headers merged and cookies looked for each time, a task that writes the body,
timers. What is left of the library here is what no client should do by itself: connecting (names, TLS, the pool), and
its parser with its bounds. What goes through a proxy goes through the session all the same, and so do the few requests
that are no POST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

__all__ = ["DirectReply", "Prepared", "post", "prepare"]

_JOIN_BYTES = 64 * 1024
_LEFT_OUT = frozenset(("content-length", "transfer-encoding"))


class Prepared(Struct, frozen=True):
    """What is the same in each POST with these header fields: made by `prepare`."""

    fields: Mapping[str, str]
    request: aiohttp.ClientRequest
    """By this the pool finds a connection; it is never sent."""
    head: bytes
    """All of the head but the length of the body."""


def prepare(session: aiohttp.ClientSession, url: URL, fields: Mapping[str, str]) -> Prepared:
    """The head of a POST to `url`; `fields` come before those of the session. Raises ValueError for a bad one."""
    merged: CIMultiDict[str] = CIMultiDict(session.headers)
    merged.update(fields)
    request = aiohttp.ClientRequest("POST", url, headers=merged, session=session, loop=asyncio.get_running_loop())

    lines = [f"POST {url.raw_path_qs} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name.lower() not in _LEFT_OUT]
    text = "\n".join(lines)
    if "\r" in text or "\0" in text or text.count("\n") != len(lines) - 1:
        raise ValueError("a header field has a line break in it")
    return Prepared(fields, request, text.replace("\n", "\r\n").encode() + b"\r\nContent-Length: ")


class DirectReply:
    """An answer whose head has come: of aiohttp's `ClientResponse` what is needed here."""

    __slots__ = ("_connection", "content", "headers", "reason", "status", "url")

    def __init__(self, url: URL, message: Any, content: aiohttp.StreamReader, connection: Any) -> None:
        self.url = url
        self.status: int = message.code
        self.reason: str | None = message.reason
        self.headers: CIMultiDictProxy[str] = message.headers
        self.content = content
        self._connection = connection
        content.on_eof(self._release)

    @property
    def content_type(self) -> str:
        """The media type, without its parameters."""
        found = self.headers.get("Content-Type", "application/octet-stream")
        return found.partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        """How many bytes the body has, if that is said."""
        found = self.headers.get("Content-Length")
        return None if found is None else int(found)

    def _release(self) -> None:
        """All has come: the connection can be used again, unless it still has something to say."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        transport = connection.transport
        if transport is None or transport.get_write_buffer_size():
            connection.close()
        else:
            connection.release()

    def close(self) -> None:
        """Read no more of it: cuts the connection, unless all has come."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self.content.exception() is None:
                self.content.set_exception(aiohttp.ClientConnectionError("Connection closed"))
            connection.close()


async def post(
    connector: aiohttp.BaseConnector, timeout: aiohttp.ClientTimeout, prepared: Prepared, body: bytes
) -> DirectReply:
    """Send it, and wait for the head of the answer. Raises what aiohttp raises."""
    request = prepared.request
    try:
        connection = await connector.connect(request, [], timeout)
    except TimeoutError as error:
        raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {request.url}") from error

    try:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None or transport.is_closing():
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(read_until_eof=True, auto_decompress=False)
        head = b"%b%d\r\n\r\n" % (prepared.head, len(body))
        if len(body) < _JOIN_BYTES:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)

        while True:
            message, content = await protocol.read()
            if not 100 <= message.code < 200 or message.code == 101:
                return DirectReply(request.url, message, content, connection)
    except HttpProcessingError as error:
        connection.close()
        raise aiohttp.ClientResponseError(
            request.request_info, (), status=error.code, message=error.message, headers=error.headers
        ) from error
    except BaseException:
        connection.close()
        raise
