"""The fork server: a process that has imported the target, has no other threads, and forks workers.

Workers therefore start within milliseconds and share the memory of the import. If importing the target starts threads,
forking is not safe: the server is notified, and starts new interpreters.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from select import POLLIN, poll
from typing import NoReturn

from msgspec import Raw

from mcpd import Context, SyncContext
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import RequestMeta
from mcpd.server.context import context_type
from mcpd.server.functions.signature import bind
from .callee import ProcessCallee
from .messages import ENDED, FORK, RECORD, Ready, RequestData, Run, frame_of
from .pool import END_SECONDS
from .worker import Worker, end_with_parent, serve

_ATTEMPTS = 10
_ATTEMPT_SECONDS = 0.005


class ForkServer:
    """Forks workers and reaps them, until the server closes the control socket.

    `problem` is why the target cannot be imported, or "".
    """

    def __init__(self, control: socket.socket, problem: str, *, must_fork: bool) -> None:
        self._control = control
        self._refusal: Ready | None = None
        if problem:
            self._refusal = Ready(problem=problem)
        elif not must_fork and _has_threads():
            self._refusal = Ready(has_threads=True)
        else:
            _rehearse()

        # The process ids of the workers by number.
        self._pids: dict[int, int] = {}
        # A signal writes to one end, which wakes `poll` at the other.
        self._woken, self._wakes = socket.socketpair()

    def run(self) -> NoReturn:
        """Work until the server has ended."""
        gc.collect()
        gc.freeze()
        # From now on, it reads the control socket, and ends the processes that its workers have started.
        end_with_parent(0)
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        waiting = poll()
        waiting.register(self._control, POLLIN)
        waiting.register(self._woken, POLLIN)
        with suppress(EOFError, OSError):
            while True:
                for descriptor, _ in waiting.poll():
                    if descriptor == self._control.fileno():
                        self._obey()
                self._reap()

        # The server has ended, and each worker has read that: it cancels its call.
        waiting.unregister(self._control)
        deadline = time.monotonic() + END_SECONDS
        while self._pids and (left := deadline - time.monotonic()) > 0:
            waiting.poll(left * 1000)
            self._reap()
        for pid in self._pids.values():
            _kill_group(pid)
        os._exit(0)

    def _obey(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, RECORD.size, 1)
        if not data:
            raise EOFError
        what, number, _ = RECORD.unpack(data)
        if what == FORK:
            with socket.socket(fileno=descriptors[0]) as sock:
                if self._refusal is None:
                    self._fork(number, sock)
                else:
                    sock.sendall(frame_of(self._refusal))
        elif number in self._pids:
            _kill_group(self._pids[number])

    def _fork(self, number: int, sock: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            logging.getLogger("mcpd").error("no process can be forked: %s", printable(error))
            self._control.sendall(RECORD.pack(ENDED, number, 1))
            return

        if pid == 0:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (self._control, self._woken, self._wakes):
                each.close()
            serve(sock)

        with suppress(OSError):  # the worker has done this itself, or has ended
            os.setpgid(pid, pid)
        self._pids[number] = pid

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(1024)
        for number, pid in list(self._pids.items()):
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                continue
            # Before the system can use the number again: processes that the worker started must not outlive it.
            _kill_group(pid)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            del self._pids[number]
            with suppress(OSError):  # the server has ended
                self._control.sendall(RECORD.pack(ENDED, number, code))


def _rehearse() -> None:
    # Run a call of each kind, so that the workers share what the first call imports and creates.
    async def later(ctx: Context) -> None:
        await ctx.progress(1)

    def now(ctx: SyncContext) -> None:
        ctx.progress(1)

    request = RequestData(0, "2026-07-28", "memory", meta=Raw(encode(RequestMeta(progress_token=0))))
    ours, its = socket.socketpair()
    with ours, its:
        worker = Worker(its)
        for function in (later, now):
            callee = ProcessCallee(bind(function, context_type=context_type), function.__name__)
            worker.done(Run(callee.key, Raw(b"{}"), 0, request))
        if worker.loop is not None:
            worker.loop.close()


def _kill_group(pid: int) -> None:
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)


def _has_threads() -> bool:
    # Whether there are other threads, including those that libraries started without Python.
    for handler in logging.getLogger().handlers:
        handler.flush()
    for _ in range(_ATTEMPTS):
        try:
            number = len(os.listdir("/proc/self/task"))
        except OSError:
            number = threading.active_count()
        if number == 1:
            return False
        time.sleep(_ATTEMPT_SECONDS)  # a thread that has done its work is about to end
    return True
