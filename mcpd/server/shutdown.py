"""Stops a server on signals, and ends the process even if a tool hangs in a thread or blocks the loop (decision D11).

`LoopWatch` logs a function that blocks the loop, before anybody stops the server.

Only for processes that mcpd owns: `mcpd serve`, and programs that call `Server.run`.
"""

from __future__ import annotations

import _thread  # documented; `threading` could wait in a signal handler for a lock of the interrupted code
import asyncio
import logging
import os
import select
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

import mcpd
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")

ENDING_SECONDS = 3.0
"""Added to the grace time, for cancelled code to end and for the last answers to be written."""

HURRY_SECONDS = 1.5
"""The same after a second signal."""

# Time until signals can end code that Python does not interrupt.
_ONCE_SECONDS = 0.25

# Time for threads to end that have nothing left to do.
_IDLE_SECONDS = 0.25

# Time for the last log lines, if threads still run.
_LAST_SECONDS = 1.0

# How much later the alarm comes than the thread, which is late itself on a busy machine.
_ALARM_SECONDS = 5.0

_LONGEST_ALARM = 1e8

# Interval of the checks whether the event loop still runs, after the end of the input.
_LOOK_SECONDS = 0.25


BLOCKED_SECONDS = 5.0
"""After this time the log names the function that blocks the event loop."""

_WATCH_SECONDS = 1.0

# The packages that call the functions of authors.
_CALLERS = tuple(os.path.dirname(file) + os.sep for file in (mcpd.__file__, asyncio.__file__))


class ExitDeadline:
    """Ends the process at a deadline, from a thread, because a blocked event loop runs nothing."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self._is_watching = False
        self._has_alarm = False

    def arm(self, seconds: float) -> None:
        """End the process in this many seconds. The earliest of several deadlines counts.

        Takes no lock, because signal handlers call it.
        """
        deadline = time.monotonic() + seconds
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
        if not self._is_watching:
            self._is_watching = True
            _thread.start_new_thread(self._watch, ())

    def set_alarm(self, seconds: float) -> None:
        """Let the kernel end the process 5 seconds later, in case a call into C keeps all Python threads from running.

        SIGALRM ends the process, unless it is used already. Does nothing on Windows.
        """
        if not hasattr(signal, "setitimer") or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
            return
        seconds = min(seconds + _ALARM_SECONDS, _LONGEST_ALARM)
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        if not left or seconds < left:
            self._has_alarm = True
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def disarm(self) -> None:
        """Cancel the deadline, because the process ends normally."""
        self._deadline = None
        if self._has_alarm:
            self._has_alarm = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _watch(self) -> None:
        while (deadline := self._deadline) is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                _write_stderr("mcpd: a tool or a client did not stop in time; exiting anyway")
                os._exit(0)
            time.sleep(min(left, 0.05))
        self._is_watching = False


class StdinWatchdog:
    """Ends the process if its input ends while a tool blocks the event loop for good.

    A running loop reads the end itself, perhaps after much other input. Must be made on the loop's thread. A thread
    waits in the kernel until the other end is closed.
    """

    def __init__(self, descriptor: int, seconds: float, exit_deadline: ExitDeadline) -> None:
        self._seconds = min(seconds, threading.TIMEOUT_MAX)
        self._exit_deadline = exit_deadline
        self._loop = asyncio.get_running_loop()
        self._is_over = threading.Event()
        if hasattr(select, "poll"):  # not on Windows
            poll = select.poll()
            # Half closed is enough for sockets; the end of a pipe is always reported; a file has none.
            poll.register(descriptor, getattr(select, "POLLRDHUP", 0))
            _thread.start_new_thread(self._watch, (poll.poll,))

    def stop(self) -> None:
        """Stop watching: serving has ended, and the loop need not run any more."""
        self._is_over.set()

    def _watch(self, wait: Callable[[], object]) -> None:
        wait()
        while not self._is_over.wait(_LOOK_SECONDS):
            turned = threading.Event()
            try:
                self._loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # the loop is closed
                return
            if not turned.wait(self._seconds) and not self._is_over.is_set():
                self._exit_deadline.arm(0)
                return


class LoopWatch:
    """Logs the function that blocks the event loop, from a thread. Must be made on the loop's thread.

    While the loop waits for events, which is most of the time, only the thread wakes up.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ident = threading.get_ident()
        self._is_over = threading.Event()
        _thread.start_new_thread(self._watch, ())

    def stop(self) -> None:
        """End the thread soon: serving has ended."""
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.wait(_WATCH_SECONDS):
            if _is_waiting(sys._current_frames().get(self._ident)):
                continue
            turned = threading.Event()
            try:
                self._loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # the loop is closed
                return
            # The second wait is for a process that was stopped and goes on: its loop has had no time since.
            is_blocked = not turned.wait(BLOCKED_SECONDS - _WATCH_SECONDS) and not turned.wait(_WATCH_SECONDS)
            if is_blocked and not self._is_over.is_set():
                log.error(
                    "The event loop has been blocked for %g s by %s, and no other call is answered meanwhile. Use def "
                    "instead of async def, or await code that does not block.",
                    BLOCKED_SECONDS, printable(_blocking(sys._current_frames().get(self._ident))),
                )  # fmt: skip
                while not turned.wait(_WATCH_SECONDS) and not self._is_over.is_set():
                    pass


