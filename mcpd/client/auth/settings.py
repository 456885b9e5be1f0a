"""Settings for `Client(url, auth=…)`. No `repr` shows a secret.

Spec: 2026-07-28 basic/authorization; the extensions for client credentials, enterprise-managed authorization, DPoP
(SEP-1932) and workload identity (SEP-1933).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence

from mcpd.client.http.options import AuthSettings, TokenSource
from mcpd.errors import ConfigurationError
from mcpd.transports.address import is_loopback_url
from mcpd.transports.challenge import Authorization


class OAuth(AuthSettings, frozen=True, kw_only=True):
    """A person logs in once, in a browser. After that, tokens are refreshed.

    scopes
        The scopes to request, instead of the scopes that the server names.
    client_id, client_secret, issuer
        An existing registration and its authorization server. Without `issuer`, the first one that it is used at.
    client_metadata_url
        The https URL, with a path, of a client id metadata document. Used if the authorization server supports it.
    client_name
        The name of this program in a dynamic registration.
    redirect
        Where the browser returns to: a URL of this machine, or an https URL. Port 0 selects a free port.
    interactive
        If False, AuthorizationRequired is raised instead of a login. Stored logins are used and refreshed.
    open_url, wait_callback
        `open_url` is called with the URL of the login page, instead of opening a browser. `wait_callback` returns the
        URL that the browser was redirected to, instead of a listener on this machine; `redirect` then needs its port.
    device
        Log in with a code that the user types on another device, if the authorization server supports it. `show_code`
        is called with the page and the code.
    dpop
        Always request tokens that are bound to a key. They are requested in any case if the server requires them.
        Requires `mcpd-server[auth]`.
    offline
        Whether to request `offline_access` where it is offered, to stay logged in.
    assume_issuer
        Accept an issuer that differs from the expected one by a slash at the end, as at some large providers.
    assume_pkce
        Continue if an authorization server does not announce PKCE with S256. The challenge is sent in any case.
    legacy
        Whether to support servers of 2025-03-26, which have no resource metadata.
    allow_private
        Whether metadata may be at private addresses although the server has a public one.
    store
        A file for logins instead of the user's own. "memory" forgets them with the process; "keyring" is the system's
        keyring (`mcpd-server[keyring]`).
    """

    scopes: Sequence[str] | None = None
    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    client_metadata_url: str | None = None
    client_name: str = "mcpd"
    redirect: str = "http://127.0.0.1:0/callback"
    interactive: bool = True
    open_url: Callable[[str], Awaitable[None] | None] | None = None
    wait_callback: Callable[[], Awaitable[str] | str] | None = None
    device: bool = False
    show_code: Callable[[str, str], Awaitable[None] | None] | None = None
    dpop: bool = False
    offline: bool = True
    assume_pkce: bool = False
    assume_issuer: bool = False
    legacy: bool = True
    allow_private: bool = False
    store: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.client_secret is not None and self.client_id is None:
            raise ConfigurationError("OAuth: client_secret requires client_id")
        if self.client_metadata_url is not None and not _has_path(self.client_metadata_url):
            raise ConfigurationError("OAuth: client_metadata_url must be an https URL with a path")
        # Spec: 2026-07-28 security considerations, communication security.
        is_local = self.redirect.startswith("http://") and is_loopback_url(self.redirect)
        if not is_local and not self.redirect.startswith("https://"):
            raise ConfigurationError(f"OAuth: redirect {self.redirect} must be an https URL or a URL of this machine")


def _has_path(url: str) -> bool:
    return url.startswith("https://") and bool(url.removeprefix("https://").partition("/")[2])


class MachineGrant(AuthSettings, frozen=True, kw_only=True):
    """Tokens for a program without a user. They are kept in memory and requested again when they expire.

    `scopes` are the scopes to request, instead of the scopes that the server names. `issuer` is the only authorization
    server that receives the credentials; None means the one that the server names.
    """

    scopes: Sequence[str] | None = None
    issuer: str | None = None
    dpop: bool = False
    allow_private: bool = False


class ClientCredentials(MachineGrant, frozen=True, kw_only=True):
    """The id and secret of the client (RFC 6749 4.4)."""

    client_id: str
    client_secret: str


class PrivateKeyJwt(MachineGrant, frozen=True, kw_only=True):
    """The id of the client, proven by a key (RFC 7523). `key_pem` is in PKCS 8. Requires `mcpd-server[auth]`."""

    client_id: str
    key_pem: str
    algorithm: str = "ES256"


class EnterpriseManaged(MachineGrant, frozen=True, kw_only=True):
    """Exchange an identity token of the company's sign-in for a token of the server (ID-JAG).

    `id_token` is sent only to `idp_token_endpoint`, with `idp_client_id`. It may be a function, which is called for
    each exchange. `client_id` and `client_secret` belong to the server's authorization server.
    """

    client_id: str
    client_secret: str
    idp_token_endpoint: str
    idp_client_id: str
    id_token: str | TokenSource
    idp_client_secret: str | None = None
    subject_token_type: str = "urn:ietf:params:oauth:token-type:id_token"


class WorkloadIdentity(MachineGrant, frozen=True, kw_only=True):
    """Exchange the token that the platform issues to a workload, which is read each time, for a token of the server."""

    token_file: str | os.PathLike[str] | None = None
    source: TokenSource | None = None

    def __post_init__(self) -> None:
        if (self.token_file is None) == (self.source is None):
            raise ConfigurationError("WorkloadIdentity: use either token_file or source")


class PreparedAuthorization(AuthSettings, frozen=True, kw_only=True):
    """An `Authorization` that already exists."""

    authorization: Authorization

    def __repr__(self) -> str:
        return "PreparedAuthorization()"


class SuppliedToken(AuthSettings, frozen=True, kw_only=True):
    """A token of the program, or a function that returns one: `auth="…"` and `auth=function`."""

    token: str | TokenSource
