"""A small HTTP server on a thread of its own, for metrics and status of the server.

It answers even while the event loop is blocked. It uses the standard library only, because stdio servers have no other
HTTP server. It serves one request per connection, few connections at once, and each within a time limit.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeAlias

from msgspec import Struct

_MOST_AT_ONCE = 128
_MOST_HEAD_BYTES = 16 * 1024
_MOST_BODY_BYTES = 1024 * 1024
_SECONDS = 5.0
_END_SECONDS = 1.0


class ObserverRequest(Struct, frozen=True):
    """A request. Header names are in lower case; the values of repeated headers are joined by commas."""

    method: str
    path: str
    headers: Mapping[str, str]
    is_control: bool
    """Whether it arrived on the control socket, from a process of this user."""
    body: bytes = b""
    """The body of a request on the control socket; other bodies are not read."""


class ObserverResponse(Struct, frozen=True):
    """A response."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


Site: TypeAlias = Callable[[ObserverRequest], Coroutine[Any, Any, ObserverResponse]]


class HttpThread:
    """The thread and its listening sockets. `pulse` is called once a second."""

    def __init__(
        self, site: Site, sockets: Sequence[socket.socket], control: socket.socket | None, pulse: Callable[[], None]
    ) -> None:
        self._site = site
        self._sockets = sockets
        self._control = control
        self._pulse = pulse
        self._stop: Callable[[], object] | None = None
        self._open = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mcpd-observer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        self._started.wait(_SECONDS)

    def stop(self) -> None:
        """Close the sockets. Waits at most one second."""
        if self._stop is not None:
            try:
                self._stop()
            except RuntimeError:  # it has ended already
                pass
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        # Not asyncio.run, which would handle signals, and use another loop with uvloop's policy.
        loop = asyncio.SelectorEventLoop()
        ending = asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(ending.set)
        try:
            loop.run_until_complete(self._serve(ending))
        finally:
            loop.close()

    async def _serve(self, ending: asyncio.Event) -> None:
        servers = [
            await asyncio.start_server(self._answer, sock=each, limit=_MOST_HEAD_BYTES) for each in self._sockets
        ]
        if self._control is not None:
            servers.append(
                await asyncio.start_unix_server(self._answer_control, sock=self._control, limit=_MOST_HEAD_BYTES)
            )

        self._started.set()
        try:
            while not ending.is_set():
                self._pulse()
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await ending.wait()
        finally:
            for server in servers:
                server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=_END_SECONDS / 2)

    async def _answer_control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if check_peer(writer.get_extra_info("socket")):
            await self._answer(reader, writer, is_control=True)
        else:
            writer.transport.abort()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_control: bool = False
    ) -> None:
        # The control socket must work, however many connections other clients hold open.
        if self._open >= _MOST_AT_ONCE and not is_control:
            writer.transport.abort()
            return

        self._open += 1
        try:
            async with asyncio.timeout(_SECONDS):
                request = await _read(reader, is_control=is_control)
                response = _BAD if request is None else await self._site(request)
                writer.write(_written(response, with_body=request is None or request.method != "HEAD"))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has left or is slow, or this server ends
        finally:
            self._open -= 1
            writer.close()


_BAD = ObserverResponse(400, b"The request cannot be parsed.\n")


async def _read(reader: asyncio.StreamReader, *, is_control: bool) -> ObserverRequest | None:
    # Read a request; None if it is malformed. Only bodies on the control socket are read.
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        return None

    first, *lines = head[:-4].split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return None
        key = name.lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()

    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 9 or int(length) > _MOST_BODY_BYTES:
        return None
    body = await reader.readexactly(int(length)) if is_control else b""
    return ObserverRequest(words[0], words[1].partition("?")[0], headers, is_control, body)


def _written(response: ObserverResponse, *, with_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"content-type: {response.content_type}",
        f"content-length: {len(response.body)}",
        "connection: close",
        "cache-control: no-store",
        *(f"{name.lower()}: {value}" for name, value in response.headers),
    ]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + response.body if with_body else head


def check_peer(connected: socket.socket) -> bool:
    """Whether the peer is a process of this user. Without SO_PEERCRED the permissions of the folder protect."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return bool(uid == os.getuid())