def _is_waiting(frame: FrameType | None) -> bool:
    # Return whether the thread of an event loop waits for events, at the end of its frames.
    if frame is None or frame.f_code.co_filename == asyncio.runners.__file__:  # uvloop has no frames of its own
        return True
    caller = frame.f_back
    is_in_select = frame.f_code.co_filename == selectors.__file__
    return is_in_select and caller is not None and caller.f_code.co_filename == asyncio.base_events.__file__


def _blocking(frame: FrameType | None) -> str:
    # Describe the function that mcpd or asyncio has called, and its current line.
    found = frame
    while frame is not None and not frame.f_code.co_filename.startswith(_CALLERS):
        found, frame = frame, frame.f_back
    if found is None:
        return "an unknown function"
    return f"{found.f_code.co_qualname} ({os.path.basename(found.f_code.co_filename)}, line {found.f_lineno})"


def take_once(number: int) -> None:
    """Let the current handler of a signal run once more; the next signal then ends the process without Python.

    Python runs signal handlers between bytecodes, which a call into C may prevent. The handler must be set again after
    a signal. Needs `sysv_signal` of the C library, as on Linux with glibc; otherwise does nothing.
    """
    try:
        leave_once(number)
    except (ImportError, OSError, TypeError, AttributeError):
        return


def end_if_hung(code: int = 0, *, older: Collection[threading.Thread] = ()) -> None:
    """End the process with `code` if threads still run, which would keep Python waiting; otherwise do nothing.

    Threads in `older` belong to the program and may continue.
    """
    deadline = time.monotonic() + _IDLE_SECONDS
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.daemon or thread in older:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            _write_stderr(f"mcpd: thread {thread.name!r} still runs; exiting anyway")
            # In a thread, with a limit: the reader may be gone, and a hanging thread may hold a lock.
            last = threading.Thread(target=_flush, daemon=True)
            last.start()
            last.join(_LAST_SECONDS)
            os._exit(code)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _write_stderr(line: str) -> None:
    # Write past Python's buffers, whose locks hanging code may hold, and only if the pipe has room.
    try:
        if hasattr(select, "poll"):  # not on Windows
            poller = select.poll()
            poller.register(2, select.POLLOUT)
            if not poller.poll(0):
                return
        os.write(2, f"{line}\n".encode())
    except OSError:
        pass


def _is_default(handler: Any) -> bool:
    # Return whether a signal's handler is Python's own, or set by `asyncio.run`.
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler) or isinstance(runner, asyncio.Runner)


