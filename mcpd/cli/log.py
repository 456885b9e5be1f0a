"""The log of `mcpd serve` on stderr: text for people or JSON for programs, written without waiting for the reader.

A traceback is indented below its record in text, and a field in JSON; docs/reference/metrics.md lists the fields. Of
similar records within a few seconds only the first ones are written; the others are counted. At level debug, all
records are written.

A host may start a server and never read its stderr. The pipe is full after 64 KiB, and a plain write would then block
the whole server. The descriptor itself cannot be made non-blocking, because other processes share it. So a pipe or a
terminal is opened once more with its own flags, and a socket is written with MSG_DONTWAIT; a thread writes to anything
else. Data that cannot be written yet waits in a bounded queue. If the queue is full, lines are dropped, and a line with
their number is written later.
"""

from __future__ import annotations

import io
import logging
import os
import select
import socket
import stat
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

from msgspec import Struct

from mcpd.protocol.wire import trace_context

# How many similar records are written within `WINDOW`.
MOST_ALIKE = 10

# In seconds.
WINDOW = 10.0

# How much of a traceback is written: the beginning and the end.
MOST_TRACEBACK_CHARACTERS = 16 * 1024

_MOST_KINDS = 256
_TEMPLATE_CHARACTERS = 120
_FORMAT = "%(levelname)s %(name)s: %(message)s"
_COUNTED = ("mcpd", "asyncio", "uvicorn", "websockets")

# The beginnings of our messages about a call, and the fields in which their first arguments are repeated.
_BEGINNINGS = (
    ("tool %s (request %s)", ("tool", "request")),
    ("resource %s (request %s)", ("uri", "request")),
    ("prompt %s (request %s)", ("prompt", "request")),
    ("%s (id %s)", ("method", "request")),
)


# Writes the lines of one client of a daemon; None writes them to this process's stderr.
output: ContextVar[Callable[[bytes], object] | None] = ContextVar("output", default=None)


class LogHandler(logging.Handler):
    """Formats records and passes the lines to `write`; calls `finish` at the end of the process."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        finish: Callable[[], object],
        *,
        level: str,
        target: str | None,
        log_format: str,
    ) -> None:
        super().__init__()
        if log_format == "json":
            import json  # noqa: F401 - when the first record comes, no file descriptor may be free to load it
        self.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter(_FORMAT))
        if level != "debug":
            # The records of mcpd and of the user's own code are kept.
            self._own = {"mcpd", (target or "").partition(":")[0].partition(".")[0]}
            self.addFilter(self._is_wanted)
        self._write = write
        self._finish = finish
        self._repeats = _Repeats(self._put)

    def _is_wanted(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING or record.name.partition(".")[0] in self._own:
            return True
        return "site-packages" not in record.pathname and "dist-packages" not in record.pathname

    def emit(self, record: logging.LogRecord) -> None:
        if self._repeats.passes(record):
            self._put(record)

    def _put(self, record: logging.LogRecord, write: Callable[[bytes], object] | None = None) -> None:
        try:
            line = self.format(record)
        except Exception:
            # The arguments do not fit the message. Python would print three pages about it.
            text = f"a record of {record.name} at {record.pathname}:{record.lineno} cannot be formatted"
            line = self.format(logging.LogRecord("mcpd", logging.ERROR, "", 0, "%s", (text,), None))
        (write or output.get() or self._write)(f"{line}\n".encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Write everything; called by `logging` at the end of the process."""
        self._repeats.report_all()
        self._finish()


