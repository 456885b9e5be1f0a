"""Frames as server-sent events."""

from __future__ import annotations

from mcpd.protocol.wire.sse import KEEP_ALIVE, event, priming


def test_one_message_is_one_event_with_one_line() -> None:
    assert event(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert event(b'{"a":1}', b"3-7") == b'id: 3-7\ndata: {"a":1}\n\n'
    assert event(b'{"a":\n1}\r\n') == b'data: {"a": 1}  \n\n'


def test_a_stream_is_primed_with_an_empty_event() -> None:
    """2025-11-25 basic/transports: an event id and an empty data field, and when to come back."""
    assert priming(b"1-1", 500) == b"id: 1-1\nretry: 500\ndata: \n\n"


def test_a_comment_is_no_event() -> None:
    assert KEEP_ALIVE.startswith(b":")
    assert KEEP_ALIVE.endswith(b"\n\n")
