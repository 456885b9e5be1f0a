"""Compressed bodies, unpacked piece by piece: a bomb is met by whoever counts the pieces, before it is in memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from ...errors import ConnectionLost
from ...printable import printable

__all__ = ["inflating"]

_PIECE_BYTES = 64 * 1024


def inflating(encoding: str, name: str) -> Callable[[bytes], Iterator[bytes]] | None:
    """What unpacks a body of this `Content-Encoding`, from a chunk to its pieces; None for one that is not packed.

    Raises ConnectionLost for an encoding that was not asked for. What cannot be unpacked raises ValueError.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ConnectionLost(f"{name} answers in the encoding {printable(encoding, 40)!r}, which was not asked for")

    is_gzip = encoding != "deflate"
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16 if is_gzip else zlib.MAX_WBITS)
    has_begun = is_gzip

    def inflate(chunk: bytes) -> Iterator[bytes]:
        nonlocal unpacker, has_begun
        if not has_begun:
            has_begun = True
            # Both spellings of "deflate" are met: with the header of zlib, and without.
            if chunk[0] & 0x0F != 8:
                unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            while chunk and not unpacker.eof:
                if piece := unpacker.decompress(chunk, _PIECE_BYTES):
                    yield piece
                chunk = unpacker.unconsumed_tail
        except zlib.error as error:
            raise ValueError(f"the {encoding} body cannot be unpacked: {error}") from None

    return inflate
