"""What was written into which file of a host, and the way back: a small file where programs keep their state.

It holds hashes and paths, no entries: what is in those is their owner's. Without it nothing breaks but `--undo`, and an
uninstall that gives back the bytes of before.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.install.files import Content, read, write
from mcpd.transports.files import locked, state_folder

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
