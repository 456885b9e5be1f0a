"""A worker as its parent sees it: a process, its control socket, and its latest metrics and status.

These frames pass the socket. To a worker: "hello" with the `Handover`, "stop" with whether a successor takes over,
"look" to request its counters and status, "all" with the sum over all workers. From a worker: "say" a line for people,
"ready", "stopping", "seen" as the response to "look", "ask" to request "all", and "last" before it ends.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Literal

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder, decode
from msgspec.structs import replace

from mcpd.server.backplane.shared_memory import Frame, FrameProtocol, SharedMemory, connect_frames, encode_frame
from mcpd.server.observe.metrics import Family
from mcpd.server.observe.report import Status
from mcpd.transports.child import ChildProcess

# The environment variable with the descriptor of a worker's control socket. No secret is in the environment.
VARIABLE = "_MCPD_WORKER"


class Handover(Struct, frozen=True):
    """The settings of a worker. Descriptors are those that it inherits."""

    # The worker's number, from 1.
    number: int
    count: int
    # By option: http, ws, metrics.
    addresses: dict[str, str]
    sockets: dict[str, list[int]]
    # The descriptor of the connection to the parent's memory; None if there is another backplane, or none.
    backplane: int | None = None
    # The secret that all workers share; empty if the environment has one.
    state_key: str = ""
    # Whether the parent has made the sockets of `http`, so that they end with it.
    ends_sockets: bool = False
    # Whether this worker prints the lines that every worker would print.
    says: bool = False
    # The worker's share of the memory limit, in bytes.
    max_memory: int = 0


class WorkerReport(Struct, frozen=True):
    families: list[Family]
    status: Status | None = None
    # For how many seconds its event loop has been stuck.
    late: float = 0.0


encode_body = Encoder().encode
decode_handover = Decoder(Handover).decode
decode_report = Decoder(WorkerReport).decode


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


_SERIAL = count(1)
# Seconds after a process's end in which its last frames are read.
_LAST_SECONDS = 1.0


class Worker:
    """A worker. `asked` is called with a request for the status of all workers, `said` with lines for people."""

    def __init__(self, number: int, said: Callable[[str], object], asked: Callable[[Worker, int], object]) -> None:
        self.number = number
        # A unique name. The system reuses process ids.
        self.name = f"{number}.{next(_SERIAL)}"
        self.pid = 0
        self.since = time.time()
        self.state: Literal["starting", "ready", "stopping"] = "starting"
        self.latest = WorkerReport([])
        # Its metrics at its orderly end.
        self.last: WorkerReport | None = None
        # True once it serves; False if it ended before that.
        self.ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        # Its exit code, negative for a signal.
        self.code: int | None = None
        # Set when nothing of it is left, and its metrics are in the sum.
        self.ended = asyncio.Event()
        self._said = said
        self._asked = asked
        self._control = FrameProtocol(self._on_frame, self._on_close)
        self._is_handed_over = False
        self._is_closed = asyncio.Event()
        self._polls: dict[int, asyncio.Future[WorkerReport]] = {}
        self._poll_number = 0
        self._owes_since: float | None = None
        self._process: ChildProcess | None = None

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        handover: Handover,
        sockets: Mapping[str, Sequence[socket.socket]],
        memory: SharedMemory | None,
    ) -> None:
        """Start the process, and send it the handover. Raises OSError."""
        ours, its = socket.socketpair()
        passed = [its]
        try:
            if memory is not None:
                end, its_end = socket.socketpair()
                passed.append(its_end)
                await memory.join(end)
                handover = replace(handover, backplane=its_end.fileno())
            descriptors = {name: [each.fileno() for each in found] for name, found in sockets.items()}
            handover = replace(handover, sockets=descriptors)

            await connect_frames(self._control, ours)
            # No other frame may come first, not even a poll while the process is being started.
            self._is_handed_over = True
            self._send(0, "hello", encode_body(handover))
            if self.state == "stopping":
                self._send(0, "stop", False)
            # In a group of its own: Ctrl-C in a terminal is for the parent, which ends the workers in order.
            self._process = ChildProcess(
                command,
                env={**environment, VARIABLE: str(its.fileno())},
                pass_fds=[each.fileno() for each in passed]
                + [each for found in descriptors.values() for each in found],
                new_session=False,
            )
        finally:
            for each in passed:
                each.close()

        self.pid = self._process.pid

    async def wait(self) -> int:
        """Wait until the process has ended and its last frames are read. Returns its exit code."""
        assert self._process is not None
        self.code = await self._process.wait()
        # A child of the worker may still hold the socket.
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await self._is_closed.wait()
        if self._control.transport is not None:
            self._control.transport.abort()
        if not self.ready.done():
            self.ready.set_result(False)
        return self.code

    @property
    def late(self) -> float:
        """How many seconds its event loop, or all of its threads, have been stuck. Safe to call on any thread."""
        since = self._owes_since
        if since is None or self.state != "ready":
            return self.latest.late
        return max(self.latest.late, time.monotonic() - since)

    def stop(self, *, is_exchanged: bool = False) -> None:
        """Stop the worker. Its calls may finish; unless a successor takes over (`is_exchanged`), it also serves the
        connections that still wait to be accepted. Only the first call counts.
        """
        self.state = "stopping"
        self._send(0, "stop", is_exchanged)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self._process is not None and self.code is None:
            self._process.send_signal(number)

    async def poll(self, seconds: float) -> WorkerReport:
        """Return its metrics and status; the previous ones if it does not respond within `seconds`."""
        if not self._is_handed_over:
            return self.latest
        self._poll_number += 1
        number = self._poll_number

        answer = self._polls[number] = asyncio.get_running_loop().create_future()
        self._owes_since = self._owes_since or time.monotonic()
        self._send(number, "look", None)
        try:
            async with asyncio.timeout(seconds):
                self.latest = await answer
        except TimeoutError:
            pass
        finally:
            del self._polls[number]
        return self.latest

    def answer(self, number: int, whole: WorkerReport) -> None:
        """Respond with the metrics and status of all workers."""
        self._send(number, "all", encode_body(whole))

    def _send(self, number: int, word: str, body: object) -> None:
        if self._control.transport is not None and self._is_handed_over:
            self._control.transport.write(encode_frame(number, word, body))

    def _on_frame(self, number: int, word: str, body: Any) -> None:
        try:
            if word == "seen":
                self._owes_since = None
                answer = self._polls.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(decode_report(body))
            elif word == "last":
                self.last = decode_report(body)
            elif word == "say":
                self._said(str(body))
            elif word == "ask":
                self._asked(self, number)
            elif word == "ready":
                if self.state == "starting":
                    self.state = "ready"
                if not self.ready.done():
                    self.ready.set_result(True)
            elif word == "stopping":
                self.state = "stopping"
        except (MsgspecError, TypeError):
            pass  # of another version of mcpd, which a reload has started

    def _on_close(self) -> None:
        self._is_closed.set()
        for answer in self._polls.values():
            if not answer.done():
                answer.set_result(self.latest)
