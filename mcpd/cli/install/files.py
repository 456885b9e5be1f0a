"""Reads, writes and restores hosts' configuration files, and keeps a journal of the changes.

A file is written whole or not at all, after a copy of it was made. Symbolic links are followed; owner, mode and a byte
order mark stay. The journal holds hashes and paths but no entries, because entries may be secret. It is needed for
`--undo`, and to restore the exact bytes at an uninstall.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from glob import escape, glob
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.transports.files import locked, replacing, state_folder

# A larger file is not a configuration.
MAX_BYTES = 64 * 1024 * 1024

_MAX_BACKUPS = 5
_MARK = b"\xef\xbb\xbf"
_NEW_MODE = 0o600


class Content(Struct, frozen=True):
    # The path as it was given; `target` is the file that it leads to.
    path: str
    target: str
    # None if the file does not exist.
    data: bytes | None
    mode: int = _NEW_MODE
    # Without the byte order mark.
    text: str = ""

    def bytes_of(self, text: str) -> bytes:
        """Return the bytes of another text, with the byte order mark of this file."""
        return (_MARK if (self.data or b"").startswith(_MARK) else b"") + text.encode()


@contextmanager
def explained(text: str) -> Iterator[None]:
    """Raise ConfigurationError for an OSError: `text`, followed by the system's reason."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{text}: {error.strerror or error}") from None


