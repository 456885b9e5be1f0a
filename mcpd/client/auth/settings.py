"""How a client gets its tokens: what a program says, as `Client(url, auth=…)`. No secret is in any repr.

Spec: 2026-07-28 basic/authorization; the extensions for client credentials, enterprise-managed authorization, DPoP
(SEP-1932) and workload identity (SEP-1933).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence

from mcpd.client.auth.auth_option import AuthSettings, TokenSource
from mcpd.client.auth.documents import is_loopback_url
from mcpd.errors import ConfigurationError
from mcpd.transports.client_authorization import Authorization


class OAuth(AuthSettings, frozen=True, kw_only=True):
    """A person logs in, in a browser, once; then tokens are refreshed.

    scopes
        What to ask for in place of what the server names.
    client_id, client_secret, issuer
        A registration that exists, and at which authorization server; without `issuer` at the first one it is used at.
    client_metadata_url
        The https URL, with a path, of a client id metadata document; used where the authorization server takes such.
    client_name
        What a dynamic registration calls this program.
    redirect
        Where the browser returns to, on this machine or an https URL. Port 0 is any free one.
    interactive
        False: AuthorizationRequired is raised in place of a login; what is stored is used and refreshed.
    open_url, wait_callback
        Called with the page to visit, in place of a browser; gives the URL that the browser was sent back to, in place
        of the listener on loopback. With `wait_callback` the `redirect` has to have its port.
    device
        Log in by a code that is typed on another device, where the authorization server has that; `show_code` is told
        the page and the code.
    dpop
        Tokens that are bound to a key: asked for where the server wants them, always if True. `mcpd-server[auth]`.
    offline
        Whether to ask for `offline_access` where it is offered, to stay logged in.
    assume_issuer
        Take an issuer for the right one although a slash at its end differs, as at some large providers.
    assume_pkce
        Go on where an authorization server does not say that it has PKCE with S256. It is sent all the same.
    legacy
        Whether servers of 2025-03-26 are served, which have no resource metadata.
    allow_private
        Whether documents may be at private addresses though the server is at none.
    store
        A file of logins in place of the user's own; "memory" forgets them with the process, "keyring" is the system's
        (`mcpd-server[keyring]`).
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
            raise ConfigurationError("OAuth: a client_secret belongs to a client_id: give both")
        if self.client_metadata_url is not None and not _has_path(self.client_metadata_url):
            raise ConfigurationError(
                "OAuth: client_metadata_url is an https URL with a path, which authorization servers read"
            )
        # Spec: 2026-07-28 security considerations, communication security.
        is_local = self.redirect.startswith("http://") and is_loopback_url(self.redirect)
        if not is_local and not self.redirect.startswith("https://"):
            raise ConfigurationError(f"OAuth: redirect {self.redirect} is no https URL, and not on this machine")


def _has_path(url: str) -> bool:
    return url.startswith("https://") and bool(url.removeprefix("https://").partition("/")[2])


class MachineGrant(AuthSettings, frozen=True, kw_only=True):
    """Tokens for a program that nobody logs in for: kept in memory, asked for anew when they expire.

    `scopes` is what to ask for in place of what the server names; `issuer` the only authorization server that the
    credentials go to, None for the one that the server names.
    """

    scopes: Sequence[str] | None = None
    issuer: str | None = None
    dpop: bool = False
    allow_private: bool = False


class ClientCredentials(MachineGrant, frozen=True, kw_only=True):
    """The client's own id and secret (RFC 6749 4.4)."""

    client_id: str
    client_secret: str


class PrivateKeyJwt(MachineGrant, frozen=True, kw_only=True):
    """The client's own id, proven by a key (RFC 7523). `key_pem` is PKCS 8. `mcpd-server[auth]`."""

    client_id: str
    key_pem: str
    algorithm: str = "ES256"


class EnterpriseManaged(MachineGrant, frozen=True, kw_only=True):
    """An identity token of the company's sign-in becomes a token for the server (ID-JAG).

    `id_token` goes to `idp_token_endpoint` only, with `idp_client_id`; `client_id` and `client_secret` are those at the
    server's authorization server. `id_token` may be a function, which is asked each time.
    """

    client_id: str
    client_secret: str
    idp_token_endpoint: str
    idp_client_id: str
    id_token: str | TokenSource
    idp_client_secret: str | None = None
    subject_token_type: str = "urn:ietf:params:oauth:token-type:id_token"


class WorkloadIdentity(MachineGrant, frozen=True, kw_only=True):
    """The token that the platform gives a workload, read anew each time, is exchanged for one of the server's."""

    token_file: str | os.PathLike[str] | None = None
    source: TokenSource | None = None

    def __post_init__(self) -> None:
        if (self.token_file is None) == (self.source is None):
            raise ConfigurationError("WorkloadIdentity: give token_file or source, and not both")


class Prepared(AuthSettings, frozen=True, kw_only=True):
    """What lets requests in as it is, made before."""

    authorization: Authorization

    def __repr__(self) -> str:
        return "Prepared()"


class Supplied(AuthSettings, frozen=True, kw_only=True):
    """A token that the program has, or a function that gives one: what `auth="…"` and `auth=function` are."""

    token: str | TokenSource
