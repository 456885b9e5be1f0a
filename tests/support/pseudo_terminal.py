"""A command on a pseudo-terminal: what is shown there, and what a user types."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Typed"]

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_SECONDS = 60.0


class Typed:
    """A process whose stdin, stdout and stderr are a terminal, `columns` wide. `type` after `until`."""

    def __init__(self, command: Sequence[str], env: dict[str, str], cwd: Path, columns: int = 100) -> None:
        self._near, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        env = {"TERM": "xterm-256color", **{name: env[name] for name in env if name not in ("TERM", "NO_COLOR")}, **env}
        # A session of its own, whose terminal this is: Ctrl-C reaches it.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], env=env, cwd=cwd, stdin=far, stdout=far, stderr=far
        )
        os.close(far)
        self._is_gone = False
        self.raw = ""
        """All that was shown, with colours."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if not self._is_gone:
            os.close(self._near)

    @property
    def text(self) -> str:
        """What was shown, without colours."""
        return _STYLE.sub("", self.raw).replace("\r\n", "\n")

    def until(self, words: str) -> None:
        """Wait until this is shown."""
        end = time.monotonic() + _SECONDS
        while words not in self.text:
            assert self._read(end), f"the process ended, or was silent; {words!r} is not in {self.raw!r}"

    def type(self, keys: str) -> None:
        """Press these keys; `\\r` ends a line, `\\x04` is Ctrl-D, `\\x03` Ctrl-C."""
        os.write(self._near, keys.encode())

    def hang_up(self) -> None:
        """Close the terminal, as its window does. Nothing is shown any more."""
        self._is_gone = True
        os.close(self._near)

    def end(self) -> int:
        """Wait for the end: gives the exit code."""
        end = time.monotonic() + _SECONDS
        while self._read(end):
            pass
        return self.process.wait(_SECONDS)

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._near], [], [], max(end - time.monotonic(), 0))
        try:
            data = os.read(self._near, 65536) if ready else b""
        except OSError:  # Linux says so at the end
            data = b""
        self.raw += data.decode(errors="replace")
        return data != b""
