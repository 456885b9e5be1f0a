"""A host's file as bytes: read whole, written whole or not at all, with a copy of what was there before.

A link is written through, owner and mode stay, and so do a byte order mark and everything that nobody changed.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.transports.files import replacing

MOST_BYTES = 64 * 1024 * 1024
"""A larger file is no configuration."""

_MOST_BACKUPS = 5
_MARK = b"\xef\xbb\xbf"
_NEW_MODE = 0o600


class Content(Struct, frozen=True):
    """What was found at a path."""

    path: str
    """As it was said; `target` is the file that it leads to."""
    target: str
    data: bytes | None
    """None if there is no file."""
    mode: int = _NEW_MODE
    text: str = ""
    """Without the byte order mark."""

    def bytes_of(self, text: str) -> bytes:
        """Another text as this file has it: with its byte order mark, if it has one."""
        return (_MARK if (self.data or b"").startswith(_MARK) else b"") + text.encode()


def read(path: str) -> Content:
    """The file at this path, or what a new one will be. Raises ConfigurationError if it cannot be read, or is none."""
    path = os.path.abspath(path)
    target = os.path.realpath(path)
    try:
        # Without O_NONBLOCK a pipe of that name would keep us waiting for its writer.
        with open(target, "rb", opener=_open_at_once) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigurationError(f"{path} is no file")
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Content(path, target, None)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise ConfigurationError(f"{path} is no configuration: it has more than {MOST_BYTES} bytes")
    try:
        text = data.removeprefix(_MARK).decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8, at byte {error.start}, and was left as it is") from None
    return Content(path, target, data, stat.S_IMODE(found.st_mode), text)


def check(before: Content) -> None:
    """Raise ConfigurationError for a file that is not to be written: changed since it was read, or not ours to write.

    The folder alone would let us put another file in its place, one of another owner.
    """
    if before.data is not None:
        if not before.mode & stat.S_IWUSR:
            raise ConfigurationError(f"{before.path} is read-only; allow writing (chmod u+w), or add the entry by hand")
        if not os.access(before.target, os.W_OK):
            raise ConfigurationError(f"{before.path} is somebody else's, and may not be written; ask its owner")
    if read(before.path).data != before.data:
        raise ConfigurationError(f"{before.path} was changed by somebody else just now; say it again")


def write(before: Content, data: bytes | None) -> None:
    """Write what it is to hold; None takes it away. Raises ConfigurationError, with the file as it was.

    Refused: a file that has changed since it was read, and one whose owner may not write it.
    """
    check(before)
    try:
        if data is None:
            with suppress(FileNotFoundError):
                os.unlink(before.target)
        else:
            _put(before, data)
    except OSError as error:
        raise ConfigurationError(f"{before.path} cannot be written: {error.strerror or error}") from None


def back_up(before: Content, folder: str | None = None) -> str:
    """Copy what is there; the newest few copies are kept. Gives the path of the copy, "" where there is no file.

    It stands beside the file, or in `folder`. Raises ConfigurationError.
    """
    if before.data is None:
        return ""
    place, name = os.path.split(before.target)
    place = folder or place
    stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
    path = os.path.join(place, f"{name}.{stamp}.mcpd-backup")
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        # On Windows line ends would be changed without O_BINARY.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), _NEW_MODE)
        _fill(descriptor, path, before.data)
        old = sorted(
            each for each in os.listdir(place) if each.startswith(f"{name}.") and each.endswith(".mcpd-backup")
        )
        for each in old[:-_MOST_BACKUPS]:
            os.unlink(os.path.join(place, each))
    except OSError as error:
        raise ConfigurationError(
            f"no copy of {before.path} can be kept in {place}: {error.strerror or error}"
        ) from None
    return path


def _fill(descriptor: int, path: str, data: bytes) -> None:
    """Half a copy is none: on a full disk it goes again."""
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _put(before: Content, data: bytes) -> None:
    folder, name = os.path.split(before.target)
    os.makedirs(folder, exist_ok=True)
    if before.data is not None and os.stat(before.target).st_nlink > 1:
        # A file of several names stays one; there is a copy of it by now.
        with open(before.target, "wb") as file:
            file.write(data)
        return

    with replacing(before.target, mode=before.mode, keep_owner=before.data is not None) as file:
        file.write(data)
