"""aiohttp's pools of connections, which give none on which something came, or an end, while nobody had asked.

A pool looks whether the loop has heard that a connection was closed. A server that closes it while the program computes
is heard of too late: what is sent then is lost, and a call must not be sent twice. What a server says there between two
answers would be taken for the answer to the next request, whoever had made the first.
"""

from __future__ import annotations

import select
from typing import Any
from weakref import WeakSet

import aiohttp

__all__ = ["TcpPool", "UnixPool"]


class _Fresh:
    """Of a pool: looks at a connection that was used before it is used again."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._used: WeakSet[Any] = WeakSet()

    async def connect(self, *args: Any, **options: Any) -> aiohttp.connector.Connection:
        """A connection that is new, or silent. Raises what aiohttp raises."""
        while True:
            connection: aiohttp.connector.Connection = await super().connect(*args, **options)  # type: ignore[misc]
            protocol = connection.protocol

            if protocol not in self._used:
                # Of a new one TLS may have something to read that is no answer.
                self._used.add(protocol)
                return connection
            if protocol is not None and not protocol.should_close and not _has_something(connection.transport):
                return connection
            connection.close()


class TcpPool(_Fresh, aiohttp.TCPConnector):
    """Connections to hosts, directly or through a proxy."""


class UnixPool(_Fresh, aiohttp.UnixConnector):
    """Connections to a unix socket."""


def _has_something(transport: Any) -> bool:
    """Whether there is something to read, or the end, that the loop has not come to."""
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return True

    if not hasattr(select, "poll"):
        return bool(select.select([socket], [], [], 0)[0])
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))
