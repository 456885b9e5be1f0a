"""Stored logins: the records, the file that keeps them, and the system's keyring for their secrets.

The file has mode 0600 in a folder of mode 0700, is replaced atomically, and has a lock file beside it. Several
processes share it: a change reads the file again while it holds the lock. A damaged file is renamed, not lost.
No `repr` of a record shows a secret.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import DecodeError, Struct, convert
from msgspec.json import Decoder, encode, format
from msgspec.structs import asdict, replace

from mcpd.client.http.options import login_file
from mcpd.errors import ConfigurationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable
from mcpd.transports.files import locked, replacing, try_lock
from .tokens import ClientId

VERSION = 1
"""Version of the file format."""


class SecretHeaders(dict[str, str]):
    """Authorization header fields; the `repr` shows only their names."""

    def __repr__(self) -> str:
        return f"SecretHeaders({', '.join(self)})"


class Registration(Struct, frozen=True, kw_only=True):
    """The result of a dynamic client registration at one issuer."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    method: str = "none"
    redirect_uri: str
    expires_at: float | None = None
    """When the client secret expires, in seconds since 1970."""

    def __repr__(self) -> str:
        return f"Registration({self.issuer!r}, {self.client_id!r})"

    @property
    def is_valid(self) -> bool:
        """Whether the client secret is valid for at least another minute."""
        return self.expires_at is None or self.expires_at > time.time() + 60

    @property
    def client(self) -> ClientId:
        return ClientId(self.client_id, self.client_secret, self.method)


class Login(Struct, frozen=True, kw_only=True):
    """A login at one server, with its tokens. Times are seconds since 1970."""

    url: str
    """The URL of the MCP server, normalized by `plain_url`."""
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
    """Whether the server had resource metadata. If so, it is never treated as a server of 2025-03-26."""

    def __repr__(self) -> str:
        return f"Login({self.url!r}, {self.issuer!r}, {self.client_id!r})"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.url, self.issuer, self.client_id


class LoginRecords(Struct, kw_only=True):
    """Everything in a store. A file of a newer version is neither read nor overwritten."""

    version: int = VERSION
    logins: list[Login] = []
    registrations: list[Registration] = []
    has_vault: bool = False
    """Whether the secrets are in the system's keyring and these records are only its index."""

    def login(self, url: str, client_id: str | None = None) -> Login | None:
        """The newest login at this URL, optionally of one client."""
        found = [login for login in self.logins if login.url == url and client_id in (None, login.client_id)]
        return max(found, key=lambda login: login.issued_at, default=None)

    def add(self, login: Login) -> None:
        """Add a login, replacing an older one."""
        self.remove(login)
        self.logins = [*self.logins, login]

    def remove(self, login: Login) -> None:
        self.logins = [other for other in self.logins if other.key != login.key]

    def registration(self, issuer: str) -> Registration | None:
        matches = (known for known in self.registrations if known.issuer == issuer and known.is_valid)
        return next(matches, None)

    def add_registration(self, registration: Registration) -> None:
        """Add a registration, replacing an older one at the same issuer."""
        self.remove_registration(registration.issuer)
        self.registrations = [*self.registrations, registration]

    def remove_registration(self, issuer: str) -> None:
        self.registrations = [known for known in self.registrations if known.issuer != issuer]


_LOCK_SECONDS = 30.0
_LOCK_PAUSE = 0.05
_CHANGE_SECONDS = 5.0
_MAX_BYTES = 16 * 1024 * 1024
# O_NONBLOCK, because opening a named pipe in the place of the file would wait.
_READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class MemoryStore:
    """Records that end with the process."""

    def __init__(self) -> None:
        self._records = LoginRecords()
        self._lock = asyncio.Lock()

    def read(self) -> LoginRecords:
        return self._records

    def change(self, change: Callable[[LoginRecords], None]) -> LoginRecords:
        change(self._records)
        return self._records

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        async with self._lock:
            yield


