"""Signatures of compact JWSs, by the algorithms of joserfc. Their headers are judged before. Spec: RFC 7515 5.2.

The one that proofs are signed with, and most tokens, is asked of cryptography at once: joserfc's way to it costs a
fourth of the check itself (RFC 7518 3.4).
"""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc.jws import JWSRegistry

from .compact import bytes_in

__all__ = ["is_signed"]

_ES256 = JWSRegistry.algorithms["ES256"]
_ECDSA = ECDSA(SHA256())


def is_signed(parts: tuple[str, str, str], key: Any, alg: str) -> bool:
    """Whether this key signed header and payload with this algorithm. `crit` must have been looked at before."""
    model = JWSRegistry.algorithms.get(alg)
    signature = bytes_in(parts[2])
    if model is None or signature is None:
        return False
    signed = f"{parts[0]}.{parts[1]}".encode()
    try:
        model.check_key(key)
        if model is _ES256:
            return _is_es256(signed, signature, key.get_op_key("verify"))
        return bool(model.verify(signed, signature, key))
    except Exception:  # of whatever class: of a token that anybody wrote, or of a key that does not fit
        return False


def _is_es256(signed: bytes, signature: bytes, key: Any) -> bool:
    """Raises InvalidSignature if it is another's. The signature is two numbers of 32 bytes."""
    if len(signature) != 64:
        return False
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    key.verify(encode_dss_signature(r, s), signed, _ECDSA)
    return True