class Stop:
    """The stop of a server: requested by a signal or by the end of the input. A second request ends the grace time.

    The event loop handles a signal in its next iteration. Python's own handler runs at once, even while a tool blocks
    the loop, and makes sure that the process ends. If a call into C keeps even that from running, a second signal ends
    the process (`take_once`).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, grace: float, exit_deadline: ExitDeadline | None) -> None:
        self._first = asyncio.Event()
        self._second = asyncio.Event()
        self._loop = loop
        self._grace = grace
        self._exit_deadline = exit_deadline
        self._is_asked = False
        self._is_settled = False
        self._settling: asyncio.TimerHandle | None = None
        self._before: dict[int, Any] = {}

        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            if before is None or (exit_deadline is None and not _is_default(before)):
                continue  # a program with its own handler stops serving by cancelling
            try:
                loop.add_signal_handler(number, self._receive, number)
            except (NotImplementedError, RuntimeError, ValueError):
                # Not the main thread, or Windows: the embedding program stops serving in its own way.
                continue
            # The loop is still woken, because signals also write to its descriptor.
            signal.signal(number, self._arm)
            self._before[number] = before

        if self._before:
            _stops.add(self)
        if self._before and exit_deadline is not None:
            # After the start, for which a host waits.
            self._settling = loop.call_later(_ONCE_SECONDS, self._settle)

    def _settle(self) -> None:
        self._is_settled = True
        for number in self._before:
            take_once(number)

    def _arm(self, number: int = 0, frame: object = None) -> None:
        if self._exit_deadline is not None:
            seconds = HURRY_SECONDS if self._is_asked else self._grace + ENDING_SECONDS
            self._exit_deadline.arm(seconds)
            self._exit_deadline.set_alarm(seconds)
        self._is_asked = True
        if number and self._is_settled:
            signal.signal(number, self._arm)
            take_once(number)

    def _receive(self, number: int) -> None:
        log.info("stopping: the process received %s", printable(signal.Signals(number).name))
        self.set()

    def set(self) -> None:
        if not self._is_asked:
            self._arm()
        (self._second if self._first.is_set() else self._first).set()

    def ask(self, why: str) -> None:
        """Stop, unless that was requested before; never ends the grace time. `why` is for the log."""
        if not self._is_asked:
            log.debug("stopping: %s", printable(why))
            self.set()

    async def wait(self) -> None:
        await self._first.wait()

    async def wait_again(self) -> None:
        await self._second.wait()

    def restore(self) -> None:
        """Return the signals to the program."""
        _stops.discard(self)
        if self._settling is not None:
            self._settling.cancel()
        for number, before in self._before.items():
            self._loop.remove_signal_handler(number)
            signal.signal(number, before)

    def leave_to_child(self) -> None:
        """In a forked child: restore what signals did before this process served."""
        for number, before in self._before.items():
            is_of_loop = _is_default(before) and callable(before)
            signal.signal(number, signal.default_int_handler if is_of_loop else before)


# The objects that have signal handlers in this process.
_stops: set[Stop] = set()


class _Masks(threading.local):
    before: set[int] | None = None
    """The signal mask of a thread that is forking."""


_masks = _Masks()


def _hold_signals() -> None:
    # Before a fork: delay signals to the child until `_reset_signals` has run there.
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT)) if _stops else None


def _release_signals() -> None:
    if _masks.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _reset_signals() -> None:
    # In a forked child: a signal to the child must not stop the parent through its inherited wake-up descriptor.
    if _masks.before is not None:
        signal.set_wakeup_fd(-1)
        while _stops:
            _stops.pop().leave_to_child()
        if signal.SIGINT in signal.sigpending() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python ignores a KeyboardInterrupt raised in this function
    _release_signals()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_reset_signals)


def leave_once(number: int) -> None:
    """Let the handler of a signal run once. Raises OSError if that is not supported."""
    import ctypes  # not needed before the start, and some Pythons are built without it

    library = ctypes.CDLL(None)  # all loaded libraries
    action = (ctypes.c_void_p * 128)()  # a `struct sigaction`, which is smaller; the handler comes first
    if library.sigaction(number, None, action) == 0:
        library.sysv_signal(number, ctypes.c_void_p(action[0]))
