"""A request whose head came before on its connection, byte for byte: it is not parsed again, and answered by less.

A client writes the same head with each call to a tool, but for the length of the body, and finds a third of what its
call costs in reading it. So a connection keeps the bytes of the last head that the parser has read, apart from the
digits of its `Content-Length`, and what the parser found in them. Where the next bytes are the same ones, with digits,
and as much behind them as these say, the parser would find the same again: its result depends on nothing else while
no other request is being read. What is different in a single byte, comes in pieces, or has more behind it, it reads.

Nothing is kept of a head that says more than where its body ends and what it means: of one that is answered before
its body comes, ends the connection, or wishes for another protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from .request import SAME_HEAD, WHOLE_BODY

__all__ = ["ANSWERED", "Flow", "KnownHead", "WholeCycle"]

_LENGTH = b"content-length"
_MOST_DIGITS = 9
_LONGEST = 4096
"""Of a longer head nothing is kept: each connection that waits would hold as much."""


class KnownHead:
    """What one head was, and where its digits stood."""

    __slots__ = ("__weakref__", "_after", "_before", "_headers", "_place", "_scope")

    def __init__(self, before: bytes, after: bytes, scope: dict[str, Any], headers: list[tuple[bytes, bytes]]) -> None:
        self._before = before
        self._after = after
        self._scope = scope
        self._headers = headers
        self._place = [name for name, _ in headers].index(_LENGTH)

    @classmethod
    def learn(cls, data: bytes, scope: Mapping[str, Any], most_bytes: int = _LONGEST) -> KnownHead | None:
        """Of a request that was just read, all of which is `data`; None if it is not to be kept, or not as simple.

        The caller has looked that the connection stays, and that this is HTTP/1.1. `most_bytes` is what a head may
        have: this one has to fit with more digits, too.
        """
        end = data.find(b"\r\n\r\n", 0, max(0, min(_LONGEST, most_bytes - _MOST_DIGITS)))
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        lengths = [value for name, value in headers if name == _LENGTH]
        if end < 0 or len(lengths) != 1 or scope["method"] != "POST":
            return None

        # The name stands there once, so it is that header's; and its value as the parser has it, so nothing is folded.
        head = data[:end].lower()
        line = head.find(b"\r\n" + _LENGTH + b": ")
        start = line + len(_LENGTH) + 4
        digits = lengths[0]
        is_plain = line >= 0 and digits.isdigit() and len(digits) <= _MOST_DIGITS and head.count(_LENGTH) == 1
        stop = start + len(digits)
        if not is_plain or data[start : stop + 2] != digits + b"\r\n" or len(data) - end - 4 != int(digits):
            return None
        kept = {**scope, "client": None, "server": None, "state": None, SAME_HEAD: {}}
        return cls(data[:start], data[stop : end + 4], kept, headers.copy())

    @property
    def key(self) -> tuple[bytes, bytes]:
        """What it is known by: another one with the same is as this."""
        return self._before, self._after

    def share(self, scope: Any) -> None:
        """Have the scope of a request with the same head be of these objects; its length stays its own."""
        for name in ("asgi", "path", "query_string", "raw_path"):
            scope[name] = self._scope[name]
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        length = headers[self._place]
        headers[:] = self._headers
        headers[self._place] = length

    def read(self, data: bytes) -> dict[str, Any] | None:
        """The scope, with the body, of a request that has this head and is whole; None if the parser has to read it.

        Whose connection it is, and its state, are the caller's to fill in.
        """
        before, after = self._before, self._after
        start = len(before)
        stop = data.find(b"\r", start, start + _MOST_DIGITS + 1)
        if stop < 0 or not data.startswith(before) or not data.startswith(after, stop):
            return None
        digits = data[start:stop]
        begin = stop + len(after)
        if not digits.isdigit() or len(data) - begin != int(digits):
            return None

        scope = self._scope.copy()
        scope["headers"] = headers = self._headers.copy()
        headers[self._place] = (_LENGTH, digits)
        scope[WHOLE_BODY] = data[begin:]
        return scope


class WholeCycle(RequestResponseCycle):
    """The answer to a request all of which is here: uvicorn's, without what is made for others, such as an event."""

    logger = logging.getLogger("uvicorn.error")
    access_log = False
    disconnected = False
    waiting_for_100_continue = False
    more_body = False
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    body = b""  # type: ignore[assignment]

    def __init__(
        self,
        scope: Any,
        transport: Any,
        flow: Any,
        default_headers: list[tuple[bytes, bytes]],
        on_response: Callable[[], None],
        keep_alive: bool,
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.default_headers = default_headers
        self.on_response = on_response
        self.keep_alive = keep_alive

    @cached_property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]
        """Set when the client leaves, for who waits for that; made when somebody does."""
        return asyncio.Event()

    async def receive(self) -> Any:
        """The body, unless somebody took it from the scope; then what becomes of the connection."""
        scope: Any = self.scope
        body = scope.pop(WHOLE_BODY, None)
        if body is None or self.disconnected:
            return await super().receive()
        return {"type": "http.request", "body": body, "more_body": False}


class Flow(FlowControl):
    """Uvicorn's, whose event is made when somebody waits: most connections are never behind."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False

    @cached_property
    def _is_writable_event(self) -> asyncio.Event:  # type: ignore[override]
        event = asyncio.Event()
        if not self.write_paused:
            event.set()
        return event


class _Answered(WholeCycle):
    """In the place of a request that was answered, on a connection that waits for its next one: all share it."""

    response_started = response_complete = True
    message_event = asyncio.Event()  # nobody waits on it


ANSWERED = _Answered({}, None, None, [], lambda: None, True)


def _lay_out() -> None:
    """Have a first object with all that an answer may set. CPython gives later ones a place for each attribute that an
    earlier one had, and those that set others a dict of their own (held by tests/http/test_waiting_memory.py)."""
    first = WholeCycle({}, None, None, [], lambda: None, True)
    first.response_started = first.response_complete = first.disconnected = first.chunked_encoding = False
    first.expected_content_length = 0
    first.message_event = ANSWERED.message_event


_lay_out()
