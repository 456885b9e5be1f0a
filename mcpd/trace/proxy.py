"""Runs a server's command in our place: what the host writes goes to it, what it writes goes to the host.

For the host we are the server. Its bytes pass unchanged and at once, signals go to the server, and we end as it ends:
with its exit code, or by the signal that ended it.

The server leads a process group of its own: a host that signals ours reaches us alone, and we pass it on, once.
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
_LOOK_SECONDS = 0.05
_MOST_DESCRIPTORS = 65536


class Guardian:
    """Watches over the process group that it is told of. Make it before any thread is started."""

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
        """When we end, end this group."""
        self._group = group
        os.write(self._pipe, b"%d\n" % group)

    def close(self) -> None:
        """The server has ended. If it left anything in its group that is ended too, and nobody waits for it."""
        if self._group and _lives(self._group):
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
    # What it holds open nobody would see the end of.
    os.dup2(pipe, 0)
    os.closerange(1, _MOST_DESCRIPTORS)

    group = 0
    while said := os.read(0, 64):
        group = int(said.split()[-1])
    if group > 1:
        _end_group(group)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _end_group(group: int) -> None:
    """SIGTERM to all in a process group, and SIGKILL to who is still there two seconds later."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)


_READ_BYTES = 128 * 1024


class Pump:
    """Passes bytes from the descriptor `source` to `target`, and closes both at the end."""

    def __init__(self, source: int, target: int, note: Callable[[bytes], None], ended: Callable[[bool], None]) -> None:
        """`note` is told of bytes before they are passed on, `ended` once: whether it was the reader that went."""
        self._source = source
        self._target = target
        self._note = note
        self._ended = ended
        self._woken, self._wake = os.pipe()
        self.is_writing = False
        """The reader has not taken yet what was read."""

    def run(self) -> None:
        """Until one of both ends is closed, or `stop`."""
        reader_went = False
        try:
            reader_went = self._pass_on()
        finally:
            os.close(self._source)
            os.close(self._target)
            self._ended(reader_went)

    def stop(self) -> None:
        """Pass on what is there already, then end. From another thread."""
        os.write(self._wake, b"x")

    def _pass_on(self) -> bool:
        """Whether the reader went first."""
        source, target, note = self._source, self._target, self._note
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(target, 0)  # an error is told unasked: that nobody reads it any more
        poll.register(self._woken, select.POLLIN)

        while True:
            ready = dict(poll.poll())
            if source in ready:
                try:
                    data = os.read(source, _READ_BYTES)
                except BlockingIOError:
                    continue
                except OSError:  # a terminal that is gone
                    return False
                if not data:
                    return False
                note(data)
                self.is_writing = True
                if not _write(target, data):
                    return True
                self.is_writing = False
            elif target in ready:
                return True
            elif self._woken in ready:
                return False


def _write(target: int, data: bytes) -> bool:
    """All of it, however long the reader takes; whether there is a reader."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:  # its other owner has made it so
            poll = select.poll()
            poll.register(target, select.POLLOUT)
            poll.poll()
        except OSError:
            return False
    return True


CANNOT_RUN, NOT_FOUND = 126, 127
"""Exit codes for commands that cannot be started, as shells and `env` have them."""

DRAIN_SECONDS = 1.0
"""How long something that the server left behind may hold its output open."""

_PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")


def run(command: Sequence[str], recorder: Recorder, guardian: Guardian) -> int:
    """Serve as this command until it ends; its exit code, or the negative number of the signal that ended it.

    To be called on the main thread, of which the signal handlers are. Descriptors 0, 1 and 2 are used up.
    """
    signals = _Signals(recorder)
    try:
        child = ChildProcess(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, new_session=False
        )
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        recorder.record_event("not started", error=text)
        _say(f"{command[0]} cannot be started: {text}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN

    guardian.watch(child.pid)
    recorder.record_event("started", pid=child.pid)
    signals.pass_to(child)
    inward, *outward = _pumps(child, recorder)

    code = child.wait_blocking()
    for each in outward:
        each.finish(DRAIN_SECONDS, waits_for_reader=lambda: not signals.heard)
    inward.finish(0)

    recorder.record_event("exited", **({"code": code} if code >= 0 else {"signal": signal.Signals(-code).name}))
    return code


def end_like(code: int) -> int:
    """The exit code to end with. If a signal ended the server we end by the same, and this does not return."""
    if code >= 0:
        return code
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
    with suppress(OSError):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


class _Pumping(threading.Thread):
    """A pump on its thread."""

    def __init__(self, source: Source, read: int, write: int, recorder: Recorder) -> None:
        def ended(reader_went: bool) -> None:
            recorder.record_event("reader gone" if reader_went else "end", **{"from": source})

        self._pump = Pump(read, write, lambda data: recorder.record(source, data), ended)
        super().__init__(target=self._pump.run, name=f"trace {source}", daemon=True)
        self.start()

    def finish(self, seconds: float, waits_for_reader: Callable[[], bool] = lambda: False) -> None:
        """Wait for its end, which comes when nobody writes any more; tell it to stop after so many quiet seconds.

        A server ends when the host has taken what it wrote: so do we, as long as `waits_for_reader()`.
        """
        left = seconds
        while self.is_alive() and left > 0:
            self.join(_LOOK_SECONDS)
            left = seconds if self._pump.is_writing and waits_for_reader() else left - _LOOK_SECONDS
        if self.is_alive():
            self._pump.stop()
            self.join(seconds)


def _pumps(child: ChildProcess, recorder: Recorder) -> list[_Pumping]:
    ends = []
    for file in (child.stdin, child.stdout, child.stderr):
        assert file is not None
        ends.append(os.dup(file.fileno()))
        file.close()
    ours = [_taken(number) for number in (0, 1, 2)]
    return [
        _Pumping("host", ours[0], ends[0], recorder),
        _Pumping("server", ends[1], ours[1], recorder),
        _Pumping("stderr", ends[2], ours[2], recorder),
    ]


def _taken(number: int) -> int:
    """A descriptor of ours that stands for 0, 1 or 2, which are nobody's then: the host sees it when we close it."""
    empty = os.open(os.devnull, os.O_RDWR)
    try:
        taken = os.dup(number)
    except OSError:  # the host gave us none
        return empty
    if number == 2:
        os.close(empty)  # what we have to say ourselves still goes there
        return taken
    os.dup2(empty, number)
    os.close(empty)
    return taken


class _Signals:
    """Passes on what we are sent; what comes before the server is started as soon as it is."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._child: ChildProcess | None = None
        self._early: list[int] = []
        self.heard = False
        """Whether any came."""
        for name in _PASSED_ON:
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:  # the server ignores it then, too
                signal.signal(number, self._heard)

    def pass_to(self, child: ChildProcess) -> None:
        self._child = child
        early, self._early = self._early, []
        for number in early:
            self._heard(number, None)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        if self._child is None:
            self._early.append(number)
            return
        self._recorder.record_event("signal", signal=signal.Signals(number).name)
        self._child.send_signal(number)


def _say(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"mcpd: {printable(text, 1000)}\n")
        sys.stderr.flush()
