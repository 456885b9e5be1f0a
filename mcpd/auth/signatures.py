"""Signatures of compact JWSs, by the algorithms of joserfc. Their headers are judged before. Spec: RFC 7515 5.2.

The one that proofs are signed with, and most tokens, is asked of cryptography at once: joserfc's way to it costs a
fourth of the check itself (RFC 7518 3.4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc.jws import JWSRegistry
from joserfc.util import urlsafe_b64decode

from mcpd.auth.compact import bytes_in

_ES256 = JWSRegistry.algorithms["ES256"]
_ECDSA = ECDSA(SHA256())

SignatureCheck: TypeAlias = Callable[[bytes, bytes], bool]
"""(what is signed, the signature) -> whether the key signed it. Raises nothing."""


def signature_check(key: Any, alg: str) -> SignatureCheck | None:
    """What checks the signatures of this key with this algorithm; None if it is no key for it.

    Made once for a key that signs much: to find out what the key can do costs more than the rest around the check.
    """
    model = JWSRegistry.algorithms.get(alg)
    if model is None:
        return None
    try:
        model.check_key(key)
        if model is _ES256:
            return partial(_is_es256, key.get_op_key("verify").verify)
    except Exception:  # of whatever class: of a key that anybody wrote
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


def _is_es256(verify: Callable[[bytes, bytes, ECDSA], None], signed: bytes, signature: bytes) -> bool:
    """The signature is two numbers of 32 bytes."""
    if len(signature) != 64:
        return False
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    try:
        verify(encode_dss_signature(r, s), signed, _ECDSA)
    except Exception:  # InvalidSignature, or whatever else is found wrong with the numbers
        return False
    return True


def is_sound(given: Mapping[str, Any], most_bits: int) -> bool:
    """Whether an RSA key has 2,048 bits or more, not more than that, and no exponent that checks nothing."""
    numbers = []
    for name, most in (("n", 2048), ("e", 16)):
        text = given.get(name)
        if not isinstance(text, str) or not text.isascii() or len(text) > most:
            return False
        try:
            numbers.append(int.from_bytes(urlsafe_b64decode(text.encode()), "big"))
        except ValueError:
            return False
    n, e = numbers
    return 2048 <= n.bit_length() <= most_bits and e >= 3 and e % 2 == 1
