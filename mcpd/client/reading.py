"""What is read of a server's frame besides the message: whom a broken one would have answered, what may be kept."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct
from msgspec.json import Decoder

from mcpd.protocol.jsonrpc import ABSENT, MALFORMED, Id
from mcpd.protocol.wire.ndjson import answered_by


class _PlainResult(Struct, forbid_unknown_fields=True):
    """A `Response` that has nothing else in its message."""

    jsonrpc: Literal["2.0"]
    id: Id
    result: Raw


class _Bearer(Struct):
    """What can be read of a frame that is no message."""

    id: Id | None = None
    method: Raw = ABSENT


decode_result = Decoder(_PlainResult).decode
"""One frame as a plain result, for who mostly gets these. Raises MALFORMED for all else: for that there is
`jsonrpc.decode`."""
_read_bearer = Decoder(_Bearer).decode


def is_utf8(frame: bytes) -> bool:
    """Whether a frame is text as JSON has to be."""
    try:
        frame.decode()
    except UnicodeDecodeError:
        return False
    return True


def id_answered(frame: bytes | Raw) -> Id | None:
    """The id of a frame that is no call, however bad it is otherwise; None if it cannot be told."""
    try:
        found = _read_bearer(frame)
    except MALFORMED:
        return answered_by(bytes(frame))
    return found.id if found.method is ABSENT else None


def params_to_keep(params: Raw, frame: bytes) -> Raw:
    """Params as they may be kept: raw JSON is a part of its frame, which may have much besides."""
    if params is ABSENT:
        return Raw(b"{}")
    return params if 2 * len(params) > len(frame) else params.copy()
