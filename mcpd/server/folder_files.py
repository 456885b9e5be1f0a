"""Reads files of a folder that others may write into, and nothing else of the machine.

Whoever may write into the folder must not be able to publish what only the server may read: a link may lead to another
file of the folder, and nowhere else. Pipes and devices are not waited for.
"""

from __future__ import annotations

import errno
import os
import stat


def read_within(path: str, folder: str, size: int) -> bytes:
    """What a file holds, up to `size` bytes; with a `folder` it has to be in there, behind all links.

    Raises OSError for what is no regular file, and for a link that leads out of the folder. A pipe is not waited for,
    as nobody may ever write to it. What is checked is what was opened, so that nobody can put something else in its
    place between the two.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a folder the system says so itself
        raise OSError(errno.EINVAL, "not a regular file")
    with open(path, "rb", opener=_open_at_once) as file:
        opened = os.fstat(file.fileno())
        if not stat.S_ISREG(opened.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if folder and not _is_within(path, folder, opened):
            raise OSError(errno.EPERM, "a link that leads out of the folder")
        return file.read(size)


def is_below(path: str, folder: str) -> bool:
    """Whether a path stands, behind all links, in the folder or in one below it."""
    real, root = os.path.realpath(path), os.path.realpath(folder)
    return real == root or real.startswith(os.path.join(root, ""))


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_within(path: str, folder: str, opened: os.stat_result) -> bool:
    """Whether what was opened is what stands there."""
    if not is_below(path, folder):
        return False
    try:
        return os.path.samestat(os.lstat(os.path.realpath(path)), opened)
    except OSError:
        return False
