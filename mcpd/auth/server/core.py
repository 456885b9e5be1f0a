"""State and operations that the endpoints of the login server share: its keys, and the logins in progress.

Logins are in memory, so they must be started again after a restart. AUTH-130, AUTH-139, AUTH-141, AUTH-151.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from urllib.parse import urlencode, urlsplit

from joserfc import jwe, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, OctKey
from msgspec import Struct
from msgspec.json import decode, encode

from mcpd.auth.settings import secret_in
from mcpd.auth.signatures import b64
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.address import Reach, kind_of
from mcpd.transports.routes import RouteRequest, RouteResponse
from .clients import Client, ClientDocuments, OAuthError, is_document_id, redirect, why_not
from .settings import Settings, Throttle, Users, address_of, networks_of, read_users
from .store import Grant, Store, User, digest
from .upstream import Tokens, Upstream, is_allowed, upstreams

ROTATE_SECONDS = 90 * 86400
# Keys are published for two more days than they sign, because tokens live for an hour and key lists are cached.
OVERLAP_SECONDS = 2 * 86400


class Keys:
    """Signs tokens, computes MACs and encrypts stored data. The encryption key is beside the store's file `path`."""

    def __init__(self, store: Store, clock: Callable[[], float], path: str = "") -> None:
        self._path = path
        self._sealing: OctKey | None = None
        self._store = store
        self._clock = clock
        self._secret = store.secret()
        self._keys: list[tuple[ECKey, float]] = []
        self._load()

    def _load(self) -> None:
        # Read the keys. Create one if the newest is too old or missing.
        now = self._clock()
        self._store.drop_keys(now - ROTATE_SECONDS - OVERLAP_SECONDS)
        found = [(ECKey.import_key(decode(jwk)), created) for jwk, created in self._store.signing_keys()]
        if not found or found[0][1] < now - ROTATE_SECONDS:
            key = ECKey.generate_key("P-256", auto_kid=True)
            self._store.add_key(str(key.kid), encode(key.as_dict(private=True)).decode())
            found.insert(0, (key, now))
        self._keys = found

    def sign(self, claims: dict[str, object], typ: str) -> str:
        if self._keys[0][1] < self._clock() - ROTATE_SECONDS:
            self._load()
        key = self._keys[0][0]
        return jwt.encode({"alg": "ES256", "typ": typ, "kid": key.kid}, claims, key)

    def grant_of(self, token: str) -> str:
        """Return the grant of one of our access tokens, even if it has expired; "" for other tokens."""
        try:
            found = jwt.decode(token, KeySet([key for key, _ in self._keys]), algorithms=["ES256"])
        except (JoseError, ValueError, TypeError, KeyError):
            return ""
        return str(found.claims.get("grant", ""))

    def public(self) -> dict[str, list[dict[str, object]]]:
        """Return the public keys. Spec: RFC 7517 section 5."""
        return {
            "keys": [
                {**key.as_dict(private=False), "use": "sig", "alg": "ES256"}
                for key, created in self._keys
                if created >= self._clock() - ROTATE_SECONDS - OVERLAP_SECONDS
            ]
        }

    def mac(self, purpose: str, text: str) -> str:
        return b64(hmac.digest(self._secret, f"{purpose}\0{text}".encode(), sha256))

    def seal(self, raw: bytes) -> bytes:
        """Encrypt data with a key that is not in the same file."""
        return jwe.encrypt_compact({"alg": "dir", "enc": "A256GCM"}, raw, self._sealing_key()).encode()

    def unseal(self, sealed: bytes) -> bytes:
        """Decrypt data. Raises ValueError if it was not encrypted with this key."""
        try:
            plain = jwe.decrypt_compact(sealed, self._sealing_key()).plaintext
        except JoseError as error:
            raise ValueError(f"the stored data cannot be decrypted ({type(error).__name__})") from None
        assert plain is not None
        return plain

    def _sealing_key(self) -> OctKey:
        if self._sealing is None:
            self._sealing = OctKey.import_key(_key_file(f"{self._path}.key") if self._path else os.urandom(32))
        return self._sealing


