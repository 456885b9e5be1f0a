"""Server-sent events, read: bytes of an event stream as events, in bounded memory, and nothing of connections.

Spec: https://html.spec.whatwg.org/multipage/server-sent-events.html, parsing and interpreting an event stream.
"""

from __future__ import annotations

import re

from msgspec import Struct

_BOM = b"\xef\xbb\xbf"
_COLON = 0x3A
_LONGEST_ID = 4096
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LONGEST_NAME = 256
_LONGEST_RETRY = 15
_HEAD_BYTES = 8
"""Of a line that is not kept so much is: it tells which field it is."""


class SseEvent(Struct):
    """One event with data. `is_torn`: it has more data than is taken, told once that is known; `data` is empty."""

    data: bytes
    name: bytes = b""
    is_torn: bool = False


class SseReader:
    """Takes the bytes of one stream as they come. Of one event `max_bytes` of data are kept.

    Comments, unknown fields and lines without end take no memory.
    """

    __slots__ = ("_ends_with_cr", "_has_begun", "_id", "_is_told", "_is_torn", "_line", "_line_bytes", "_max", "_more",
                 "_name", "_one", "last_id", "retry_ms")  # fmt: skip

    def __init__(self, max_bytes: int, last_id: bytes = b"", retry_ms: int | None = None) -> None:
        self.last_id = last_id
        """Where the stream can be resumed; empty if it cannot."""
        self.retry_ms = retry_ms
        """How long to wait before that, if the server said so."""

        self._max = max_bytes
        self._has_begun = False
        self._ends_with_cr = False
        self._line: list[bytes] = []
        """The pieces of a line that has not ended."""
        self._line_bytes = 0

        self._name = b""
        self._id = last_id
        self._one: bytes | None = None
        """The data of the event that is read, while it is one line."""
        self._more: bytearray | None = None
        """The same, once it is several."""
        self._is_torn = False
        self._is_told = False
        """Whether that the event is torn was told before its end, which may never come."""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that are complete with this piece of the stream."""
        if self._ends_with_cr and chunk:
            self._ends_with_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._ends_with_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

        first, *others = chunk.split(b"\n")
        if first:
            self._keep(first)
        events: list[SseEvent] = []
        if not others:
            self._tell_of_tearing(events)
            return events

        self._take(b"".join(self._line), events)
        self._line, self._line_bytes = [], 0
        rest = others.pop()
        for line in others:
            self._take(line, events)
        if rest:
            self._keep(rest)
        self._tell_of_tearing(events)
        return events

    def _tell_of_tearing(self, events: list[SseEvent]) -> None:
        """The event that is read is too large already: whoever waits for it need not wait for its end."""
        if self._is_torn and not self._is_told:
            self._is_told = True
            events.append(SseEvent(b"", self._name, is_torn=True))

    def _keep(self, piece: bytes) -> None:
        """A piece of a line: all of it while it may become data, else only what tells which field it is."""
        if self._line_bytes > self._max:
            return

        self._line.append(piece)
        self._line_bytes += len(piece)
        if self._line_bytes > self._max or len(self._line) > 1000:
            whole = b"".join(self._line)
            if self._line_bytes > self._max and _is_data(whole):
                self._is_torn = True
            self._line = [whole[:_HEAD_BYTES] if self._line_bytes > self._max else whole]
        elif self._line[0][0] == _COLON:
            self._line, self._line_bytes = [b":"], 1

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
        """One line."""
        if not self._has_begun:
            self._has_begun = True
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return

        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            self._add(value)
        elif field == b"id":
            if b"\0" not in value and len(value) <= _LONGEST_ID:
                # It goes back in a header field, which takes no control characters.
                self._id = b"" if _CONTROLS.search(value) else value
        elif field == b"event":
            self._name = value[:_LONGEST_NAME]
        elif field == b"retry" and value.isdigit() and len(value) <= _LONGEST_RETRY:
            self.retry_ms = int(value)

    def _add(self, value: bytes) -> None:
        """One line of data."""
        if self._one is None and self._more is None:
            self._one = value
            size = len(value)
        else:
            if self._more is None:
                self._more = bytearray(self._one or b"")
                self._one = None
            self._more += b"\n"
            self._more += value
            size = len(self._more)
        if size > self._max:
            self._is_torn = True
        if self._is_torn:
            self._one, self._more = b"", None

    def _dispatch(self, events: list[SseEvent]) -> None:
        """The end of an event: one without data only says where the stream is."""
        self.last_id = self._id
        data = self._one if self._more is None else bytes(self._more)
        if (data or self._is_torn) and not self._is_told:
            events.append(SseEvent(data or b"", self._name, self._is_torn))
        self._one = self._more = None
        self._name = b""
        self._is_torn = self._is_told = False


def _is_data(line: bytes) -> bool:
    return line.removeprefix(_BOM).startswith((b"data:", b"data "))
