"""The settings that a parent hands to a worker, and the frames on the control socket between them.

To a worker: "hello" with the `Handover`, "stop" with whether a successor takes over, "look" to request its counters and
status, "all" with the sum over all workers. From a worker: "say" a line for people, "ready", "stopping", "seen" as the
response to "look", "ask" to request "all", and "last" before it ends.
"""

from __future__ import annotations

import socket
from typing import Any

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder, decode

from mcpd.server.backplane.shared_memory import Frame
from mcpd.server.observe.metrics import Family
from mcpd.server.observe.report import Status

VARIABLE = "_MCPD_WORKER"
"""The environment variable with the descriptor of a worker's control socket. No secret is in the environment."""


class Handover(Struct, frozen=True):
    """The settings of a worker. Descriptors are those that it inherits."""

    number: int
    """The worker's number, from 1."""
    count: int
    addresses: dict[str, str]
    """By option: http, ws, metrics."""
    sockets: dict[str, list[int]]
    backplane: int | None = None
    """The descriptor of the connection to the parent's memory; None if there is another backplane, or none."""
    state_key: str = ""
    """The secret that all workers share; empty if the environment has one."""
    ends_sockets: bool = False
    """Whether the parent has made the sockets of `http`, so that they end with it."""
    says: bool = False
    """Whether this worker prints the lines that every worker would print."""
    max_memory: int = 0
    """The worker's share of the memory limit, in bytes."""


class WorkerReport(Struct, frozen=True):
    """The metrics and status of a worker."""

    families: list[Family]
    status: Status | None = None
    late: float = 0.0
    """For how many seconds its event loop has been stuck."""


encode_body = Encoder().encode
_handover = Decoder(Handover)
_report = Decoder(WorkerReport)


def decode_handover(body: bytes) -> Handover:
    """Raises MsgspecError."""
    return _handover.decode(body)


def decode_report(body: bytes) -> WorkerReport:
    """Raises MsgspecError."""
    return _report.decode(body)


def read_frame(connected: socket.socket) -> Frame:
    """Wait for the next frame, and return it. Raises OSError, or EOFError at the end."""
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
