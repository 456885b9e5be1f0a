"""Runs a server's command in our place, and passes on what the host and the server write.

For the host we are the server. The bytes pass unchanged and at once, signals go to the server, and we end as it ends:
with its exit code, or by the same signal.

The server leads a process group of its own. A host that signals our group therefore reaches only us, and we pass the
signal on once.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

from mcpd.protocol.printable import printable
from mcpd.transports.child import ChildProcess
from mcpd.transports.recorder import Recorder, Source

GRACE_SECONDS = 2.0
_POLL_SECONDS = 0.05
_MAX_DESCRIPTORS = 65536


class Guardian:
    """A process that ends the server if we cannot, because SIGKILL leaves us no time.

    Create it before any thread is started: it is a fork of this process. It holds no descriptor but one end of a pipe,
    whose other end closes with us however we end. It leads a session of its own, so that it is not killed along with
    us.
    """

    def __init__(self) -> None:
        ours, self._pipe = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _guard(ours)
            finally:
                os._exit(0)
        os.close(ours)
        self.pid = pid
        self._group = 0

    def watch(self, group: int) -> None:
        """End this process group when we end."""
        self._group = group
        os.write(self._pipe, b"%d\n" % group)

    def close(self) -> None:
        """Stop watching, because the server has ended; end what it has left in its group."""
        if self._group and _group_runs(self._group):
            os.close(self._pipe)
            return

        with suppress(OSError):
            os.write(self._pipe, b"0\n")
        os.close(self._pipe)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _guard(pipe: int) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # Readers of our descriptors would otherwise not see their end.
    os.dup2(pipe, 0)
    os.closerange(1, _MAX_DESCRIPTORS)

    group = 0
    while said := os.read(0, 64):
        group = int(said.split()[-1])
    if group > 1:
        _end_group(group)


def _group_runs(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _end_group(group: int) -> None:
    # Processes that the server left behind can exit on their own first, as they could if a host had ended them.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)


_READ_BYTES = 128 * 1024


class _Pump(threading.Thread):
    """Passes bytes from the descriptor `read` to `write` and records them, and closes both at the end.

    Nothing is kept back and nothing is read ahead, so that a slow reader holds up the writer, as a pipe does. The end
    of the source and the end of the reader pass through as well.
    """

    def __init__(self, source: Source, read: int, write: int, recorder: Recorder) -> None:
        super().__init__(name=f"trace {source}", daemon=True)
        self._from: Source = source
        self._source, self._target = read, write
        self._recorder = recorder
        self._woken, self._wake = os.pipe()
        # Whether the reader has not yet taken what was read.
        self._is_writing = False
        self.start()

    def run(self) -> None:
        reader_went = False
        try:
            reader_went = self._pass_on()
        finally:
            os.close(self._source)
            os.close(self._target)
            self._recorder.record_event("reader gone" if reader_went else "end", **{"from": self._from})

    def finish(self, seconds: float, waits_for_reader: Callable[[], bool] = lambda: False) -> None:
        # A server ends once the host has read its output, so the proxy waits while `waits_for_reader()` is true.
        left = seconds
        while self.is_alive() and left > 0:
            self.join(_POLL_SECONDS)
            left = seconds if self._is_writing and waits_for_reader() else left - _POLL_SECONDS
        if self.is_alive():
            # Data that has already arrived is still passed on.
            os.write(self._wake, b"x")
            self.join(seconds)

    def _pass_on(self) -> bool:
        source, target = self._source, self._target
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(target, 0)  # an error is reported unasked: nobody reads it any more
        poll.register(self._woken, select.POLLIN)

        while True:
            ready = dict(poll.poll())
            if source in ready:
                try:
                    data = os.read(source, _READ_BYTES)
                except BlockingIOError:
                    continue
                except OSError:  # the terminal is gone
                    return False
                if not data:
                    return False
                self._recorder.record(self._from, data)
                self._is_writing = True
                if not _write(target, data):
                    return True
                self._is_writing = False
            elif target in ready:
                return True
            elif self._woken in ready:
                return False


def _write(target: int, data: bytes) -> bool:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:  # another process that holds it has made it non-blocking
            poll = select.poll()
            poll.register(target, select.POLLOUT)
            poll.poll()
        except OSError:
            return False
    return True


# Exit codes for commands that cannot be started, as in shells and `env`.
CANNOT_RUN, NOT_FOUND = 126, 127

# Seconds for which a process that the server left behind may hold its output open.
DRAIN_SECONDS = 1.0

_PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")


def run(command: Sequence[str], recorder: Recorder, guardian: Guardian) -> int:
    """Serve as this command until it ends. Returns its exit code, or the negative number of the signal that ended it.

    Call it on the main thread, where signal handlers run. It uses up the descriptors 0, 1 and 2.
    """
    signals = _Signals(recorder)
    try:
        child = ChildProcess(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, new_session=False
        )
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        recorder.record_event("not started", error=text)
        with suppress(OSError):
            print(f"mcpd: {printable(command[0], 1000)} cannot be started: {text}", file=sys.stderr, flush=True)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN

    guardian.watch(child.pid)
    recorder.record_event("started", pid=child.pid)
    signals.start_passing(child)
    inward, *outward = _pumps(child, recorder)

    code = child.wait_blocking()
    for each in outward:
        each.finish(DRAIN_SECONDS, waits_for_reader=lambda: not signals.has_any)
    inward.finish(0)

    recorder.record_event("exited", **({"code": code} if code >= 0 else {"signal": signal.Signals(-code).name}))
    return code


def end_like(code: int) -> int:
    """Return the exit code to end with. If a signal ended the server, end by the same signal instead."""
    if code >= 0:
        return code
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
    with suppress(OSError):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


def _pumps(child: ChildProcess, recorder: Recorder) -> list[_Pump]:
    ends = []
    for file in (child.stdin, child.stdout, child.stderr):
        assert file is not None
        ends.append(os.dup(file.fileno()))
        file.close()
    ours = [_duplicated(number) for number in (0, 1, 2)]
    return [
        _Pump("host", ours[0], ends[0], recorder),
        _Pump("server", ends[1], ours[1], recorder),
        _Pump("stderr", ends[2], ours[2], recorder),
    ]


def _duplicated(number: int) -> int:
    # The host sees the end of the pipe when the copy is closed.
    empty = os.open(os.devnull, os.O_RDWR)
    try:
        taken = os.dup(number)
    except OSError:  # the host gave us none
        return empty
    if number == 2:
        os.close(empty)  # our own error messages still go there
        return taken
    os.dup2(empty, number)
    os.close(empty)
    return taken


class _Signals:
    """Passes signals on to the server. Signals that arrive before the server is started are passed on then."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._child: ChildProcess | None = None
        self._early: list[int] = []
        # Whether any signal has arrived.
        self.has_any = False
        for name in _PASSED_ON:
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:  # the server ignores it then, too
                signal.signal(number, self._on_signal)

    def start_passing(self, child: ChildProcess) -> None:
        self._child = child
        early, self._early = self._early, []
        for number in early:
            self._on_signal(number, None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.has_any = True
        if self._child is None:
            self._early.append(number)
            return
        self._recorder.record_event("signal", signal=signal.Signals(number).name)
        self._child.send_signal(number)
