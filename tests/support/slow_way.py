"""What stands between nodes and their Redis: a way that takes its time, or is cut."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["SlowWay", "slow_way"]


class SlowWay:
    """Passes bytes on after `delay` seconds, in both directions; `url` is for nodes. `cut` ends all connections, and
    takes in none until `mend`."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.url = f"unix://{folder / 'way.sock'}"
        self.delay = 0.0
        self._target = str(target)
        self._is_cut = False
        self._is_over = threading.Event()
        self._open: set[socket.socket] = set()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / "way.sock"))
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """From now on nothing passes."""
        self._is_cut = True
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """It is as it was."""
        self._is_cut = False

    def close(self) -> None:
        """End it, and all that goes through it."""
        self._is_over.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            if self._is_cut:
                near.close()
                continue

            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self._target)
            except OSError:
                near.close()
                far.close()
                continue
            self._open |= {near, far}
            left = [2]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink, left), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, left: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self._is_over.wait(self.delay):
                    break
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

        left[0] -= 1
        if not left[0]:
            self._open -= {source, sink}
            source.close()
            sink.close()


@contextmanager
def slow_way(target: Path) -> Iterator[SlowWay]:
    """A way to the Redis behind this socket, as fast as can be at first."""
    with tempfile.TemporaryDirectory(prefix="mcpd-way-") as folder:
        way = SlowWay(Path(folder), target)
        try:
            yield way
        finally:
            way.close()
