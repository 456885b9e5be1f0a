"""Server-sent events: frames as events of an event stream, and nothing of connections.

One message is one event with one `data` line: readers that take a stream line by line find each message whole.
Spec: https://html.spec.whatwg.org/multipage/server-sent-events.html; 2025-11-25 basic/transports.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["KEEP_ALIVE", "event", "events", "priming"]

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
    data = b"\n\ndata: ".join(frames)
    if data.count(b"\n") != 2 * (len(frames) - 1) or b"\r" in data:
        return b"".join(map(event, frames))
    return b"data: %b\n\n" % data


def priming(event_id: bytes, retry_ms: int) -> bytes:
    """An event without data, so that a client can resume the stream before anything was said on it.

    `retry_ms` is how long it waits before it connects again. Spec: 2025-11-25 basic/transports, sending messages 6.
    """
    return b"id: %b\nretry: %d\ndata: \n\n" % (event_id, retry_ms)
