"""Starts workers. The server has a connection to each, and a way to kill it.

On Linux a fork server, which has imported the target, forks workers; a worker gets its socket through the fork server.
Otherwise, or if importing the target starts threads, each worker is a new interpreter. It connects to a port of this
machine, and sends a secret that it has read from its standard input, which works on every system.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hmac import compare_digest
from itertools import count
from secrets import token_hex
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.json import encode

from mcpd.server.functions import Source
from mcpd.transports.child import ChildProcess
from .messages import (
    FORK,
    HEAD_BYTES,
    KILL,
    RECORD,
    ROOM_BYTES,
    FromWorker,
    ToWorker,
    frame_of,
    read_from_worker,
)

# `auto` forks, unless importing the target starts threads.
Start: TypeAlias = Literal["auto", "fork", "spawn"]

_BOOT = "import sys; sys.path[:] = sys.argv[2:]; from mcpd.server.processes.loading import main; main()"
SECRET_BYTES = 64

_READ_BYTES = 1 << 18
_SECRET_SECONDS = 5.0


class Setup(Struct):
    """The target that a new interpreter loads. `address` is the descriptor of its socket, or the port to connect to."""

    loader: str
    arguments: dict[str, object]
    start: Start
    address: int

    def command(self) -> list[str]:
        """Return the command line of the process."""
        return [sys.executable, "-c", _BOOT, encode(self).decode(), *sys.path]


class Worker:
    """A process that runs one call at a time. `kill` kills it at once, together with its process group."""

    def __init__(self, sock: socket.socket, kill: Callable[[], None]) -> None:
        sock.setblocking(False)
        self.kill = kill
        self.pid = 0
        self.calls = 0
        # Whether a call has it, whether it starts or runs a function, and whether its place is free only when it has
        # ended.
        self.is_used = True
        self.is_running = True
        self.holds_place = False
        self.leaving: asyncio.TimerHandle | None = None
        # The exit code, negative for a signal; None if it is unknown.
        self.ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._socket = sock
        self._data = bytearray()
        self._sending = asyncio.Lock()

    async def send(self, message: ToWorker) -> None:
        """Send a message. Raises OSError."""
        frame = frame_of(message)
        async with self._sending:
            await asyncio.get_running_loop().sock_sendall(self._socket, frame)

    async def receive(self, most: int = 0) -> FromWorker | None:
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
        """Shut the connection down: the worker cancels its call and ends, and a call here finds the end."""
        if self.leaving is not None:
            self.leaving.cancel()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def resident_bytes(self) -> int:
        """Return the memory of the worker; 0 if it is unknown."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        except (OSError, ValueError, IndexError):
            return 0


def _end_of(process: ChildProcess) -> asyncio.Future[int | None]:
    # Return a future of the exit code. A thread waits for it, because only that works on every system.
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int | None] = loop.create_future()

    def wait() -> None:
        code = process.wait_blocking()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set_result, code)

    threading.Thread(target=wait, name=f"mcpd-wait-{process.pid}", daemon=True).start()
    return ended


# -- forking -----------------------------------------------------------------------------------


class ForkServer:
    """The connection to the fork server of a target. Raises OSError if that cannot be started."""

    def __init__(self, source: Source, start: Start) -> None:
        self._loop = asyncio.get_running_loop()
        self._control, its = socket.socketpair()
        self._control.setblocking(False)
        with its:
            setup = Setup(source.loader, dict(source.arguments), start, its.fileno())
            try:
                self.process = ChildProcess(setup.command(), stdout=2, pass_fds=[its.fileno()])
            except BaseException:
                self._control.close()
                raise

        self.ended = _end_of(self.process)
        self.is_closed = False
        self._numbers = count(1)
        # The workers that have not ended.
        self._workers: dict[int, Worker] = {}
        self._loop.add_reader(self._control, self._on_records)

    def fork(self) -> Worker:
        """Return a new worker, which is not ready yet. Raises OSError."""
        ours, its = socket.socketpair()
        number = next(self._numbers)
        with its:
            try:
                socket.send_fds(self._control, [RECORD.pack(FORK, number, 0)], [its.fileno()])
            except BaseException:
                ours.close()
                raise
        worker = self._workers[number] = Worker(ours, partial(self._kill, number))
        return worker

    def _kill(self, number: int) -> None:
        # The fork server sends the signal, because it knows which processes it has reaped.
        with suppress(OSError):  # it has ended, and its workers with it
            self._control.send(RECORD.pack(KILL, number, 0))

    def _on_records(self) -> None:
        try:
            data = self._control.recv(RECORD.size * 100)
            while len(data) % RECORD.size:
                data += self._control.recv(RECORD.size - len(data) % RECORD.size)
        except BlockingIOError:
            return
        except OSError:
            data = b""

        for _, number, code in RECORD.iter_unpack(data):
            self._workers.pop(number).ended.set_result(code)
        if not data:
            self.close()

    def close(self) -> None:
        """End the fork server and its workers. Safe to call twice."""
        if self.is_closed:
            return
        self.is_closed = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._control)
        self._control.close()
        if not any(worker.pid for worker in self._workers.values()):
            self.process.kill()  # it may still import the target, which can take long
        while self._workers:
            self._workers.popitem()[1].ended.set_result(None)


# -- new interpreters --------------------------------------------------------------------------


async def spawn(source: Source) -> Worker:
    """Return a new worker, which is not ready yet.

    Raises ConnectionError if its process ends at once, another OSError if it cannot be started.
    """
    secret = token_hex(SECRET_BYTES // 2).encode()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        setup = Setup(source.loader, dict(source.arguments), "spawn", listener.getsockname()[1])
        process = ChildProcess(setup.command(), stdin=subprocess.PIPE, stdout=2)
        ended = _end_of(process)
        try:
            with process.stdin:  # type: ignore[union-attr]
                process.stdin.write(secret)  # type: ignore[union-attr]
            sock = await _connection(listener, secret, ended)
        except BaseException:
            process.kill()
            raise

    worker = Worker(sock, process.kill)
    worker.ended = ended
    ended.add_done_callback(lambda _: process.kill())  # the processes that it has started
    return worker


async def _connection(listener: socket.socket, secret: bytes, ended: asyncio.Future[int | None]) -> socket.socket:
    # Wait until the process has connected, or has ended.
    loop = asyncio.get_running_loop()

    def give_up(_: object) -> None:
        limit.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as limit:
            ended.add_done_callback(give_up)
            while True:
                sock, _ = await loop.sock_accept(listener)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with suppress(OSError):
                    async with asyncio.timeout(_SECRET_SECONDS):
                        if compare_digest(await loop.sock_recv(sock, SECRET_BYTES), secret):
                            return sock
                sock.close()
    except TimeoutError:
        raise ConnectionError("it has ended while it started") from None
    finally:
        ended.remove_done_callback(give_up)
