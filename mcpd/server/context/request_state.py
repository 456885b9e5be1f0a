"""The sealed `requestState` of multi round-trip requests: authenticated, expiring, bound to one request of one caller.

The client can read it (it holds the client's own answers and what the tool chose to keep), but cannot
change it, use it for other parameters, or use another caller's. Spec: 2026-07-28 basic/patterns/mrtr, S26-084 to -087.
"""

from __future__ import annotations

import hmac
import time
from binascii import Error as Base64Error, a2b_base64, b2a_base64
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, Encoder

from mcpd.errors import InvalidParams


class RequestState(Struct, array_like=True):
    """What travels: when it ends (Unix seconds), the answers so far by key, and what the tool keeps."""

    expires: float
    answers: dict[str, Raw]
    kept: dict[str, Any]


class RequestStateCodec:
    """Seals states with the first of `keys`, and opens those of any; processes that share them share the rounds.

    `lifetime` is in seconds, from one round to the next.
    """

    def __init__(self, keys: Sequence[bytes], lifetime: float = 3600) -> None:
        self._keys = tuple(keys)
        self.lifetime = lifetime

    def seal(self, binding: bytes, answers: dict[str, Raw], kept: dict[str, Any]) -> str:
        """The state as the client gets it."""
        body = _encode(RequestState(time.time() + self.lifetime, answers, kept))
        return b2a_base64(_mac(self._keys[0], binding, body) + body, newline=False).decode()

    def open(self, binding: bytes, sealed: str) -> RequestState:
        """What was sealed. Raises InvalidParams if it was changed, is too old, or belongs to another request."""
        try:
            raw = a2b_base64(sealed, strict_mode=True)
            if b2a_base64(raw, newline=False) != sealed.encode():
                raise ValueError("its last character says more than it needs to")

            mac, body = raw[:32], raw[32:]
            if not any(hmac.compare_digest(mac, _mac(key, binding, body)) for key in self._keys):
                raise InvalidParams("requestState: not a state of this request; start again without it")

            state = _decode(body)
        except (ValueError, Base64Error, DecodeError):
            raise InvalidParams("requestState: not a state of this server; start again without it") from None
        if state.expires < time.time():
            raise InvalidParams("requestState: too old; start again without it")
        return state


def _mac(key: bytes, binding: bytes, body: bytes) -> bytes:
    return hmac.digest(key, sha256(binding).digest() + body, "sha256")


_encode = Encoder().encode
_decode = Decoder(RequestState).decode
