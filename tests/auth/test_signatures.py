"""What is read of a compact JWS before its signature was checked."""

from __future__ import annotations

import pytest

from mcpd.auth.signatures import bytes_in, object_in, segments_of


@pytest.mark.parametrize(
    ("segment", "data"),
    [("AA", b"\0"), ("AAA", b"\0\0"), ("AAAA", b"\0\0\0"), ("-_-_", b"\xfb\xff\xbf"), ("eyJhIjoxfQ", b'{"a":1}')],
)
def test_a_segment_is_base64url(segment: str, data: bytes) -> None:
    assert bytes_in(segment) == data


@pytest.mark.parametrize(
    "segment",
    ["A", "AAAAA", "AA=", "AA==", "AA+A", "AA/A", "AA!A", "AA A", "AAA\n", "\nAAAA", "AA\0A", "ÄAAA", "AA\udc80A"],
)
def test_what_is_no_base64url_is_nothing(segment: str) -> None:
    """Plain base64, padding and white space neither: H3."""
    assert bytes_in(segment) is None


def test_a_jws_has_three_segments() -> None:
    assert segments_of("a.b.c") == ("a", "b", "c")
    for text in ("", "a", "a.b", "a.b.", ".b.c", "a..c", "a.b.c.d", "a.b.c.d.e", "..."):
        assert segments_of(text) is None


def test_a_segment_that_is_no_object_is_none() -> None:
    assert object_in("eyJhIjoxfQ") == {"a": 1}
    assert object_in("W10") is None
    assert object_in("eyJh") is None
