"""Short whole text frames, made and read here: two to four bytes before the payload (RFC 6455 5.2), and a mask.

The library makes a `Frame` of each message, checks it, and writes it piece by piece into a buffer: 190 steps of the
interpreter, of 1,620 that a call takes, where these are 20. To read one it steps four generators inside of each other:
440 steps, where these are 40. Nothing can change a whole text frame of less than 64 KiB without extensions.

All else stays the library's: what is longer, fragments, control frames, and whatever breaks a rule. So reading stops at
the first byte that does not begin such a frame, or whose frame has not come to its end, and what is left goes to the
library. That is right only while the library is between two messages: `begins_message` tells, by what its parser waits
for, and `can_tell_beginnings` makes sure that in this release of the library that is the truth.
`tests/transports/test_websocket_framing.py` holds both ways to the library's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from functools import cache
from struct import Struct

from websockets.protocol import SERVER, Protocol
from websockets.streams import StreamReader

try:
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover  # a platform for which nobody has built it
    from websockets.utils import apply_mask

__all__ = [
    "MOST_BYTES",
    "MaskedFrames",
    "begins_message",
    "can_tell_beginnings",
    "cut_masked",
    "cut_plain",
    "text_frame",
    "whole_masked",
]

MOST_BYTES = 0xFFFF
"""The longest payload of a frame that is made or read here."""

_TEXT = 0x81  # FIN, and the opcode 1
_MASKED = 0x80

_short = Struct("!BB").pack
_long = Struct("!BBH").pack
_short_masked = Struct("!BB4s").pack
_long_masked = Struct("!BBH4s").pack

_KEY_BYTES = 4
_POOL_BYTES = 64 * _KEY_BYTES
_keys = Struct("4s" * 64).unpack


def text_frame(payload: bytes) -> bytes:
    """A whole text frame as servers send it. The payload has at most `MOST_BYTES`."""
    size = len(payload)
    return (_short(_TEXT, size) if size < 126 else _long(_TEXT, 126, size)) + payload


class MaskedFrames:
    """The text frames of one client: each is masked with a key that nobody can foresee (RFC 6455 5.3, 10.3)."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: Iterator[bytes] = iter(())

    def text_frame(self, payload: bytes) -> bytes:
        """A whole text frame as clients send it. The payload has at most `MOST_BYTES`."""
        key = next(self._keys, None)
        if key is None:
            # As many keys as one call of the system gives for the price of one.
            self._keys = iter(_keys(os.urandom(_POOL_BYTES)))
            key = next(self._keys)

        size = len(payload)
        if size < 126:
            head = _short_masked(_TEXT, _MASKED | size, key)
        else:
            head = _long_masked(_TEXT, _MASKED | 126, size, key)
        return head + apply_mask(payload, key)


# -- reading -------------------------------------------------------------------------------------

_head = Struct("!HH").unpack_from
"""The first two bytes, and the next two, which are the length if these say so: in one step, as this is on every way."""

_SHORT_PLAIN, _LONG_PLAIN = _TEXT << 8, _TEXT << 8 | 126
_SHORT_MASKED, _LONG_MASKED = _SHORT_PLAIN | _MASKED, _LONG_PLAIN | _MASKED


def cut_masked(data: bytes, most: int, messages: list[bytes]) -> int:
    """Append the payloads of the whole text frames of a client that `data` begins with; how many bytes they took.

    A frame whose payload has more than `most` bytes is left, with all behind it.
    """
    at, end = 0, len(data)
    while end - at >= 6:
        head, size = _head(data, at)
        if head == _LONG_MASKED:
            start = at + 8
        else:
            size, start = head - _SHORT_MASKED, at + 6
            if not 0 <= size < 126:
                break

        stop = start + size
        if stop > end or size > most:
            break
        messages.append(apply_mask(data[start:stop], data[start - _KEY_BYTES : start]))
        at = stop
    return at


def whole_masked(data: bytes, most: int) -> bytes | None:
    """The payload, if `data` is one whole text frame of a client and nothing else; what `cut_masked` would append."""
    end = len(data)
    if end < 6:
        return None

    head, size = _head(data)
    if head == _LONG_MASKED:
        start = 8
    else:
        size, start = head - _SHORT_MASKED, 6
        if not 0 <= size < 126:
            return None

    if start + size != end or size > most:
        return None
    return apply_mask(data[start:], data[start - _KEY_BYTES : start])


def cut_plain(data: bytes, most: int, messages: list[bytes]) -> int:
    """As `cut_masked`, of a server; what has less than four bytes is left too, as no message of MCP has."""
    at, end = 0, len(data)
    while end - at >= 4:
        head, size = _head(data, at)
        if head == _LONG_PLAIN:
            start = at + 4
        else:
            size, start = head - _SHORT_PLAIN, at + 2
            if not 0 <= size < 126:
                break

        stop = start + size
        if stop > end or size > most:
            break
        messages.append(data[start:stop])
        at = stop
    return at


_BETWEEN_FRAMES = StreamReader.at_eof.__code__
_NO_SUCH = object()


def begins_message(protocol: Protocol) -> bool:
    """Whether the next byte is the first one of a message or of a control frame. Asked of a protocol that is open."""
    waits, inner = None, getattr(protocol, "parser", None)
    while inner is not None:  # a generator of a generator: a client's parser has one more around it
        waits, inner = inner, getattr(inner, "gi_yieldfrom", None)
    if getattr(waits, "gi_code", None) is not _BETWEEN_FRAMES:
        return False

    # How much has come of a message in fragments; the name until release 16 is the second one.
    size = getattr(protocol, "current_size", _NO_SUCH)
    return (getattr(protocol, "cur_size", _NO_SUCH) if size is _NO_SUCH else size) is None


@cache
def can_tell_beginnings() -> bool:
    """Whether `begins_message` is right with the installed library, which promises nothing of what it looks at."""
    silent = logging.Logger("", logging.CRITICAL)
    parts = b"\x01", b"\x80", b"\0\0\0\0", b"\x80\x81", b"\0\0\0\0", b"1"  # a message of two fragments
    try:
        protocol = Protocol(SERVER, logger=silent)
        told = [begins_message(protocol)]
        for part in parts:
            protocol.receive_data(part)
            told.append(begins_message(protocol))
    except Exception:  # another shape altogether
        return False
    return told == [True, *[False] * (len(parts) - 1), True]
