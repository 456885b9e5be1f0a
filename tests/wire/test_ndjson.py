"""Cutting a byte stream into lines. Spec: 2026-07-28 basic/transports/stdio (S25-027, S26-046)."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import example, given, strategies as st

from mcpd.protocol.wire.ndjson import OversizedMessage, Splitter


def model(stream: bytes, limit: int) -> list[bytes | None]:
    """What the lines of a whole stream are."""
    *lines, last = stream.split(b"\n")
    found = [*lines, *([last] if last else [])]
    return [
        line if len(line) <= limit else None for line in found if len(line) > limit or (line and not line.isspace())
    ]


def cut(chunks: list[bytes], limit: int) -> list[bytes | None]:
    splitter = Splitter(limit)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [None if isinstance(line, OversizedMessage) else line for line in [*found, *splitter.end()]]


streams = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n", b" ", b"\r", b"d" * 9, b"", b"{}"]), max_size=30)


@given(streams, st.integers(1, 12))
@example([b"x" * 13, b"\n"], 12)
@example([b"x" * 12 + b"\n"], 12)
@example([b"x" * 13 + b"\n"], 12)
@example([b""], 1)
@example([b" " * 5], 3)
def test_lines_do_not_depend_on_where_the_stream_is_cut(chunks: list[bytes], limit: int) -> None:
    stream = b"".join(chunks)
    assert cut(chunks, limit) == model(stream, limit)
    assert cut([stream], limit) == model(stream, limit)
    assert cut([stream[at : at + 1] for at in range(len(stream))], limit) == model(stream, limit)


def test_each_line_comes_when_it_is_complete() -> None:
    splitter = Splitter(100)
    assert splitter.feed(b'{"a":') == []
    assert splitter.feed(b"1}\n{") == [b'{"a":1}']
    assert splitter.feed(b"}\n[]\n\n \r\nx") == [b"{}", b"[]"]
    assert splitter.end() == [b"x"]
    assert splitter.end() == []


def test_of_a_line_over_the_limit_come_its_ends_and_the_next_line_is_whole() -> None:
    splitter = Splitter(5)
    assert splitter.feed(b"123456") == []
    assert splitter.feed(b"7" * 1000) == []
    assert splitter.feed(b"8\n12345\n123456\n1\n") == [
        OversizedMessage(b"123456", b"7" * 511 + b"8"),
        b"12345",
        OversizedMessage(b"123456", b"123456"),
        b"1",
    ]
    splitter.feed(b"123456")
    assert splitter.end() == [OversizedMessage(b"123456", b"123456")]


@pytest.mark.medium
@given(st.binary(min_size=2000, max_size=6000).map(lambda line: line.replace(b"\n", b" ")), st.integers(1, 1500))
def test_the_ends_do_not_depend_on_where_a_line_is_cut(line: bytes, size: int) -> None:
    splitter = Splitter(1000)
    for at in range(0, len(line), size):
        assert splitter.feed(line[at : at + size]) == []
    assert splitter.feed(b"\nx\n") == [OversizedMessage(line[:512], line[-512:]), b"x"]


def test_of_an_overlong_line_little_is_kept() -> None:
    splitter = Splitter(10)
    for _ in range(10_000):
        splitter.feed(b"x" * 100)
        assert sum(map(len, splitter._tail)) < 70_000


@pytest.mark.parametrize(("size", "number"), [(1, 20_000), (4096, 2_000)])
def test_the_bytes_copied_are_linear_in_the_bytes(size: int, number: int) -> None:
    """However small the pieces are: a peer that sends byte by byte costs no more than its bytes."""
    splitter, chunk = Splitter(1 << 30), b"x" * size
    copied = 0
    tracemalloc.start()
    try:
        for _ in range(number):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            splitter.feed(chunk)
            copied += max(0, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    # A hundred bytes for the objects of each piece; to put them together each time would be `number` times as much.
    assert copied < number * (2 * size + 1000) < number * number * size / 8
    # Nor is what was looked at looked at again: it waits in the pieces in which it came.
    assert [len(part) for part in splitter._tail] == [size] * number
    assert splitter.feed(b"\n") == [b"x" * size * number]
