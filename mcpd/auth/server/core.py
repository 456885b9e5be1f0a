"""What the endpoints share: settings, store, keys, who the clients are, and how a login ends at the client."""

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
from mcpd.server.registry.routes import RouteRequest, RouteResponse

log = logging.getLogger("mcpd")

OFFLINE = "offline_access"
"""The scope by which a client says that it wants a refresh token; it allows nothing by itself."""

CODE_SECONDS = 60.0
GRACE_SECONDS = 45.0
MOST_SCOPES = 64


class Core:
    """One authorization server. Raises ConfigurationError for settings that cannot be used.

    `known_scopes` gives all scopes that the endpoint may ask for, `default_scopes` those that every request needs.
    `revoked` is told of a grant's user and client when what they had is over at once.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float], reach: Reach) -> None:
        self.settings = settings
        self.clock = clock
        self.reach = reach
        self.issuer = self.resource = ""
        self.name = ""
        """What the endpoint is called on pages; its host if it has no name."""
        self.known_scopes: Callable[[], Iterable[str]] = lambda: ()
        self.default_scopes: tuple[str, ...] = ()
        self.revoked: Callable[[str, str], None] = lambda subject, client: None

        self._proxies = networks_of(settings.trusted_proxies)
        self.fetching_keys = 0
        """How many clients' keys are being read: anybody may name a place of such, and have it asked."""
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
        """The endpoint is at this URL, and in our application at the path `endpoint`. The issuer is what is before."""
        parts = urlsplit(public_url)
        prefix = parts.path.rstrip("/").removesuffix(endpoint.rstrip("/"))
        if prefix == parts.path.rstrip("/") and endpoint.rstrip("/"):
            prefix = ""
        self.issuer = f"{parts.scheme}://{parts.netloc}{prefix}"
        self.resource = public_url

    def address(self, request: RouteRequest) -> str:
        """Where a request comes from, as far as a proxy is trusted to say."""
        return address_of(request.client, request.headers.get("x-forwarded-for", ""), self._proxies)

    def tells_apart(self, address: str) -> bool:
        """Whether people come from addresses of their own; where TLS ends before us it is the proxy's for all."""
        try:
            if self._proxies:
                return not any(ip_address(address) in network for network in self._proxies)
            return not self.issuer.startswith("https:") or kind_of(address) == "global"
        except ValueError:
            return False

    def close(self) -> None:
        """Close what is open."""
        self.store.close()
        if self.users is not None:
            self.users.close()

    # -- clients -----------------------------------------------------------------------------

    async def client(self, id: str) -> Client:
        """The client of this id. Raises OAuthError."""
        found = self.listed.get(id)
        if found is None and is_document_id(id):
            return await self.documents.get(id)
        if found is None and id:
            found = await self.store.client(id)
        if found is None:
            raise OAuthError(
                "invalid_client", "this client is not known here, or not any more; register it", status=401
            )
        return found

    # -- scopes ------------------------------------------------------------------------------

    def all_scopes(self) -> list[str]:
        """All scopes that may be asked for."""
        found = {*self.default_scopes, *self.known_scopes(), *self.settings.scopes} - {OFFLINE}
        return [*sorted(found), OFFLINE]

    def asked_scopes(self, text: str) -> tuple[str, ...]:
        """The scopes of a request that exist here; the default if none of them does. Raises OAuthError."""
        asked = dict.fromkeys(text.split(" ")[: MOST_SCOPES + 1])
        asked.pop("", None)
        if len(asked) > MOST_SCOPES:
            raise OAuthError("invalid_scope", f"more than {MOST_SCOPES} scopes")
        known = {*self.all_scopes()}
        found = tuple(scope for scope in asked if scope in known)
        return found if {*found} - {OFFLINE} else (*self.default_scopes, *found)

    def scopes_for(self, user: User, scopes: Iterable[str]) -> tuple[str, ...]:
        """Those of these scopes that a user may be given."""
        return tuple(scope for scope in scopes if user.scopes is None or scope == OFFLINE or scope in user.scopes)

    def still(self, user: User) -> User | None:
        """The user as the settings and the file say now; None for one who may not log in any more."""
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
        """Send the browser back to the client."""
        return redirect(self.way_back(uri, state, params), status=status)

    def way_back(self, uri: str, state: str, params: dict[str, str]) -> str:
        """The URL by which the client is answered, with who says this. Spec: RFC 9207."""
        return answer_url(uri, {**params, **({"state": state} if state else {}), "iss": self.issuer})

    def refuse(self, transaction: Transaction, error: OAuthError) -> RouteResponse:
        """End a login without a code."""
        self.transactions.end(transaction)
        params = {"error": error.error, **({"error_description": error.text} if error.text else {})}
        return self.answer(transaction.redirect_uri, transaction.state, params, 303)

    def seal(self, tokens: Tokens) -> bytes:
        """A provider's tokens as they are kept."""
        return self.keys.seal(encode(tokens))

    async def upstream_token(self, grant_id: str) -> str:
        """The access token of the provider by which a grant's user signed in, refreshed where it is over.

        Raises OAuthError if there is none.
        """
        tokens, _ = await self._kept_upstream(grant_id)
        if not self._is_due(tokens):
            return tokens.access
        # One for all calls that want it, even if the first of them is cancelled: many a refresh token can be used once.
        task = self._refreshing.get(grant_id)
        if task is None:
            task = self._refreshing[grant_id] = asyncio.ensure_future(self._refreshed_upstream(grant_id))
            task.add_done_callback(lambda done: self._has_refreshed(grant_id, done))
        return await asyncio.shield(task)

    async def _refreshed_upstream(self, grant_id: str) -> str:
        tokens, way = await self._kept_upstream(grant_id)
        if self._is_due(tokens):
            if not tokens.refresh:
                raise OAuthError("invalid_grant", "the provider's token is over, and it gave none to refresh it with")
            tokens = await self.upstream(way).refreshed(tokens)
            await self.store.keep_upstream(grant_id, self.seal(tokens))
        return tokens.access

    def _has_refreshed(self, grant_id: str, task: asyncio.Task[str]) -> None:
        del self._refreshing[grant_id]
        if not task.cancelled():
            task.exception()  # which nobody may have waited for

    def _is_due(self, tokens: Tokens) -> bool:
        return bool(tokens.expires) and tokens.expires - 60 < self.clock()

    async def _kept_upstream(self, grant_id: str) -> tuple[Tokens, str]:
        """A provider's tokens, and its name. Raises OAuthError."""
        grant, sealed = await self.store.grant(grant_id), await self.store.upstream(grant_id)
        if grant is None or sealed is None:
            raise OAuthError(
                "invalid_grant", "no token of a provider is kept: keep-tokens is off, or the login is over"
            )
        try:
            return decode(self.keys.unseal(sealed), type=Tokens), grant.user.way
        except ValueError:
            raise OAuthError("invalid_grant", "the provider's token was kept with a key that is lost") from None

    async def end(self, grant: Grant) -> None:
        """Revoke all that came of a grant."""
        await self.store.revoke(grant.id)
        self.revoked(grant.user.subject, grant.client)

    def upstream(self, name: str) -> Upstream:
        """The provider of this name. Raises OAuthError."""
        found = self.upstreams.get(name)
        if found is None:
            raise OAuthError("invalid_request", "there is no such way to sign in", status=404)
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
