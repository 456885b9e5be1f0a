"""The nursery: a process that has imported the target, has no other threads, and forks workers.

Workers therefore start within milliseconds and share the memory of the import. If importing the target starts threads,
forking is not safe; then the nursery replaces itself with one that starts each worker as a new interpreter. Standard
input is /dev/null and standard output is standard error, so nothing that a tool prints gets into the protocol.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from select import POLLIN, poll
from typing import Any, NoReturn

from msgspec.json import decode
from msgspec.structs import replace

from mcpd.errors import ConfigurationError, as_told
from mcpd.server import Server
from . import callee
from .pool import END, ENDED, FORK, KILL, PID, RECORD, Setup
from .worker import serve

# The name of the main file of a program, which must not run as `__main__` a second time.
MAIN = "__mcpd_worker__"

_END_SECONDS = 1.0
_LAST_SECONDS = 0.5
_ATTEMPTS = 10
_ATTEMPT_SECONDS = 0.005
_SET_PDEATHSIG = 1


def main() -> NoReturn:
    """Run a nursery, or a worker that is started anew. The command line is that of `Setup.command`."""
    descriptor, setup = int(sys.argv[1]), decode(sys.argv[2], type=Setup)
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    is_tied = end_with_parent()
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    problem = ""
    if setup.is_worker or setup.start == "fork":
        problem = load(setup)
    if setup.is_worker:
        serve(sock, problem, is_tied=is_tied)
    if setup.start == "fork" and _has_threads():
        setup = replace(setup, start="spawn")
        sock.set_inheritable(True)
        command = setup.command(descriptor)
        os.execv(command[0], command)
    gc.collect()
    gc.freeze()
    # From now on, it reads the control socket, and ends the processes that its workers have started.
    end_with_parent(0)
    Nursery(sock, setup, problem).run()


def end_with_parent(number: int = signal.SIGKILL) -> bool:
    """Have the system send this signal when the process that started this one ends, where it can; 0 undoes that."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes  # some Pythons are built without it

        return bool(ctypes.CDLL(None).prctl(_SET_PDEATHSIG, number) == 0)
    except (ImportError, OSError, AttributeError):
        return False


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


# -- loading the target ------------------------------------------------------------------------


class _Serves(BaseException):
    """Stops the import of a target that serves itself, after everything before that call has run."""


def load(setup: Setup) -> str:
    """Import the target; returns why that failed, or ""."""
    found: dict[str, callee.ProcessCallee] = {}
    callee.registered = found
    module, _, name = setup.loader.partition(":")
    serving = Server.run
    Server.run = _refuse  # type: ignore[method-assign,assignment]
    try:
        getattr(import_module(module), name)(**setup.arguments)
    except _Serves:
        pass
    except ConfigurationError as error:
        return str(error)
    except (Exception, SystemExit) as error:
        return "".join(traceback.format_exception(*as_told(error))).rstrip()
    finally:
        Server.run = serving  # type: ignore[method-assign]
    for each in found.values():
        each.prepare()
    return ""


def _refuse(server: Server, **_: Any) -> NoReturn:
    raise _Serves


def import_target(name: str, path: str, package: str, argv: list[str]) -> None:
    """Import a module by its name, or the main file of a program under another name than `__main__`."""
    sys.argv[:] = argv
    if name != "__main__":
        import_module(name)
        return
    spec = find_spec(package) if package else None
    path = path if spec is None or spec.origin is None else spec.origin
    found = spec_from_file_location(MAIN, path)
    if found is None or found.loader is None:
        raise ConfigurationError(f"{path}: not a Python file")

    module = sys.modules[MAIN] = module_from_spec(found)
    if spec is not None:
        module.__package__ = spec.parent
    found.loader.exec_module(module)


# -- workers -----------------------------------------------------------------------------------


class Nursery:
    """Forks workers and reaps them, until the server closes the control socket."""

    def __init__(self, control: socket.socket, setup: Setup, problem: str) -> None:
        self._control = control
        self._setup = setup
        self._problem = problem
        # The process ids of the workers by number, and the times at which those that end are killed.
        self._pids: dict[int, int] = {}
        self._kill_at: dict[int, float] = {}
        # A signal writes to one end, which wakes `poll` at the other.
        self._woken, self._wakes = socket.socketpair()

    def run(self) -> NoReturn:
        """Work until the server has ended."""
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        waiting = poll()
        waiting.register(self._control, POLLIN)
        waiting.register(self._woken, POLLIN)
        try:
            while True:
                for descriptor, _ in waiting.poll(self._patience()):
                    if descriptor == self._control.fileno():
                        self._obey()
                with suppress(BlockingIOError):
                    self._woken.recv(1024)
                self._reap()
                self._kill_late()
        except (EOFError, OSError):
            self._end_all()
        os._exit(0)

    def _end_all(self) -> None:
        # The server has ended: what its workers still do is cancelled, and killed after a moment.
        for pid in self._pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        woken, deadline = poll(), time.monotonic() + _LAST_SECONDS
        woken.register(self._woken, POLLIN)
        while self._pids and (left := deadline - time.monotonic()) > 0:
            woken.poll(left * 1000)
            with suppress(BlockingIOError):
                self._woken.recv(1024)
            self._reap()

        for pid in self._pids.values():
            _signal_group(pid, signal.SIGKILL)

    def _patience(self) -> float | None:
        if not self._kill_at:
            return None
        return max(0.0, min(self._kill_at.values()) - time.monotonic()) * 1000 + 1

    def _obey(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, RECORD.size, 1)
        if not data:
            raise EOFError
        what, number, _ = RECORD.unpack(data)
        if what == FORK:
            self._start(number, socket.socket(fileno=descriptors[0]))
        elif number in self._pids and what == END:
            with suppress(ProcessLookupError):
                os.kill(self._pids[number], signal.SIGTERM)
            self._kill_at[number] = time.monotonic() + _END_SECONDS
        elif number in self._pids and what == KILL:
            _signal_group(self._pids[number], signal.SIGKILL)

    def _start(self, number: int, sock: socket.socket) -> None:
        if self._setup.start == "fork":
            pid = os.fork()
            if pid == 0:
                self._become_worker(sock)
            with suppress(OSError):  # the worker has done this itself, or has ended
                os.setpgid(pid, pid)
        else:
            # This is no `ChildProcess`, because the nursery itself waits for the end of the process.
            command = replace(self._setup, is_worker=True).command(sock.fileno())
            sock.set_inheritable(True)
            pid = os.posix_spawn(command[0], command, os.environ, setpgroup=0)
        sock.close()
        self._pids[number] = pid
        self._control.sendall(RECORD.pack(PID, number, pid))

    def _become_worker(self, sock: socket.socket) -> NoReturn:
        os.setpgid(0, 0)
        is_tied = end_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._control, self._woken, self._wakes):
            each.close()
        serve(sock, self._problem, is_tied=is_tied)

    def _reap(self) -> None:
        for number, pid in list(self._pids.items()):
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                continue
            # Before the system can use the number again: processes that the worker started must not outlive it.
            _signal_group(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            del self._pids[number]
            self._kill_at.pop(number, None)
            with suppress(OSError):  # the server has ended
                self._control.sendall(RECORD.pack(ENDED, number, status))

    def _kill_late(self) -> None:
        now = time.monotonic()
        for number in [number for number, when in self._kill_at.items() if when <= now]:
            del self._kill_at[number]
            _signal_group(self._pids[number], signal.SIGKILL)


def _signal_group(pid: int, number: int) -> None:
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, number)
