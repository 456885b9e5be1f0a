"""The workers of this process: which of them run calls, which calls wait, and how a worker is ended.

Theory of operation. A `Pool` belongs to one target in one event loop. Its nursery forks a worker for each socket that
it receives, and reports how each one has ended; it also sends the signals, because it knows which processes it has
reaped. At most as many workers run calls as there are processors; further calls wait in order. A cancelled call leaves
its place at once: its worker gets SIGTERM, and one second later its process group SIGKILL. The end of the control
socket ends the nursery and all of its workers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from struct import Struct as Layout
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.json import encode

from mcpd.errors import ToolError
from mcpd.server.functions import Source
from mcpd.transports.child import ChildProcess
from .messages import HEAD_BYTES, ROOM_BYTES, FromWorker, ToWorker, frame_of, read_from_worker

Start: TypeAlias = Literal["fork", "spawn"]

# The time for which an idle worker is kept, and the number of calls that may wait for a worker.
IDLE_SECONDS = 60.0
MOST_WAITING = 64

# A record on the control socket: its kind, the number of the worker, and its process id or exit status.
RECORD = Layout("!cIi")
FORK, END, KILL, PID, ENDED = b"F", b"E", b"K", b"P", b"D"

BOOT = "import sys; sys.path[:] = sys.argv[3:]; from mcpd.server.processes.nursery import main; main()"

_READ_BYTES = 1 << 18
_END_SECONDS = 1.0
_POLL_SECONDS = 0.002


class Setup(Struct):
    """The target that a nursery, or a worker in a new interpreter, has to load."""

    loader: str
    arguments: dict[str, object]
    start: Start
    is_worker: bool = False

    def command(self, descriptor: int) -> list[str]:
        """Return the command line of the process."""
        return [sys.executable, "-c", BOOT, str(descriptor), encode(self).decode(), *sys.path]


class Worker:
    """A process that runs one call at a time."""

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.number = number
        # 0 until the nursery has reported the id.
        self.pid = 0
        self.calls = 0
        self.is_busy = True
        self.is_ending = False
        # Whether the place of the worker in the pool becomes free only when the worker has ended.
        self.holds_place = False
        self.leaving: asyncio.TimerHandle | None = None
        # The exit status; None if it is unknown.
        self.ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._socket = sock
        self._data = bytearray()
        self._sending = asyncio.Lock()

    async def send(self, message: ToWorker) -> None:
        """Send a message. Raises OSError."""
        frame = frame_of(message)
        async with self._sending:
            await asyncio.get_running_loop().sock_sendall(self._socket, frame)

    async def receive(self, most: int) -> FromWorker | None:
        """Return the next message; None at the end of the connection. Raises OSError; ValueError above `most` bytes."""
        data, loop = self._data, asyncio.get_running_loop()
        while True:
            if len(data) >= HEAD_BYTES:
                end = HEAD_BYTES + int.from_bytes(data[:HEAD_BYTES], "big")
                if end > most + ROOM_BYTES:
                    raise ValueError(f"a frame of {end} bytes")
                if len(data) >= end:
                    frame = bytes(memoryview(data)[HEAD_BYTES:end])
                    del data[:end]
                    return read_from_worker(frame)  # type: ignore[no-any-return]
            read = await loop.sock_recv(self._socket, _READ_BYTES)
            if not read:
                return None
            data += read

    def shut(self) -> None:
        """Shut the connection down, so that a call that still reads finds its end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket. The worker then ends, unless it runs a call."""
        if self.leaving is not None:
            self.leaving.cancel()
        self._socket.close()

    def resident_bytes(self) -> int:
        """Return the memory of the worker; 0 if it is unknown."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        except (OSError, ValueError, IndexError):
            return 0


