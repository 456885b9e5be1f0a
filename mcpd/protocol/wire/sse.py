"""Server-sent events: writing frames as events, and reading the bytes of an event stream in bounded memory.

One message is written as one event with one `data` line, for readers that read line by line.
Spec: https://html.spec.whatwg.org/multipage/server-sent-events.html; 2025-11-25 basic/transports.
"""

from __future__ import annotations

import re

from msgspec import Struct

# A comment, sent so that proxies do not close a silent connection.
KEEP_ALIVE = b":\n\n"


def event(frame: bytes, event_id: bytes = b"") -> bytes:
    """Return a frame as an event, with an id if the stream can be resumed after it."""
    if b"\n" in frame or b"\r" in frame:
        # Raw JSON may contain line breaks between its tokens.
        frame = frame.replace(b"\r", b" ").replace(b"\n", b" ")
    if event_id:
        return b"id: %b\ndata: %b\n\n" % (event_id, frame)
    return b"data: %b\n\n" % frame


def priming(event_id: bytes, retry_ms: int) -> bytes:
    """Return an event without data, so that a client can resume the stream before the first message.

    `retry_ms` is the client's delay before it reconnects. Spec: 2025-11-25 basic/transports, sending messages 6.
    """
    return b"id: %b\nretry: %d\ndata: \n\n" % (event_id, retry_ms)


_BOM = b"\xef\xbb\xbf"
_COLON = 0x3A
_LONGEST_ID = 4096
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LONGEST_NAME = 256
_LONGEST_RETRY = 15
# The bytes kept of a line that is dropped, enough to see which field it is.
_HEAD_BYTES = 8


class SseEvent(Struct):
    """One event with data. `is_oversized` means that it has more data than the limit; then `data` is empty."""

    data: bytes
    name: bytes = b""
    is_oversized: bool = False


class SseReader:
    """Reads the bytes of one event stream in bounded memory.

    Args:
        max_bytes: The largest data of one event.
        last_id: The id of the last event before, if the stream was resumed.
        retry_ms: The reconnection delay that the server gave before, in milliseconds.
    """

    __slots__ = ("_data", "_ends_with_cr", "_has_begun", "_id", "_is_oversized", "_is_reported", "_line", "_line_bytes",
                 "_max", "_name", "last_id", "retry_ms")  # fmt: skip

    def __init__(self, max_bytes: int, last_id: bytes = b"", retry_ms: int | None = None) -> None:
        # The id after which the stream can be resumed; empty if it cannot.
        self.last_id = last_id
        # The reconnection delay that the server asked for, in milliseconds.
        self.retry_ms = retry_ms

        self._max = max_bytes
        self._has_begun = False
        self._ends_with_cr = False
        self._line: list[bytes] = []
        self._line_bytes = 0

        self._name = b""
        self._id = last_id
        self._data: bytearray | None = None
        self._is_oversized = False
        # Whether the current event was already returned as oversized.
        self._is_reported = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
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
            self._report_oversized(events)
            return events

        self._take(b"".join(self._line), events)
        self._line, self._line_bytes = [], 0
        rest = others.pop()
        for line in others:
            self._take(line, events)
        if rest:
            self._keep(rest)
        self._report_oversized(events)
        return events

    def _report_oversized(self, events: list[SseEvent]) -> None:
        # Return an oversized event at once: its end may never come.
        if self._is_oversized and not self._is_reported:
            self._is_reported = True
            events.append(SseEvent(b"", self._name, is_oversized=True))

    def _keep(self, piece: bytes) -> None:
        # A piece of a line is kept whole while it may become data; of other lines, only enough to recognize the field.
        if self._line_bytes > self._max:
            return

        self._line.append(piece)
        self._line_bytes += len(piece)
        if self._line_bytes > self._max or len(self._line) > 1000:
            whole = b"".join(self._line)
            if self._line_bytes > self._max and whole.removeprefix(_BOM).startswith((b"data:", b"data ")):
                self._is_oversized = True
            self._line = [whole[:_HEAD_BYTES] if self._line_bytes > self._max else whole]
        elif self._line[0][0] == _COLON:
            self._line, self._line_bytes = [b":"], 1

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
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
                # The id is sent back in a header, which cannot contain control characters.
                self._id = b"" if _CONTROLS.search(value) else value
        elif field == b"event":
            self._name = value[:_LONGEST_NAME]
        elif field == b"retry" and value.isdigit() and len(value) <= _LONGEST_RETRY:
            self.retry_ms = int(value)

    def _add(self, value: bytes) -> None:
        if self._data is None:
            self._data = bytearray(value)
        else:
            self._data += b"\n" + value
        self._is_oversized = self._is_oversized or len(self._data) > self._max
        if self._is_oversized:
            self._data.clear()

    def _dispatch(self, events: list[SseEvent]) -> None:
        # An event without data only sets the id.
        self.last_id = self._id
        if (self._data or self._is_oversized) and not self._is_reported:
            events.append(SseEvent(bytes(self._data or b""), self._name, self._is_oversized))
        self._data = None
        self._name = b""
        self._is_oversized = self._is_reported = False
