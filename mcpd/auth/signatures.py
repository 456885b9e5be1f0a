"""Compact JWSs: their parts, and the check of their signatures with joserfc. Spec: RFC 7515 sections 3.1 and 5.2.

Callers check the header before the signature.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from msgspec import DecodeError
from msgspec.json import decode

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# From base64url to base64, and from all else, the signs of plain base64 among it, to what is neither.
_TO_BASE64 = bytes(code if code in _ALPHABET else {45: 43, 95: 47}.get(code, 33) for code in range(256))
_PADDING = (b"", b"===", b"==", b"=")


def segments_of(text: str) -> tuple[str, str, str] | None:
    """Header, payload and signature; None for what is no compact JWS. What is in them `bytes_in` looks at."""
    parts = text.split(".", 3)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


def bytes_in(segment: str) -> bytes | None:
    """What a segment holds; None if it is no base64url."""
    try:
        data = segment.encode("ascii").translate(_TO_BASE64)
        return a2b_base64(data + _PADDING[len(data) % 4], strict_mode=True)
    except ValueError:
        return None


def object_in(segment: str) -> dict[str, Any] | None:
    """The JSON object that a segment is; None if it is none."""
    data = bytes_in(segment)
    if data is None:
        return None
    try:
        found = decode(data)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


SignatureCheck: TypeAlias = Callable[[bytes, bytes], bool]
"""Takes the signed bytes and the signature, and returns whether the key made it. Does not raise."""


def signature_check(key: Any, alg: str) -> SignatureCheck | None:
    """Return a function that checks signatures of a key with an algorithm, or None if the key does not fit."""
    from joserfc.jws import JWSRegistry  # loaded with the first token

    model = JWSRegistry.algorithms.get(alg)
    if model is None:
        return None
    try:
        model.check_key(key)
    except Exception:  # keys come from anybody, and the library raises errors of many classes
        return None
    return partial(_is_of, model.verify, key)


def is_signed(parts: tuple[str, str, str], key: Any, alg: str) -> bool:
    """Whether this key signed header and payload with this algorithm. `crit` must have been looked at before."""
    signature, check = bytes_in(parts[2]), signature_check(key, alg)
    return signature is not None and check is not None and check(f"{parts[0]}.{parts[1]}".encode(), signature)


def _is_of(verify: Callable[[bytes, bytes, Any], bool], key: Any, signed: bytes, signature: bytes) -> bool:
    try:
        return bool(verify(signed, signature, key))
    except Exception:  # of whatever class: of a signature that anybody wrote
        return False


def is_sound(given: Mapping[str, Any], most_bits: int) -> bool:
    """Whether an RSA key has 2,048 bits or more, not more than that, and no exponent that checks nothing."""
    numbers = []
    for name, most in (("n", 2048), ("e", 16)):
        text = given.get(name)
        data = bytes_in(text.rstrip("=")) if isinstance(text, str) and len(text) <= most else None
        if data is None:
            return False
        numbers.append(int.from_bytes(data, "big"))
    n, e = numbers
    return 2048 <= n.bit_length() <= most_bits and e >= 3 and e % 2 == 1
