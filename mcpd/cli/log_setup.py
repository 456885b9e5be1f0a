"""Where the log of `mcpd serve` goes, and what is printed: to stderr.

What writes there, `log` and `stderr`, is loaded with the first line. Most processes that a host starts never say any.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from select import POLLOUT, poll
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Protocol

    from mcpd.cli.stderr import DescriptorWriter

    class _Writer(Protocol):
        as_lines: Callable[[bytes], bytes] | None

        def put(self, data: bytes, *, waits: bool = False) -> None: ...


_MOST_CHARACTERS = 4000
"""Of a record that is written in the plain way."""


def configure(level: str, target: str | None = None, form: str = "text") -> None:
    """Send the log of this process to stderr, and what Python prints there and to a stdout that is stderr.

    Installed packages other than ours and `target`, the user's own, say warnings and errors only, unless `level` is
    debug: what one of them calls news may be a whole URL with the secrets in it.
    With `form` "json" each line is an object, what is printed too.
    Does nothing for a log that the target, or whoever embeds this, has set up.
    """
    root = logging.getLogger()
    if root.handlers:
        return

    stream = sys.stderr
    if stream is None:
        return

    # What a program has put in the place of stderr is its own; so is a stream without a descriptor.
    if stream is sys.__stderr__ and isinstance(stream, io.TextIOWrapper):
        stream.flush()
        as_lines = None
        if form == "json":
            from mcpd.cli.json_log import as_records

            as_lines = partial(as_records, logger="stderr")
        writer = _LateWriter(stream.fileno(), as_lines)
        sys.stderr = text_stream(writer, stream)
        if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper) and _is_same(sys.stdout, stream):
            sys.stdout.flush()
            sys.stdout = text_stream(writer, sys.stdout)
        write: Callable[[bytes], object] = writer.put
        finish: Callable[[], object] = writer.finish
    else:
        write, finish = (lambda data: print(data.decode(), end="", file=stream)), stream.flush

    root.addHandler(_LateHandler(write, finish, level=level, target=target, form=form))
    root.setLevel(level.upper())


def _is_same(one: io.TextIOWrapper, other: io.TextIOWrapper) -> bool:
    """Whether both are one file: `claim` has made stdout so, or the shell."""
    try:
        return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
    except (OSError, ValueError):
        return False


class _LateWriter:
    """A `DescriptorWriter` that is made when something is written."""

    def __init__(self, fd: int, as_lines: Callable[[bytes], bytes] | None) -> None:
        self.as_lines = as_lines
        self._fd = fd
        # Reentrant: a signal handler may print while it is made.
        self._lock = threading.RLock()
        self._writer: DescriptorWriter | None = None

    def put(self, data: bytes, *, waits: bool = False) -> None:
        """See there."""
        try:
            writer = self._made()
        except (ImportError, OSError):
            # To load it takes a descriptor, and none may be left: then in the plain way, if there is room.
            waiting = poll()
            waiting.register(self._fd, POLLOUT)
            if waiting.poll(0):
                with suppress(OSError):
                    os.write(self._fd, data)
        else:
            writer.put(data, waits=waits)

    def finish(self) -> None:
        """See there."""
        if self._writer is not None:
            self._writer.finish()

    def _made(self) -> DescriptorWriter:
        with self._lock:
            if self._writer is None:
                from mcpd.cli.stderr import DescriptorWriter

                self._writer = DescriptorWriter(self._fd, as_lines=self.as_lines)
            return self._writer


class _LateHandler(logging.Handler):
    """A handler of `log` that is made with the first record."""

    def __init__(self, write: Callable[[bytes], object], finish: Callable[[], object], **how: Any) -> None:
        super().__init__()
        self._write = write
        self._finish = finish
        self._how = how
        self._handler: logging.Handler | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock held."""
        try:
            if self._handler is None:
                from mcpd.cli.log import make_handler

                self._handler = make_handler(self._write, self._finish, **self._how)
        except (ImportError, OSError):  # no descriptor is left, which is what the record may say
            said = f"{record.levelname} {record.name}: {self.format(record)}"[:_MOST_CHARACTERS]
            # By hand: the codec that escapes characters would have to be loaded too.
            line = "".join("\n  " if c == "\n" else c if c.isprintable() else "?" for c in said)
            self._write(f"{line}\n".encode("utf-8", "backslashreplace"))
        else:
            self._handler.handle(record)

    def flush(self) -> None:
        """What logging calls at the end of the process."""
        if self._handler is not None:
            self._handler.flush()


class _Raw(io.RawIOBase):
    """What Python prints into. On the main thread, where the event loop runs, a full pipe drops what is printed."""

    def __init__(self, writer: _Writer, fd: int) -> None:
        self._writer = writer
        self._fd = fd
        self.mode = "wb"
        self.name = "<stderr>"

    def write(self, data: Any, /) -> int:
        whole = bytes(data)
        said = whole if self._writer.as_lines is None else self._writer.as_lines(whole)
        self._writer.put(said, waits=threading.current_thread() is not threading.main_thread())
        return len(whole)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)


def text_stream(writer: _Writer, like: io.TextIOWrapper) -> io.TextIOWrapper:
    """A text stream into a writer, in the place of `like`, whose descriptor and encoding it has.

    It has no lock that a thread could hold while it waits: printing on the event loop never waits for a thread.
    """
    raw = _Raw(writer, like.fileno())
    # TextIOWrapper keeps what is no whole line, and then writes it in one piece.
    return io.TextIOWrapper(raw, encoding=like.encoding, errors=like.errors, line_buffering=True)
