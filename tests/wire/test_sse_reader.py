"""Event streams as they are read, in whatever pieces they come, held against the standard's own words."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from mcpd.protocol.wire.sse import KEEP_ALIVE, SseEvent, SseReader, event, priming


def read(stream: bytes, *, most: int = 1 << 20, sizes: list[int] | None = None) -> tuple[list[SseEvent], SseReader]:
    reader = SseReader(most)
    found: list[SseEvent] = []
    for size in sizes or ():
        found += reader.feed(stream[:size])
        stream = stream[size:]
    found += reader.feed(stream)
    return found, reader


def by_the_book(stream: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The algorithm of the standard, whole stream at once: events with their names, and the last event id."""
    lines = re.split(b"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))[:-1]
    found, data, name, buffered, last = [], b"", b"", b"", b""
    for line in lines:
        if not line:
            last = buffered
            if data.removesuffix(b"\n"):
                found.append((name, data.removesuffix(b"\n")))
            data = name = b""
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data += value + b"\n"
        elif field == b"event":
            name = value
        elif field == b"id" and b"\0" not in value:
            buffered = value
    return found, last


LINES = st.sampled_from(
    [b"data: {}", b"data:", b"data", b"data: a", b"data:  b", b"id: 7", b"id", b"id: \0", b"event: endpoint", b": note",
     b":", b"retry: 500", b"retry: x", b"unknown: 1", b"", b"", b"\xff\xfe", b"data\xc3\xa4: no"]
)  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS)), st.lists(st.integers(0, 9), max_size=30), st.booleans())
def test_any_stream_in_any_pieces(lines: list[tuple[bytes, bytes]], sizes: list[int], has_mark: bool) -> None:
    stream = b"".join(line + end for line, end in lines)
    # A lone CR at the very end could still become CRLF: for the book it is a line end in any case.
    stream = (b"\xef\xbb\xbf" if has_mark else b"") + stream
    found, reader = read(stream, sizes=sizes)
    events, last = by_the_book(stream)
    assert [(one.name, one.data) for one in found] == events
    assert reader.last_id == last


@given(st.binary(max_size=300), st.lists(st.integers(1, 5), max_size=100))
def test_rubbish_is_read_the_same_in_any_pieces(stream: bytes, sizes: list[int]) -> None:
    assert read(stream, sizes=sizes)[0] == read(stream)[0]


def test_what_our_server_writes() -> None:
    stream = priming(b"1-0", 500) + KEEP_ALIVE + event(b'{"a":1}', b"1-1") + event(b'{"b":2}')
    found, reader = read(stream)
    assert [one.data for one in found] == [b'{"a":1}', b'{"b":2}']
    assert (reader.last_id, reader.retry_ms) == (b"1-1", 500)


def test_an_event_that_was_not_ended_is_none() -> None:
    found, reader = read(b"id: 5\ndata: half")
    assert (found, reader.last_id) == ([], b"")


def test_what_is_known_from_the_stream_before_is_kept() -> None:
    reader = SseReader(100, b"7", 250)
    assert reader.feed(b"data: x\n\n") == [SseEvent(b"x")]
    assert (reader.last_id, reader.retry_ms) == (b"7", 250)


@pytest.mark.parametrize(
    "stream",
    [b"data: " + b"x" * 200 + b"\n\n", b"data: " + b"x" * 60 + b"\ndata: " + b"y" * 60 + b"\n\n"],
    ids=["one line", "two lines"],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_event_with_too_much_data_is_left_out(stream: bytes, size: int) -> None:
    found, _ = read(stream + b"data: next\n\n", most=100, sizes=[size] * 50)
    assert found == [SseEvent(b"", is_oversized=True), SseEvent(b"next")]


@pytest.mark.parametrize("line", [b":", b"data: ", b"unknown: ", b"id: ", b"event: ", b""], ids=repr)
def test_a_line_without_end_takes_no_memory(line: bytes) -> None:
    reader = SseReader(100_000)
    reader.feed(line)
    piece = b"x" * 65536
    tracemalloc.start()
    try:
        found = [event for _ in range(100) for event in reader.feed(piece)]  # 6 MB
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    # That it is too much is told once, and not at its end, which need not come.
    assert found == ([SseEvent(b"", is_oversized=True)] if line == b"data: " else [])
    assert reader.feed(b"\n\ndata: next\n\n")[-1] == SseEvent(b"next")


def test_an_event_without_end_is_told_of_once() -> None:
    reader = SseReader(100)
    found = [event for _ in range(100) for event in reader.feed(b"data: " + b"x" * 60 + b"\n")]
    assert found == [SseEvent(b"", is_oversized=True)]
    assert reader.feed(b"\ndata: next\n\n") == [SseEvent(b"next")]


@pytest.mark.parametrize("line", [b": note\n", b"data:\n", b"retry: 1\n", b"id: 1\n", b"event: x\n\n"], ids=repr)
def test_lines_without_end_take_no_memory(line: bytes) -> None:
    reader = SseReader(100_000)
    piece = line * (65536 // len(line))
    tracemalloc.start()
    try:
        for _ in range(20):
            reader.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("value", "expected"), [(b"0", 0), (b"1500", 1500), (b"1.5", None), (b"-1", None), (b"9" * 40, None)]
)
def test_retry_is_digits(value: bytes, expected: int | None) -> None:
    assert read(b"retry: " + value + b"\n\n")[1].retry_ms == expected
