"""Files that several processes share: written whole or not at all, and changed under a lock."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO

if sys.platform != "win32":
    import fcntl

_POLL_SECONDS = 0.01


def bundled_folder() -> str:
    """Return the folder of mcpd's assets: inside the installed package, or beside it in a checkout."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = os.path.join(package, "_assets")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(package), "assets")


@contextmanager
def replacing(path: str | os.PathLike[str], *, mode: int = 0o600, keep_owner: bool = False) -> Iterator[IO[bytes]]:
    """Open a new file for writing that takes the place of `path` at the end of the block.

    If the block raises, the file stays as it was. `mode` is the mode of the new file; with `keep_owner` it belongs to
    the owner and group of the file that it replaces, as far as this user may set them. Raises OSError, also if `path`
    is there and no regular file: a device must not be replaced.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    folder, name = os.path.split(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        if keep_owner and hasattr(os, "chown"):
            with suppress(FileNotFoundError, PermissionError):
                owner = os.stat(path)
                os.chown(temporary, owner.st_uid, owner.st_gid)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def locked(path: str | os.PathLike[str], seconds: float | None = None) -> Iterator[None]:
    """Hold the lock of the file at `path`, which is created with mode 0600 if it does not exist.

    Raises OSError if the file cannot be opened, and TimeoutError if the lock is not free within `seconds`.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        deadline = None if seconds is None else time.monotonic() + seconds
        while not try_lock(descriptor):
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file, which closing the file releases. Returns whether the lock was free."""
    if sys.platform == "win32":
        return True  # the file system has no such locks
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def state_folder(environment: Mapping[str, str] = os.environ) -> str:
    """Return the path of the folder `mcpd` where this user's programs keep their state."""
    home = environment.get("USERPROFILE" if sys.platform == "win32" else "HOME") or os.path.expanduser("~")
    if sys.platform == "darwin":
        base = os.path.join(home, "Library", "Application Support")
    elif sys.platform == "win32":
        base = environment.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    else:
        named = environment.get("XDG_STATE_HOME", "")
        base = named if os.path.isabs(named) else os.path.join(home, ".local", "state")
    return os.path.join(base, "mcpd")
