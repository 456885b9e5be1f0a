"""The process's own stdin and stdout: taken for the protocol, or seen to be open where that is not served.

`claim` keeps the real stdout for the protocol: whatever a tool, a library or a child process prints goes to stderr.
"""

from __future__ import annotations

import io
import os
import sys

from mcpd.errors import ConfigurationError


def claim() -> tuple[int, int]:
    """Take stdin and stdout for the protocol and give their new descriptors (in, out).

    Afterwards descriptor 0 reads nothing and descriptor 1 is stderr, for Python, C and child processes alike.
    Call it before any code of the user is imported. Raises ConfigurationError if one of them is closed.
    """
    for fd, name in enumerate(("stdin", "stdout")):
        if not _is_open(fd):
            raise ConfigurationError(f"{name} is closed; --stdio needs both, as a host that starts it gives them")

    if not _is_open(2):
        # Or the next file that is opened would be what programs take for stderr.
        _open_nothing(2, os.O_WRONLY)

    if sys.stdout is not None:
        sys.stdout.flush()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Who prints to find a mistake wants to read it now, not when the server ends.
            sys.stdout.reconfigure(line_buffering=True)

    fd_in, fd_out = os.dup(0), os.dup(1)
    _open_nothing(0, os.O_RDONLY)
    os.dup2(2, 1)
    return fd_in, fd_out


def fill_gaps() -> None:
    """See that the descriptors 0, 1 and 2 are open, if only to nothing, where stdio is not served.

    Else the next sockets get their numbers: what prints writes into them, and libuv aborts when it is to close them.
    Call it before an event loop is made.
    """
    for fd, how in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        if not _is_open(fd):
            _open_nothing(fd, how)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _open_nothing(fd: int, how: int) -> None:
    nothing = os.open(os.devnull, how)
    if nothing != fd:
        os.dup2(nothing, fd)
        os.close(nothing)
    else:
        os.set_inheritable(fd, True)
