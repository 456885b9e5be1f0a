"""The backplane of `--workers`, as a worker has it: the memory is the parent's, and each worker has a socket to it.

The other end is `shared_memory.SharedMemory`. What is asked leaves at once and in its order.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from mcpd.backplane.base import BackplaneAway, Item, Receive
from mcpd.backplane.frames import FrameProtocol, connect_frames, encode_frame
from mcpd.backplane.local_bus import LocalBus

log = logging.getLogger("mcpd")

GAP = "gap"
"""The word of a frame that says: something was left out for you, which did not read."""

_ANSWER = 2.5
"""In seconds: nobody is to wait for longer than 3."""
_PROBE_EVERY = 0.25
"""While it is away, so often something is asked all the same, to see whether it is back."""
_MOST_WAITING = 10_000
_MOST_UNSENT_BYTES = 128 * 1024 * 1024


class SharedBackplane:
    """See `Backplane`. `connected` is the worker's end, which is its own from now on.

    Once the parent has ended it stays away: nobody will ever be at the other end again.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.away_since: float | None = None
        self._socket = connected
        self._is_over = ""
        """Why nothing can be asked any more; empty while it can."""
        self._probe_at = 0.0
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._unsent: list[bytes] = []
        self._local = LocalBus()
        self._protocol: FrameProtocol | None = None
        self._connecting: asyncio.Task[None] | None = None

    async def aclose(self) -> None:
        """See `Backplane`."""
        self._end("the backplane is closed")
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        transport = None if self._protocol is None else self._protocol.transport
        if transport is None:
            self._socket.close()
        else:
            transport.close()

    # -- asking ------------------------------------------------------------------------------

    async def _ask(self, word: str, *body: object) -> Any:
        loop = asyncio.get_running_loop()
        if self._is_over:
            raise BackplaneAway(self._is_over)
        if self.away_since is not None:
            if loop.time() < self._probe_at:
                raise BackplaneAway("the backplane is away")
            self._probe_at = loop.time() + _PROBE_EVERY
        if len(self._waiting) >= _MOST_WAITING or self._unsent_bytes() > _MOST_UNSENT_BYTES:
            raise BackplaneAway("too much waits for the backplane")

        self._number += 1
        number = self._number
        try:
            frame = encode_frame(number, word, body)
        except ValueError as error:
            raise BackplaneAway(f"the backplane: {error}") from None

        answer = self._waiting[number] = loop.create_future()
        self._send(frame)
        try:
            async with asyncio.timeout(_ANSWER):
                found, why = await answer
        except TimeoutError:
            self._lost()
            raise BackplaneAway("the backplane does not answer") from None
        finally:
            self._waiting.pop(number, None)
        if why:
            raise BackplaneAway(f"the backplane: {why}")
        return found

    def _send(self, frame: bytes) -> None:
        transport = None if self._protocol is None else self._protocol.transport
        if transport is not None:
            transport.write(frame)
            return
        self._unsent.append(frame)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(), name="mcpd-backplane")

    def _unsent_bytes(self) -> int:
        transport = None if self._protocol is None else self._protocol.transport
        return sum(map(len, self._unsent)) if transport is None else transport.get_write_buffer_size()

    async def _connect(self) -> None:
        protocol = FrameProtocol(self._take, self._ended)
        try:
            await connect_frames(protocol, self._socket)
        except OSError as error:
            self._end(f"the backplane: {error.strerror or error}")
            return
        self._protocol = protocol
        unsent, self._unsent = self._unsent, []
        if protocol.transport is not None:  # else the parent has ended already
            protocol.transport.writelines(unsent)

    def _take(self, number: int, word: str, body: Any) -> None:
        if number:
            answer = self._waiting.get(number)
            if answer is not None and not answer.done():
                answer.set_result((body, word))
            self._found()
        elif word == GAP:
            self._local.tell_gap()
        else:
            self._local.tell(word, body)

    # -- being away --------------------------------------------------------------------------

    def _lost(self) -> None:
        loop = asyncio.get_running_loop()
        self._probe_at = loop.time() + _PROBE_EVERY
        if self.away_since is None:
            self.away_since = loop.time()
            log.warning("the backplane is away: the parent process does not answer")

    def _found(self) -> None:
        if self.away_since is not None:
            away = asyncio.get_running_loop().time() - self.away_since
            self.away_since = None
            log.warning("the backplane is back after %.1f s", away)

    def _ended(self) -> None:
        """The other end is closed."""
        self.away_since = self.away_since or asyncio.get_running_loop().time()
        self._end("the backplane has ended with the parent process")

    def _end(self, why: str) -> None:
        self._is_over = self._is_over or why
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result((None, why))

    # -- values ------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        """See `Backplane`."""
        found: bytes | None = await self._ask("get", key)
        return found

    async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
        """See `Backplane`."""
        return bool(await self._ask("set", key, value, ttl, only_new))

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """See `Backplane`."""
        return bool(await self._ask("swap", key, old, new, ttl))

    async def delete(self, key: str) -> None:
        """See `Backplane`."""
        await self._ask("delete", key)

    # -- logs --------------------------------------------------------------------------------

    async def append(self, name: str, entries: Sequence[bytes], most: int, ttl: float) -> None:
        """See `Backplane`."""
        await self._ask("append", name, list(entries), most, ttl)

    async def read(self, name: str, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        """See `Backplane`."""
        return [(number, entry) for number, entry in await self._ask("read", name, after, limit)]

    # -- the bus -----------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        """See `Backplane`."""
        return int(await self._ask("publish", channel, data))

    async def subscribe(self, channel: str, receive: Receive) -> None:
        """See `Backplane`."""
        self._local.add(channel, receive)
        await self._ask("subscribe", channel)

    async def unsubscribe(self, channel: str, receive: Receive) -> None:
        """See `Backplane`."""
        if self._local.remove(channel, receive):
            try:
                await self._ask("unsubscribe", channel)
            except BackplaneAway:
                pass  # what comes for it is for nobody

    def on_gap(self, told: Callable[[], object]) -> None:
        """See `Backplane`."""
        self._local.on_gap(told)

    # -- queues ------------------------------------------------------------------------------

    async def push(self, name: str, data: bytes, ttl: float) -> None:
        """See `Backplane`."""
        await self._ask("push", name, data, ttl)

    async def claim(self, name: str, who: str, lease: float) -> Item | None:
        """See `Backplane`."""
        found = await self._ask("claim", name, who, lease)
        return None if found is None else Item(*found)

    async def renew(self, name: str, who: str, item: Item, lease: float) -> bool:
        """See `Backplane`."""
        return bool(await self._ask("renew", name, who, item.id, lease))

    async def done(self, name: str, who: str, item: Item) -> bool:
        """See `Backplane`."""
        return bool(await self._ask("done", name, who, item.id))
