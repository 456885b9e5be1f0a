"""`auth.toml`, the settings of the login server."""

from __future__ import annotations

import os
import re
import tomllib
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpd.auth.metadata import is_scope
from mcpd.auth.server.users import networks_of
from mcpd.auth.settings import read_limited
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

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
    """Return the settings with the ways to sign in and absolute paths. Raises ValueError."""
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
