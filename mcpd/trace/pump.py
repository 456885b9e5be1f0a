"""One direction of a conversation, passed on as it comes: read, noted, written, before any more is read.

Nothing is kept back and nothing is read ahead, so that whoever does not read holds up whoever writes, as a pipe does.
An end goes through too, from either side: the end of what is written, and a reader that is gone.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable

_READ_BYTES = 128 * 1024


class Pump:
    """Passes bytes from the descriptor `source` to `target`, and closes both at the end."""

    def __init__(self, source: int, target: int, note: Callable[[bytes], None], ended: Callable[[bool], None]) -> None:
        """`note` is told of bytes before they are passed on, `ended` once: whether it was the reader that went."""
        self._source = source
        self._target = target
        self._note = note
        self._ended = ended
        self._woken, self._wake = os.pipe()
        self.is_writing = False
        """The reader has not taken yet what was read."""

    def run(self) -> None:
        """Until one of both ends is closed, or `stop`."""
        reader_went = False
        try:
            reader_went = self._pass_on()
        finally:
            os.close(self._source)
            os.close(self._target)
            self._ended(reader_went)

    def stop(self) -> None:
        """Pass on what is there already, then end. From another thread."""
        os.write(self._wake, b"x")

    def _pass_on(self) -> bool:
        """Whether the reader went first."""
        source, target, note = self._source, self._target, self._note
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(target, 0)  # an error is told unasked: that nobody reads it any more
        poll.register(self._woken, select.POLLIN)

        while True:
            ready = dict(poll.poll())
            if source in ready:
                try:
                    data = os.read(source, _READ_BYTES)
                except BlockingIOError:
                    continue
                except OSError:  # a terminal that is gone
                    return False
                if not data:
                    return False
                note(data)
                self.is_writing = True
                if not _write(target, data):
                    return True
                self.is_writing = False
            elif target in ready:
                return True
            elif self._woken in ready:
                return False


def _write(target: int, data: bytes) -> bool:
    """All of it, however long the reader takes; whether there is a reader."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:  # its other owner has made it so
            poll = select.poll()
            poll.register(target, select.POLLOUT)
            poll.poll()
        except OSError:
            return False
    return True
