"""Users in a file: names, scrypt hashes of their passwords, and scopes.

A wrong name takes as long as a wrong password. The file is read for each sign-in. AUTH-147.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import tomllib
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from hmac import compare_digest

import msgspec
from msgspec import Struct

from mcpd.auth.settings import warn_if_shared
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.files import replacing

_LOG_N, _R, _P = 15, 8, 1
_MEMORY = 64 * 1024 * 1024
_MAX_BYTES = 1024 * 1024
_MAX_PASSWORD_CHARACTERS = 1024
_MAX_WAITING = 16

_is_user_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}").fullmatch


class FileUser(Struct, frozen=True, forbid_unknown_fields=True):
    """A user. `password` is a hash, `scopes` are the scopes that the user may grant, None for all."""

    password: str
    scopes: tuple[str, ...] | None = None
    name: str = ""


class Busy(Exception):
    """Too many passwords are waiting to be checked."""


class Users:
    """Checks passwords against a file, one at a time, in a thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "mcpd-passwords")
        self._waiting = 0
        self._nobody = hash_password(secrets.token_hex(16))
        read_users(path)
        warn_if_shared(path, os.stat(path))
        # Starts the thread. If it started later, it would look like a hanging call when the server stops.
        self._thread.submit(bool)

    async def check(self, name: str, password: str) -> FileUser | None:
        """Return the user if the password is right. Raises Busy, or ConfigurationError for the file."""
        if self._waiting >= _MAX_WAITING:
            raise Busy
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._check, name, password)
        finally:
            self._waiting -= 1

    def _check(self, name: str, password: str) -> FileUser | None:
        user = read_users(self._path).get(name)
        is_right = matches(user.password if user is not None else self._nobody, password)
        return user if is_right else None

    def close(self) -> None:
        self._thread.shutdown(wait=False)


def is_user_name(name: str) -> bool:
    """Return whether a name is valid. It cannot contain a colon, unlike the subjects of providers."""
    return _is_user_name(name) is not None


def hash_password(password: str) -> str:
    """Return the hash of a password with its parameters and salt."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _LOG_N, _R, _P)
    return f"scrypt${_LOG_N}${_R}${_P}${b64encode(salt).decode()}${b64encode(digest).decode()}"


def matches(hashed: str, password: str) -> bool:
    """Return whether a password matches a hash; False for a malformed hash."""
    try:
        kind, log_n, r, p, salt, digest = hashed.split("$")
        if kind != "scrypt" or not 10 <= int(log_n) <= 18 or not 1 <= int(r) * int(p) <= 16:
            return False
        found = _scrypt(password, b64decode(salt, validate=True), int(log_n), int(r), int(p))
        return compare_digest(found, b64decode(digest, validate=True))
    except ValueError:
        return False


def _scrypt(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    raw = password[:_MAX_PASSWORD_CHARACTERS].encode("utf-8", "surrogatepass")
    return hashlib.scrypt(raw, salt=salt, n=1 << log_n, r=r, p=p, maxmem=4 * _MEMORY, dklen=32)


def read_users(path: str) -> dict[str, FileUser]:
    """Return the users in a file by name. Raises ConfigurationError."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{printable(path)}: {error.strerror}; create it with: mcpd auth add-user NAME --file {printable(path)}"
        ) from None
    if len(text) > _MAX_BYTES:  # half a file would lose users when it is written
        raise ConfigurationError(f"{printable(path)} is larger than {_MAX_BYTES} bytes, the limit for a file of users")
    try:
        found = msgspec.convert(tomllib.loads(text.decode()), dict[str, FileUser])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ConfigurationError(f"{printable(path)}: {printable(error)}") from None
    wrong = [name for name in found if not is_user_name(name)]
    if wrong:
        raise ConfigurationError(f"{printable(path)}: {printable(wrong[0])!r} is not a user name")
    return found


def add_user(path: str, name: str, password: str, scopes: tuple[str, ...] | None = None) -> bool:
    """Add or change a user in a file that only its owner can read, and return whether the user existed.

    Values that are not given stay unchanged. Raises ConfigurationError.
    """
    if not is_user_name(name):
        raise ConfigurationError(f"{printable(name)!r} is not a user name: use up to 64 letters, digits and ._@+-")
    users = read_users(path) if os.path.exists(path) else {}
    before = users.get(name)
    users[name] = FileUser(
        hash_password(password),
        before.scopes if before is not None and scopes is None else scopes,
        before.name if before is not None else "",
    )

    text = "# Who may log in; written by `mcpd auth add-user`.\n" + "".join(map(_written, users, users.values()))
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise ConfigurationError(f"{printable(path)}: {error.strerror}") from None
    return before is not None


def _written(name: str, user: FileUser) -> str:
    lines = ["", f'["{name}"]', f'password = "{user.password}"']
    if user.scopes is not None:
        lines.append(f"scopes = {msgspec.json.encode(user.scopes).decode()}")
    if user.name:
        lines.append(f"name = {msgspec.json.encode(user.name).decode()}")
    return "\n".join(lines) + "\n"
