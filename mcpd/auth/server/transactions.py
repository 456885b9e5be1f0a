"""Logins that have begun and are not done: what was asked for, in which browser, and how far it came.

In memory: who logs in while the server starts anew begins once more. AUTH-139, AUTH-141.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from hmac import compare_digest

from msgspec import Struct

from mcpd.auth.server.clients import Client
from mcpd.auth.server.keys import Keys
from mcpd.auth.server.replies import OAuthError
from mcpd.auth.server.store import User

SECONDS = 600.0
MOST = 4096

_COOKIE = "__Host-mcpd-login"
_PLAIN_COOKIE = "mcpd-login"


class Transaction(Struct, kw_only=True):
    """One login: what the client asked for, the browser that it began in, then who signed in there."""

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
    """The state that was sent to a provider, until it comes back."""
    provider: str = ""
    nonce: str = ""
    verifier: str = ""
    upstream: bytes | None = None
    is_done: bool = False

    def __repr__(self) -> str:
        return f"Transaction({self.client.id!r}, {self.redirect_uri!r})"


class Transactions:
    """Keeps them, and knows browsers by a signed cookie. `is_secure` is whether they come by https."""

    def __init__(self, keys: Keys, clock: Callable[[], float], *, is_secure: Callable[[], bool]) -> None:
        self._keys = keys
        self._clock = clock
        self._is_secure = is_secure
        self._open: dict[str, Transaction] = {}
        self._by_state: dict[str, str] = {}

    # -- browsers ----------------------------------------------------------------------------

    def browser(self, cookies: str) -> str:
        """The browser that sends this `Cookie` header; "" if it has no cookie of ours."""
        name = _COOKIE if self._is_secure() else _PLAIN_COOKIE
        found = [one.strip() for one in cookies.split(";") if one.strip().startswith(f"{name}=")]
        if len(found) != 1:
            return ""
        id, _, signature = found[0].partition("=")[2].partition(".")
        return id if id and compare_digest(signature.encode(), self._keys.mac("browser", id).encode()) else ""

    def new_browser(self) -> tuple[str, tuple[str, str]]:
        """A browser that was not here before, and the header that makes it known. `__Host-` needs https."""
        id = secrets.token_urlsafe(24)
        value = f"{id}.{self._keys.mac('browser', id)}"
        name, secure = (_COOKIE, "; Secure") if self._is_secure() else (_PLAIN_COOKIE, "")
        return id, ("Set-Cookie", f"{name}={value}; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax{secure}")

    # -- logins ------------------------------------------------------------------------------

    def begin(self, **asked: object) -> Transaction:
        """Keep one that begins. Of too many, the oldest of the address that has most is forgotten."""
        now = self._clock()
        while self._open and next(iter(self._open.values())).expires <= now:
            self._forget(next(iter(self._open)))
        if len(self._open) >= MOST:
            (most, _), *_ = Counter(each.address for each in self._open.values()).most_common(1)
            self._forget(next(id for id, each in self._open.items() if each.address == most))

        transaction = Transaction(id=secrets.token_urlsafe(16), expires=now + SECONDS, **asked)  # type: ignore[arg-type]
        self._open[transaction.id] = transaction
        return transaction

    def _forget(self, id: str) -> None:
        self._by_state.pop(self._open.pop(id).provider_state, None)

    def get(self, id: str, browser: str) -> Transaction:
        """The login of this id, in the browser that it began in. Raises OAuthError."""
        found = self._open.get(id)
        if found is None or found.expires <= self._clock() or found.is_done:
            raise OAuthError("invalid_request", "this login is over; begin it anew in your program")
        if not browser or not compare_digest(found.browser.encode(), browser.encode()):
            raise OAuthError("access_denied", "this login began in another browser", status=403)
        return found

    def posted(self, said: dict[str, str], browser: str) -> Transaction:
        """The login that a form belongs to, if it is our form, from that browser. Raises OAuthError."""
        found = self.get(said.get("login", ""), browser)
        if not compare_digest(said.get("form", "").encode(), self.form_token(found).encode()):
            raise OAuthError("access_denied", "this form is not one of this login", status=403)
        return found

    def form_token(self, transaction: Transaction) -> str:
        """What forms of this login carry: the same each time, so that a page may be loaded twice."""
        return self._keys.mac("form", f"{transaction.id} {transaction.browser}")

    def leave_for(self, transaction: Transaction, provider: str) -> None:
        """The user goes to a provider, and comes back with a state that is new."""
        self._by_state.pop(transaction.provider_state, None)
        transaction.provider, transaction.user = provider, None
        transaction.provider_state = secrets.token_urlsafe(24)
        transaction.nonce, transaction.verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        self._by_state[transaction.provider_state] = transaction.id

    def back_from(self, provider: str, state: str, browser: str) -> Transaction:
        """The login of a user who comes back, once. Raises OAuthError."""
        id = self._by_state.get(state, "")
        found = self.get(id, browser)
        if found.provider != provider:
            raise OAuthError("access_denied", "this login went to another provider", status=403)
        del self._by_state[state]
        return found

    def end(self, transaction: Transaction) -> None:
        """It is done: nothing more comes of it."""
        transaction.is_done = True
        if transaction.id in self._open:
            self._forget(transaction.id)
