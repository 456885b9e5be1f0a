"""aiohttp's pools of connections, which give none on which something came, or an end, while nobody had asked.

A pool looks whether the loop has heard that a connection was closed. A server that closes it while the program computes
is heard of too late: what is sent then is lost, and a call must not be sent twice. What a server says there between two
answers would be taken for the answer to the next request, whoever had made the first.
"""

from __future__ import annotations

import asyncio
import select
from typing import Any, cast

import aiohttp

__all__ = ["TcpPool", "UnixPool"]


class _Watched(asyncio.Protocol):
    """Between a connection's transport and the library: closes it when something comes while nobody uses it."""

    def __init__(self, transport: asyncio.Transport, user: aiohttp.connector.Connection) -> None:
        self._transport = transport
        self._inner = cast("asyncio.Protocol", transport.get_protocol())
        self.user = user
        """Whoever has it now; closed once it is back in the pool."""

    def data_received(self, data: bytes) -> None:
        if self.user.closed:
            self._transport.abort()
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _Fresh:
    """Of a pool: looks at a connection that was used before it is used again."""

    async def connect(self, *args: Any, **options: Any) -> aiohttp.connector.Connection:
        """A connection that is new, or silent. Raises what aiohttp raises."""
        while True:
            connection: aiohttp.connector.Connection = await super().connect(*args, **options)  # type: ignore[misc]
            transport = connection.transport
            if transport is None:
                return connection  # it was just lost, and the library says so

            watched = transport.get_protocol()
            if not isinstance(watched, _Watched):
                # Of a new one TLS may have something to read that is no answer.
                transport.set_protocol(_Watched(transport, connection))
                return connection
            if not _has_something(transport):
                watched.user = connection
                return connection
            connection.close()


class TcpPool(_Fresh, aiohttp.TCPConnector):
    """Connections to hosts, directly or through a proxy."""


class UnixPool(_Fresh, aiohttp.UnixConnector):
    """Connections to a unix socket."""


def _has_something(transport: asyncio.Transport) -> bool:
    """Whether there is something to read, or the end, that the loop has not come to."""
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return True

    if not hasattr(select, "poll"):
        return bool(select.select([socket], [], [], 0)[0])
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))