class FileStore:
    """The file at `path`, readable by its owner only.

    With a `vault`, or if the file says that one was used, secrets are in the system's keyring and the file is an index.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, vault: KeyringSecrets | None = None) -> None:
        self._vault = vault
        self.path = Path(path if path is not None else login_file())
        self._lock_path = self.path.with_name(f"{self.path.name}.lock")
        self._refresh_path = self.path.with_name(f"{self.path.name}.refresh")

    def read(self) -> LoginRecords:
        """Return the current records, which are empty without a file.

        Raises ConfigurationError for a file that others can read, or of a newer version.
        """
        try:
            descriptor = os.open(self.path, _READING)
        except FileNotFoundError:
            return LoginRecords()
        except OSError as error:
            why = "symbolic links are not followed" if self.path.is_symlink() else error.strerror
            raise ConfigurationError(f"{self.path}: {why}; remove it and log in again") from None
        try:
            self._check(os.fstat(descriptor))
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(_MAX_BYTES)
        finally:
            os.close(descriptor)

        try:
            records = Decoder(LoginRecords).decode(data)
            version = records.version
        except MALFORMED:
            version = _version_of(data)
            if version <= VERSION:
                # Renamed, not lost.
                with suppress(OSError):
                    os.replace(self.path, self.path.with_name(f"{self.path.name}.unreadable-{int(time.time())}"))
                return LoginRecords()

        if version > VERSION:
            raise ConfigurationError(
                f"{self.path} was written by a newer mcpd (version {version}): update mcpd, or use another file"
            )
        if not records.has_vault:
            return records
        if self._vault is None:
            self._vault = KeyringSecrets()
        return self._vault.fill(records)

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{self.path} is not a regular file: remove it and log in again")
        if os.name != "posix":
            return

        # Another user could have put tokens of their own there.
        if status.st_uid not in (os.getuid(), 0):
            raise ConfigurationError(f"{self.path} belongs to another user: remove it and log in again")
        if status.st_mode & 0o077:
            raise ConfigurationError(
                f"other users can read the tokens in {self.path}: run chmod 600 {self.path}; if somebody may have "
                "read it, run mcpd logout --all"
            )

    def change(self, change: Callable[[LoginRecords], None]) -> LoginRecords:
        """Read, change and write the records in one step for all processes, and return them.

        Raises ConfigurationError.
        """
        self._make_folder()
        try:
            with locked(self._lock_path, _CHANGE_SECONDS):
                # Read again under the lock: another process may have changed the file.
                records = self.read()
                change(records)
                records.has_vault = records.has_vault or self._vault is not None
                self._write(records if self._vault is None else self._vault.strip(records))
        except TimeoutError:
            raise ConfigurationError(f"another process keeps {self.path} locked: end it, and try again") from None
        return records

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot create {self.path.parent}, the folder of logins: {error.strerror}"
            ) from None

    def _write(self, records: LoginRecords) -> None:
        try:
            with replacing(self.path) as file:
                file.write(format(encode(records), indent=1))
        except OSError as error:
            raise ConfigurationError(f"{printable(self.path)}: {error.strerror}; the login was not saved") from None

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        """Allow one refresh at a time in all processes. The others wait, then read the result."""
        self._make_folder()
        # A lock of its own: a refresh takes seconds, and reading must not wait for it.
        lock = os.open(self._refresh_path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            until = time.monotonic() + _LOCK_SECONDS
            while not try_lock(lock):
                # The other process, or its network, hangs. Two refreshes are better than none.
                if time.monotonic() > until:
                    break
                await asyncio.sleep(_LOCK_PAUSE)
            yield
        finally:
            os.close(lock)


Store: TypeAlias = MemoryStore | FileStore


class _Versioned(Struct):
    version: int = 0


def _version_of(data: bytes) -> int:
    try:
        return Decoder(_Versioned).decode(data).version
    except MALFORMED:
        return 0


_SERVICE = "mcpd"


class _Secrets(Struct):
    access_token: str = ""
    refresh_token: str | None = None
    client_secret: str | None = None
    dpop_key: dict[str, Any] | None = None


class KeyringSecrets:
    """Keeps secrets in the system's keyring. Requires the package `keyring`.

    `keyring` has the functions `get_password`, `set_password` and `delete_password` of that package.
    """

    def __init__(self, keyring: Any = None) -> None:
        self._keyring = keyring if keyring is not None else _installed()
        self._known: set[str] = set()

    def fill(self, records: LoginRecords) -> LoginRecords:
        """Return the records of an index with their secrets. Logins whose secrets are missing are left out."""
        logins = []
        for login in records.logins:
            secrets = self._get(_name(login))
            if secrets is not None and secrets.access_token:
                logins.append(replace(login, **asdict(secrets)))

        registrations = []
        for registration in records.registrations:
            secrets = self._get(_name(registration)) if registration.method != "none" else _Secrets()
            if secrets is not None:
                registrations.append(replace(registration, client_secret=secrets.client_secret))
        return replace(records, logins=logins, registrations=registrations)

    def strip(self, records: LoginRecords) -> LoginRecords:
        """Write the secrets to the keyring, remove unused ones, and return the records without secrets."""
        used: dict[str, _Secrets] = {}
        for login in records.logins:
            used[_name(login)] = convert(login, _Secrets, from_attributes=True)
        for registration in records.registrations:
            if registration.client_secret is not None:
                used[_name(registration)] = _Secrets(client_secret=registration.client_secret)

        for name, secrets in used.items():
            self._call("set_password", name, encode(secrets).decode())
        for name in self._known - set(used):
            self._call("delete_password", name)
        self._known = set(used)
        logins = [replace(login, **asdict(_Secrets())) for login in records.logins]
        registrations = [replace(registration, client_secret=None) for registration in records.registrations]
        return replace(records, logins=logins, registrations=registrations)

    def _get(self, name: str) -> _Secrets | None:
        text = self._call("get_password", name)
        if text is None:
            return None
        self._known.add(name)
        try:
            return Decoder(_Secrets).decode(text)
        except DecodeError:
            return None

    def _call(self, function: str, *words: str) -> str | None:
        try:
            result: str | None = getattr(self._keyring, function)(_SERVICE, *words)
            return result
        except Exception as error:
            # Each platform's keyring raises its own errors, whose text may contain the secret.
            raise ConfigurationError(
                f"the system's keyring is not available ({type(error).__name__}): unlock it, or store logins in a file"
            ) from None


def _name(record: Login | Registration) -> str:
    if isinstance(record, Login):
        return f"login {record.url} {record.issuer} {record.client_id}"
    return f"registration {record.issuer}"


def _installed() -> Any:
    try:
        import keyring
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "keyring":
            raise
        raise ConfigurationError("the system's keyring needs a package: pip install 'mcpd-server[keyring]'") from None
    return keyring
