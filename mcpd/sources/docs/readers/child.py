"""The child process of `reading.py`: reads one file after another from its standard input."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import struct
import sys
from collections.abc import Callable

import msgspec

from mcpd.sources.docs.page import Kind, Page, UnreadablePage, kind_of
from mcpd.sources.docs.readers.reading import Request

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
        with open(os.devnull, "w") as told:
            # faulthandler's thread does not need the interpreter, so it also ends the process inside a regular
            # expression.
            faulthandler.dump_traceback_later(request.seconds, exit=True, file=told)
            body = encode(_answer(request))
            faulthandler.cancel_dump_traceback_later()
        target.write(struct.pack("<Q", len(body)) + body)
        target.flush()


def _answer(request: Request) -> tuple[Page | None, str]:
    try:
        return _reader(kind_of(request.path))(request.path, request.data, request.with_links), ""
    except UnreadablePage as error:
        return None, str(error)
    except MemoryError:
        return None, "needs too much memory to read"
    except RecursionError:
        return None, "is nested too deeply"
    except Exception as error:  # libraries raise anything for malformed files
        return None, f"cannot be read ({type(error).__name__})"


def _reader(kind: Kind | None) -> Callable[[str, bytes, bool], Page]:
    if kind == "html":
        from mcpd.sources.docs.readers.html import read_html as reader
    elif kind == "pdf":
        from mcpd.sources.docs.readers.text import read_pdf as reader
    elif kind == "rst":
        try:
            from mcpd.sources.docs.readers.rst import read_rst as reader
        except ImportError:
            raise UnreadablePage("reStructuredText needs a library: pip install 'mcpd-server[docs]'") from None
    else:
        raise UnreadablePage("is not a document")
    return reader


def _limit() -> None:
    """Limit memory and forbid writing files."""
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
