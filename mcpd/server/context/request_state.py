"""The sealed `requestState` of multi round-trip requests: authenticated, expiring, and bound to one caller's request.

The client can read it, since it holds the client's own answers and values that the tool keeps. It cannot change it, use
it for other parameters, or use another caller's state. Spec: 2026-07-28 basic/patterns/mrtr, S26-084 to -087.
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
    """The content: expiry (Unix seconds), the answers so far by key, and the values that the tool keeps."""

    expires: float
    answers: dict[str, Raw]
    kept: dict[str, Any]


class RequestStateCodec:
    """Seals states with the first of `keys` and opens states of all; processes that share keys share rounds.

    `lifetime` is the time from one round to the next in seconds.
    """

    def __init__(self, keys: Sequence[bytes], lifetime: float = 3600) -> None:
        self._keys = tuple(keys)
        self.lifetime = lifetime

    def seal(self, binding: bytes, answers: dict[str, Raw], kept: dict[str, Any]) -> str:
        """Return a sealed state for the client."""
        body = _encode(RequestState(time.time() + self.lifetime, answers, kept))
        return b2a_base64(_mac(self._keys[0], binding, body) + body, newline=False).decode()

    def tag(self, content: bytes) -> str:
        """Return 16 characters that prove that a server with these keys has seen `content`."""
        return hmac.digest(self._keys[0], b"tag\0" + content, "sha256").hex()[:16]

    def is_tag(self, tag: str, content: bytes) -> bool:
        """Return whether a server with one of these keys has made the tag of `content`."""
        made = (hmac.digest(key, b"tag\0" + content, "sha256").hex()[:16] for key in self._keys)
        return any(hmac.compare_digest(tag.encode(), one.encode()) for one in made)

    def open(self, binding: bytes, sealed: str) -> RequestState:
        """Return a sealed state. Raises InvalidParams if it was changed, has expired, or belongs to another request."""
        try:
            raw = a2b_base64(sealed, strict_mode=True)
            if b2a_base64(raw, newline=False) != sealed.encode():
                raise ValueError("its last character has unused bits")

            mac, body = raw[:32], raw[32:]
            if not any(hmac.compare_digest(mac, _mac(key, binding, body)) for key in self._keys):
                raise InvalidParams("requestState: not a state of this request; send the request again without it")

            state = _decode(body)
        except (ValueError, Base64Error, DecodeError):
            raise InvalidParams("requestState: not a state of this server; send the request again without it") from None
        if state.expires < time.time():
            raise InvalidParams("requestState: expired; send the request again without it")
        return state


def _mac(key: bytes, binding: bytes, body: bytes) -> bytes:
    return hmac.digest(key, sha256(binding).digest() + body, "sha256")


_encode = Encoder().encode
_decode = Decoder(RequestState).decode
