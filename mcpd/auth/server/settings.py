"""The file that says what the authorization server is: `auth.toml`. Every mistake in it is named."""

from __future__ import annotations

import os
import re
import tomllib
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpd.auth.server.throttle import networks_of
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

_MOST_BYTES = 256 * 1024
_is_name = re.compile(r"[a-z0-9][a-z0-9-]{0,31}").fullmatch
_is_scope = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}").fullmatch


class _Table(Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """A table whose keys are known."""


class UserFile(_Table, frozen=True):
    """`[sign-in.users]`: people with passwords, in a file that `mcpd auth add-user` writes."""

    file: str


class Provider(_Table, frozen=True):
    """`[sign-in.NAME]`: a provider of OpenID Connect, or GitHub, that says who somebody is.

    `allow` are e-mail addresses, `*@domain` among them, or subjects; nobody else is let in. `scopes` are what they may
    be given: None for all. With `keep_tokens` the provider's tokens are kept, encrypted, for `ctx.upstream_token()`.
    """

    client_id: str
    issuer: str = ""
    client_secret_file: str = ""
    label: str = ""
    allow: tuple[str, ...] = ()
    scopes: tuple[str, ...] | None = None
    ask_for: tuple[str, ...] = ()
    """Scopes of the provider that are asked for besides those that say who somebody is."""
    keep_tokens: bool = False


class ListedClient(_Table, frozen=True):
    """`[clients.ID]`: a program that is known beforehand. With a secret it has to show that."""

    redirect_uris: tuple[str, ...]
    name: str = ""
    secret_file: str = ""


class Settings(_Table, frozen=True):
    """All of `auth.toml`. `state` is where keys, grants and registrations are kept: "" for this process's memory,
    and without it `auth-state.sqlite` beside the file.

    `registration` is of clients that register themselves. `trusted_clients` are asked for no consent, by their id.
    `trusted_proxies` are addresses and networks whose `X-Forwarded-For` is believed, for throttling and the log.
    `scopes` says in words what each scope allows. Times are in seconds: of an access token, and until a refresh token
    that nobody uses ends.
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
    """Whether anybody on this machine is let in as one user, by one click."""


def development() -> Settings:
    """`--auth-server dev`: one user, one click, nothing kept."""
    return Settings(is_development=True)


def read(path: str) -> Settings:
    """The settings in a file; what they name is looked for beside it. Raises ConfigurationError."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{path}: {error.strerror}; name a file that says who may log in, or write dev"
        ) from None
    if len(text) > _MOST_BYTES:
        raise ConfigurationError(f"{path} is larger than {_MOST_BYTES} bytes; that is no such file")
    try:
        said = tomllib.loads(text.decode())
        for own in ("users", "providers", "is-development"):
            if own in said:
                raise msgspec.ValidationError(f"Object contains unknown field `{own}`")
        settings = msgspec.convert({"state": "auth-state.sqlite", **said}, Settings)
        return _checked(settings, os.path.dirname(os.path.abspath(path)))
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {printable(error, 400)}") from None


def _checked(settings: Settings, folder: str) -> Settings:
    """The settings with the ways of signing in apart, and with whole paths. Raises ValueError."""
    users, providers = None, {}
    for name, table in settings.sign_in.items():
        if not _is_name(name):
            raise ValueError(f"[sign-in.{name}]: name it with small letters, digits and -, as it is in URLs")
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
        raise ValueError("token-seconds: from 60 to 3600")
    if settings.idle_seconds < settings.token_seconds:
        raise ValueError("idle-seconds: no less than token-seconds")
    networks_of(settings.trusted_proxies)
    clients = {
        id: replace(client, secret_file=_within(folder, client.secret_file)) for id, client in settings.clients.items()
    }
    return replace(settings, state=_within(folder, settings.state), users=users, providers=providers, clients=clients)


def _provider(name: str, provider: Provider, folder: str) -> Provider:
    where = f"[sign-in.{name}]"
    if not provider.issuer and name != "github":
        raise ValueError(f"{where}: issuer is missing: the URL of a provider of OpenID Connect")
    if provider.issuer and not provider.issuer.startswith(("https://", "http://127.0.0.1", "http://localhost")):
        raise ValueError(f"{where}: issuer has to begin with https://")
    if not provider.allow:
        raise ValueError(f'{where}: allow is empty, so that nobody gets in; write addresses, as ["*@corp.example"]')
    for scope in provider.scopes or ():
        _check_scope(scope)
    return replace(provider, client_secret_file=_within(folder, provider.client_secret_file))


def _check_scope(scope: str) -> None:
    if not _is_scope(scope):
        raise ValueError(f"scope {scope!r}: printable ASCII without spaces, quotes and backslashes")


def _within(folder: str, path: str) -> str:
    return os.path.join(folder, path) if path else ""
