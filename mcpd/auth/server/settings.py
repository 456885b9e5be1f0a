"""`auth.toml`, the settings of the login server, the file of its users, and rate limits for guessing passwords.

The file of users has names, scrypt hashes of passwords, and scopes. It is read for each sign-in. A wrong name takes as
long as a wrong password. `X-Forwarded-For` is used only if it comes from a proxy that the operator has named, because
anybody may send that header. AUTH-147.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import tomllib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hmac import compare_digest
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpd.auth.metadata import is_scope
from mcpd.auth.settings import read_limited
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.authentication import warn_of_readers
from mcpd.transports.files import replacing

_LOG_N, _R, _P = 15, 8, 1
_MEMORY = 64 * 1024 * 1024
_MAX_USERS_BYTES = 1024 * 1024
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
        warn_of_readers("the file of users", path, os.stat(path).st_mode)
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
        # Read for each sign-in, so that a removed user is out at once.
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
    shown = printable(path)
    # Half a file would lose users when it is written.
    text, _ = read_limited(path, _MAX_USERS_BYTES, shown, f"create it with: mcpd auth add-user NAME --file {shown}")
    try:
        users = msgspec.convert(tomllib.loads(text), dict[str, FileUser])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ConfigurationError(f"{shown}: {printable(error)}") from None
    for name in users:
        if not is_user_name(name):
            raise ConfigurationError(f"{shown}: {printable(name)!r} is not a user name")
    return users


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


_MAX_KEYS = 20_000


class Throttle:
    """Counts failures by key and allows `most` of them in `seconds`. The state is in memory."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._failures: dict[str, tuple[int, float]] = {}

    def seconds_to_wait(self, key: str) -> float:
        """Return how many seconds this key must wait, 0 if it may try."""
        count, since = self._failures.get(key, (0, 0.0))
        left = since + self._seconds - self._clock()
        return left if count >= self._most and left > 0 else 0.0

    def failed(self, key: str) -> None:
        """Count a failure. The time begins with the first."""
        now = self._clock()
        count, since = self._failures.pop(key, (0, now))
        if since + self._seconds <= now:
            count, since = 0, now
        self._failures[key] = (count + 1, since)
        if len(self._failures) > _MAX_KEYS:
            # The oldest entry is deleted, so that an attacker who fills the table deletes their own entries first.
            del self._failures[next(iter(self._failures))]

    def succeeded(self, key: str) -> None:
        self._failures.pop(key, None)


_Address: TypeAlias = IPv4Address | IPv6Address
Networks: TypeAlias = Sequence[IPv4Network | IPv6Network]

_MAX_HOPS = 32
# The smallest IPv6 network of one customer, in bits.
_CUSTOMER_BITS = 64


def networks_of(given: Iterable[str]) -> Networks:
    """Parse addresses and networks such as 10.0.0.1 or 10.0.0.0/8. Raises ValueError."""
    found = []
    for text in given:
        try:
            found.append(ip_network(text))
        except ValueError:
            raise ValueError(f"trusted-proxies: {text!r} is not an address or network such as 10.0.0.0/8") from None
    return found


def address_of(peer: str, forwarded: str, trusted: Networks) -> str:
    """Return the address of a request: `peer`, or for a trusted proxy the last address that it has added.

    Entries before the first address that is not a trusted proxy could be forged and are ignored.
    """
    here = _parsed(peer)
    hops = forwarded.split(",")[-_MAX_HOPS:]
    while here is not None and _is_in(here, trusted) and hops:
        address = _parsed(hops.pop())
        if address is None:
            break
        here = address

    return peer if here is None else str(here)


def rate_limit_key(address: str) -> str:
    """Return the network that is counted together: one IPv4 address, or 64 bits of an IPv6 address."""
    found = _parsed(address)
    if not isinstance(found, IPv6Address):
        return address

    return str(IPv6Network((int(found), _CUSTOMER_BITS), strict=False))


def _is_in(address: _Address, networks: Networks) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _parsed(text: str) -> _Address | None:
    # Parse an address as proxies write it: with a port, in brackets, or as IPv4-mapped IPv6.
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]

    try:
        found = ip_address(text)
    except ValueError:
        return None

    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


_MAX_BYTES = 256 * 1024
_is_name = re.compile(r"[a-z0-9][a-z0-9-]{0,31}").fullmatch


