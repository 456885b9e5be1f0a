"""Cutting a byte stream into lines. Spec: 2026-07-28 basic/transports/stdio (S25-027, S26-046)."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcpd.wire.ndjson import Splitter


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
    return found + splitter.end()


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


def test_a_line_over_the_limit_is_one_none_and_the_next_line_is_whole() -> None:
    splitter = Splitter(5)
    assert splitter.feed(b"123456") == []
    assert splitter.feed(b"7" * 1000) == []
    assert splitter.feed(b"8\n12345\n123456\n1\n") == [None, b"12345", None, b"1"]
    splitter.feed(b"123456")
    assert splitter.end() == [None]


def test_nothing_of_an_overlong_line_is_kept() -> None:
    splitter = Splitter(10)
    for _ in range(1000):
        splitter.feed(b"x" * 100)
    assert splitter._tail == []


@pytest.mark.parametrize("size", [1, 4096])
def test_the_time_is_linear_in_the_bytes(size: int) -> None:
    """However small the pieces are: a peer that sends byte by byte costs no more than its bytes."""

    def seconds(number: int) -> float:
        splitter, chunk = Splitter(1 << 30), b"x" * size
        began = time.perf_counter()
        for _ in range(number):
            splitter.feed(chunk)
        splitter.feed(b"\n")
        return time.perf_counter() - began

    few, many = min(seconds(2_000) for _ in range(3)), min(seconds(20_000) for _ in range(3))
    assert many < 40 * few