class Pool:
    """The workers of one target. Made by `pool_of`."""

    def __init__(self, source: Source, start: Start) -> None:
        self.source, self.start = source, start
        self._loop = asyncio.get_running_loop()
        self._most = os.cpu_count() or 1
        self._numbers = count(1)
        self._control: socket.socket | None = None
        self._process: ChildProcess | None = None
        self._workers: dict[int, Worker] = {}
        self._idle: list[Worker] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._busy = 0
        self._ending = 0
        self._is_retired = False
        self._life: AsyncIterator[None] | None = None

    async def open(self) -> None:
        """Close the pool with the event loop, which closes generators that have not finished."""
        self._life = _until_closed(self)
        await anext(self._life)

    # -- places ------------------------------------------------------------------------------

    async def acquire(self, calls: int) -> Worker:
        """Return a worker that has run fewer than `calls` calls (0: any number).

        Raises ToolError if too many calls wait, OSError if no process can be started.
        """
        if self._busy < self._most and not self._waiting:
            self._busy += 1
        else:
            if len(self._waiting) >= MOST_WAITING:
                raise ToolError(f"The server is busy: {MOST_WAITING} calls wait for a process; try again later")
            turn = self._loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._leave_place()
                elif turn in self._waiting:
                    self._waiting.remove(turn)
                raise
        try:
            return self._take(calls)
        except BaseException:
            self._leave_place()
            raise

    def _take(self, calls: int) -> Worker:
        fit = [worker for worker in self._idle if not calls or worker.calls < calls]
        if fit:
            worker = fit[-1]
            self._idle.remove(worker)
            if worker.leaving is not None:
                worker.leaving.cancel()
            worker.is_busy = True
            return worker
        if self._idle and self._busy + len(self._idle) > self._most:
            self._dismiss(self._idle[0])
        return self._fork()

    def _leave_place(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy -= 1
        if self._is_retired and not self._busy:
            self.close()

    def release(self, worker: Worker, calls: int) -> None:
        """Take back a worker that has done its call."""
        worker.is_busy = False
        worker.calls += 1
        if worker.ended.done():
            worker.close()
        else:
            self._idle.append(worker)
            worker.leaving = self._loop.call_later(IDLE_SECONDS, self._dismiss, worker)
            if self._is_retired or (calls and worker.calls >= calls):
                self._dismiss(worker)
        self._leave_place()

    def _dismiss(self, worker: Worker) -> None:
        self._idle.remove(worker)
        worker.close()

    def kill(self, worker: Worker) -> None:
        """Kill a worker and its process group at once; the call finds the end of the connection."""
        self._tell(KILL, worker.number)

    def end(self, worker: Worker) -> None:
        """End a worker that has not done its call: SIGTERM, and one second later SIGKILL to its process group."""
        worker.is_busy = False
        if worker.ended.done():
            worker.close()
        else:
            worker.is_ending = True
            self._ending += 1
            self._tell(END, worker.number)
            # Cancelled calls must not start more and more processes.
            worker.holds_place = self._ending > self._most
        if not worker.holds_place:
            self._leave_place()

    # -- the nursery -------------------------------------------------------------------------

    def _fork(self) -> Worker:
        ours, its = socket.socketpair()
        number = next(self._numbers)
        ours.setblocking(False)
        try:
            if self._control is None:
                self._control = self._begin()
            socket.send_fds(self._control, [RECORD.pack(FORK, number, 0)], [its.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()

        worker = self._workers[number] = Worker(number, ours)
        return worker

    def _begin(self) -> socket.socket:
        ours, its = socket.socketpair()
        setup = Setup(self.source.loader, dict(self.source.arguments), self.start)
        try:
            self._process = ChildProcess(setup.command(its.fileno()), stdout=2, pass_fds=[its.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        ours.setblocking(False)
        self._loop.add_reader(ours, self._on_records, ours)
        return ours

    def _tell(self, what: bytes, number: int) -> None:
        if self._control is not None:
            with suppress(OSError):  # the nursery has ended, and its workers with it
                self._control.send(RECORD.pack(what, number, 0))

    def _on_records(self, control: socket.socket) -> None:
        try:
            data = control.recv(RECORD.size * 100)
            while len(data) % RECORD.size:
                data += control.recv(RECORD.size - len(data) % RECORD.size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for what, number, value in RECORD.iter_unpack(data):
            worker = self._workers.get(number)
            if worker is not None and what == PID:
                worker.pid = value
            elif worker is not None:
                self._on_ended(worker, value)
        if not data:
            self.forget_nursery()

    def _on_ended(self, worker: Worker, status: int | None) -> None:
        del self._workers[worker.number]
        worker.ended.set_result(status)
        if worker.is_busy:
            worker.shut()
            return
        if worker in self._idle:
            self._idle.remove(worker)
        worker.close()
        if worker.is_ending:
            self._ending -= 1
        if worker.holds_place:
            self._leave_place()

    def forget_nursery(self) -> None:
        """End the nursery and its workers. The next call starts another one."""
        control, self._control = self._control, None
        process, self._process = self._process, None
        if control is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(control)
            control.close()
        # A nursery without workers may still be importing the target, which can take long.
        is_quick = any(worker.pid for worker in self._workers.values())
        for worker in list(self._workers.values()):
            self._on_ended(worker, None)
        if process is not None:
            deadline = time.monotonic() + (_END_SECONDS if is_quick else 0)
            while process.returncode is None:
                if time.monotonic() > deadline:
                    process.kill()
                time.sleep(_POLL_SECONDS)

    def retire(self) -> None:
        """Take no more calls, and close when the running ones have ended."""
        self._is_retired = True
        for worker in list(self._idle):
            self._dismiss(worker)
        if not self._busy:
            self.close()

    def close(self) -> None:
        """End the nursery and all workers. Safe to call twice."""
        self._is_retired = True
        if self._control is not None:
            self.forget_nursery()


async def _until_closed(pool: Pool) -> AsyncIterator[None]:
    try:
        yield
    finally:
        pool.close()
        _pools.pop(pool._loop, None)


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[Source, Start], Pool]] = WeakKeyDictionary()


async def pool_of(source: Source, start: Start) -> Pool:
    """Return the pool of a target in this event loop. A pool of the same target, before a reload, is retired."""
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    pool = pools.get((source, start))
    if pool is not None:
        return pool

    for key, other in list(pools.items()):
        if other.start == start and (key[0].loader, key[0].arguments) == (source.loader, source.arguments):
            del pools[key]
            other.retire()
    pool = pools[source, start] = Pool(source, start)
    await pool.open()
    return pool
