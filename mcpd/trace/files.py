"""Where traces are written: the file, who may read it, how large it gets, and which old ones go.

A trace holds what people asked and what they got: it is for its owner alone (0600, in a folder of 0700).
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from mcpd.errors import ConfigurationError

MOST_BYTES = 64 * 1024 * 1024
"""A file of this size is full, unless its owner says otherwise."""

MOST_KEPT = 20
"""How many traces the default folder keeps; the oldest go. Those that are written just now stay."""

_NAME = re.compile(r"[\w.+-]{1,40}-\d{8}-\d{6}-\d{1,10}\.jsonl(\.1)?")


def default_folder() -> Path:
    """`mcpd/traces` in the folder where this user's programs keep their state."""
    home = Path.home()
    if sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        named = os.environ.get("XDG_STATE_HOME", "")
        base = Path(named) if os.path.isabs(named) else home / ".local" / "state"
    return base / "mcpd" / "traces"


def new_default_path(command: str) -> Path:
    """A name for the trace of a command, in the default folder, which is made; old traces there are removed.

    Raises ConfigurationError if the folder cannot be made.
    """
    folder = default_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be made: {error.strerror}; name a file: --file FILE") from error
    _remove_old(folder)
    name = re.sub(r"[^\w.+-]", "_", os.path.basename(command))[:40] or "server"
    return folder / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}.jsonl"


def newest_trace() -> Path | None:
    """The trace in the default folder that was written last."""
    found = [path for path, _ in _traces(default_folder()) if path.suffix == ".jsonl"]
    return found[0] if found else None


def _traces(folder: Path) -> list[tuple[Path, float]]:
    """Our files in a folder, newest first, with when they were written."""
    found = []
    with suppress(OSError):
        for path in folder.iterdir():
            if _NAME.fullmatch(path.name):
                with suppress(OSError):
                    found.append((path, path.stat().st_mtime))
    return sorted(found, key=lambda each: each[1], reverse=True)


def _remove_old(folder: Path) -> None:
    runs = [path for path, _ in _traces(folder) if path.suffix == ".jsonl"]
    for path in runs[MOST_KEPT - 1 :]:
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # one that is written is locked
            path.unlink()
            path.with_name(path.name + ".1").unlink(missing_ok=True)


class TraceFile:
    """A file that grows to `most_bytes` and then becomes `NAME.1`, in place of the one before it."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        """Open it, behind what is there. If another process writes it, one beside it with our number in its name.

        Raises ConfigurationError if it cannot be written.
        """
        self.path = path.absolute()
        self._most = most_bytes
        try:
            self._fd = _open(self.path)
            if not _lock(self._fd):
                os.close(self._fd)
                self.path = self.path.with_name(f"{self.path.stem}.{os.getpid()}{self.path.suffix}")
                self._fd = _open(self.path)
                _lock(self._fd)
        except OSError as error:
            text = f"{self.path} cannot be written: {error.strerror}; name another file: --file FILE"
            raise ConfigurationError(text) from error
        self._size = os.fstat(self._fd).st_size
        # A process that was killed may have left half a line.
        if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
            self._write(b"\n")

    @property
    def is_full(self) -> bool:
        """As much is in it as may be."""
        return self._size >= self._most

    def write(self, data: bytes) -> None:
        """Append whole lines. Raises OSError."""
        self._write(data)

    def rotate(self) -> None:
        """Begin anew; what is there is kept as `NAME.1`. Raises OSError."""
        os.replace(self.path, f"{self.path}.1")
        old, self._fd = self._fd, _open(self.path)
        os.close(old)
        _lock(self._fd)
        self._size = os.fstat(self._fd).st_size

    def close(self) -> None:
        """No more is written."""
        os.close(self._fd)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            self._size += written
            view = view[written:]


def _open(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigurationError(f"{path} is no file that can be written to; name one: --file FILE")
        if found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
