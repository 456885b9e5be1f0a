"""Copies the stderr of a child process to this process's stderr, at a limited rate and without blocking.

The output is for people (2025-11-25 basic/transports, stdio: "the client MAY capture, forward, or ignore"). A child
that writes without end fills neither a log nor the memory, and is never blocked. Control characters are escaped, and
colours are removed.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
from codecs import getincrementaldecoder

from mcpd.protocol.printable import printable, printable_lines

BURST_SECONDS = 16.0
"""The rate limit allows bursts of this many seconds, so that tracebacks are copied whole."""

LAST_BYTES = 4096
LAST_LINES = 5
LAST_CHARACTERS = 800
"""The size of the end that is kept, and the part of it that an error message quotes."""

_STDERR = 2
_READ_BYTES = 65536
_PIECE_BYTES = 4096
"""The bytes that a ready pipe accepts without blocking (PIPE_BUF)."""
_LAST_READS = 16
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class StderrCopy:
    """Copies from the descriptor `source`, which it closes, to stderr. `name` is the name of the child there.

    The end of it is kept: it is the best there is to say of a child that has died.
    """

    def __init__(self, source: int, name: str, bytes_per_second: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._name = name
        self._rate = bytes_per_second
        self._allowed = self._most = bytes_per_second * BURST_SECONDS
        self._at = self._loop.time()
        self.dropped_bytes = 0
        """How much was not passed on, and not said yet."""
        self._is_open = True
        self._last = b""
        self._decoder = getincrementaldecoder("utf-8")("replace") if os.isatty(_STDERR) else None
        os.set_blocking(source, False)
        self._loop.add_reader(source, self._readable)

    def _readable(self) -> bool:
        """Take what is there; whether there may be more."""
        try:
            data = os.read(self._source, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""

        if data:
            self._last = (self._last + data[-LAST_BYTES:])[-LAST_BYTES:]
            self._pass_on(data)
        else:
            self._end()
        return data != b""

    def close(self) -> None:
        """Pass on what was written so far, and let go of the descriptor."""
        self._read_rest()
        self._end()

    def last_lines(self) -> str:
        """The last lines that the child has written, in one line; "" if it wrote none."""
        self._read_rest()
        text = _COLOURS.sub("", self._last.decode("utf-8", "replace"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        text = " | ".join(printable(line, LAST_BYTES) for line in lines[-LAST_LINES:])
        return text if len(text) <= LAST_CHARACTERS else f"…{text[-LAST_CHARACTERS:]}"

    def _read_rest(self) -> None:
        for _ in range(_LAST_READS):
            if not self._is_open or not self._readable():
                break

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._source)
            os.close(self._source)
            self._confess()

    def _pass_on(self, data: bytes) -> None:
        now = self._loop.time()
        self._allowed = min(self._most, self._allowed + (now - self._at) * self._rate)
        self._at = now
        if self.dropped_bytes and len(data) <= self._allowed:
            self._confess()
        if self._decoder is not None:
            data = _for_terminal(self._decoder.decode(data))
        passed = _write(data[: int(self._allowed)])
        self._allowed -= passed
        self.dropped_bytes += len(data) - passed

    def _confess(self) -> None:
        if self.dropped_bytes:
            text = f"\nmcpd: {self.dropped_bytes} bytes that {self._name} wrote to stderr were left out\n"
            if _write(text.encode("utf-8", "backslashreplace")):
                self.dropped_bytes = 0


def _for_terminal(text: str) -> bytes:
    return printable_lines(_COLOURS.sub("", text)).encode("utf-8", "backslashreplace")


def _write(data: bytes) -> int:
    """Write what stderr takes without waiting: gives how much that was."""
    poll = select.poll()
    poll.register(_STDERR, select.POLLOUT)
    written = 0
    try:
        while written < len(data) and any(event & select.POLLOUT for _, event in poll.poll(0)):
            written += os.write(_STDERR, data[written : written + _PIECE_BYTES])
    except OSError:
        pass  # nobody reads it, or it is closed
    return written
