"""`Authorizer`: what lets the requests of one client in, from the first refusal to the last refresh.

Theory of operation. Each request is sent with the token of the login that there is, or with none. What a refusal asks
for is done once for all requests: one refresh at a time in all processes, one login at a time. No lock is held while a
request is on its way, and whoever has a token that still holds waits for nobody. Each request goes through at most one
refresh, one nonce and three logins; what is refused after that is an error.
Spec: 2026-07-28 basic/authorization, step-up authorization flow; AUTH-198, AUTH-207 … AUTH-213.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from msgspec.structs import replace

from mcpd.auth.addresses import Reach
from mcpd.auth.challenge import Challenge, parse
from mcpd.client.auth.auth_option import Auth
from mcpd.client.auth.discovery import challenge_of
from mcpd.client.auth.documents import Place, shown
from mcpd.client.auth.dpop import UNBOUND, Binding, binding_of
from mcpd.client.auth.flow import login, refresh
from mcpd.client.auth.grants import SuppliedTokens, identity_of, obtain
from mcpd.client.auth.run import Network, Person, run
from mcpd.client.auth.settings import MachineGrant, OAuth, Prepared, Supplied
from mcpd.client.auth.store import FileStore, Kept, Login, MemoryStore, SecretFields, Store
from mcpd.client.auth.tokens import Refusal
from mcpd.client.http.options import HttpOptions
from mcpd.client.http.pool import tls_context
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import AuthorizationFailed, AuthorizationRequired, ConfigurationError, McpdError
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.transports.client_authorization import Authorization


log = logging.getLogger("mcpd.client")

_LOGINS = 3
"""Spec: 2026-07-28 step-up authorization flow: retries are limited to "a few"."""
_SWITCHES = 3
_MOST_REMEMBERED = 1000

_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
"""One login at a time in a process for each server, whoever wants it."""


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
        person: Person | None = None,
        is_fresh: bool = False,
        proxies: bool = True,
    ) -> None:
        self._place = Place(url)
        self.url = self._place.url
        self.settings = settings
        self.login: Login | None = None
        """What requests are sent with."""
        self.on_login: Callable[[], None] | None = None
        """Called when somebody has logged in: what was kept may be another one's."""
        self._store = store
        self._network = Network(self.url, tls=tls, allow_private=settings.allow_private, reach=reach, proxies=proxies)
        self._person = person
        self._has_read = self._is_fresh = is_fresh
        """What is stored is not looked at before somebody has logged in."""
        self._binding: tuple[Login | None, Binding] = (None, UNBOUND)
        self._bearer: tuple[Login | None, Mapping[str, str]] = (None, {})
        self._refreshing: asyncio.Task[None] | None = None
        self._failed: tuple[float, McpdError] | None = None
        self._hopeless: dict[tuple[str, frozenset[str]], None] = {}
        """Operations that were refused for want of scopes after these were asked for."""
        self._saw_metadata = False
        self._first_issuer = ""
        """Where a program's credentials were taken: they go to no other that the server names later."""
        self._ended: Login | None = None
        """The last login whose refresh token was refused."""

    def begin(self, method: str, url: str, operation: str) -> _Request:
        """A request is to be sent."""
        return _Request(self, method, *self._place.look(url), operation)

    def covers(self, url: str) -> bool:
        """Only what is the server itself, or below it, is sent its token."""
        return self._place.look(url)[1]

    @property
    def is_machine(self) -> bool:
        """Whether nobody logs in: a program has credentials of its own."""
        return isinstance(self.settings, MachineGrant)

    # ----------------------------------------------------------------------------------- what there is

    async def current(self) -> Login | None:
        """The login to send a request with, refreshed if it is due. None if there is none."""
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
            # A failure that passes is told to whoever is refused for it.
            await asyncio.shield(task)
        after = self.login
        if after is found and time.time() >= found.expires_at:
            return None
        return after

    def bearer(self, login: Login) -> Mapping[str, str]:
        """The field with its token: the same object for as long as the login is."""
        if self._bearer[0] is not login:
            self._bearer = (login, SecretFields({"Authorization": f"Bearer {login.access_token}"}))
        return self._bearer[1]

    def binding_of(self, login: Login) -> Binding:
        """The key of a login; imported once."""
        if self._binding[0] is None or self._binding[0].dpop_key != login.dpop_key:
            self._binding = (login, binding_of(login.dpop_key))
        return self._binding[1]

    def _read(self) -> Login | None:
        client_id = self.settings.client_id if isinstance(self.settings, OAuth) else None
        found = self._store.read().login(self.url, client_id)
        self._saw_metadata = self._saw_metadata or (found is not None and found.saw_metadata)
        return found

    # ------------------------------------------------------------------------------------- refreshing

    async def renew(self, stale: Login) -> bool:
        """Get other tokens than those of `stale` by its refresh token; whether there are."""
        if self.login is not stale:
            return self.login is not None
        if stale.refresh_token is None:
            return False
        await asyncio.shield(self._refresh(stale))
        after: Login | None = self.login
        return after is not None and after.access_token != stale.access_token

    def _refresh(self, stale: Login) -> asyncio.Task[None]:
        """The refresh that runs, or a new one."""
        task = self._refreshing
        if task is None or task.done():
            task = self._refreshing = asyncio.get_running_loop().create_task(self._refresh_now(stale))
            task.add_done_callback(_retrieved)
        return task

    async def _refresh_now(self, stale: Login) -> None:
        async with self._store.refreshing():
            found = self._store.read().login(self.url, stale.client_id)
            if found is not None and found.access_token != stale.access_token and time.time() < _due(found):
                self.login = found  # another process was there first
                return
            if found is None and not self.is_machine:
                self.login = None  # logged out by another process
                return
            if found is not None and found.key == stale.key and found.refresh_token is not None:
                stale = found
            try:
                renewed = await run(refresh(stale, self.binding_of(stale)), self._network)
            except Refusal as error:
                if error.is_passing or error.code not in ("invalid_grant", "invalid_client", "unauthorized_client"):
                    raise
                log.info("the refresh token for %s is refused: a login is due", printable(shown(self.url)))
                self.login, self._ended = self._without_refresh(stale, error), stale
                return

            def keep(kept: Kept) -> None:
                # Who logs out meanwhile stays logged out.
                if self.is_machine or kept.login(self.url, stale.client_id) is not None:
                    kept.put(renewed)

            self.login = self._store.change(keep).login(self.url, renewed.client_id)

    def _without_refresh(self, stale: Login, error: Refusal) -> Login | None:
        """The login after its refresh token was refused; what somebody wrote meanwhile stays."""

        def drop(kept: Kept) -> None:
            found = kept.login(self.url, stale.client_id)
            if found is not None and found.refresh_token == stale.refresh_token:
                kept.drop(found)
            if error.code != "invalid_grant":
                registration = kept.registration(stale.issuer)
                if registration is not None and registration.client_id == stale.client_id:
                    kept.drop_registration(stale.issuer)

        return self._store.change(drop).login(self.url, stale.client_id)

    # ------------------------------------------------------------------------------------- logging in

    async def log_in(self, challenge: Challenge | None, stale: Login | None, status: int = 401) -> None:
        """Get a login that is not `stale`, a step up if the status is 403. Raises AuthorizationFailed and -Required."""
        began = time.monotonic()
        lock = _locks.setdefault((id(asyncio.get_running_loop()), self.url), asyncio.Lock())
        async with lock:
            if self.login is not None and self.login is not stale and status == 401:
                return
            if self._failed is not None and self._failed[0] > began:
                raise self._failed[1]  # it failed while we waited for it
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
            self._first_issuer = granted.issuer
            return granted
        scopes = challenge.scopes if challenge is not None else ()
        if not settings.interactive:
            raise AuthorizationRequired(self.url, scopes, status=status)

        # Where nothing was asked for it is what the authorization server granted by itself.
        before = (stale.asked or stale.granted) if stale is not None and status == 403 else ()
        last = stale or self._ended
        held = [scope for scope in last.asked if scope in last.granted] if last is not None and not before else ()
        kept = self._store.read()
        steps = login(self.url, settings, challenge, kept, before=before, held=held, saw_metadata=self._saw_metadata)
        found = await run(steps, self._network, self._person or Person.of(settings))

        def keep(kept: Kept) -> None:
            if found.registration is not None:
                kept.put_registration(found.registration)
            kept.logins = [one for one in kept.logins if one.url != self.url]
            kept.put(found.login)

        self._store.change(keep)
        self._saw_metadata = self._saw_metadata or found.login.saw_metadata
        self._is_fresh = False
        return found.login

    # ----------------------------------------------------------------------------------- what failed

    def give_up(self, operation: str, scopes: Sequence[str]) -> AuthorizationFailed:
        """Why this operation cannot be done; it is remembered, so that nobody is asked to log in for it again."""
        if len(self._hopeless) >= _MOST_REMEMBERED:
            self._hopeless.clear()
        self._hopeless[operation, frozenset(scopes)] = None
        named = f" for {printable(operation, 100)}" if operation else ""
        return AuthorizationFailed(
            f"{shown(self.url)} wants the scopes {printable(' '.join(scopes), 300) or '(it names none)'}{named}, and "
            "refuses the tokens that were issued for them: ask who runs the server for the right"
        )

    def is_hopeless(self, operation: str, scopes: Sequence[str]) -> bool:
        """Whether that was tried in vain."""
        return (operation, frozenset(scopes)) in self._hopeless


