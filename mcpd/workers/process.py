"""One worker, as its parent sees it: a process, its control socket, and what it said last."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Literal

from msgspec import MsgspecError
from msgspec.structs import replace

from mcpd.backplane.frames import FrameProtocol, connect_frames, encode_frame
from mcpd.backplane.shared_memory import SharedMemory
from mcpd.transports.child import ChildProcess
from mcpd.workers.handover import VARIABLE, Handover, Seen, decode_seen, encode_body

_SERIAL = count(1)
_LAST_SECONDS = 1.0
"""So long after a process's end what it has said is read."""


class Worker:
    """A worker in one place. `asked` is called with its number for what it wants to know of all; `said` with lines."""

    def __init__(self, number: int, said: Callable[[str], object], asked: Callable[[Worker, int], object]) -> None:
        self.number = number
        self.name = f"{number}.{next(_SERIAL)}"
        """No other worker ever has it; the system gives numbers of processes again."""
        self.pid = 0
        self.since = time.time()
        self.state: Literal["starting", "ready", "stopping"] = "starting"
        self.seen = Seen([])
        self.last: Seen | None = None
        """What it counted until its orderly end."""
        self.ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True once it serves, False if it has ended without."""
        self.code: int | None = None
        """How it ended; negative for a signal."""
        self.ended = asyncio.Event()
        """Nothing of it is left, and what it counted is in the sum."""
        self._said = said
        self._asked = asked
        self._control = FrameProtocol(self._take, self._lost)
        self._is_handed_over = False
        self._is_lost = asyncio.Event()
        self._looks: dict[int, asyncio.Future[Seen]] = {}
        self._look_number = 0
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
        """Start the process, and hand over to it. Raises OSError."""
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
            # Nothing may come first, not a look at it while it is being made either.
            self._is_handed_over = True
            self._send(0, "hello", encode_body(handover))
            if self.state == "stopping":
                self._send(0, "stop", False)
            # In a group of its own: Ctrl-C in a terminal is for the parent, which lets the workers end in order.
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
        """Until the process has ended, and all that it said is read; its exit code."""
        assert self._process is not None
        self.code = await self._process.wait()
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self._is_lost.wait()
        except TimeoutError:
            pass  # a child of its own has its end of the socket
        if self._control.transport is not None:
            self._control.transport.abort()
        if not self.ready.done():
            self.ready.set_result(False)
        return self.code

    @property
    def late(self) -> float:
        """For how many seconds its event loop has not turned, or, while it serves, nothing of it was heard at all: it
        is stopped, or something holds up all its threads. On any thread."""
        since = self._owes_since
        if since is None or self.state != "ready":
            return self.seen.late
        return max(self.seen.late, time.monotonic() - since)

    # -- what it is told ---------------------------------------------------------------------

    def stop(self, *, is_exchanged: bool = False) -> None:
        """Let it end: its calls get their time, and unless another one goes on in its place it takes in who waits to
        be connected. Only the first wish counts."""
        self.state = "stopping"
        self._send(0, "stop", is_exchanged)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        if self._process is not None and self.code is None:
            self._process.send_signal(number)

    async def look(self, seconds: float) -> Seen:
        """What it counts and does now; if it does not say within `seconds`, what it said last."""
        if not self._is_handed_over:
            return self.seen
        self._look_number += 1
        number = self._look_number

        answer = self._looks[number] = asyncio.get_running_loop().create_future()
        self._owes_since = self._owes_since or time.monotonic()
        self._send(number, "look", None)
        try:
            async with asyncio.timeout(seconds):
                self.seen = await answer
        except TimeoutError:
            pass
        finally:
            del self._looks[number]
        return self.seen

    def answer(self, number: int, whole: Seen) -> None:
        """What it wanted to know of all."""
        self._send(number, "all", encode_body(whole))

    def _send(self, number: int, word: str, body: object) -> None:
        if self._control.transport is not None and self._is_handed_over:
            self._control.transport.write(encode_frame(number, word, body))

    # -- what it says ------------------------------------------------------------------------

    def _take(self, number: int, word: str, body: Any) -> None:
        try:
            if word == "seen":
                self._owes_since = None
                answer = self._looks.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(decode_seen(body))
            elif word == "last":
                self.last = decode_seen(body)
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
            pass  # of another version of this program, which a reload has started

    def _lost(self) -> None:
        self._is_lost.set()
        for answer in self._looks.values():
            if not answer.done():
                answer.set_result(self.seen)