class _TextFormatter(logging.Formatter):
    """Formats a message as one line, and its traceback as indented lines."""

    def format(self, record: logging.LogRecord) -> str:
        lines = [_escaped(line) for line in super().format(record).split("\n")]
        if len(lines) == 1:
            return lines[0]
        if record.name.partition(".")[0] == "mcpd":
            # Our messages have one line: further lines come from a peer.
            breaks = record.message.count("\n")
            lines[: breaks + 1] = ["\\n".join(lines[: breaks + 1])]
        return "\n  ".join(lines)

    def formatException(self, ei: object) -> str:  # noqa: N802
        return _shortened(super().formatException(ei))  # type: ignore[arg-type]


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record.created, record.levelname.lower(), record.name, record.getMessage())
        # The fields of a call, from the call log or from the arguments of our own messages.
        fields.update(getattr(record, "mcpd_fields", None) or _call_fields(record))
        if trace_context.is_traced and "trace_id" not in fields:
            # The record was logged during a traced call.
            parent = trace_context.propagated().get("traceparent", "")
            fields.update({"trace_id": parent[3:35], "span_id": parent[36:52]} if parent else {})

        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fields["error"] = type(error).__name__
            fields["traceback"] = _shortened(super().formatException(record.exc_info))
        elif record.exc_text:
            fields["traceback"] = _shortened(record.exc_text)
        return _json_line(fields)


def lines_as_json(data: bytes, logger: str) -> bytes:
    """Printed output as JSON records, one per line; empty lines are left out."""
    now = time.time()
    lines = data.decode("utf-8", "backslashreplace").splitlines()
    return b"".join(_json_line(_fields(now, "info", logger, line)).encode() + b"\n" for line in lines if line.strip())


def _fields(when: float, level: str, logger: str, message: str) -> dict[str, Any]:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))
    return {"time": f"{seconds}.{int(when % 1 * 1000):03}Z", "level": level, "logger": logger, "message": message}


def _call_fields(record: logging.LogRecord) -> dict[str, Any]:
    if record.name.partition(".")[0] != "mcpd" or not isinstance(record.args, tuple) or len(record.args) < 2:
        return {}
    for beginning, names in _BEGINNINGS:
        if str(record.msg).startswith(beginning):
            return dict(zip(names, map(str, record.args), strict=False))
    return {}


def _json_line(fields: dict[str, Any]) -> str:
    import json

    # ASCII: this escapes lone surrogates, and characters that control a terminal or the direction of text.
    return json.dumps(fields, separators=(",", ":"), default=str)


def _shortened(text: str) -> str:
    if len(text) <= MOST_TRACEBACK_CHARACTERS:
        return text
    half = MOST_TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out …\n{text[-half:]}"


def _escaped(line: str) -> str:
    # A client could otherwise clear the screen or forge lines of the log.
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in line)


class _Kind(Struct):
    """Similar records: they have the same logger and template, and the same exception from the same place."""

    name: str
    level: int
    template: str
    since: float
    write: Callable[[bytes], object] | None
    written: int = 0
    suppressed: int = 0


