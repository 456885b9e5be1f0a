"""Receives the wish to stop, and ends the process even if a tool hangs in a thread or blocks the loop (decision D11).

Only for processes that are ours: `mcpd serve`, and programs that call `Server.run`.
"""

from __future__ import annotations

import _thread  # documented, and in a signal's handler `threading` would wait for a lock of what was interrupted
import asyncio
import ctypes
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")

ENDING_SECONDS = 3.0
"""Beyond the grace time: for what was cancelled to come to its end, and for the last answers to be written."""

HURRY_SECONDS = 1.5
"""The same after a second signal."""

_ONCE_SECONDS = 0.25
"""Until signals are made to end what Python does not see."""

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


def _is_default(handler: Any) -> bool:
    """Whether a signal's handler is Python's own, or that of `asyncio.run`."""
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler) or isinstance(runner, asyncio.Runner)


class Stop:
    """The wish to stop: from a signal, or from the end of the input; a second one is a wish to hurry.

    The event loop hears of a signal when it comes around to it. Python's own handler is called at once, even
    while a tool blocks the loop, and sees to it that the process ends. Where a call into C keeps even that from
    running, the same signal once more ends the process by itself (`take_once`).
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
                continue  # a program that serves beside other things hears of it itself, and cancels us
            try:
                loop.add_signal_handler(number, self._receive, number)
            except (NotImplementedError, RuntimeError, ValueError):
                # Not the main thread, or Windows: whoever embeds us has its own way to stop.
                continue
            # The loop is woken all the same: it had itself told of signals through a descriptor.
            signal.signal(number, self._arm)
            self._before[number] = before

        if self._before:
            _stops.add(self)
        if self._before and exit_deadline is not None:
            # Not while a host waits for the start.
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
        """The wish to stop, unless there was one: not one to hurry. `why` is for the log."""
        if not self._is_asked:
            log.debug("stopping: %s", printable(why))
            self.set()

    async def wait(self) -> None:
        await self._first.wait()

    async def wait_again(self) -> None:
        await self._second.wait()

    def restore(self) -> None:
        """Give the signals back to the program."""
        _stops.discard(self)
        if self._settling is not None:
            self._settling.cancel()
        for number, before in self._before.items():
            self._loop.remove_signal_handler(number)
            signal.signal(number, before)

    def leave_to_child(self) -> None:
        """In a forked child: let signals do again what they did before this process served."""
        for number, before in self._before.items():
            is_of_loop = _is_default(before) and callable(before)
            signal.signal(number, signal.default_int_handler if is_of_loop else before)


_stops: set[Stop] = set()
"""Those that have signal handlers in this process."""


class _Masks(threading.local):
    before: set[int] | None = None
    """The signal mask of a thread that is forking."""


_masks = _Masks()


def _hold_signals() -> None:
    """Before a fork: a signal that reaches the child waits until `_reset_signals` has been called there."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT)) if _stops else None


def _release_signals() -> None:
    if _masks.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _reset_signals() -> None:
    """In a forked child: a signal to the child must not stop this process, whose wake-up descriptor it inherited."""
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
    """Whatever handles that signal does so once; the next one ends the process. Raises OSError without such a way."""
    library = ctypes.CDLL(None)  # all that is loaded
    action = (ctypes.c_void_p * 128)()  # a `struct sigaction`, which is shorter; the handler comes first
    if library.sigaction(number, None, action) == 0:
        library.sysv_signal(number, ctypes.c_void_p(action[0]))
