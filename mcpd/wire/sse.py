"""Server-sent events: frames as events of an event stream, and nothing of connections.

One message is one event with one `data` line: readers that take a stream line by line find each message whole.
Spec: https://html.spec.whatwg.org/multipage/server-sent-events.html; 2025-11-25 basic/transports.
"""

from __future__ import annotations

from collections.abc import Sequence

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
