"""Writing to stderr without waiting for whoever reads it.

A host may start a server and never read its stderr: the pipe is full after 64 KiB, and the next plain write there
stops the whole server. The descriptor itself cannot be made non-blocking, as other processes share it. So a pipe or
a terminal is opened once more, with flags of our own, a socket is asked not to wait call by call, and what allows
neither is written by a thread. What is not taken waits in a bounded queue; what finds that full is dropped, and
counted in a line of its own.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from select import POLLOUT, poll

MOST_WAITING_BYTES = 1024 * 1024
"""How much waits for a reader of stderr; more is dropped."""

LAST_SECONDS = 0.5
"""How long the end of the process waits for the last lines to be taken."""


class DescriptorWriter:
    """One descriptor, written from any thread. Only `put(..., waits=True)` and `finish` wait for its reader.

    `as_lines` gives what is printed, and what is said of dropped lines, the form of the log.
    """

    def __init__(
        self, fd: int, most: int = MOST_WAITING_BYTES, as_lines: Callable[[bytes], bytes] | None = None
    ) -> None:
        self._fd = fd
        self._most = most
        self.as_lines = as_lines
        # Reentrant: a signal handler may log in the middle of a line.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._is_writing = False
        self._open()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def put(self, data: bytes, *, waits: bool = False) -> None:
        """Write whole lines, or keep them until there is room. With `waits` until there is room to keep them."""
        with self._lock:
            if self._is_other_file():
                self._open()
            if self._write is not None and not self._waiting:
                data = self._push(data)
                if not data:
                    return

            while waits and self._size and self._size + len(data) > self._most:
                self._changed.wait()
            self._keep(data)
            if not self._is_writing:
                self._is_writing = True
                threading.Thread(target=self._write_on, name="mcpd-stderr", daemon=True).start()

    def finish(self, seconds: float = LAST_SECONDS) -> None:
        """Wait until all is written, but not for longer."""
        end = time.monotonic() + seconds
        with self._lock:
            while self._is_writing and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _open(self) -> None:
        self._identity = _identity(self._fd)
        self._own, self._write = _writer(self._fd)

    def _is_other_file(self) -> bool:
        """Whether somebody put another file where stderr was, as programs do to write their log elsewhere."""
        return _identity(self._fd) != self._identity

    def _push(self, data: bytes) -> bytes:
        """Write what is taken at once, and give the rest. What nobody can read any more is taken too."""
        assert self._write is not None
        try:
            while data:
                data = data[self._write(data) :]
        except (BlockingIOError, InterruptedError):
            return data
        except OSError:
            return b""
        return b""

    def _keep(self, data: bytes) -> None:
        # A line that was begun is always ended; the first one that waits may be as long as it is.
        if self._size and self._size + len(data) > self._most:
            self._dropped += max(1, data.count(b"\n"))
            return
        if self._dropped:
            self._note()
        self._waiting.append(data)
        self._size += len(data)

    def _note(self) -> None:
        note = b"mcpd: %d lines were dropped here: nobody read stderr\n" % self._dropped
        if self.as_lines is not None:
            note = self.as_lines(note)
        self._dropped = 0
        self._waiting.append(note)
        self._size += len(note)

    def _write_on(self) -> None:
        """In a thread: write what waits. Ends when nothing does."""
        while True:
            with self._lock:
                if not self._waiting and self._dropped:
                    self._note()
                if not self._waiting:
                    self._is_writing = False
                    self._changed.notify_all()
                    return
                data, write, own = self._waiting[0], self._write, self._own

            if write is None:
                rest = self._push_waiting(data)
            else:
                if not _is_writable(own):
                    continue
                rest = self._push(data)

            with self._lock:
                if rest:
                    self._waiting[0] = rest
                else:
                    self._waiting.popleft()
                self._size -= len(data) - len(rest)
                self._changed.notify_all()

    def _push_waiting(self, data: bytes) -> bytes:
        try:
            return data[os.write(self._fd, data[:4096]) :]
        except (BlockingIOError, InterruptedError):
            time.sleep(0.05)  # somebody else made it non-blocking
            return data
        except OSError:
            return b""

    def _forget(self) -> None:
        """In a forked child, which has no thread: its parent writes what waits."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting.clear()
        self._size = self._dropped = 0
        self._is_writing = False


def _writer(fd: int) -> tuple[int, Callable[[bytes], int] | None]:
    """The descriptor to poll and a function that writes without waiting; None where there is no such way."""
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return fd, lambda data: os.write(fd, data)
        if stat.S_ISSOCK(mode):
            peer = socket.socket(fileno=os.dup(fd))
            return peer.fileno(), lambda data: peer.send(data, socket.MSG_DONTWAIT)

        # Linux opens the same pipe anew here; elsewhere such paths give the same flags back, and are of no use.
        own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        return own, lambda data: os.write(own, data)
    except OSError:
        return fd, None


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_writable(fd: int) -> bool:
    """Wait a moment until it is; also if nobody can read it any more, which writing finds out."""
    waiting = poll()
    waiting.register(fd, POLLOUT)
    return bool(waiting.poll(250))
