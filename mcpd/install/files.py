"""A host's file as bytes: read whole, written whole or not at all, with a copy of what was there before.

A link is written through, owner and mode stay, and so do a byte order mark and everything that nobody changed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.transports.files import locked, replacing, state_folder

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


_MOST_RECORDS = 200


class Record(Struct, omit_defaults=True):
    """One change of one file."""

    host: str
    path: str
    name: str
    action: Literal["install", "uninstall"]
    before: str
    """The hash of the file, "" for none; `after` likewise."""
    after: str
    backup: str = ""
    """Where its bytes of before are; "" if there was no file."""
    made: bool = False
    """The member for all servers was not there before."""
    entry: str = ""
    """The hash of what the entry starts or reaches."""


class Journal:
    """All records, the oldest first."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.folder = state_folder(environment)
        self._path = os.path.join(self.folder, "installed.json")
        self.records: list[Record] = []
        self._is_alone = False
        self._load()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process of ours changes a file meanwhile; what they have recorded is known here.

        Only where the system has such locks, and a state folder that can be written. May be nested.
        """
        if self._is_alone:
            yield
            return
        with ExitStack() as stack:
            with suppress(OSError):
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
                stack.enter_context(locked(self._path + ".lock"))
                self._load()
                self._is_alone = True
            try:
                yield
            finally:
                self._is_alone = False

    def add(self, record: Record) -> None:
        """Keep one more, `alone`. A state folder that cannot be written is no reason to fail."""
        self.records = [*self.records, record][-_MOST_RECORDS:]
        self._save()

    def forget(self, record: Record) -> None:
        """It was undone."""
        self.records.remove(record)
        self._save()

    def of(self, path: str, name: str) -> list[Record]:
        """Installs of this name into this file, the newest first."""
        return [
            each for each in reversed(self.records) if (each.path, each.name, each.action) == (path, name, "install")
        ]

    def vanished(self, path: str, present: Collection[str]) -> list[str]:
        """Names that were installed into this file, were not uninstalled, and are not there."""
        newest = {each.name: each.action for each in self.records if each.path == path}
        return [name for name, action in newest.items() if action == "install" and name not in present]

    def give_up(self, path: str, name: str) -> None:
        """Somebody else has taken out what was installed under this name, and that is well."""
        self.records = [each for each in self.records if (each.path, each.name) != (path, name)]
        self._save()

    def bytes_before(self, now: Content, name: str) -> tuple[bool, bytes | None]:
        """Whether the file was changed by nothing but us since an entry of this name came into it, and what it held
        before that; None if there was no file."""
        current = fingerprint(now.data)
        found: Record | None = None
        for record in self.of(now.target, name):
            if record.after == current:
                found, current = record, record.before
        if found is None:
            return False, None
        if not found.before:
            return True, None
        try:
            data = read(found.backup).data if found.backup else None
        except ConfigurationError:
            return False, None
        return data is not None and fingerprint(data) == found.before, data

    def undo(self, host: str, path: str, *, force: bool = False) -> Record:
        """Take back the last change of this host's file. Raises ConfigurationError if it was changed since then."""
        with self.alone():
            return self._undo(host, path, force=force)

    def _undo(self, host: str, path: str, *, force: bool) -> Record:
        record = next((each for each in reversed(self.records) if (each.host, each.path) == (host, path)), None)
        if record is None:
            raise ConfigurationError(f"{path}: nothing was written here that could be undone")
        now = read(path)
        if fingerprint(now.data) != record.after and not force:
            kept = f"; what was there before is in {record.backup}" if record.backup else ""
            raise ConfigurationError(
                f"{path} was changed since then, and is left as it is{kept}; mcpd uninstall takes out one entry, "
                "--force brings back the whole file"
            )
        data = None
        if record.backup:
            data = read(record.backup).data
            if data is None:
                raise ConfigurationError(f"{path}: the copy of before is gone ({record.backup})")
        write(now, data)
        self.forget(record)
        return record

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as file:
                self.records = msgspec.json.decode(file.read(), type=list[Record])
        except (OSError, msgspec.MsgspecError):
            pass  # there is none yet, or it is another version's

    def _save(self) -> None:
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            write(read(self._path), msgspec.json.format(msgspec.json.encode(self.records), indent=1))
        except (OSError, ConfigurationError):
            pass


def fingerprint(data: bytes | None) -> str:
    """The hash of a file's bytes; "" for no file."""
    return "" if data is None else hashlib.sha256(data).hexdigest()


def entry_fingerprint(said: Any) -> str:
    """The hash of what an entry starts or reaches."""
    return fingerprint(msgspec.json.encode(said, order="sorted"))
