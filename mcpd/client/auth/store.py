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
from msgspec.structs import replace

from mcpd.client.auth.auth_option import login_file
from mcpd.client.auth.tokens import ClientId
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.files import locked, replacing, try_lock

VERSION = 1
"""Of the file."""


class SecretFields(dict[str, str]):
    """Header fields that let a request in; what they say is not shown."""

    def __repr__(self) -> str:
        return f"SecretFields({', '.join(self)})"


class Registration(Struct, frozen=True, kw_only=True):
    """What a dynamic registration gave, at one issuer; kept by the store."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    method: str = "none"
    redirect_uri: str
    expires_at: float | None = None
    """When the secret ends, in seconds since 1970."""

    def __repr__(self) -> str:
        return f"Registration({self.issuer!r}, {self.client_id!r})"

    @property
    def is_good(self) -> bool:
        """Whether it can still be used."""
        return self.expires_at is None or self.expires_at > time.time() + 60

    @property
    def client(self) -> ClientId:
        """Who that makes us."""
        return ClientId(self.client_id, self.client_secret, self.method)


class Login(Struct, frozen=True, kw_only=True):
    """A login at one server, with its tokens. Times are seconds since 1970."""

    url: str
    """The MCP server's, as `plain_url` gives it."""
    issuer: str
    client_id: str
    resource: str | None = None
    access_token: str = ""
    token_type: str = "Bearer"
    issued_at: float = 0.0
    expires_at: float | None = None
    refresh_token: str | None = None
    asked: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    client_secret: str | None = None
    method: str = "none"
    token_endpoint: str = ""
    revocation_endpoint: str | None = None
    dpop_key: dict[str, Any] | None = None
    saw_metadata: bool = True
    """Whether the server had resource metadata: then it is never taken for one of 2025-03-26."""

    def __repr__(self) -> str:
        return f"Login({self.url!r}, {self.issuer!r}, {self.client_id!r})"

    @property
    def key(self) -> tuple[str, str, str]:
        """What there is one of."""
        return self.url, self.issuer, self.client_id


class Kept(Struct, kw_only=True):
    """All that a store has. A newer version is not read, and not written over."""

    version: int = VERSION
    logins: list[Login] = []
    registrations: list[Registration] = []
    has_vault: bool = False
    """The secrets are in the system's keyring, and this is an index of them."""

    def __repr__(self) -> str:
        return f"Kept({len(self.logins)} logins, {len(self.registrations)} registrations)"

    def login(self, url: str, client_id: str | None = None) -> Login | None:
        """The newest login there, of that client if one is named."""
        found = [one for one in self.logins if one.url == url and client_id in (None, one.client_id)]
        return max(found, key=lambda one: one.issued_at, default=None)

    def put(self, login: Login) -> None:
        """Keep it, in place of an older one."""
        self.logins = [one for one in self.logins if one.key != login.key] + [login]

    def drop(self, login: Login) -> None:
        """Keep it no more."""
        self.logins = [one for one in self.logins if one.key != login.key]

    def registration(self, issuer: str) -> Registration | None:
        """The one at that issuer, and no other's."""
        return next((one for one in self.registrations if one.issuer == issuer and one.is_good), None)

    def put_registration(self, registration: Registration) -> None:
        """Keep it, in place of an older one at that issuer."""
        self.drop_registration(registration.issuer)
        self.registrations = [*self.registrations, registration]

    def drop_registration(self, issuer: str) -> None:
        """Keep none at that issuer."""
        self.registrations = [one for one in self.registrations if one.issuer != issuer]


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


_SERVICE = "mcpd"


class _Secrets(Struct):
    access_token: str = ""
    refresh_token: str | None = None
    client_secret: str | None = None
    dpop_key: dict[str, Any] | None = None


class _Keyring(Protocol):
    def get_password(self, service: str, name: str, /) -> str | None: ...

    def set_password(self, service: str, name: str, secret: str, /) -> None: ...

    def delete_password(self, service: str, name: str, /) -> None: ...


class KeyringSecrets:
    """A `Vault` of the system's."""

    def __init__(self, keyring: _Keyring | None = None) -> None:
        self._keyring = keyring if keyring is not None else _installed()
        self._known: set[str] = set()

    def fill(self, kept: Kept) -> Kept:
        """What the index names, with its secrets; a login whose secrets are gone is one no more."""
        logins = []
        for login in kept.logins:
            found = self._get(_name(login))
            if found is not None and found.access_token:
                logins.append(
                    replace(
                        login, access_token=found.access_token, refresh_token=found.refresh_token,
                        client_secret=found.client_secret, dpop_key=found.dpop_key,
                    )
                )  # fmt: skip
        registrations = []
        for registration in kept.registrations:
            found = self._get(_name(registration)) if registration.method != "none" else _Secrets()
            if found is not None:
                registrations.append(replace(registration, client_secret=found.client_secret))
        return replace(kept, logins=logins, registrations=registrations)

    def strip(self, kept: Kept) -> Kept:
        """Put the secrets into the keyring, and take those out that nobody names any more; gives the index."""
        said: dict[str, _Secrets] = {}
        for login in kept.logins:
            said[_name(login)] = _Secrets(login.access_token, login.refresh_token, login.client_secret, login.dpop_key)
        for registration in kept.registrations:
            if registration.client_secret is not None:
                said[_name(registration)] = _Secrets(client_secret=registration.client_secret)
        for name, secrets in said.items():
            self._call("set_password", name, encode(secrets).decode())
        for name in self._known - set(said):
            self._call("delete_password", name)
        self._known = set(said)
        return replace(
            kept,
            logins=[
                replace(one, access_token="", refresh_token=None, client_secret=None, dpop_key=None)
                for one in kept.logins
            ],
            registrations=[replace(one, client_secret=None) for one in kept.registrations],
        )

    def _get(self, name: str) -> _Secrets | None:
        text = self._call("get_password", name)
        if text is None:
            return None
        self._known.add(name)
        try:
            return Decoder(_Secrets).decode(text)
        except (DecodeError, ValidationError):
            return None

    def _call(self, what: str, *words: str) -> str | None:
        try:
            found: str | None = getattr(self._keyring, what)(_SERVICE, *words)
            return found
        except Exception as error:
            # Each platform's keyring has errors of its own; none of them is to show what was to be kept.
            raise ConfigurationError(
                f"the system's keyring does not answer ({type(error).__name__}): unlock it, or keep logins in the file"
            ) from None


def _name(record: Login | Registration) -> str:
    if isinstance(record, Login):
        return f"login {record.url} {record.issuer} {record.client_id}"
    return f"registration {record.issuer}"


def _installed() -> _Keyring:
    try:
        import keyring
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "keyring":
            raise
        raise ConfigurationError(
            "the system's keyring is reached with the package keyring: pip install 'mcpd-server[keyring]'"
        ) from None
    found: _Keyring = keyring
    return found
