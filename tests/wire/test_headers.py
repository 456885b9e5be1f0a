"""The value codec of `Mcp-Name` and `Mcp-Param-*`."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcpd.protocol.wire.headers import decode_value, encode_value, is_same


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", b"us-west1"),
        ("Hello, 世界", b"=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", b"=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", b"=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", b""),
        ("two words", b"two words"),
        ("=?base64?", b"=?base64?"),
        ("=?base64?=", b"=?base64?PT9iYXNlNjQ/PQ==?="),
        ("SGVsbG8=", b"SGVsbG8="),
        ("a\tb", b"=?base64?YQli?="),
    ],
)
def test_the_examples_of_the_specification_and_the_edges(value: str, header: bytes) -> None:
    """S26-064: 2026-07-28 streamable-http, value encoding."""
    assert encode_value(value) == header
    assert decode_value(header) == value


@given(st.text())
def test_what_is_encoded_is_decoded(value: str) -> None:
    header = encode_value(value)
    assert header.isascii()
    assert decode_value(header) == value
    assert decode_value(b" \t" + header + b"\t ") == value


@given(st.binary())
def test_decoding_gives_text_or_says_what_is_wrong(raw: bytes) -> None:
    """S26-065: and what it takes as Base64 has one spelling only."""
    try:
        value = decode_value(raw)
    except ValueError as error:
        assert str(error).startswith(("contains", "is not"))  # noqa: PT017 - whether it raises is the question
        return
    stripped = raw.strip(b" \t")
    if value.encode() != stripped:
        assert stripped == b"=?base64?" + base64.b64encode(value.encode()) + b"?="


@pytest.mark.parametrize(
    "header",
    [
        b"=?base64?SGVsbG8?=",
        b"=?base64?SGVsbG8==?=",
        b"=?base64?SGVs!!!bG8=?=",
        b"=?base64?SGVs bG8=?=",
        b"=?base64?SGVsbG9=?=",
        b"=?base64?=SGVsbG8?=",
        b"=?base64?=",
        b"=?base64?SGVs-_8=?=",
        b"=?base64?/w==?=",
        b"caf\xe9",
        "café".encode(),
        b"a\x00b",
        b"a\x7fb",
        b"a\nb",
    ],
)
def test_what_cannot_be_decoded(header: bytes) -> None:
    """S26-065: bad padding, alphabet or bits, no UTF-8, characters that no header has."""
    with pytest.raises(ValueError, match=r"^(contains invalid characters|is not (valid )?Base64)"):
        decode_value(header)


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("42", "42", True),
        ("42.0", "42", False),
        ("42", 42, True),
        ("42.0", 42, True),
        ("42.00", 42.0, True),
        ("42.5", 42.5, True),
        ("42.5", 42, False),
        ("-7", -7, True),
        ("+7", 7, False),
        ("007", 7, True),
        ("4e1", 40, False),
        ("４２", 42, False),
        ("4_2", 42, False),
        ("", 0, False),
        ("9007199254740991", 2**53 - 1, True),
        ("9007199254740992", 2**53, False),
        ("-9007199254740992", -(2**53), False),
        ("9" * 30, 10**30 - 1, False),
        ("true", True, True),
        ("false", False, True),
        ("True", True, False),
        ("1", True, False),
        ("null", None, False),
        ("[]", [], False),
    ],
)
def test_values_are_compared_as_what_they_are(text: str, value: Any, same: bool) -> None:
    """S26-066, S26-078."""
    assert is_same(text, value) is same
