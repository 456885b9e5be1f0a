"""Compact JWSs: their parts, and the check of their signatures with joserfc. Spec: RFC 7515 sections 3.1 and 5.2.

Callers check the header before the signature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from mcpd.auth.compact import bytes_in

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
