"""How a process ends that was told to, though a tool hangs: in a thread, or in the event loop itself (decision D11).

Only for processes that are ours: `mcpd serve`, and programs that call `Server.run`.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Collection

__all__ = ["HangUp", "LastResort", "end_if_hung"]

_IDLE_SECONDS = 0.25
"""How long threads may take to end that have nothing left to do."""

_LOOK_SECONDS = 0.25
"""How often to look whether the event loop still turns, after the input has ended."""


class LastResort:
    """Ends the process at a deadline, from a thread: while a tool blocks the event loop nothing else runs."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self._is_watching = False

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

    def disarm(self) -> None:
        """The end has come by itself."""
        self._deadline = None

    def _watch(self) -> None:
        while (deadline := self._deadline) is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                _say("mcpd: a tool did not stop; ending all the same")
                os._exit(0)
            time.sleep(min(left, 0.05))
        self._is_watching = False


class HangUp:
    """Ends the process, by the last resort, if its input ends while a tool blocks the event loop for good.

    The loop reads the end by itself if it turns, perhaps after much that came before: that is left to it. Make it
    on the loop's thread. A thread waits in the kernel for the other end to be closed, and looks at nothing else.
    """

    def __init__(self, descriptor: int, seconds: float, last_resort: LastResort) -> None:
        self._seconds = min(seconds, threading.TIMEOUT_MAX)
        self._last_resort = last_resort
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
                self._last_resort.arm(0)
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
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(code)


def _say(line: str) -> None:
    """Past Python's buffers, whose locks may be held by what hangs."""
    try:
        os.write(2, f"{line}\n".encode())
    except OSError:
        pass