def _key_file(path: str) -> bytes:
    # Return the 32 bytes in a file, which is created with mode 0600 if necessary. Raises ConfigurationError.
    try:
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(os.urandom(32))
        with open(path, "rb") as file:
            key = file.read(33)
    except OSError as error:
        raise ConfigurationError(f"{printable(path)}: {error.strerror}") from None
    if len(key) != 32:
        raise ConfigurationError(f"{printable(path)}: not a key of 32 bytes")
    return key


LOGIN_SECONDS = 600.0
MAX_LOGINS = 4096

_COOKIE = "__Host-mcpd-login"
_PLAIN_COOKIE = "mcpd-login"


class Transaction(Struct, kw_only=True):
    """One login: the client's request, the browser in which it began, and the user who signed in."""

    id: str
    browser: str
    address: str
    expires: float
    client: Client
    redirect_uri: str
    state: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    key: str = ""
    user: User | None = None
    provider_state: str = ""
    """The state sent to a provider, until the user returns."""
    provider: str = ""
    nonce: str = ""
    verifier: str = ""
    upstream: bytes | None = None
    is_done: bool = False

    def __repr__(self) -> str:
        return f"Transaction({self.client.id!r}, {self.redirect_uri!r})"


class Transactions:
    """Stores logins and recognizes browsers by a signed cookie. `is_secure` returns whether browsers use https."""

    def __init__(self, keys: Keys, clock: Callable[[], float], *, is_secure: Callable[[], bool]) -> None:
        self._keys = keys
        self._clock = clock
        self._is_secure = is_secure
        self._open: dict[str, Transaction] = {}
        self._by_state: dict[str, str] = {}

    # -- browsers ----------------------------------------------------------------------------

    def browser(self, cookies: str) -> str:
        """Return the ID of the browser that sent this `Cookie` header, or ""."""
        name = _COOKIE if self._is_secure() else _PLAIN_COOKIE
        found = [one.strip() for one in cookies.split(";") if one.strip().startswith(f"{name}=")]
        if len(found) != 1:
            return ""
        id, _, signature = found[0].partition("=")[2].partition(".")
        return id if id and compare_digest(signature.encode(), self._keys.mac("browser", id).encode()) else ""

    def new_browser(self) -> tuple[str, tuple[str, str]]:
        """Return a new browser ID and the header that sets its cookie. The prefix `__Host-` requires https."""
        id = secrets.token_urlsafe(24)
        # Signed, so that nobody can choose the cookie of another browser.
        value = f"{id}.{self._keys.mac('browser', id)}"
        name, secure = (_COOKIE, "; Secure") if self._is_secure() else (_PLAIN_COOKIE, "")
        return id, ("Set-Cookie", f"{name}={value}; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax{secure}")

    # -- logins ------------------------------------------------------------------------------

    def begin(self, **asked: object) -> Transaction:
        """Store a new login. If there are too many, the oldest from the address with the most is deleted."""
        now = self._clock()
        while self._open and next(iter(self._open.values())).expires <= now:
            self._forget(next(iter(self._open)))
        if len(self._open) >= MAX_LOGINS:
            (most, _), *_ = Counter(each.address for each in self._open.values()).most_common(1)
            self._forget(next(id for id, each in self._open.items() if each.address == most))

        transaction = Transaction(id=secrets.token_urlsafe(16), expires=now + LOGIN_SECONDS, **asked)  # type: ignore[arg-type]
        self._open[transaction.id] = transaction
        return transaction

    def _forget(self, id: str) -> None:
        self._by_state.pop(self._open.pop(id).provider_state, None)

    def get(self, id: str, browser: str) -> Transaction:
        """Return the login with this ID in the browser in which it began. Raises OAuthError."""
        found = self._open.get(id)
        if found is None or found.expires <= self._clock() or found.is_done:
            raise OAuthError("invalid_request", "this login has ended; start it again in your program")
        if not browser or not compare_digest(found.browser.encode(), browser.encode()):
            raise OAuthError("access_denied", "this login began in another browser", status=403)
        return found

    def from_form(self, fields: dict[str, str], browser: str) -> Transaction:
        """Return the login of a submitted form, if the form is ours and from that browser. Raises OAuthError."""
        found = self.get(fields.get("login", ""), browser)
        if not compare_digest(fields.get("form", "").encode(), self.form_token(found).encode()):
            raise OAuthError("access_denied", "this form does not belong to this login", status=403)
        return found

    def form_token(self, transaction: Transaction) -> str:
        """Return the token in the forms of a login. It is constant, so that pages can be reloaded."""
        return self._keys.mac("form", f"{transaction.id} {transaction.browser}")

    def start_provider(self, transaction: Transaction, provider: str) -> None:
        """Record that the user goes to a provider, with a new state."""
        self._by_state.pop(transaction.provider_state, None)
        # The user of an earlier sign-in must not be used if this one fails.
        transaction.provider, transaction.user = provider, None
        transaction.provider_state = secrets.token_urlsafe(24)
        transaction.nonce, transaction.verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        self._by_state[transaction.provider_state] = transaction.id

    def finish_provider(self, provider: str, state: str, browser: str) -> Transaction:
        """Return the login of a user who returns from a provider; the state can be used once. Raises OAuthError."""
        id = self._by_state.get(state, "")
        found = self.get(id, browser)
        if found.provider != provider:
            raise OAuthError("access_denied", "this login went to another provider", status=403)
        del self._by_state[state]
        return found

    def end(self, transaction: Transaction) -> None:
        transaction.is_done = True
        if transaction.id in self._open:
            self._forget(transaction.id)


