"""Frames between processes of one machine, over a connected pair of sockets: four bytes of length, then MessagePack.

No pickle: what is read becomes numbers, texts, bytes and lists, nothing else.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from msgspec import MsgspecError
from msgspec.msgpack import Decoder, Encoder

MOST_FRAME_BYTES = 80 * 1024 * 1024
"""More than the largest message that is taken over any transport."""

_HEAD_BYTES = 4

Frame: TypeAlias = tuple[int, str, Any]
"""A number, a word, and what belongs to it."""

_encode = Encoder().encode
_decode = Decoder(Frame).decode


def encode_frame(number: int, word: str, body: object) -> bytes:
    """A frame as bytes. Raises ValueError for one that is too large."""
    data = _encode((number, word, body))
    if len(data) > MOST_FRAME_BYTES:
        raise ValueError(f"a frame of {len(data)} bytes is too large")
    return len(data).to_bytes(_HEAD_BYTES, "big") + data


class FrameProtocol(asyncio.Protocol):
    """One end of a connection. `take` is given each frame, `lost` is told once that no more will come.

    A frame that cannot be read ends the connection.
    """

    def __init__(self, take: Callable[[int, str, Any], object], lost: Callable[[], object]) -> None:
        self.transport: asyncio.Transport | None = None
        self._take = take
        self._lost = lost
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        held = self._data
        held += data
        at = 0
        while len(held) - at >= _HEAD_BYTES:
            size = int.from_bytes(held[at : at + _HEAD_BYTES], "big")
            if size > MOST_FRAME_BYTES:
                self._abort()
                return
            end = at + _HEAD_BYTES + size
            if len(held) < end:
                break
            try:
                number, word, body = _decode(bytes(held[at + _HEAD_BYTES : end]))
            except (MsgspecError, RecursionError):  # the latter: nested deeper than anything of ours
                self._abort()
                return
            at = end
            self._take(number, word, body)
        del held[:at]

    def _abort(self) -> None:
        self._data.clear()
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.transport = None
        self._lost()


async def connect_frames(protocol: FrameProtocol, connected: socket.socket) -> None:
    """Let a protocol have one end of a pair of sockets, which is its own from now on. Raises OSError."""
    connected.setblocking(False)
    await asyncio.get_running_loop().create_unix_connection(lambda: protocol, sock=connected)
