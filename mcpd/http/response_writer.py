"""How an answer is written to an HTTP/1.1 connection: its head and its body in one write.

A write is a call of the system, the dearest part of an answer. `ResponseWriter` joins what uvicorn writes apart;
`answer_at_once` goes past uvicorn's `send`, whose two messages for an answer are a sixth of what a call costs.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Protocol

from .request import Header, Send

__all__ = ["ResponseWriter", "answer_at_once"]

_JOINED_BYTES = 64 * 1024
_STATUS_LINES = {status.value: f"{status.value} {status.phrase}".encode() for status in HTTPStatus}
_HEAD = b"HTTP/1.1 %b\r\ndate: %b\r\n%b: %b\r\ncontent-length: %d\r\n%b\r\n"


def answer_at_once(send: Send, status: int, kind: Header, body: bytes, lines: bytes = b"") -> bool:
    """Write a whole answer, as two messages to `send` would; False if it needs more than that, and nothing was done.

    It needs more if the connection ends with it, the client reads slowly or has left, or `send` is not uvicorn's own.
    `kind` and `lines`, more headers, are written as they are: nothing here looks for line breaks in them, as uvicorn
    would.
    """
    cycle: Any = getattr(send, "__self__", None)
    writer = getattr(cycle, "transport", None)
    line = _STATUS_LINES.get(status)
    if (
        writer.__class__ is not ResponseWriter
        or line is None
        or cycle.response_started
        or cycle.disconnected
        or not cycle.keep_alive
        or cycle.flow.write_paused
    ):
        return False

    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    ((_, date),) = cycle.default_headers
    head = _HEAD % (line, date, *kind, len(body), lines)
    writer.write_whole(head, body)

    # As uvicorn ends an answer: what waits for the client hears of it, and the next request may come.
    cycle.response_complete = True
    event = cycle.__dict__.get("message_event")
    if event is not None:  # else nobody ever waited
        event.set()
    cycle.on_response()
    return True


class _Lingering(Protocol):
    def linger(self) -> bool:
        """Whether the connection is closed later."""


class ResponseWriter:
    """A transport as uvicorn's answers see it: their head waits for their body, so that both leave in one write.

    Uvicorn writes them one after the other, and a write is a call of the system, the dearest part of an answer.
    """

    __slots__ = ("_head", "_is_next_a_head", "_protocol", "is_over", "transport")

    def __init__(self, transport: asyncio.Transport, protocol: _Lingering | None) -> None:
        self.transport = transport
        self._protocol = protocol
        self._head = b""
        self._is_next_a_head = True
        self.is_over = False
        """The last was written; what is still answered, to a request that came behind it, is for nobody."""

    def write(self, data: bytes) -> None:
        """Write, unless it is the head of an answer, which waits for its body."""
        if self.is_over:
            return
        if self._is_next_a_head:
            if data.startswith(b"HTTP/1.1 100"):
                self.transport.write(data)
            else:
                self._is_next_a_head = False
                self._head = data
        elif not self._head:
            self.transport.write(data)
        else:
            head, self._head = self._head, b""
            self.write_whole(head, data)

    def write_whole(self, head: bytes, body: bytes) -> None:
        """Write the head and the body of an answer, in one write if the body is not large."""
        if self.is_over:
            return
        if len(body) < _JOINED_BYTES:
            self.transport.write(head + body)
        else:  # a copy of it would cost more than a second write
            self.transport.write(head)
            self.transport.write(body)

    def complete(self) -> None:
        """An answer is complete: if it had no body its head goes now, and what comes next is a head."""
        if self._head:
            head, self._head = self._head, b""
            self.transport.write(head)
        self._is_next_a_head = True

    def close(self) -> None:
        """Close after what was written."""
        self.complete()
        if self._protocol is None or not self._protocol.linger():
            self.transport.close()

    def end(self) -> None:
        """The connection is gone: nothing is written any more."""
        self.is_over = True
        self._protocol = None  # it holds this: a circle would wait for the garbage collector

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)