class _Repeats:
    """Lets the first few similar records pass, and reports the number of others later or at the end.

    Records of the author's own loggers always pass. Called with the handler's lock held.
    """

    def __init__(self, write: Callable[[logging.LogRecord, Callable[[bytes], object] | None], None]) -> None:
        self._write = write
        self._kinds: OrderedDict[object, _Kind] = OrderedDict()
        self._next_sweep = 0.0

    def passes(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG or record.name.partition(".")[0] not in _COUNTED:
            return True
        # The call log was requested, and messages that are sent once cannot repeat.
        if hasattr(record, "mcpd_fields") or hasattr(record, "mcpd_told_once"):
            return True
        now = time.monotonic()
        if now >= self._next_sweep:
            self._sweep(now)
        # asyncio uses no templates, so the beginning of its first line is compared.
        template = str(record.msg).partition("\n")[0][:_TEMPLATE_CHARACTERS]
        write = output.get()
        key = (record.name, template, _exception_place(record), write)

        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._report(self._kinds.popitem(last=False)[1])
            self._kinds[key] = kind = _Kind(record.name, record.levelno, template, now, write)

        if kind.written < MOST_ALIKE:
            kind.written += 1
            return True

        if not kind.suppressed:
            self._log(kind, "more lines like this one follow; they are counted")
        kind.suppressed += 1
        return False

    def _sweep(self, now: float) -> None:
        self._next_sweep = now + 1.0
        for key, kind in list(self._kinds.items()):
            if now - kind.since >= WINDOW:
                self._report(self._kinds.pop(key))

    def report_all(self) -> None:
        while self._kinds:
            self._report(self._kinds.popitem(last=False)[1])

    def _report(self, kind: _Kind) -> None:
        if kind.suppressed:
            times = "once more" if kind.suppressed == 1 else f"{kind.suppressed} times more"
            self._log(kind, f"repeated {times} within {WINDOW:g} s: {kind.template}")

    def _log(self, kind: _Kind, text: str) -> None:
        self._write(logging.LogRecord(kind.name, kind.level, "", 0, "… %s", (text,), None), kind.write)


def _exception_place(record: logging.LogRecord) -> object:
    if not record.exc_info or record.exc_info[1] is None:
        return None
    place = record.exc_info[2]
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return type(record.exc_info[1]), None if place is None else (place.tb_frame.f_code.co_filename, place.tb_lineno)


# How much output may wait for the reader of stderr; more is dropped.
MOST_WAITING_BYTES = 1024 * 1024

# How long the end of the process waits for the reader to take the last lines.
LAST_SECONDS = 0.5


# The arguments of `configure`, for processes that do the same.
configured: tuple[str, str | None, str] | None = None


def configure(level: str, target: str | None = None, log_format: str = "text") -> None:
    """Send the log of this process to stderr, together with output that Python prints to stderr.

    Output on stdout is included if stdout is the same file. Below level warning, installed packages other than mcpd and
    `target` are not logged unless `level` is debug, because their messages may contain secrets such as whole URLs. With
    `log_format` "json", every line is a JSON object, printed output included. Does nothing if the root logger has a
    handler already.
    """
    global configured
    configured = level, target, log_format
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
    # A shell or `claim` may have made stdout the same file as stderr.
    try:
        return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
    except (OSError, ValueError):
        return False


def text_stream(writer: DescriptorWriter, like: io.TextIOWrapper) -> io.TextIOWrapper:
    """A text stream that writes to `writer`, with the descriptor and the encoding of `like`."""
    # On the main thread, where the event loop runs, it drops output instead of waiting. It has no lock that another
    # thread could hold while it waits.
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
        self._reset()
        self._open()
        # The parent writes the queue.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        # Reentrant: a signal handler may log while a line is written.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[bytes] = deque()
        self._size = self._dropped = 0
        self._is_writing = False

    def put(self, data: bytes, *, waits: bool = False) -> None:
        """Write whole lines, or queue them. With `waits`, wait for room in the queue; otherwise drop them."""
        with self._lock:
            # Programs redirect their output by replacing the file of a descriptor.
            if _identity(self._fd) != self._identity:
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
        self._own, self._write = open_writer(self._fd)

    def _push(self, data: bytes) -> bytes:
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


def open_writer(fd: int) -> tuple[int, Callable[[bytes], int] | None]:
    """A descriptor for the same reader, and a function that writes to it without waiting; None if there is no way."""
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return fd, lambda data: os.write(fd, data)
        if stat.S_ISSOCK(mode):
            peer = socket.socket(fileno=os.dup(fd))
            return peer.fileno(), lambda data: peer.send(data, socket.MSG_DONTWAIT)

        # On Linux this opens the same pipe with flags of its own. Elsewhere such a path, if there is one, shares the
        # flags.
        own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        return own, lambda data: os.write(own, data)
    except (OSError, AttributeError):  # Windows has no such flags
        return fd, None


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_writable(fd: int) -> bool:
    # A descriptor whose reader is gone counts as writable: the write then fails, which ends the wait.
    waiting = select.poll()
    waiting.register(fd, select.POLLOUT)
    return bool(waiting.poll(250))