# The scope with which a client requests a refresh token. It has no other effect.
OFFLINE = "offline_access"

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
        # The name of the endpoint on pages; by default its host.
        self.name = ""
        self.known_scopes: Callable[[], Iterable[str]] = lambda: ()
        self.default_scopes: tuple[str, ...] = ()
        self.on_revoked: Callable[[str, str], None] = lambda subject, client: None

        self._proxies = networks_of(settings.trusted_proxies)
        # How many clients' keys are being fetched. It is limited, because anybody may name a URL.
        self.fetching_keys = 0
        self.users = None if settings.users is None else Users(settings.users.file)
        self.upstreams = upstreams(settings.providers)
        self.listed = {id: _listed(id, settings) for id in settings.clients}

        self.store = Store(settings.state, clock)
        self.keys = Keys(self.store, clock, settings.state)
        self.documents = ClientDocuments(clock, reach)
        self.transactions = Transactions(self.keys, clock, is_secure=lambda: self.issuer.startswith("https:"))
        # The providers' tokens that are being refreshed, by grant.
        self._refreshing: dict[str, asyncio.Task[str]] = {}
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
        """Return whether people have addresses of their own. Behind an unknown proxy for TLS, all share one."""
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
        return redirect(self.way_back(uri, state, params), status=status)

    def way_back(self, uri: str, state: str, params: dict[str, str]) -> str:
        """Return the URL of the answer to the client, including the issuer. Spec: RFC 9207."""
        query = urlencode({**params, **({"state": state} if state else {}), "iss": self.issuer})
        return f"{uri}{'&' if '?' in uri else '?'}{query}"

    def refuse(self, transaction: Transaction, error: OAuthError) -> RouteResponse:
        """End a login without a code."""
        self.transactions.end(transaction)
        params = {"error": error.error, **({"error_description": error.text} if error.text else {})}
        return self.answer(transaction.redirect_uri, transaction.state, params, 303)

    def seal(self, tokens: Tokens) -> bytes:
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
        # Return a provider's tokens and its name. Raises OAuthError.
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
    listed = settings.clients[id]
    for uri in listed.redirect_uris:
        if wrong := why_not(uri):
            raise ConfigurationError(f"[clients.{id}]: {uri}: {wrong}")

    secret = secret_in(listed.secret_file, f"[clients.{id}]")
    return Client(
        id=id,
        name=listed.name or id,
        redirect_uris=listed.redirect_uris,
        kind="listed",
        method="client_secret_basic" if secret else "none",
        grant_types=("authorization_code", "refresh_token"),
        secret_digest=digest(secret) if secret else "",
    )
