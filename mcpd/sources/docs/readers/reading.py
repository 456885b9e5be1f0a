"""`read_page`: read a file with the reader for its format, in a child process for complex formats.

A few bytes can make parsers of PDF, HTML and reStructuredText work for hours. The child process therefore has a time
limit per file, enforced by a watchdog, and a memory limit. It cannot write files, and it ends with this process. It
runs `main` of this module, which reads one file after another from its standard input.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

import msgspec
from msgspec import structs

from mcpd.sources.docs.notebook import UnreadableNotebook, read_notebook
from mcpd.sources.docs.page import Kind, Page, UnreadablePage, kind_of
from mcpd.transports.child import ChildProcess
from .markdown import markdown_page, read_markdown, read_mdx
from .text import decoded, read_pdf, read_text

ISOLATED_KINDS: frozenset[Kind] = frozenset(("html", "rst", "pdf"))

_MAX_ANSWER = 256 * 1024 * 1024
_PACKAGE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", ".."))


class Request(msgspec.Struct):
    path: str
    data: bytes
    seconds: float


_encode = msgspec.msgpack.Encoder().encode
_answers = msgspec.msgpack.Decoder(tuple[Page | None, str])


class ReaderProcess:
    """The child process, started with the first file. Thread-safe; one file is read at a time."""

    def __init__(self, seconds: float) -> None:
        # `seconds` is the time limit for one file.
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: ChildProcess | None = None
        self._is_closed = False

    def read_page(self, path: str, data: bytes) -> Page:
        """Return the page of a file. Raises UnreadablePage."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                body = _encode(Request(path, data, self._seconds))
                process.stdin.write(struct.pack("<Q", len(body)) + body)
                process.stdin.flush()
                page, problem = _answers.decode(_framed(process.stdout))
            except (OSError, ValueError, struct.error):
                self._end(process)
                reason = f"takes more than {self._seconds:g} seconds or too much memory to read"
                raise UnreadablePage("reading it was stopped" if self._is_closed else reason) from None

        if page is None:
            raise UnreadablePage(problem)
        return page

    def stop(self) -> None:
        """End the process until the next file."""
        with self._lock:
            if self._process is not None:
                self._end(self._process)

    def close(self) -> None:
        # Any thread may call it, even while a file is read.
        self._is_closed = True
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
        self.stop()

    def _started(self) -> ChildProcess:
        if self._is_closed or not sys.executable:
            raise UnreadablePage("cannot be read: the child process is not available")
        if self._process is None:
            paths = [_PACKAGE, *(path for path in sys.path if path)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONSAFEPATH": "1"}
            try:
                self._process = ChildProcess(
                    [sys.executable, "-m", "mcpd.sources.docs.readers.reading"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
                    cwd=os.path.abspath(os.sep),
                )  # fmt: skip
            except OSError as error:
                raise UnreadablePage(f"cannot be read: the child process does not start ({error.strerror})") from None

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
    (size,) = struct.unpack("<Q", stream.read(8))
    return stream.read(min(size, _MAX_ANSWER))


_MAX_NOTEBOOK_CHARACTERS = 4_000_000


def _read_notebook(path: str, data: bytes) -> Page:
    from mcpd.sources.docs.notebook_views import notebook_text

    try:
        notebook = read_notebook(data)
    except UnreadableNotebook as error:
        raise UnreadablePage(f"is not a notebook that can be read: {error}") from None
    notebook = structs.replace(notebook, language=notebook.language or "python")
    text, _ = notebook_text(notebook, limit=_MAX_NOTEBOOK_CHARACTERS)
    return markdown_page(path, decoded(text.encode("utf-8", "replace")), "notebook", {}, notebook.title)


_READERS: dict[Kind, Callable[[str, bytes], Page]] = {
    "markdown": read_markdown,
    "mdx": read_mdx,
    "notebook": _read_notebook,
    "text": read_text,
}


def read_page(path: str, data: bytes, *, process: ReaderProcess | None = None) -> Page:
    """Return the page of a file; `path` is relative to the folder. Raises UnreadablePage with the reason."""
    kind = kind_of(path)
    if kind in ISOLATED_KINDS:
        if process is not None:
            return process.read_page(path, data)
        once = ReaderProcess(10.0)
        try:
            return once.read_page(path, data)
        finally:
            once.close()

    reader = None if kind is None else _READERS.get(kind)
    if reader is None:
        raise UnreadablePage("is not a document")
    return _guarded(reader, path, data)


def _guarded(reader: Callable[[str, bytes], Page], path: str, data: bytes) -> Page:
    # Call a reader. Whatever it raises becomes UnreadablePage, so that a reader that fails costs only this page.
    try:
        return reader(path, data)
    except UnreadablePage:
        raise
    except MemoryError:
        raise UnreadablePage("needs too much memory to read") from None
    except RecursionError:
        raise UnreadablePage("is nested too deeply") from None
    except Exception as error:  # libraries raise anything for malformed files
        raise UnreadablePage(f"cannot be read ({type(error).__name__})") from None


# -- in the child process ----------------------------------------------------------------------

_MAX_MEMORY = 2 * 1024**3


def main() -> None:
    """Answer requests until standard input ends."""
    # Output of libraries is discarded, so that it cannot corrupt the answers.
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    _limit()
    sys.setrecursionlimit(2000)
    decoder = msgspec.msgpack.Decoder(Request)
    encode = msgspec.msgpack.Encoder(enc_hook=str).encode
    while head := source.read(8):
        request = decoder.decode(source.read(struct.unpack("<Q", head)[0]))
        with open(os.devnull, "w") as discarded:
            # faulthandler's thread does not need the interpreter, so it also ends the process inside a regular
            # expression.
            faulthandler.dump_traceback_later(request.seconds, exit=True, file=discarded)
            body = encode(_answer(request))
            faulthandler.cancel_dump_traceback_later()
        target.write(struct.pack("<Q", len(body)) + body)
        target.flush()


def _answer(request: Request) -> tuple[Page | None, str]:
    try:
        return _guarded(_isolated_reader(kind_of(request.path)), request.path, request.data), ""
    except UnreadablePage as error:
        return None, str(error)


def _isolated_reader(kind: Kind | None) -> Callable[[str, bytes], Page]:
    if kind == "html":
        from .html import read_html as reader
    elif kind == "pdf":
        reader = read_pdf
    elif kind == "rst":
        try:
            from .rst import read_rst as reader
        except ImportError:
            raise UnreadablePage("reStructuredText needs a library: pip install 'mcpd-server[docs]'") from None
    else:
        raise UnreadablePage("is not a document")
    return reader


def _limit() -> None:
    # Limit memory and forbid writing files.
    try:
        import resource
    except ImportError:  # Windows, which still has the time limit
        return
    for name, limit in (("RLIMIT_AS", _MAX_MEMORY), ("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0)):
        if hasattr(resource, name):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, name), (limit, limit))


if __name__ == "__main__":
    main()
