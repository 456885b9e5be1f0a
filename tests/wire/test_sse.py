"""Frames as server-sent events."""

from __future__ import annotations

from hypothesis import given, strategies as st

from mcpd.protocol.wire.sse import KEEP_ALIVE, event, events, numbered, priming


def test_one_message_is_one_event_with_one_line() -> None:
    assert event(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert event(b'{"a":1}', b"3-7") == b'id: 3-7\ndata: {"a":1}\n\n'
    assert event(b'{"a":\n1}\r\n') == b'data: {"a": 1}  \n\n'


@given(st.lists(st.text("a\n\r :", max_size=5).map(str.encode), min_size=1, max_size=5))
def test_many_at_once_are_as_one_by_one(frames: list[bytes]) -> None:
    assert events(frames) == b"".join(map(event, frames))


@given(st.lists(st.text("a\n\r :", max_size=5).map(str.encode), min_size=1, max_size=5), st.integers(1, 100))
def test_many_with_ids_are_as_one_by_one(frames: list[bytes], first: int) -> None:
    one_by_one = [event(frame, b"n.7-%d" % number) for number, frame in enumerate(frames, first)]
    has_break = any(b"\n" in frame or b"\r" in frame for frame in frames)
    assert numbered(frames, b"n.7-", first) == (None if has_break else b"".join(one_by_one))


def test_a_stream_is_primed_with_an_empty_event() -> None:
    """2025-11-25 basic/transports: an event id and an empty data field, and when to come back."""
    assert priming(b"1-1", 500) == b"id: 1-1\nretry: 500\ndata: \n\n"


def test_a_comment_is_no_event() -> None:
    assert KEEP_ALIVE.startswith(b":")
    assert KEEP_ALIVE.endswith(b"\n\n")
