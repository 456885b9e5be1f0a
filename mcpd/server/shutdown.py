"""Ends a process that was told to stop, even if a tool hangs in a thread or blocks the event loop (decision D11).

Only for processes that are ours: `mcpd serve`, and programs that call `Server.run`.
"""

from __future__ import annotations

import _thread
import asyncio
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection

__all__ = ["ExitDeadline", "StdinWatchdog", "end_if_hung", "take_once"]

_IDLE_SECONDS = 0.25
"""How long threads may take to end that have nothing left to do."""

_LAST_SECONDS = 1.0
"""How long the last lines of a log may take, if threads still run."""

_ALARM_SECONDS = 5.0
"""How much later the alarm comes than the last resort, which on a busy machine is late itself."""

_LONGEST_ALARM = 1e8

_LOOK_SECONDS = 0.25
"""How often to look whether the event loop still turns, after the input has ended."""


class ExitDeadline:
    """Ends the process at a deadline, from a thread: while a tool blocks the event loop nothing else runs."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self._is_watching = False
        self._has_alarm = False

    def arm(self, seconds: float) -> None:
        """The process is gone in so many seconds, whatever happens. Of several deadlines the earliest counts.

        Takes no lock, as it is called in signal handlers.
        """
        deadline = time.monotonic() + seconds
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
        if not self._is_watching:
            self._is_watching = True
            _thread.start_new_thread(self._watch, ())

    def set_alarm(self, seconds: float) -> None:
        """The same from the kernel, 5 seconds later: no thread of Python runs while a call into C does not return.

        SIGALRM ends the process then, unless somebody else uses it. Nothing on Windows.
        """
        if not hasattr(signal, "setitimer") or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
            return
        seconds = min(seconds + _ALARM_SECONDS, _LONGEST_ALARM)
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        if not left or seconds < left:
            self._has_alarm = True
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def disarm(self) -> None:
        """The end has come by itself."""
        self._deadline = None
        if self._has_alarm:
            self._has_alarm = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _watch(self) -> None:
        while (deadline := self._deadline) is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                _say("mcpd: a tool or a client did not stop in time; ending all the same")
                os._exit(0)
            time.sleep(min(left, 0.05))
        self._is_watching = False


class StdinWatchdog:
    """Ends the process, by the last resort, if its input ends while a tool blocks the event loop for good.

    The loop reads the end by itself if it turns, perhaps after much that came before: that is left to it. Make it
    on the loop's thread. A thread waits in the kernel for the other end to be closed, and looks at nothing else.
    """

    def __init__(self, descriptor: int, seconds: float, exit_deadline: ExitDeadline) -> None:
        self._seconds = min(seconds, threading.TIMEOUT_MAX)
        self._exit_deadline = exit_deadline
        self._loop = asyncio.get_running_loop()
        self._is_over = threading.Event()
        if hasattr(select, "poll"):  # not on Windows
            poll = select.poll()
            # Half closed is enough, as sockets may be; the end of a pipe is told unasked. A file never has any.
            poll.register(descriptor, getattr(select, "POLLRDHUP", 0))
            _thread.start_new_thread(self._watch, (poll.poll,))

    def stop(self) -> None:
        """Serving has come to its end: the loop will turn no more, and need not."""
        self._is_over.set()

    def _watch(self, wait: Callable[[], object]) -> None:
        wait()
        while not self._is_over.wait(_LOOK_SECONDS):
            turned = threading.Event()
            try:
                self._loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # it is closed
                return
            if not turned.wait(self._seconds) and not self._is_over.is_set():
                self._exit_deadline.arm(0)
                return


def take_once(number: int) -> None:
    """Leave the handler of a signal in place for one time: the next one that comes ends the process, unseen by Python.

    Python's handlers run when the interpreter comes around to it, which a call into C may keep it from. Whoever sees
    the signal sets the handler again. Only where the C library has `sysv_signal`, as on Linux with glibc; else nothing.
    """
    try:
        from .signal_once import leave_once  # after the start, for which no host has to wait

        leave_once(number)
    except (ImportError, OSError, TypeError, AttributeError):
        return


def end_if_hung(code: int = 0, *, older: Collection[threading.Thread] = ()) -> None:
    """End the process with `code` if threads still run, for which Python would wait for ever; else do nothing.

    Threads in `older` are somebody else's, and may run on.
    """
    deadline = time.monotonic() + _IDLE_SECONDS
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.daemon or thread in older:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            _say(f"mcpd: thread {thread.name!r} still runs; ending all the same")
            # In a thread, for so long: nobody may read what is flushed, and what hangs may hold a lock.
            last = threading.Thread(target=_flush, daemon=True)
            last.start()
            last.join(_LAST_SECONDS)
            os._exit(code)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _say(line: str) -> None:
    """Past Python's buffers, whose locks may be held by what hangs, and only if there is room."""
    try:
        if hasattr(select, "poll"):  # not on Windows
            poller = select.poll()
            poller.register(2, select.POLLOUT)
            if not poller.poll(0):
                return
        os.write(2, f"{line}\n".encode())
    except OSError:
        pass
