"""Writes the log and printed output of `mcpd serve` to stderr without waiting for its reader.

A host may start a server and never read its stderr. The pipe is full after 64 KiB, and a plain write would then block
the whole server. The descriptor itself cannot be made non-blocking, because other processes share it. So a pipe or a
terminal is opened once more with its own flags, and a socket is written with MSG_DONTWAIT; a thread writes to anything
else. Data that cannot be written yet waits in a bounded queue. If the queue is full, lines are dropped, and a line
with their number is written later.
"""

from __future__ import annotations

import io
import logging
import os
import socket
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from select import POLLOUT, poll
from typing import Any

from mcpd.cli.log import LogHandler, lines_as_json

MOST_WAITING_BYTES = 1024 * 1024
"""How much output may wait for the reader of stderr; more is dropped."""

LAST_SECONDS = 0.5
"""How long the end of the process waits for the reader to take the last lines."""


def configure(level: str, target: str | None = None, log_format: str = "text") -> None:
    """Send the log of this process to stderr, together with output that Python prints to stderr.

    Output on stdout is included if stdout is the same file. Below level warning, installed packages other than mcpd and
    `target` are not logged unless `level` is debug, because their messages may contain secrets such as whole URLs. With
    `log_format` "json", every line is a JSON object, printed output included. Does nothing if the root logger has a
    handler already.
    """
    root = logging.getLogger()
    stream = sys.stderr
    if root.handlers or stream is None:
        return

    # A stream with which a program has replaced stderr is left alone, and so is one without a descriptor.
    if stream is sys.__stderr__ and isinstance(stream, io.TextIOWrapper):
        stream.flush()
        writer = DescriptorWriter(
            stream.fileno(), as_lines=partial(lines_as_json, logger="stderr") if log_format == "json" else None
        )
        sys.stderr = text_stream(writer, stream)
        if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper) and _is_same(sys.stdout, stream):
            sys.stdout.flush()
            sys.stdout = text_stream(writer, sys.stdout)
        write: Callable[[bytes], object] = writer.put
        finish: Callable[[], object] = writer.finish
    else:
        write, finish = (lambda data: print(data.decode(), end="", file=stream)), stream.flush

    root.addHandler(LogHandler(write, finish, level=level, target=target, log_format=log_format))
    root.setLevel(level.upper())


def _is_same(one: io.TextIOWrapper, other: io.TextIOWrapper) -> bool:
    """Whether two streams are the same file; a shell or `claim` may have made stdout so."""
    try:
        return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
    except (OSError, ValueError):
        return False


def text_stream(writer: DescriptorWriter, like: io.TextIOWrapper) -> io.TextIOWrapper:
    """A text stream that writes to `writer`, with the descriptor and the encoding of `like`.

    On the main thread, where the event loop runs, it drops output instead of waiting. It has no lock that another
    thread could hold while it waits.
    """
    raw = _RawStream(writer, like.fileno())
    # TextIOWrapper keeps an incomplete line and writes it later in one piece.
    return io.TextIOWrapper(raw, encoding=like.encoding, errors=like.errors, line_buffering=True)


class _RawStream(io.RawIOBase):
    def __init__(self, writer: DescriptorWriter, fd: int) -> None:
        self._writer = writer
        self._fd = fd
        self.mode = "wb"
        self.name = "<stderr>"

    def write(self, data: Any, /) -> int:
        whole = bytes(data)
        lines = whole if self._writer.as_lines is None else self._writer.as_lines(whole)
        self._writer.put(lines, waits=threading.current_thread() is not threading.main_thread())
        return len(whole)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)


class DescriptorWriter:
    """Writes to a descriptor, from any thread. Only `put(..., waits=True)` and `finish` wait for its reader.

    `as_lines` converts printed output, and the note about dropped lines, to the format of the log.
    """

    def __init__(
        self, fd: int, most: int = MOST_WAITING_BYTES, as_lines: Callable[[bytes], bytes] | None = None
    ) -> None:
        self._fd = fd
        self._most = most
        self.as_lines = as_lines
        # Reentrant: a signal handler may log while a line is written.
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
        """Write whole lines, or queue them. With `waits`, wait for room in the queue; otherwise drop them."""
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
        """Wait until everything is written, at most for this time."""
        end = time.monotonic() + seconds
        with self._lock:
            while self._is_writing and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _open(self) -> None:
        self._identity = _identity(self._fd)
        self._own, self._write = _writer(self._fd)

    def _is_other_file(self) -> bool:
        """Whether the descriptor refers to another file now; programs redirect their output this way."""
        return _identity(self._fd) != self._identity

    def _push(self, data: bytes) -> bytes:
        """Write as much as possible, and return the rest. If the reader is gone, the data is discarded."""
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
        # The rest of a line that was partly written is never dropped; the first line in the queue may have any length.
        if self._size and self._size + len(data) > self._most:
            self._dropped += max(1, data.count(b"\n"))
            return
        if self._dropped:
            self._note()
        self._waiting.append(data)
        self._size += len(data)

    def _note(self) -> None:
        note = b"mcpd: %d lines were dropped here because stderr was not read\n" % self._dropped
        if self.as_lines is not None:
            note = self.as_lines(note)
        self._dropped = 0
        self._waiting.append(note)
        self._size += len(note)

    def _write_on(self) -> None:
        """Write the queue, in a thread that ends when the queue is empty."""
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
            time.sleep(0.05)  # another process has made the descriptor non-blocking
            return data
        except OSError:
            return b""

    def _forget(self) -> None:
        """Reset the state in a forked child: the parent writes the queue."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting.clear()
        self._size = self._dropped = 0
        self._is_writing = False


def _writer(fd: int) -> tuple[int, Callable[[bytes], int] | None]:
    """A descriptor to poll, and a function that writes without waiting; None if a thread must write."""
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return fd, lambda data: os.write(fd, data)
        if stat.S_ISSOCK(mode):
            peer = socket.socket(fileno=os.dup(fd))
            return peer.fileno(), lambda data: peer.send(data, socket.MSG_DONTWAIT)

        # On Linux this opens the same pipe again. Elsewhere such a path, if any, shares the flags.
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
    """Wait a moment until a descriptor is writable; True also if its reader is gone."""
    waiting = poll()
    waiting.register(fd, POLLOUT)
    return bool(waiting.poll(250))
