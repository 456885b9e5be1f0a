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
# Maps base64url to base64, and all other characters, including + and /, to an invalid one.
_TO_BASE64 = bytes(code if code in _ALPHABET else {45: 43, 95: 47}.get(code, 33) for code in range(256))
_PADDING = (b"", b"===", b"==", b"=")


def segments_of(text: str) -> tuple[str, str, str] | None:
    """Return header, payload and signature without decoding them, or None if the text is not a compact JWS."""
    parts = text.split(".", 3)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


def bytes_in(segment: str) -> bytes | None:
    """Return the bytes of a segment, or None if it is not base64url."""
    try:
        data = segment.encode("ascii").translate(_TO_BASE64)
        return a2b_base64(data + _PADDING[len(data) % 4], strict_mode=True)
    except ValueError:
        return None


def object_in(segment: str) -> dict[str, Any] | None:
    """Return the JSON object in a segment, or None."""
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
    """Return whether a key signed header and payload with an algorithm. The caller must have checked `crit`."""
    signature, check = bytes_in(parts[2]), signature_check(key, alg)
    return signature is not None and check is not None and check(f"{parts[0]}.{parts[1]}".encode(), signature)


def _is_of(verify: Callable[[bytes, bytes, Any], bool], key: Any, signed: bytes, signature: bytes) -> bool:
    try:
        return bool(verify(signed, signature, key))
    except Exception:  # signatures come from anybody, and the library raises errors of many classes
        return False


def is_sound(given: Mapping[str, Any], max_bits: int) -> bool:
    """Return whether an RSA key has 2,048 to `max_bits` bits and a safe exponent."""
    numbers = []
    for name, most in (("n", 2048), ("e", 16)):
        text = given.get(name)
        data = bytes_in(text.rstrip("=")) if isinstance(text, str) and len(text) <= most else None
        if data is None:
            return False
        numbers.append(int.from_bytes(data, "big"))
    n, e = numbers
    return 2048 <= n.bit_length() <= max_bits and e >= 3 and e % 2 == 1
