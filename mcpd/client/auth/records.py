"""What is kept of logins: tokens of each, registrations by issuer. No repr of them has a secret."""

from __future__ import annotations

import time
from typing import Any

from msgspec import Struct

from mcpd.client.auth.tokens import ClientId

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
