"""Reads files in folders that other people may write to.

Anyone who can write to a folder must not be able to publish files that only the server may read. A link may therefore
point to another file in the same folder, but not outside it. Pipes and devices are never opened for reading.
"""

from __future__ import annotations

import errno
import os
import stat


def read_within(path: str, folder: str, size: int) -> bytes:
    """Return at most `size` bytes of a file. If `folder` is given, the file must be in it after all links are resolved.

    Raises OSError if the path is not a regular file or if a link leads out of the folder. The checks apply to the file
    that was opened, so that nobody can replace it between the check and the read.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # `open` reports a folder itself
        raise OSError(errno.EINVAL, "not a regular file")
    with open(path, "rb", opener=_open_at_once) as file:
        opened = os.fstat(file.fileno())
        if not stat.S_ISREG(opened.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if folder and not _is_within(path, folder, opened):
            raise OSError(errno.EPERM, "a link that leads out of the folder")
        return file.read(size)


def is_below(path: str, folder: str) -> bool:
    """Return whether a path, after all links are resolved, is the folder or is inside it."""
    real, root = os.path.realpath(path), os.path.realpath(folder)
    return real == root or real.startswith(os.path.join(root, ""))


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_within(path: str, folder: str, opened: os.stat_result) -> bool:
    # Return whether the opened file is still the file at that path.
    if not is_below(path, folder):
        return False
    try:
        return os.path.samestat(os.lstat(os.path.realpath(path)), opened)
    except OSError:
        return False
