"""What the HTTP/1.1 connections of one listener share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from typing import Any
from weakref import WeakValueDictionary

from uvicorn.server import ServerState

from ..dispatcher.connection import EagerTaskRunner
from ..transports.accepting import ConnectionLimit, CountedConnections
from .known_head import KnownHead

__all__ = ["HttpState"]


_MOST_ADDRESSES = 64


class HttpState(ServerState):
    """What uvicorn's connections share; the `Date` of each answer is made when it is needed."""

    def __init__(self, connection_limit: ConnectionLimit | None = None) -> None:
        self._second = 0
        self._headers: list[tuple[bytes, bytes]] = []
        super().__init__()
        self.connection_limit = ConnectionLimit() if connection_limit is None else connection_limit
        self.connections = CountedConnections(self.connection_limit)
        self.is_draining = False
        """Each connection ends with its next answer."""
        self.lingering: set[asyncio.Protocol] = set()
        """Those on which a request may be on its way, while it is draining."""
        self.settled = asyncio.Event()
        """None of them is left."""
        self.heads: WeakValueDictionary[tuple[bytes, bytes], KnownHead] = WeakValueDictionary()
        """Heads that came, as long as a connection keeps them: clients of one program have the same."""
        self._addresses: dict[object, object] = {}
        self._runner: EagerTaskRunner | None = None
        self._start: Callable[[Coroutine[Any, Any, None]], object] | None = None

    def starter(self, loop: asyncio.AbstractEventLoop) -> Callable[[Coroutine[Any, Any, None]], object]:
        """What runs the first step of answering a request at once: most have no second one, and need no task."""
        if self._start is None:
            self._runner = EagerTaskRunner(loop, self.tasks)
            self._start = self._runner.start
        return self._start

    def shared(self, address: Any) -> Any:
        """An address of ours, or the host of a client, as one object for all connections: each is kept by each."""
        if len(self._addresses) > _MOST_ADDRESSES:
            self._addresses.clear()
        return self._addresses.setdefault(address, address)

    def close(self) -> None:
        """No more requests will be answered."""
        if self._runner is not None:
            self._runner.close()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._headers = [(b"date", formatdate(now, usegmt=True).encode())]
        return self._headers

    @default_headers.setter
    def default_headers(self, value: list[tuple[bytes, bytes]]) -> None:
        """Uvicorn sets an empty list when it begins."""
