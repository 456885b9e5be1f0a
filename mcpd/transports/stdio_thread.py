"""Reads stdin in a thread, where it cannot be polled: a regular file, or a pipe on Windows."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Protocol

    class Taker(Protocol):
        """Where what is read goes, on the event loop's thread."""

        def take(self, chunk: bytes, read_on: Callable[[], None]) -> None:
            """Take it, b"" at the end; `read_on` lets the thread read more."""


_READ_BYTES = 65536


def read_in_thread(taker: Taker, loop: asyncio.AbstractEventLoop, fd: int) -> None:
    """Begin to read: each piece is taken before the next is read. The thread ends with its input, or with the loop."""
    turn = threading.Semaphore(0)

    def read() -> None:
        while True:
            try:
                chunk = os.read(fd, _READ_BYTES)
            except OSError:
                chunk = b""

            try:
                loop.call_soon_threadsafe(taker.take, chunk, turn.release)
            except RuntimeError:  # the loop is gone, and nobody waits for this thread
                return

            if not chunk:
                return
            turn.acquire()

    # A daemon: a read that never ends must not keep the process.
    threading.Thread(target=read, name="mcpd-stdin", daemon=True).start()