def read(path: str) -> Content:
    """Read a file, which need not exist. Raises ConfigurationError if it cannot be read, or is not a file."""
    path = os.path.abspath(path)
    target = os.path.realpath(path)
    try:
        # Without O_NONBLOCK, opening a pipe of that name would wait for its writer.
        with open(target, "rb", opener=lambda path, flags: os.open(path, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigurationError(f"{path} is not a file")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return Content(path, target, None)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None

    if len(data) > MAX_BYTES:
        raise ConfigurationError(f"{path} is not a configuration: it has more than {MAX_BYTES} bytes")
    try:
        text = data.removeprefix(_MARK).decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8, at byte {error.start}, and was not changed") from None
    return Content(path, target, data, stat.S_IMODE(found.st_mode), text)


def check(before: Content) -> None:
    """Raise ConfigurationError if the file was changed since it was read, or may not be written by this user."""
    # The permissions of its folder alone would allow to replace the file of another owner.
    if before.data is not None:
        if not before.mode & stat.S_IWUSR:
            raise ConfigurationError(f"{before.path} is read-only; allow writing (chmod u+w), or add the entry by hand")
        if not os.access(before.target, os.W_OK):
            raise ConfigurationError(f"{before.path} belongs to another user, and you may not write it; ask its owner")
    if read(before.path).data != before.data:
        raise ConfigurationError(f"{before.path} was changed by another program just now; try again")


def write(before: Content, data: bytes | None) -> None:
    """Write new content; None deletes the file. Raises ConfigurationError, and then leaves the file as it was."""
    # It refuses files that have changed since they were read, and files that their owner may not write.
    check(before)
    with explained(f"{before.path} cannot be written"):
        if data is None:
            with suppress(FileNotFoundError):
                os.unlink(before.target)
            return
        os.makedirs(os.path.dirname(before.target), exist_ok=True)
        if before.data is not None and os.stat(before.target).st_nlink > 1:
            # A file with several names must stay one file. A copy of it exists by now.
            with open(before.target, "wb") as file:
                file.write(data)
        else:
            with replacing(before.target, mode=before.mode, keep_owner=before.data is not None) as file:
                file.write(data)


def back_up(before: Content, folder: str | None = None) -> str:
    """Copy the file, and return the path of the copy; "" if the file does not exist. Only the newest copies are kept.

    The copy is beside the file, or in `folder`. Raises ConfigurationError.
    """
    if before.data is None:
        return ""
    place, name = os.path.split(before.target)
    place = folder or place
    stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
    path = os.path.join(place, f"{name}.{stamp}.mcpd-backup")
    with explained(f"{before.path} cannot be copied to {place}"):
        os.makedirs(place, mode=0o700, exist_ok=True)
        with replacing(path, mode=_NEW_MODE) as file:
            file.write(before.data)
        for old in sorted(glob(os.path.join(escape(place), f"{escape(name)}.*.mcpd-backup")))[:-_MAX_BACKUPS]:
            os.unlink(old)

    return path


_MAX_RECORDS = 200


class Record(Struct, omit_defaults=True):
    """One change of one file."""

    host: str
    path: str
    name: str
    action: Literal["install", "uninstall"]
    # The hash of the file, "" if it did not exist; `after` likewise.
    before: str
    after: str
    # The copy of the file before the change; "" if it did not exist.
    backup: str = ""
    # Whether the change added the member that holds all servers.
    made: bool = False
    # The hash of the command or URL of the entry.
    entry: str = ""


class Journal:
    """All records, oldest first."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.folder = state_folder(environment)
        self._path = os.path.join(self.folder, "installed.json")
        self.records: list[Record] = []
        self._is_locked = False
        self._load()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the journal against other processes of mcpd, and load what they have recorded."""
        # Without a writable state folder nothing is locked. May be nested.
        if self._is_locked:
            yield
            return
        with ExitStack() as stack:
            with suppress(OSError):
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
                stack.enter_context(locked(self._path + ".lock"))
                self._load()
                self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def add(self, record: Record) -> None:
        """Add a record, while `locked`. It is not an error if the state folder cannot be written."""
        self.records = [*self.records, record][-_MAX_RECORDS:]
        self._save()

    def of(self, path: str, name: str) -> list[Record]:
        """Return the installs of this name into this file, newest first."""
        return [
            each for each in reversed(self.records) if (each.path, each.name, each.action) == (path, name, "install")
        ]

    def missing_entries(self, path: str, present: Collection[str]) -> list[str]:
        """Return names that were installed into this file and not uninstalled, but are missing now."""
        newest = {each.name: each.action for each in self.records if each.path == path}
        return [name for name, action in newest.items() if action == "install" and name not in present]

    def forget_entry(self, path: str, name: str) -> None:
        """Forget the records of an entry that somebody else has removed."""
        self.records = [each for each in self.records if (each.path, each.name) != (path, name)]
        self._save()

    def previous_bytes(self, now: Content, name: str) -> tuple[bool, bytes | None]:
        """Return whether only mcpd has changed the file since it added this entry, and the previous bytes."""
        # The bytes are None if the file did not exist.
        current = fingerprint(now.data)
        found: Record | None = None
        for record in self.of(now.target, name):
            if record.after == current:
                found, current = record, record.before
        if found is None or not found.before:
            return found is not None, None
        try:
            data = read(found.backup).data
        except ConfigurationError:
            return False, None
        return data is not None and fingerprint(data) == found.before, data

    def undo(self, host: str, path: str, *, force: bool = False) -> Record:
        """Undo the last change of this host's file. Raises ConfigurationError if it was changed since."""
        with self.locked():
            record = next((each for each in reversed(self.records) if (each.host, each.path) == (host, path)), None)
            if record is None:
                raise ConfigurationError(f"{path}: there is nothing to undo")
            now = read(path)
            if fingerprint(now.data) != record.after and not force:
                kept = f"; its previous content is in {record.backup}" if record.backup else ""
                raise ConfigurationError(
                    f"{path} has changed since, and was left as it is{kept}; mcpd uninstall removes one "
                    "entry, --force restores the whole file"
                )
            data = read(record.backup).data if record.backup else None
            if data is None and record.backup:
                raise ConfigurationError(f"{path}: the copy of its previous content is gone ({record.backup})")
            write(now, data)
            self.records.remove(record)
            self._save()
            return record

    def _load(self) -> None:
        # The file may not exist, or another version may have written it.
        with suppress(OSError, msgspec.MsgspecError), open(self._path, "rb") as file:
            self.records = msgspec.json.decode(file.read(), type=list[Record])

    def _save(self) -> None:
        with suppress(OSError, ConfigurationError):
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            write(read(self._path), msgspec.json.format(msgspec.json.encode(self.records), indent=1))


def fingerprint(data: bytes | None) -> str:
    """Return the hash of a file's bytes; "" if the file does not exist."""
    return "" if data is None else hashlib.sha256(data).hexdigest()


def entry_fingerprint(said: Any) -> str:
    """Return the hash of an entry's command or URL."""
    return fingerprint(msgspec.json.encode(said, order="sorted"))
