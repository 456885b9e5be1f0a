"""`Authorizer`: authorizes the requests of one client, from the first refusal to the last refresh.

Each request is sent with the token of the current login, if there is one. Work after a refusal is shared by all
requests: one refresh at a time in all processes, one login at a time in this one. No lock is held while a request is
being sent, so requests with a valid token never wait. Each request goes through at most one refresh, one nonce and
three logins; a further refusal is an error.

`authorization` creates an Authorizer, or another `Authorization`, from `Client(url, auth=…)`. Spec: 2026-07-28
basic/authorization, step-up authorization flow; AUTH-198, AUTH-207 … AUTH-213.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from msgspec.structs import replace

from mcpd.client.http.options import Auth, HttpOptions
from mcpd.client.http.pool import tls_context
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import AuthorizationFailed, AuthorizationRequired, ConfigurationError, McpdError
from mcpd.protocol.printable import printable
from mcpd.transports.address import Reach
from mcpd.transports.challenge import Challenge, parse
from .discovery import challenge_of, covers, plain_url, shown
from .flow import login, refresh
from .grants import SuppliedTokens, identity_of, obtain
from .settings import MachineGrant, OAuth, PreparedAuthorization, SuppliedToken
from .steps import Network, UserInteraction, run
from .store import FileStore, KeyringSecrets, Login, LoginRecords, MemoryStore, SecretHeaders, Store
from .tokens import Prover, Refusal

if TYPE_CHECKING:
    from mcpd.transports.challenge import Authorization


log = logging.getLogger("mcpd.client")

# Spec: 2026-07-28 step-up authorization flow: "a few" retries.
_LOGINS = 3
_SWITCHES = 3
_MOST_REMEMBERED = 1000

# Ensures one login at a time for each server in this process.
_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()


class Authorizer:
    """An `Authorization` for the MCP server at `url`."""

    def __init__(
        self,
        url: str,
        settings: OAuth | MachineGrant,
        store: Store,
        *,
        tls: ssl.SSLContext | None = None,
        reach: Reach | None = None,
        person: UserInteraction | None = None,
        is_fresh: bool = False,
        proxies: bool = True,
    ) -> None:
        self.url = plain_url(url)
        self.settings = settings
        self.login: Login | None = None
        """The current login."""
        self.on_login: Callable[[], None] | None = None
        """Called after a login, which may belong to another user than cached results."""
        self._store = store
        self._network = Network(self.url, tls=tls, allow_private=settings.allow_private, reach=reach, proxies=proxies)
        self._person = person
        # If True, stored logins are ignored until somebody has logged in.
        self._has_read = self._is_fresh = is_fresh
        self._prover: tuple[dict[str, Any] | None, Prover | None] = (None, None)
        self._refreshing: asyncio.Task[None] | None = None
        self._failed: tuple[float, McpdError] | None = None
        # Operations that were refused for missing scopes although these were granted.
        self._insufficient: dict[tuple[str, frozenset[str]], None] = {}
        self._saw_metadata = False
        # The issuer that accepted a program's credentials. No other issuer receives them later.
        self._first_issuer = ""
        # The last login with a refused refresh token.
        self._ended: Login | None = None

    def begin(self, method: str, url: str, operation: str) -> _Request:
        return _Request(self, method, plain_url(url), operation)

    def covers(self, url: str) -> bool:
        """Whether the token may be sent to this URL: the server itself, or below it."""
        return covers(self.url, plain_url(url))

    @property
    def is_machine(self) -> bool:
        """Whether the credentials belong to a program, so that nobody logs in."""
        return isinstance(self.settings, MachineGrant)

    # ----------------------------------------------------------------------------------- current login

    async def current(self) -> Login | None:
        """Return the login to send a request with, refreshed if necessary; None without a login."""
        if not self._has_read:
            self._has_read = True
            self.login = self._read()
        found, now = self.login, time.time()
        if found is None or found.expires_at is None or now < _due(found):
            return found
        if found.refresh_token is None:
            return found if now < found.expires_at else None

        task = self._refresh(found)
        if now >= found.expires_at:
            # The refused request raises a temporary failure of the refresh.
            # Shared by all requests, so one that is cancelled must not end it.
            await asyncio.shield(task)
        after = self.login
        if after is found and time.time() >= found.expires_at:
            return None
        return after

    def prover_of(self, login: Login) -> Prover | None:
        """Return the key of a login, if it has one. The key is imported only once."""
        key = login.dpop_key
        if self._prover[0] != key:
            self._prover = (key, None if key is None else Prover(key))
        return self._prover[1]

    def _read(self) -> Login | None:
        client_id = self.settings.client_id if isinstance(self.settings, OAuth) else None
        found = self._store.read().login(self.url, client_id)
        self._saw_metadata = self._saw_metadata or (found is not None and found.saw_metadata)
        return found

    # ------------------------------------------------------------------------------------- refreshing

    async def renew(self, stale: Login) -> bool:
        """Replace the tokens of `stale` by means of its refresh token. Return whether there are other tokens now."""
        if self.login is not stale:
            return self.login is not None
        if stale.refresh_token is None:
            return False
        await asyncio.shield(self._refresh(stale))
        after: Login | None = self.login
        return after is not None and after.access_token != stale.access_token

    def _refresh(self, stale: Login) -> asyncio.Task[None]:
        task = self._refreshing
        if task is None or task.done():
            task = self._refreshing = asyncio.get_running_loop().create_task(self._refresh_now(stale))
            # Marks the exception as retrieved. If no request waits for the refresh, it is tried again later.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task

    async def _refresh_now(self, stale: Login) -> None:
        async with self._store.refreshing():
            found = self._store.read().login(self.url, stale.client_id)
            if found is not None and found.access_token != stale.access_token and time.time() < _due(found):
                self.login = found  # another process was there first
                return
            # A refreshed token would undo the logout.
            if found is None and not self.is_machine:
                self.login = None  # logged out by another process
                return
            if found is not None and found.key == stale.key and found.refresh_token is not None:
                stale = found
            try:
                renewed = await run(refresh(stale, self.prover_of(stale)), self._network)
            except Refusal as error:
                if error.is_temporary or error.code not in ("invalid_grant", "invalid_client", "unauthorized_client"):
                    raise
                log.info("the refresh token for %s was refused; a new login is required", printable(shown(self.url)))
                self.login, self._ended = self._without_refresh(stale, error), stale
                return

            def keep(records: LoginRecords) -> None:
                # If the user has logged out meanwhile, the login must not come back.
                if self.is_machine or records.login(self.url, stale.client_id) is not None:
                    records.add(renewed)

            self.login = self._store.change(keep).login(self.url, renewed.client_id)

    def _without_refresh(self, stale: Login, error: Refusal) -> Login | None:
        # Return the stored login after the refresh token of `stale` was refused.

        def remove(records: LoginRecords) -> None:
            found = records.login(self.url, stale.client_id)
            if found is not None and found.refresh_token == stale.refresh_token:
                records.remove(found)
            if error.code != "invalid_grant":
                registration = records.registration(stale.issuer)
                if registration is not None and registration.client_id == stale.client_id:
                    records.remove_registration(stale.issuer)

        return self._store.change(remove).login(self.url, stale.client_id)

    # ------------------------------------------------------------------------------------- logging in

    async def log_in(self, challenge: Challenge | None, stale: Login | None, status: int = 401) -> None:
        """Obtain a login other than `stale`; a step up if the status is 403.

        Raises AuthorizationFailed and AuthorizationRequired.
        """
        began = time.monotonic()
        lock = _locks.setdefault((id(asyncio.get_running_loop()), self.url), asyncio.Lock())
        async with lock:
            if self.login is not None and self.login is not stale and status == 401:
                return
            # Others would otherwise ask the user again for a login that was just refused.
            if self._failed is not None and self._failed[0] > began:
                raise self._failed[1]  # the login that this call waited for has failed
            stored = self._read() if not self.is_machine and not self._is_fresh else None
            wanted = frozenset(challenge.scopes if challenge is not None else ())
            if stored is not None and _is_newer(stored, stale) and (status == 401 or wanted <= set(stored.granted)):
                self.login = stored
                return
            try:
                self.login = await self._log_in_now(challenge, stale, status)
            except McpdError as error:
                self._failed = (time.monotonic(), error)
                raise
        if self.on_login is not None:
            self.on_login()

    async def _log_in_now(self, challenge: Challenge | None, stale: Login | None, status: int) -> Login:
        settings = self.settings
        if isinstance(settings, MachineGrant):
            if settings.issuer is None and self._first_issuer:
                settings = replace(settings, issuer=self._first_issuer)
            granted = await run(obtain(self.url, settings, challenge, await identity_of(settings)), self._network)
            # Later challenges may name another issuer, which must not receive the credentials.
            self._first_issuer = granted.issuer
            return granted
        scopes = challenge.scopes if challenge is not None else ()
        if not settings.interactive:
            raise AuthorizationRequired(self.url, scopes, status=status)

        # Without requested scopes, these are the scopes that the authorization server granted on its own.
        before = (stale.asked or stale.granted) if stale is not None and status == 403 else ()
        last = stale or self._ended
        held = [scope for scope in last.asked if scope in last.granted] if last is not None and not before else ()
        records = self._store.read()
        steps = login(self.url, settings, challenge, records, before=before, held=held, saw_metadata=self._saw_metadata)
        found = await run(steps, self._network, self._person or UserInteraction.of(settings))

        def keep(records: LoginRecords) -> None:
            if found.registration is not None:
                records.add_registration(found.registration)
            records.logins = [one for one in records.logins if one.url != self.url]
            records.add(found.login)

        self._store.change(keep)
        self._saw_metadata = self._saw_metadata or found.login.saw_metadata
        self._is_fresh = False
        return found.login

    # -------------------------------------------------------------------------------- refused scopes

    def insufficient_scope(self, operation: str, scopes: Sequence[str]) -> AuthorizationFailed:
        """Return the error for an operation whose scopes were refused. No further login is tried for them."""
        if len(self._insufficient) >= _MOST_REMEMBERED:
            self._insufficient.clear()
        self._insufficient[operation, frozenset(scopes)] = None
        named = f" for {printable(operation, 100)}" if operation else ""
        return AuthorizationFailed(
            f"{shown(self.url)} requires the scopes {printable(' '.join(scopes), 300) or '(unspecified)'}{named}, but "
            "refuses the tokens that were issued for them: ask the server's operator for access"
        )

    def is_known_insufficient(self, operation: str, scopes: Sequence[str]) -> bool:
        return (operation, frozenset(scopes)) in self._insufficient


class _Request:
    def __init__(self, authorizer: Authorizer, method: str, url: str, operation: str) -> None:
        self._authorizer = authorizer
        self._is_covered = covers(authorizer.url, url)
        self._method = method
        self._url = url
        self._operation = operation
        self._sent: Login | None = None
        self._switches = 0
        self._logins = 0
        self._has_refreshed = False
        self._nonces = 0

    async def fields(self) -> Mapping[str, str]:
        # Return the header fields with the token, and a proof if the token is bound to a key.
        authorizer = self._authorizer
        found = self._sent = await authorizer.current()
        if found is None or not self._is_covered:
            return {}
        fields = SecretHeaders({"Authorization": f"{found.token_type} {found.access_token}"})
        prover = authorizer.prover_of(found)
        if prover is not None:
            fields["DPoP"] = prover.proof(self._method, self._url, found.access_token)
        return fields

    def on_response(self, headers: Mapping[str, str]) -> None:
        prover = None if self._sent is None else self._authorizer.prover_of(self._sent)
        if prover is not None:
            prover.on_response(self._url, headers.get("DPoP-Nonce"))

    async def refused(self, status: int, challenges: Sequence[str]) -> bool:
        found = parse(challenges)
        challenge = challenge_of(found)
        if status == 401:
            # RFC 9449 9: the same token with a new proof.
            wants_nonce = any(one.is_of("DPoP") and one.params.get("error") == "use_dpop_nonce" for one in found)
            if wants_nonce and self._sent is not None and not self._nonces:
                self._nonces += 1
                return True
            return await self._unauthorized(challenge)

        if status == 403 and challenge is not None and challenge.params.get("error") == "insufficient_scope":
            return await self._step_up(challenge)
        return False

    async def _unauthorized(self, challenge: Challenge | None) -> bool:
        authorizer, sent = self._authorizer, self._sent
        # Another request has logged in meanwhile: try its token first.
        if sent is not None and authorizer.login not in (None, sent) and self._switches < _SWITCHES:
            self._switches += 1
            return True
        if sent is not None and sent.refresh_token is not None and not self._has_refreshed:
            self._has_refreshed = True
            if await authorizer.renew(sent):
                return True

        if self._logins or self._switches >= _SWITCHES:
            # Spec: AUTH-212: if a token that was just issued is refused, another one will be refused, too.
            params = {} if challenge is None else challenge.params
            code, description = params.get("error", ""), params.get("error_description", "")
            why = ": ".join(printable(text, 200) for text in (code, description) if text) or "without a reason"
            issuer = printable(sent.issuer, 200) if sent is not None else "its authorization server"
            raise AuthorizationFailed(
                f"{shown(authorizer.url)} refuses the token that {issuer} has just issued ({why}): ask the server's "
                "operator"
            )
        self._logins += 1
        await authorizer.log_in(challenge, sent or authorizer.login)
        return True

    async def _step_up(self, challenge: Challenge) -> bool:
        authorizer, sent, scopes = self._authorizer, self._sent, challenge.scopes
        if sent is None:
            return False
        now = authorizer.login
        if now is not None and now is not sent and set(scopes) <= set(now.granted) and self._switches < _SWITCHES:
            self._switches += 1
            return True

        # A program cannot consent to more.
        if authorizer.is_machine:
            raise AuthorizationFailed(
                f"{shown(authorizer.url)} requires the scopes {printable(' '.join(scopes), 300)}, which this program's "
                "credentials do not have: ask the operator of the authorization server for them"
            )
        is_asked = self._logins > 0 and set(scopes) <= set(sent.asked)
        if is_asked or self._logins >= _LOGINS or authorizer.is_known_insufficient(self._operation, scopes):
            raise authorizer.insufficient_scope(self._operation, scopes)
        self._logins += 1
        await authorizer.log_in(challenge, sent, status=403)
        return True


def _due(login: Login) -> float:
    # When to refresh: a minute before the token expires, or after nine tenths of a short lifetime.
    if login.expires_at is None:
        return float("inf")
    life = login.expires_at - login.issued_at
    return login.expires_at - min(60.0, 0.1 * max(life, 0.0))


def _is_newer(found: Login, stale: Login | None) -> bool:
    is_good = found.expires_at is None or time.time() < found.expires_at
    return is_good and (stale is None or found.access_token != stale.access_token) and bool(found.access_token)


_STORED = OAuth(interactive=False)
# A server on a unix socket is on this machine, whatever its URL says.
_ON_THIS_MACHINE: Reach = frozenset[Literal["loopback", "private"]](("loopback",))


def authorization(target: UrlTarget, auth: Auth | None, http: HttpOptions | None) -> Authorization:
    """Return the authorization for `auth=`; None selects the user's stored login. Raises ConfigurationError."""
    if auth is None:
        return authorizer(target, _STORED, http)
    if isinstance(auth, str) or callable(auth):
        auth = SuppliedToken(token=auth)
    if isinstance(auth, SuppliedToken):
        return SuppliedTokens(target.url, auth)

    if isinstance(auth, PreparedAuthorization):
        return auth.authorization
    if isinstance(auth, (OAuth, MachineGrant)):
        return authorizer(target, auth, http)
    raise ConfigurationError(
        "auth must be a token, a function that returns one, OAuth, ClientCredentials, PrivateKeyJwt, "
        "EnterpriseManaged or WorkloadIdentity"
    )


def authorizer(
    target: UrlTarget,
    settings: OAuth | MachineGrant,
    http: HttpOptions | None = None,
    person: UserInteraction | None = None,
    *,
    is_fresh: bool = False,
) -> Authorizer:
    """Return the Authorizer for a login or a grant.

    `person` is how the user is reached, instead of what the settings say. `is_fresh` requires a new login.
    """
    options = http or HttpOptions()
    verify = target.ca_file or True if options.verify is True else options.verify
    is_local = (options.socket or target.socket) is not None
    return Authorizer(
        target.url,
        settings,
        MemoryStore() if isinstance(settings, MachineGrant) else store_of(settings),
        tls=None if verify is True else tls_context(verify),
        reach=_ON_THIS_MACHINE if is_local else None,
        person=person,
        is_fresh=is_fresh,
        proxies=options.proxies,
    )


def store_of(settings: OAuth) -> Store:
    """Return the store of these settings. Raises ConfigurationError."""
    if settings.store == "memory":
        return MemoryStore()
    if settings.store == "keyring":
        return FileStore(vault=KeyringSecrets())
    return FileStore(settings.store)