class _Request:
    """One request of the client: see the theory of operation."""

    __slots__ = (
        "_authorizer", "_has_refreshed", "_is_covered", "_logins", "_method", "_nonces", "_operation", "_sent",
        "_switches", "_url",
    )  # fmt: skip

    def __init__(self, authorizer: Authorizer, method: str, url: str, is_covered: bool, operation: str) -> None:
        self._authorizer = authorizer
        self._is_covered = is_covered
        self._method = method
        self._url = url
        self._operation = operation
        self._sent: Login | None = None
        self._switches = 0
        self._logins = 0
        self._has_refreshed = False
        self._nonces = 0

    async def fields(self) -> Mapping[str, str]:
        """The token, with a proof of its own if it is bound to a key."""
        authorizer = self._authorizer
        found = self._sent = await authorizer.current()
        if found is None or not self._is_covered:
            return {}
        if found.token_type != "DPoP":
            return authorizer.bearer(found)
        prover = authorizer.binding_of(found).prover
        assert prover is not None
        proof = prover.proof(self._method, self._url, found.access_token)
        return {"Authorization": f"DPoP {found.access_token}", "DPoP": proof}

    def heard(self, headers: Mapping[str, str]) -> None:
        """Keep a nonce for the next proof."""
        sent = self._sent
        if sent is None or sent.token_type != "DPoP":
            return
        prover = self._authorizer.binding_of(sent).prover
        if prover is not None and (nonce := headers.get("DPoP-Nonce")):
            prover.heard(self._url, {"dpop-nonce": nonce})

    async def refused(self, status: int, challenges: Sequence[str]) -> bool:
        """Do what it takes to be let in; whether to send the request again."""
        found = parse(challenges)
        challenge = challenge_of(found)
        if status == 401:
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
        if sent is not None and authorizer.login not in (None, sent) and self._switches < _SWITCHES:
            self._switches += 1
            return True
        if sent is not None and sent.refresh_token is not None and not self._has_refreshed:
            self._has_refreshed = True
            if await authorizer.renew(sent):
                return True
        if self._logins or self._switches >= _SWITCHES:
            # Spec: AUTH-212: a token that was just issued, and is refused, will not be taken the next time.
            said = "" if challenge is None else challenge.params.get("error_description", "")
            code = "" if challenge is None else challenge.params.get("error", "")
            why = ": ".join(printable(each, 200) for each in (code, said) if each) or "it does not say why"
            issuer = printable(sent.issuer, 200) if sent is not None else "its authorization server"
            raise AuthorizationFailed(
                f"{shown(authorizer.url)} refuses the token that {issuer} has just issued ({why}): ask who runs the "
                "server"
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
        if authorizer.is_machine:
            raise AuthorizationFailed(
                f"{shown(authorizer.url)} wants the scopes {printable(' '.join(scopes), 300)}, which the credentials "
                "of this program did not get: ask who runs the authorization server for them"
            )
        is_asked = self._logins > 0 and set(scopes) <= set(sent.asked)
        if is_asked or self._logins >= _LOGINS or authorizer.is_hopeless(self._operation, scopes):
            raise authorizer.give_up(self._operation, scopes)
        self._logins += 1
        await authorizer.log_in(challenge, sent, status=403)
        return True


def _due(login: Login) -> float:
    """When to refresh: a minute before the end, or at nine tenths of a short life."""
    if login.expires_at is None:
        return float("inf")
    life = login.expires_at - login.issued_at
    return login.expires_at - min(60.0, 0.1 * max(life, 0.0))


def _is_newer(found: Login, stale: Login | None) -> bool:
    is_good = found.expires_at is None or time.time() < found.expires_at
    return is_good and (stale is None or found.access_token != stale.access_token) and bool(found.access_token)


def _retrieved(task: asyncio.Task[None]) -> None:
    """What a refresh raised is for whoever waits for it; if nobody does it is tried again later."""
    if not task.cancelled():
        task.exception()


_STORED = OAuth(interactive=False)
_ON_THIS_MACHINE: Reach = frozenset[Literal["loopback", "private"]](("loopback",))
"""What is reached by a unix socket is, whatever its URL says."""


def authorization(target: UrlTarget, auth: Auth | None, http: HttpOptions | None) -> Authorization:
    """What `auth` is for this server; None is the login that the user has. Raises ConfigurationError."""
    if auth is None:
        return authorizer(target, _STORED, http)
    if isinstance(auth, str):
        auth = Supplied(token=auth)
    if isinstance(auth, Prepared):
        return auth.authorization
    if isinstance(auth, (OAuth, MachineGrant)):
        return authorizer(target, auth, http)
    if not isinstance(auth, Supplied):
        if not callable(auth):
            raise ConfigurationError(
                "auth is a token, a function that gives one, or one of OAuth, ClientCredentials, PrivateKeyJwt, "
                "EnterpriseManaged, WorkloadIdentity"
            )
        auth = Supplied(token=auth)
    return SuppliedTokens(target.url, auth)


def authorizer(
    target: UrlTarget,
    settings: OAuth | MachineGrant,
    http: HttpOptions | None = None,
    person: Person | None = None,
    *,
    is_fresh: bool = False,
) -> Authorizer:
    """The same for a login or a grant. `person` is how the user is reached, in place of what the settings say.

    With `is_fresh` somebody logs in, whatever login there is.
    """
    verify = True if http is None else http.verify
    socket = target.socket if http is None or http.socket is None else http.socket
    tls: ssl.SSLContext | None = None
    if verify is not True or target.ca_file is not None:
        tls = tls_context(target.ca_file if verify is True and target.ca_file is not None else verify)
    store: Store = MemoryStore() if isinstance(settings, MachineGrant) else store_of(settings)

    reach = _ON_THIS_MACHINE if socket is not None else None
    proxies = http is None or http.proxies
    return Authorizer(
        target.url, settings, store, tls=tls, reach=reach, person=person, is_fresh=is_fresh, proxies=proxies
    )


def store_of(settings: OAuth) -> Store:
    """Where the logins of these settings are kept. Raises ConfigurationError."""
    if settings.store == "memory":
        return MemoryStore()
    if settings.store == "keyring":
        from mcpd.client.auth.store import KeyringSecrets

        return FileStore(vault=KeyringSecrets())
    return FileStore(settings.store)