class _Table(Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """A table without unknown keys."""


class UserFile(_Table, frozen=True):
    """`[sign-in.users]`: users with passwords, in a file written by `mcpd auth add-user`."""

    file: str


class Provider(_Table, frozen=True):
    """`[sign-in.NAME]`: an OpenID Connect provider or GitHub, with which users sign in.

    `allow` has e-mail addresses, patterns such as `*@domain`, or subjects; nobody else is admitted. `scopes` are the
    scopes that these users may grant, None for all. With `keep_tokens` the provider's tokens are stored encrypted for
    `ctx.upstream_token()`.
    """

    client_id: str
    issuer: str = ""
    client_secret_file: str = ""
    label: str = ""
    allow: tuple[str, ...] = ()
    scopes: tuple[str, ...] | None = None
    ask_for: tuple[str, ...] = ()
    """Further scopes to request from the provider."""
    keep_tokens: bool = False


class ListedClient(_Table, frozen=True):
    """`[clients.ID]`: a known client. With a secret it must authenticate."""

    redirect_uris: tuple[str, ...]
    name: str = ""
    secret_file: str = ""


class Settings(_Table, frozen=True):
    """The whole file.

    Attributes:
        state: The file for keys, grants and registrations, by default `auth-state.sqlite` beside this file; "" means
            memory.
        registration: Whether clients may register themselves.
        trusted_clients: IDs of clients that need no consent.
        trusted_proxies: Addresses and networks whose `X-Forwarded-For` is used for rate limits and the log.
        scopes: A description of each scope for the consent page.
        token_seconds: The lifetime of access tokens.
        idle_seconds: How long an unused refresh token is valid.
    """

    state: str = ""
    registration: Literal["open", "off"] = "open"
    trusted_clients: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    scopes: dict[str, str] = {}
    token_seconds: int = 3600
    idle_seconds: int = 90 * 86400
    sign_in: dict[str, object] = {}
    clients: dict[str, ListedClient] = {}

    users: UserFile | None = None
    providers: dict[str, Provider] = {}
    is_development: bool = False
    """Whether anybody on this machine is admitted as one user with one click."""


def development() -> Settings:
    """Return the settings of `--auth-server dev`: one user, one click, and nothing stored."""
    return Settings(is_development=True)


def read(path: str) -> Settings:
    """Return the settings in a file. Paths in it are relative to the file. Raises ConfigurationError."""
    text, _ = read_limited(path, _MAX_BYTES, path, "name a settings file, or use dev")
    try:
        values = tomllib.loads(text)
        for own in ("users", "providers", "is-development"):
            if own in values:
                raise msgspec.ValidationError(f"Object contains unknown field `{own}`")
        settings = msgspec.convert({"state": "auth-state.sqlite", **values}, Settings)
        return _checked(settings, os.path.dirname(os.path.abspath(path)))
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {printable(error, 400)}") from None


def _checked(settings: Settings, folder: str) -> Settings:
    # Return the settings with the ways to sign in and absolute paths. Raises ValueError.
    users, providers = None, {}
    for name, table in settings.sign_in.items():
        if not _is_name(name):
            raise ValueError(
                f"[sign-in.{name}]: use lower-case letters, digits and -, because the name is part of URLs"
            )
        if name == "users":
            users = msgspec.convert(table, UserFile)
            users = replace(users, file=os.path.join(folder, users.file))
        else:
            providers[name] = _provider(name, msgspec.convert(table, Provider), folder)
    if users is None and not providers:
        raise ValueError("nobody can sign in: add [sign-in.users] with a file, or [sign-in.NAME] with an issuer")

    for scope in settings.scopes:
        _check_scope(scope)
    if not 60 <= settings.token_seconds <= 3600:
        raise ValueError("token-seconds: must be 60 to 3600")
    if settings.idle_seconds < settings.token_seconds:
        raise ValueError("idle-seconds: must be at least token-seconds")
    networks_of(settings.trusted_proxies)

    clients = {
        id: replace(client, secret_file=_within(folder, client.secret_file)) for id, client in settings.clients.items()
    }
    return replace(settings, state=_within(folder, settings.state), users=users, providers=providers, clients=clients)


def _provider(name: str, provider: Provider, folder: str) -> Provider:
    where = f"[sign-in.{name}]"
    if not provider.issuer and name != "github":
        raise ValueError(f"{where}: issuer is missing: the URL of an OpenID Connect provider")
    if provider.issuer and not provider.issuer.startswith(("https://", "http://127.0.0.1", "http://localhost")):
        raise ValueError(f"{where}: issuer must begin with https://")
    if not provider.allow:
        raise ValueError(f'{where}: allow is empty, so nobody could sign in; add addresses, such as ["*@corp.example"]')
    for scope in provider.scopes or ():
        _check_scope(scope)
    return replace(provider, client_secret_file=_within(folder, provider.client_secret_file))


def _check_scope(scope: str) -> None:
    if not is_scope(scope):
        raise ValueError(f"scope {scope!r}: use printable ASCII without spaces, quotes and backslashes")


def _within(folder: str, path: str) -> str:
    return os.path.join(folder, path) if path else ""
