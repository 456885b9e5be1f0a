"""Server-sent events: frames as events of an event stream, and nothing of connections.

One message is one event with one `data` line: readers that take a stream line by line find each message whole.
Spec: https://html.spec.whatwg.org/multipage/server-sent-events.html; 2025-11-25 basic/transports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

KEEP_ALIVE = b":\n\n"
"""A comment: no event, but something to read for whoever closes connections that are silent."""


def event(frame: bytes, event_id: bytes = b"") -> bytes:
    """A frame as an event; with an id if the stream can be resumed after it."""
    if b"\n" in frame or b"\r" in frame:
        # Raw JSON that somebody else wrote: between its tokens a line break is no more than a space.
        frame = frame.replace(b"\r", b" ").replace(b"\n", b" ")
    if event_id:
        return b"id: %b\ndata: %b\n\n" % (event_id, frame)
    return b"data: %b\n\n" % frame


def events(frames: Sequence[bytes]) -> bytes:
    """One or more frames as events without ids, as `event` makes each of them."""
    if _has_break(frames):
        return b"".join(map(event, frames))
    return b"data: %b\n\n" % b"\n\ndata: ".join(frames)


def numbered(frames: Sequence[bytes], prefix: bytes, first: int) -> bytes | None:
    """Frames as events, as `event` makes each of them, with ids that end with numbers from `first` on.

    None if a frame has a line break.
    """
    if _has_break(frames):
        return None
    return b"".join([b"id: %b%d\ndata: %b\n\n" % (prefix, number, frame) for number, frame in enumerate(frames, first)])


def _has_break(frames: Sequence[bytes]) -> bool:
    """Whether there is a line break in one of them: looked for in all at once, as one search costs little more."""
    data = b"".join(frames)
    return b"\n" in data or b"\r" in data


def priming(event_id: bytes, retry_ms: int) -> bytes:
    """An event without data, so that a client can resume the stream before anything was said on it.

    `retry_ms` is how long it waits before it connects again. Spec: 2025-11-25 basic/transports, sending messages 6.
    """
    return b"id: %b\nretry: %d\ndata: \n\n" % (event_id, retry_ms)


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
