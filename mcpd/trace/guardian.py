"""A process that waits for the end of ours, and ends what we have started if we cannot: SIGKILL leaves us no time.

Forked before there are threads. It holds no descriptor but one end of a pipe, whose other end closes with us however
we end, and leads a session of its own, so that it is not killed along with us.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_MOST_DESCRIPTORS = 65536


class Guardian:
    """Watches over the process group that it is told of. Make it before any thread is started."""

    def __init__(self) -> None:
        ours, self._pipe = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _guard(ours)
            finally:
                os._exit(0)
        os.close(ours)
        self.pid = pid
        self._group = 0

    def watch(self, group: int) -> None:
        """When we end, end this group."""
        self._group = group
        os.write(self._pipe, b"%d\n" % group)

    def close(self) -> None:
        """The server has ended. If it left anything in its group that is ended too, and nobody waits for it."""
        if self._group and _lives(self._group):
            os.close(self._pipe)
            return

        with suppress(OSError):
            os.write(self._pipe, b"0\n")
        os.close(self._pipe)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _guard(pipe: int) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # What it holds open nobody would see the end of.
    os.dup2(pipe, 0)
    os.closerange(1, _MOST_DESCRIPTORS)

    group = 0
    while said := os.read(0, 64):
        group = int(said.split()[-1])
    if group > 1:
        _end_group(group)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _end_group(group: int) -> None:
    """SIGTERM to all in a process group, and SIGKILL to who is still there two seconds later."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)
