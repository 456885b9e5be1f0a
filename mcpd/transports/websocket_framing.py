"""Text frames that are sent, built here: two to four bytes before the payload (RFC 6455 5.2), and a client's mask.

The library makes a `Frame` of each message, checks it, and writes it piece by piece into a buffer: 190 steps of the
interpreter, of 1,620 that a call takes, where these are 20. Nothing can change a whole text frame of less than 64 KiB
without extensions. What is longer, control frames and all that is received stay the library's;
`tests/transports/test_websocket_framing.py` holds these to its bytes.
"""

from __future__ import annotations

import os
from struct import Struct

try:
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover  # a platform for which nobody has built it
    from websockets.utils import apply_mask

__all__ = ["MOST_BYTES", "MaskedFrames", "text_frame"]

MOST_BYTES = 0xFFFF
"""The longest payload that frames are made of here."""

_TEXT = 0x81  # FIN, and the opcode 1
_MASKED = 0x80

_short = Struct("!BB").pack
_long = Struct("!BBH").pack

_KEY_BYTES = 4
_POOL_BYTES = 64 * _KEY_BYTES


def text_frame(payload: bytes) -> bytes:
    """A whole text frame as servers send it. The payload has at most `MOST_BYTES`."""
    size = len(payload)
    return (_short(_TEXT, size) if size < 126 else _long(_TEXT, 126, size)) + payload


class MaskedFrames:
    """The text frames of one client: each is masked with a key that nobody can foresee (RFC 6455 5.3, 10.3)."""

    __slots__ = ("_keys", "_used")

    def __init__(self) -> None:
        # As many keys as one call of the system gives for the price of one.
        self._keys = b""
        self._used = 0

    def text_frame(self, payload: bytes) -> bytes:
        """A whole text frame as clients send it. The payload has at most `MOST_BYTES`."""
        start = self._used
        if start >= len(self._keys):
            self._keys, start = os.urandom(_POOL_BYTES), 0

        self._used = end = start + _KEY_BYTES
        key = self._keys[start:end]

        size = len(payload)
        head = _short(_TEXT, _MASKED | size) if size < 126 else _long(_TEXT, _MASKED | 126, size)
        return head + key + apply_mask(payload, key)
