"""Logins in progress: the request, the browser, and the user once signed in.

They are in memory, so a login must be started again after a restart. AUTH-139, AUTH-141.
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
