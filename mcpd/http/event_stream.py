"""The HTTP response that carries an event stream; all that waits is written in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mcpd.http.outbox import Outbox
from mcpd.http.request import EVENT_STREAM, Header, HttpRequest, Send
from mcpd.protocol.wire.sse import KEEP_ALIVE

HEADERS: tuple[Header, ...] = (
    EVENT_STREAM,
    # no-transform: a proxy that compresses would hold events back. X-Accel-Buffering says the same to nginx.
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_PIECE_BYTES = 256 * 1024


class EventStreamResponse(Outbox):
    """The body of one answer. `close` is for a client that is gone, `end` for a stream that is complete."""

    __slots__ = ("_is_ending", "_request", "_send", "is_quiet")

    is_stream = True

    def __init__(self, request: HttpRequest, write_timeout: float = 0) -> None:
        super().__init__(request.peer, write_timeout)
        self._request = request
        self._send: Send | None = None
        self._is_ending = False
        self.is_quiet = False
        """Nothing was pushed since this was last set."""

    def push(self, data: bytes) -> None:
        """Queue the bytes of an event, or nothing to have the stream begin.

        A client that does not read its stream is disconnected; it can resume what it missed on another connection.
        """
        if self.is_open and not self._is_ending:
            self.is_quiet = False
            self._put(data)

    def keep_alive(self) -> None:
        """Push a comment if nothing else was pushed since the last time."""
        if self.is_quiet and not self._waiting:
            self.push(KEEP_ALIVE)
        self.is_quiet = True

    async def end(self, last: Iterable[bytes] = ()) -> None:
        """Write what waits and `last`, and complete the answer. Nothing can be pushed after it."""
        if self.is_open and not self._is_ending:
            self._waiting.extend(last)
            self._is_ending = True
            if self._writer is None:
                await self._write()
        if self._writer is not None:
            # Not cancelled with the task that waits here: the client would see half an event.
            await asyncio.wait([self._writer])

    async def _hand_on(self) -> None:
        """Hand on all that waits, then if the stream is ending complete it."""
        if self._send is None:
            self._send = await self._request.begin(HEADERS)

        while True:
            # Even if there is nothing yet: some servers hold the head back until something of the body comes.
            body = b"".join(self._waiting) if len(self._waiting) != 1 else self._waiting[0]
            self._waiting.clear()
            is_last = self._is_ending
            if len(body) > _PIECE_BYTES:
                body = await self._send_pieces(body)
            await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

            # What is being written counts as waiting until the server has taken it.
            self._taken(sum(map(len, self._waiting)))
            if is_last:
                self.is_open = False
                return
            if not (self._waiting or self._is_ending):
                return

    async def _send_pieces(self, body: bytes) -> bytes:
        """Send all but the last piece of a large body: an ASGI server does not tell how much of one piece was taken."""
        assert self._send is not None
        last = (len(body) - 1) // _PIECE_BYTES * _PIECE_BYTES
        for start in range(0, last, _PIECE_BYTES):
            piece = body[start : start + _PIECE_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            self._taken(len(body) - start - len(piece) + sum(map(len, self._waiting)))
        return body[last:]
