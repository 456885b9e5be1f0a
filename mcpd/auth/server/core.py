"""State and operations that the endpoints of the login server share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec.json import decode, encode

from mcpd.auth.fetch import Reach, kind_of
from mcpd.auth.server.clients import Client, ClientDocuments, is_document_id
from mcpd.auth.server.keys import Keys
from mcpd.auth.server.replies import OAuthError, answer_url, redirect, why_not
from mcpd.auth.server.settings import Settings
from mcpd.auth.server.store import Grant, Store, User, digest
from mcpd.auth.server.throttle import Throttle, address_of, networks_of
from mcpd.auth.server.transactions import Transaction, Transactions
from mcpd.auth.server.upstream import Tokens, Upstream, is_allowed, upstreams
from mcpd.auth.server.users import Users, read_users
from mcpd.auth.settings import secret_in
from mcpd.errors import ConfigurationError
from mcpd.transports.routes import RouteRequest, RouteResponse

log = logging.getLogger("mcpd")

OFFLINE = "offline_access"
"""The scope with which a client requests a refresh token. It has no other effect."""

CODE_SECONDS = 60.0
GRACE_SECONDS = 45.0
MAX_SCOPES = 64


class Core:
    """One authorization server. Raises ConfigurationError.

    `known_scopes` returns all scopes that the endpoint may require, `default_scopes` has those that every request
    requires. `on_revoked` is called with user and client when a grant is revoked.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float], reach: Reach) -> None:
        self.settings = settings
        self.clock = clock
        self.reach = reach
        self.issuer = self.resource = ""
        self.name = ""
        """The name of the endpoint on pages; by default its host."""
        self.known_scopes: Callable[[], Iterable[str]] = lambda: ()
        self.default_scopes: tuple[str, ...] = ()
        self.on_revoked: Callable[[str, str], None] = lambda subject, client: None

        self._proxies = networks_of(settings.trusted_proxies)
        self.fetching_keys = 0
        """How many clients' keys are being fetched. It is limited, because anybody may name a URL."""
        self.users = None if settings.users is None else Users(settings.users.file)
        self.upstreams = upstreams(settings.providers)
        self.listed = {id: _listed(id, settings) for id in settings.clients}
        self.store = Store(settings.state, clock)
        self.keys = Keys(self.store, clock, settings.state)
        self.documents = ClientDocuments(clock, reach)
        self.transactions = Transactions(self.keys, clock, is_secure=lambda: self.issuer.startswith("https:"))
        self._refreshing: dict[str, asyncio.Task[str]] = {}
        """The providers' tokens that are being refreshed, by grant."""
        self.pair_throttle = Throttle(5, 300, clock)
        self.name_throttle = Throttle(50, 300, clock)
        self.address_throttle = Throttle(50, 300, clock)

    def locate(self, public_url: str, endpoint: str) -> None:
        """Set the URL of the endpoint and its path in our application. The issuer is the URL without that path."""
        parts = urlsplit(public_url)
        prefix = parts.path.rstrip("/").removesuffix(endpoint.rstrip("/"))
        if prefix == parts.path.rstrip("/") and endpoint.rstrip("/"):
            prefix = ""
        self.issuer = f"{parts.scheme}://{parts.netloc}{prefix}"
        self.resource = public_url

    def address(self, request: RouteRequest) -> str:
        """Return the client's address, using the headers of trusted proxies."""
        return address_of(request.client, request.headers.get("x-forwarded-for", ""), self._proxies)

    def has_own_address(self, address: str) -> bool:
        """Return whether people have addresses of their own. Behind a proxy for TLS that is not configured, all share
        one.
        """
        try:
            if self._proxies:
                return not any(ip_address(address) in network for network in self._proxies)
            return not self.issuer.startswith("https:") or kind_of(address) == "global"
        except ValueError:
            return False

    def close(self) -> None:
        self.store.close()
        if self.users is not None:
            self.users.close()

    # -- clients -----------------------------------------------------------------------------

    async def client(self, id: str) -> Client:
        """Return the client with this ID. Raises OAuthError."""
        found = self.listed.get(id)
        if found is None and is_document_id(id):
            return await self.documents.get(id)
        if found is None and id:
            found = await self.store.client(id)
        if found is None:
            raise OAuthError(
                "invalid_client", "this client is unknown or its registration has expired; register it", status=401
            )
        return found

    # -- scopes ------------------------------------------------------------------------------

    def all_scopes(self) -> list[str]:
        """Return all scopes that may be requested."""
        found = {*self.default_scopes, *self.known_scopes(), *self.settings.scopes} - {OFFLINE}
        return [*sorted(found), OFFLINE]

    def asked_scopes(self, text: str) -> tuple[str, ...]:
        """Return the requested scopes that exist here, or the default ones if none does. Raises OAuthError."""
        asked = dict.fromkeys(text.split(" ")[: MAX_SCOPES + 1])
        asked.pop("", None)
        if len(asked) > MAX_SCOPES:
            raise OAuthError("invalid_scope", f"more than {MAX_SCOPES} scopes")
        known = {*self.all_scopes()}
        found = tuple(scope for scope in asked if scope in known)
        return found if {*found} - {OFFLINE} else (*self.default_scopes, *found)

    def scopes_for(self, user: User, scopes: Iterable[str]) -> tuple[str, ...]:
        """Return the scopes that this user may grant."""
        return tuple(scope for scope in scopes if user.scopes is None or scope == OFFLINE or scope in user.scopes)

    def current_user(self, user: User) -> User | None:
        """Return the user with current settings, or None if they may no longer log in."""
        if self.settings.is_development:
            return user
        if user.way == "users":
            found = None if self.settings.users is None else read_users(self.settings.users.file).get(user.subject)
            return None if found is None else User(user.subject, user.name, user.way, user.email, found.scopes)
        provider = self.settings.providers.get(user.way)
        if provider is None or not is_allowed(provider.allow, user.subject.partition(":")[2], user.email):
            return None
        return User(user.subject, user.name, user.way, user.email, provider.scopes)

    # -- answers to clients ------------------------------------------------------------------

    def answer(self, uri: str, state: str, params: dict[str, str], status: int = 302) -> RouteResponse:
        """Redirect the browser to the client."""
        return redirect(self.way_back(uri, state, params), status=status)

    def way_back(self, uri: str, state: str, params: dict[str, str]) -> str:
        """Return the URL of the answer to the client, including the issuer. Spec: RFC 9207."""
        return answer_url(uri, {**params, **({"state": state} if state else {}), "iss": self.issuer})

    def refuse(self, transaction: Transaction, error: OAuthError) -> RouteResponse:
        """End a login without a code."""
        self.transactions.end(transaction)
        params = {"error": error.error, **({"error_description": error.text} if error.text else {})}
        return self.answer(transaction.redirect_uri, transaction.state, params, 303)

    def seal(self, tokens: Tokens) -> bytes:
        """Encrypt a provider's tokens for storage."""
        return self.keys.seal(encode(tokens))

    async def upstream_token(self, grant_id: str) -> str:
        """Return the access token of the provider with which a grant's user signed in, refreshed if necessary.

        Raises OAuthError if no token is stored.
        """
        tokens, _ = await self._kept_upstream(grant_id)
        if not self._is_due(tokens):
            return tokens.access
        # One refresh serves all calls, even if the first is cancelled: many refresh tokens can be used only once.
        task = self._refreshing.get(grant_id)
        if task is None:
            task = self._refreshing[grant_id] = asyncio.ensure_future(self._refreshed_upstream(grant_id))
            task.add_done_callback(lambda done: self._has_refreshed(grant_id, done))
        return await asyncio.shield(task)

    async def _refreshed_upstream(self, grant_id: str) -> str:
        tokens, way = await self._kept_upstream(grant_id)
        if self._is_due(tokens):
            if not tokens.refresh:
                raise OAuthError("invalid_grant", "the provider's token has expired and cannot be refreshed")
            tokens = await self.upstream(way).refreshed(tokens)
            await self.store.keep_upstream(grant_id, self.seal(tokens))
        return tokens.access

    def _has_refreshed(self, grant_id: str, task: asyncio.Task[str]) -> None:
        del self._refreshing[grant_id]
        if not task.cancelled():
            task.exception()  # nobody may have awaited it

    def _is_due(self, tokens: Tokens) -> bool:
        return bool(tokens.expires) and tokens.expires - 60 < self.clock()

    async def _kept_upstream(self, grant_id: str) -> tuple[Tokens, str]:
        """Return a provider's tokens and its name. Raises OAuthError."""
        grant, sealed = await self.store.grant(grant_id), await self.store.upstream(grant_id)
        if grant is None or sealed is None:
            raise OAuthError(
                "invalid_grant", "no token of a provider is stored: keep-tokens is off, or the login has ended"
            )
        try:
            return decode(self.keys.unseal(sealed), type=Tokens), grant.user.way
        except ValueError:
            raise OAuthError(
                "invalid_grant", "the provider's token cannot be decrypted, because its key was lost"
            ) from None

    async def end(self, grant: Grant) -> None:
        """Revoke a grant and everything issued for it."""
        await self.store.revoke(grant.id)
        self.on_revoked(grant.user.subject, grant.client)

    def upstream(self, name: str) -> Upstream:
        """Return the provider with this name. Raises OAuthError."""
        found = self.upstreams.get(name)
        if found is None:
            raise OAuthError("invalid_request", "this way to sign in does not exist", status=404)
        return found


def _listed(id: str, settings: Settings) -> Client:
    said = settings.clients[id]
    for uri in said.redirect_uris:
        if wrong := why_not(uri):
            raise ConfigurationError(f"[clients.{id}]: {uri}: {wrong}")
    secret = secret_in(said.secret_file, f"[clients.{id}]")
    return Client(
        id=id,
        name=said.name or id,
        redirect_uris=said.redirect_uris,
        kind="listed",
        method="client_secret_basic" if secret else "none",
        grant_types=("authorization_code", "refresh_token"),
        secret_digest=digest(secret) if secret else "",
    )
