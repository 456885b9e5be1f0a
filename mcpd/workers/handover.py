"""What a parent hands to a worker, and the frames on the control sockets between them.

To a worker: "hello" with the `Handover`, "stop" with whether another one goes on in its place, "look" at what it counts
and does, "all" with what was asked of the parent. From a worker: "say" a line for people, "ready", "seen", "ask" for
the whole, "last".
"""

from __future__ import annotations

import socket
from typing import Any

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder, decode

from mcpd.backplane.frames import Frame
from mcpd.observe.families import Family
from mcpd.observe.status import Status

VARIABLE = "_MCPD_WORKER"
"""Names the descriptor of a worker's control socket. Nothing that is secret is in the environment."""


class Handover(Struct, frozen=True):
    """What makes a process a worker. Descriptors are those that it inherits."""

    number: int
    """Its place among the workers, from 1."""
    count: int
    addresses: dict[str, str]
    """By option: http, ws, metrics."""
    sockets: dict[str, list[int]]
    backplane: int | None = None
    """What leads to the parent's memory; None if another backplane was given, or none is needed."""
    state_key: str = ""
    """The secret of all workers; empty if the environment has one."""
    ends_sockets: bool = False
    """Whether the sockets of `http` are the parent's own: they end with it, and nobody else has them."""
    says: bool = False
    """Whether it says to people what every worker would say."""
    max_memory: int = 0
    """Its share, in bytes."""


class Seen(Struct, frozen=True):
    """What a worker counts and does."""

    families: list[Family]
    status: Status | None = None
    late: float = 0.0
    """For how many seconds its event loop owes an answer."""


encode_body = Encoder().encode
_handover = Decoder(Handover)
_seen = Decoder(Seen)


def decode_handover(body: bytes) -> Handover:
    """Raises MsgspecError."""
    return _handover.decode(body)


def decode_seen(body: bytes) -> Seen:
    """Raises MsgspecError."""
    return _seen.decode(body)


def read_frame(connected: socket.socket) -> Frame:
    """The next frame; waits for it. Raises OSError, EOFError at the end."""
    size = int.from_bytes(_read(connected, 4), "big")
    number, word, body = decode(_read(connected, size), type=tuple[int, str, Any])
    return number, word, body


def _read(connected: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connected.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
