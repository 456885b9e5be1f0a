"""Reads the files of a folder, and nothing that is not in it, whatever stands in its place when it is opened.

Folders on the way are opened one below the other, and none of them through a link; files in one folder, which come one
after the other when all are read, share that.
"""

from __future__ import annotations

import os
import stat

from mcpd.docs.page import UnreadablePage
from mcpd.docs.settings import DocsSettings
from mcpd.docs.tree import File
from mcpd.folder_files import read_within

_HAS_FOLDERS = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = _FILE | getattr(os, "O_DIRECTORY", 0)


def most_bytes(file: File, settings: DocsSettings) -> int:
    """The size up to which a file is read."""
    return settings.max_bytes * (4 if file.kind == "pdf" else 1)


class Opener:
    """Reads files of one folder. Not for several threads at once; to be closed."""

    def __init__(self, folder: str, settings: DocsSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._place = ""
        self._descriptor = -1

    def read(self, file: File) -> tuple[bytes, bytes]:
        """What a document holds, and its hash. Raises UnreadablePage for what is gone, or grew beyond the limit."""
        most = most_bytes(file, self._settings)
        try:
            data = self._read(file.path, most + 1) if _HAS_FOLDERS else self._read_slowly(file.path, most + 1)
        except OSError as error:
            raise UnreadablePage(f"cannot be read ({error.strerror or error})") from None
        if len(data) > most:
            raise UnreadablePage(f"is larger than {most} bytes")
        from hashlib import blake2b  # loads OpenSSL, for which no start is to wait

        return data, blake2b(data, digest_size=16).digest()

    def beginning(self, path: str, size: int) -> bytes:
        """The first bytes of a document. Raises OSError for what is gone, or no regular file of the folder."""
        return self._read(path, size) if _HAS_FOLDERS else self._read_slowly(path, size)

    def close(self) -> None:
        """Let go of the folder that is open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, path: str, size: int) -> bytes:
        place, _, name = path.rpartition("/")
        try:
            if self._descriptor < 0 or place != self._place:
                self._enter(place)
            descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
        except OSError:
            # A link to another file of the folder is served; what leads out is refused there.
            return self._read_slowly(path, size)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(0, "not a regular file")
            return _all_of(descriptor, min(size, found.st_size + 1), size)
        finally:
            os.close(descriptor)

    def _enter(self, place: str) -> None:
        self.close()
        descriptor = os.open(self._folder, _FOLDER)
        try:
            for name in place.split("/") if place else ():
                below = os.open(name, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor, self._place = descriptor, place

    def _read_slowly(self, path: str, size: int) -> bytes:
        return read_within(os.path.join(self._folder, *path.split("/")), self._folder, size)


def _all_of(descriptor: int, expected: int, most: int) -> bytes:
    """Up to `most` bytes: mostly in one read, as the size is known."""
    data = os.read(descriptor, expected)
    if len(data) < expected:
        return data
    parts = [data]
    left = most - len(data)
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
