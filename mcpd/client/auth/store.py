"""Logins that outlive the process: one file, 0600 in a folder of 0700, written by rename, with a lock file beside it.

Several processes share it. Who changes it reads it again under the lock; what cannot be read is put aside, not lost.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, encode, format

from mcpd.client.auth.records import VERSION, Kept
from mcpd.client.auth_settings import login_file
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.files import locked, replacing, try_lock

_LOCK_SECONDS = 30.0
_LOCK_PAUSE = 0.05
_CHANGE_SECONDS = 5.0
_MOST_BYTES = 16 * 1024 * 1024
# A pipe in the place of the file is not waited for.
_READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class Vault(Protocol):
    """Where secrets are, if they are not in the file."""

    def fill(self, kept: Kept) -> Kept:
        """The index, with its secrets."""

    def strip(self, kept: Kept) -> Kept:
        """Keep the secrets; gives the index."""


class Store(Protocol):
    """Where logins are kept."""

    def read(self) -> Kept:
        """What is there now. Raises ConfigurationError."""

    def change(self, change: Callable[[Kept], None]) -> Kept:
        """Read, change and write, in one piece for all processes; what is there then. Raises ConfigurationError."""

    def refreshing(self) -> Any:
        """An asynchronous context manager: one of all processes refreshes at a time."""


class MemoryStore:
    """Forgotten with the process."""

    def __init__(self) -> None:
        self._kept = Kept()
        self._lock = asyncio.Lock()

    def read(self) -> Kept:
        """What is there now."""
        return self._kept

    def change(self, change: Callable[[Kept], None]) -> Kept:
        """Change it."""
        change(self._kept)
        return self._kept

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        """One at a time."""
        async with self._lock:
            yield


class FileStore:
    """The file at `path`, which only its owner can read.

    With a `vault`, or once one was used, secrets are in the system's keyring, and the file is an index of them.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, vault: Vault | None = None) -> None:
        self._vault = vault
        self.path = Path(path if path is not None else login_file())
        self._lock_path = self.path.with_name(f"{self.path.name}.lock")
        self._refresh_path = self.path.with_name(f"{self.path.name}.refresh")

    def read(self) -> Kept:
        """What is there now; nothing if there is no file. Raises ConfigurationError for one that others can read."""
        try:
            descriptor = os.open(self.path, _READING)
        except FileNotFoundError:
            return Kept()
        except OSError as error:
            is_link = self.path.is_symlink()
            why = "it is a symbolic link, which is not followed" if is_link else error.strerror
            raise ConfigurationError(f"{self.path}: {why}; remove it and log in again") from None
        try:
            self._check(os.fstat(descriptor))
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(_MOST_BYTES)
        finally:
            os.close(descriptor)
        try:
            kept = _decode(data)
        except (DecodeError, ValidationError):
            if (version := _version_of(data)) is not None and version > VERSION:
                raise ConfigurationError(
                    f"{self.path} is of a newer mcpd (version {version}): update mcpd, or name another file"
                ) from None
            self._put_aside()
            return Kept()
        if kept.version > VERSION:
            raise ConfigurationError(
                f"{self.path} is of a newer mcpd (version {kept.version}): update mcpd, or name another file"
            )
        if not kept.has_vault:
            return kept
        if self._vault is None:
            from mcpd.client.auth.keyring_secrets import KeyringSecrets

            self._vault = KeyringSecrets()
        return self._vault.fill(kept)

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise ConfigurationError(f"{self.path} is no file: remove it and log in again")
        if os.name != "posix":
            return
        if found.st_uid not in (os.getuid(), 0):
            raise ConfigurationError(f"{self.path} belongs to somebody else: remove it and log in again")
        if found.st_mode & 0o077:
            raise ConfigurationError(
                f"{self.path} can be read by others, and so can the tokens in it: chmod 600 {self.path}, or, if you do "
                "not know who has read it, mcpd logout --all"
            )

    def _put_aside(self) -> None:
        """Half a file, or none of ours: kept under another name."""
        aside = self.path.with_name(f"{self.path.name}.unreadable-{int(time.time())}")
        try:
            os.replace(self.path, aside)
        except OSError:
            return

    def change(self, change: Callable[[Kept], None]) -> Kept:
        """Read, change and write under the lock."""
        self._make_folder()
        try:
            with locked(self._lock_path, _CHANGE_SECONDS):
                kept = self.read()
                change(kept)
                kept.has_vault = kept.has_vault or self._vault is not None
                self._write(kept if self._vault is None else self._vault.strip(kept))
        except TimeoutError:
            raise ConfigurationError(
                f"{self.path} is held by another process for long: end it, and try again"
            ) from None
        return kept

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{self.path.parent}: {error.strerror}; logins are kept there") from None

    def _write(self, kept: Kept) -> None:
        try:
            with replacing(self.path) as file:
                file.write(format(encode(kept), indent=1))
        except OSError as error:
            raise ConfigurationError(f"{printable(self.path)}: {error.strerror}; the login was not kept") from None

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        """One of all processes at a time: the others wait, and read what it wrote."""
        self._make_folder()
        lock = os.open(self._refresh_path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            until = time.monotonic() + _LOCK_SECONDS
            while not try_lock(lock):
                # Who holds it has hung, or the network has: better two that refresh than none.
                if time.monotonic() > until:
                    break
                await asyncio.sleep(_LOCK_PAUSE)
            yield
        finally:
            os.close(lock)


def _decode(data: bytes) -> Kept:
    return Decoder(Kept).decode(data)


def _version_of(data: bytes) -> int | None:
    class Versioned(Struct):
        version: int = 0

    try:
        return Decoder(Versioned).decode(data).version
    except (DecodeError, ValidationError):
        return None
