"""Values of a message in HTTP headers: how they are written and read. Both ends use this; it knows of no requests.

`Mcp-Name` and `Mcp-Param-*` carry plain ASCII as it is and everything else as `=?base64?…?=`.
Spec: 2026-07-28 basic/transports/streamable-http, value encoding.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64, b2a_base64
from typing import Any

_PREFIX, _SUFFIX = b"=?base64?", b"?="
_SAFE_INTEGER = 2**53 - 1
_is_visible = re.compile(rb"[\t\x20-\x7e]*").fullmatch
_is_plain = re.compile(rb"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?").fullmatch
_is_number = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?").fullmatch


def decode_value(raw: bytes) -> str:
    """The value that a header carries. Raises ValueError, with a text for the peer, for one that cannot be.

    Decoding is strict (S26-064, S26-065): two ends that read one header differently could be played against each other.
    """
    value = raw.strip(b" \t")
    if not _is_visible(value):
        raise ValueError("contains invalid characters")
    if not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value.decode("ascii")
    if len(value) < len(_PREFIX) + len(_SUFFIX):
        raise ValueError("is not valid Base64")  # the two markers share a character

    inner = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        data = a2b_base64(inner, strict_mode=True)
        text = data.decode()
    except Error:
        raise ValueError("is not valid Base64") from None
    except UnicodeDecodeError:
        raise ValueError("is not Base64 of UTF-8") from None

    if b2a_base64(data, newline=False) != inner:
        # Bits beyond the last byte: another spelling of the same value, which a second reader may not accept.
        raise ValueError("is not valid Base64")

    return text


def encode_value(value: str) -> bytes:
    """A value as a header carries it."""
    data = value.encode()
    if _is_plain(data) and not (data.startswith(_PREFIX) and data.endswith(_SUFFIX)):
        return data
    return _PREFIX + b2a_base64(data, newline=False) + _SUFFIX


def is_same(text: str, value: Any) -> bool:
    """Whether a decoded header says what the argument does; numbers are compared as numbers (`42.0` is 42)."""
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        # S26-078: beyond the safe range two readers of the same digits may see two numbers.
        if not -_SAFE_INTEGER <= value <= _SAFE_INTEGER or not _is_number(text):
            return False
        whole, _, rest = text.partition(".")
        return float(text) == value if rest.strip("0") else int(whole) == value
    return False
