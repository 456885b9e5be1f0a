"""The HTTP response that carries an event stream, and its queue.

Senders put data into a queue and continue. A task that exists only while data waits passes it to the ASGI server, so
that an idle client costs no task.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress

from mcpd.protocol.budget import SMALL, Charge, client_of
from mcpd.protocol.wire.sse import KEEP_ALIVE
from mcpd.transports.stdio import Wakeup
from .request import EVENT_STREAM, Header, HttpRequest, Send

log = logging.getLogger("mcpd")

_HIGH_WATER = 1024 * 1024
_MOST_WAITING = 64 * 1024 * 1024


class Outbox(ABC):
    """The queue of data for one client. A subclass writes it in `_hand_on`; `close` drops it.

    A tool that waits in `drain` may hold a thread. If the client reads nothing for `write_timeout` seconds meanwhile,
    the queue closes (0: never).
    """

    __slots__ = ("_charge", "_drained", "_peer", "_telling", "_waiting", "_waiting_bytes", "_write_timeout", "_writer",
                 "is_open")  # fmt: skip

    def __init__(self, peer: str, write_timeout: float = 0) -> None:
        self._peer = peer
        self._write_timeout = write_timeout
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._charge: Charge | None = None
        self._writer: asyncio.Task[None] | None = None
        self._drained = Wakeup()
        self.is_open = True

    @property
    def is_congested(self) -> bool:
        """Whether more data waits than a client that reads would leave."""
        return self._waiting_bytes > _HIGH_WATER

    async def drain(self) -> None:
        """Wait until the client has read most of the data, or has left."""
        while self.is_open and self.is_congested:
            try:
                async with asyncio.timeout(self._write_timeout if self._write_timeout > 0 else None):
                    await self._drained.wait()
            except TimeoutError:
                log.info("A client read nothing of its stream for %g s: the stream ends", self._write_timeout)
                self._give_up()

    def close(self) -> None:
        """Drop the waiting data, and write nothing more."""
        self.is_open = False
        self._waiting.clear()
        self._waiting_bytes = 0
        self._charge = None
        self._drained.wake()
        if self._writer is not None:
            self._writer.cancel()

    # -- for subclasses ----------------------------------------------------------------------

    def _put(self, data: bytes) -> None:
        if self._waiting_bytes > _MOST_WAITING:
            self._give_up()  # the client does not read, and could fill the memory
            return

        self._waiting_bytes += len(data)
        if self._waiting_bytes > SMALL and not self._count():
            self._give_up()  # the memory budget is used up
            return

        self._waiting.append(data)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def _count(self) -> bool:
        # Charge the waiting data to the memory budget. Returns False if it is used up.
        if self._waiting_bytes <= SMALL:
            self._charge = None
            return True
        if self._charge is None:
            self._charge = Charge(id(self), client_of(self._peer))
        return self._charge.set(self._waiting_bytes)

    def _give_up(self) -> None:
        # The client reads too slowly. It receives the reason before the end, if it reads again in time.
        if self.is_open:
            self.close()
            self._telling = asyncio.get_running_loop().create_task(self._tell_end())

    @abstractmethod
    async def _tell_end(self) -> None:
        """Tell the client that nothing follows, because it reads too slowly."""

    @abstractmethod
    async def _hand_on(self) -> None:
        """Write the waiting data, and report it by `_taken`."""

    def _taken(self, waiting_bytes: int) -> None:
        # The server has taken data; `waiting_bytes` are left.
        self._waiting_bytes = waiting_bytes
        if self._charge is not None:
            self._count()
        self._drained.wake()

    async def _write(self) -> None:
        try:
            await self._hand_on()
        except Exception:
            # Whatever an ASGI server raises when it cannot send: the client has left.
            self._writer = None
            self.close()
        finally:
            self._writer = None


HEADERS: tuple[Header, ...] = (
    EVENT_STREAM,
    # no-transform: a proxy that compresses would delay events. X-Accel-Buffering has the same effect in nginx.
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_PIECE_BYTES = 256 * 1024


class EventStreamResponse(Outbox):
    """The body of one response. `close` is for a client that has left, `end` for a stream that is complete."""

    __slots__ = ("_is_ending", "_request", "_send", "is_quiet")

    is_stream = True

    def __init__(self, request: HttpRequest, write_timeout: float = 0) -> None:
        super().__init__(request.peer, write_timeout)
        self._request = request
        self._send: Send | None = None
        self._is_ending = False
        self.is_quiet = False
        """Nothing was pushed since the last call of `keep_alive`."""

    def push(self, data: bytes) -> None:
        """Queue the bytes of an event, or b"" to begin the stream.

        A client that does not read its stream is disconnected; it can resume on another connection.
        """
        if self.is_open and not self._is_ending:
            self.is_quiet = False
            self._put(data)

    def keep_alive(self) -> None:
        """Push a comment if nothing was pushed since the last call."""
        if self.is_quiet and not self._waiting:
            self.push(KEEP_ALIVE)
        self.is_quiet = True

    async def end(self, last: Iterable[bytes] = ()) -> None:
        """Write the waiting data and `last`, and complete the response. Nothing can be pushed afterwards."""
        if self.is_open and not self._is_ending:
            self._waiting.extend(last)
            self._is_ending = True
            if self._writer is None:
                await self._write()
        if self._writer is not None:
            # Not cancelled with the task that waits here: the client would receive half an event.
            await asyncio.wait([self._writer])

    async def _tell_end(self) -> None:
        # The client resumes the stream, instead of waiting for an event that was dropped.
        with suppress(Exception):  # it has left
            send = self._send or await self._request.begin(HEADERS)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _hand_on(self) -> None:
        # Write the waiting data, and complete the response if the stream is ending.
        if self._send is None:
            self._send = await self._request.begin(HEADERS)

        while True:
            # Even without data: some servers send the head only with the first part of the body.
            body = b"".join(self._waiting) if len(self._waiting) != 1 else self._waiting[0]
            self._waiting.clear()
            is_last = self._is_ending
            if len(body) > _PIECE_BYTES:
                body = await self._send_pieces(body)
            await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

            # Data counts as waiting until the server has taken it.
            self._taken(sum(map(len, self._waiting)))
            if is_last:
                self.is_open = False
                return
            if not (self._waiting or self._is_ending):
                return

    async def _send_pieces(self, body: bytes) -> bytes:
        # Send all but the last piece of a large body: an ASGI server does not report how much of a piece was taken.
        assert self._send is not None
        last = (len(body) - 1) // _PIECE_BYTES * _PIECE_BYTES
        for start in range(0, last, _PIECE_BYTES):
            piece = body[start : start + _PIECE_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            self._taken(len(body) - start - len(piece) + sum(map(len, self._waiting)))
        return body[last:]
