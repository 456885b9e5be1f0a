"""Reads what is hard to read in a process of its own: what takes too long there, or too much memory, ends with it.

Parsers of PDF, HTML and reStructuredText can be led into hours of work by a few bytes. The process has a limit of time
for each file, which its own watchdog holds even in the middle of a pattern, and a limit of memory; it writes no files,
and ends with us.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import threading
from typing import IO

import msgspec

from mcpd.docs.page import Kind, Page, UnreadablePage
from mcpd.transports.child import ChildProcess

APART: frozenset[Kind] = frozenset(("html", "rst", "pdf"))
"""The kinds that are read apart."""

_MOST_ANSWER = 256 * 1024 * 1024
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


class Request(msgspec.Struct):
    """One file to be read."""

    path: str
    data: bytes
    seconds: float
    with_links: bool


_encode = msgspec.msgpack.Encoder().encode
_answers = msgspec.msgpack.Decoder(tuple[Page | None, str])


class Apart:
    """The process, which is there from the first file on. May be used by several threads, one file at a time."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: how long the reading of one file may take."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: ChildProcess | None = None
        self._is_closed = False

    def read_page(self, path: str, data: bytes, *, with_links: bool = True) -> Page:
        """The page that a file is. Raises UnreadablePage."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                body = _encode(Request(path, data, self._seconds, with_links))
                process.stdin.write(struct.pack("<Q", len(body)) + body)
                process.stdin.flush()
                page, problem = _answers.decode(_framed(process.stdout))
            except (OSError, EOFError, msgspec.DecodeError, ValueError):
                self._end(process)
                reason = "reading it was stopped" if self._is_closed else self._reason()
                raise UnreadablePage(reason) from None
        if page is None:
            raise UnreadablePage(problem)
        return page

    def rest(self) -> None:
        """End the process, until the next file."""
        with self._lock:
            if self._process is not None:
                self._end(self._process)

    def close(self) -> None:
        """End the process for good, in the middle of a file too. From any thread."""
        self._is_closed = True
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
        self.rest()

    def _reason(self) -> str:
        return f"takes more than {self._seconds:g} seconds to read, or too much memory"

    def _started(self) -> ChildProcess:
        if self._is_closed or not sys.executable:
            raise UnreadablePage("cannot be read: there is no process to read it in")
        if self._process is None:
            paths = [_PACKAGE, *(path for path in sys.path if path)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONSAFEPATH": "1"}
            try:
                self._process = ChildProcess(
                    [sys.executable, "-m", "mcpd.docs.readers.child"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
                    cwd=os.path.abspath(os.sep),
                )  # fmt: skip
            except OSError as error:
                raise UnreadablePage(f"cannot be read: no process can be started ({error.strerror})") from None
        return self._process

    def _end(self, process: ChildProcess) -> None:
        self._process = None
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.wait_blocking()


def _framed(stream: IO[bytes]) -> bytes:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (size,) = struct.unpack("<Q", head)
    if size > _MOST_ANSWER:
        raise EOFError
    body = stream.read(size)
    if len(body) < size:
        raise EOFError
    return body
