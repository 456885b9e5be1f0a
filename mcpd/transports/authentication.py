"""Authenticators: functions that return the `Principal` behind a request, or a `Refusal`.

An authenticator is code of the author or operator. If it raises, hangs or returns anything else, the request is refused
with 503 and the fault is logged. Of HTTP, this module knows header names and status codes only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import stat
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from hmac import compare_digest
from time import time
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.json import encode

from mcpd.errors import AccessDenied, ConfigurationError
from mcpd.protocol.principal import ANONYMOUS, Origin, Principal
from mcpd.protocol.printable import printable
from mcpd.protocol.state_keys import StateKeys
from .challenge import build

if TYPE_CHECKING:
    from .routes import Route

log = logging.getLogger("mcpd")

T = TypeVar("T")

_ERRORS = {
    401: "invalid_token",
    403: "access_denied",
    404: "not_found",
    405: "method_not_allowed",
    410: "gone",
    426: "upgrade_required",
    500: "server_error",
    503: "temporarily_unavailable",
}
_REFUSALS = frozenset((400, 401, 403, 404, 429, 500, 503))
# The most authenticators that run at once per port, including those that timed out and did not stop.
_MOST_AT_ONCE = 1024


class Refusal(Struct, frozen=True):
    """An HTTP answer that refuses a request.

    Attributes:
        status: 400, 401, 403, 404, 429, 500 or 503.
        text: A message for people.
        headers: Further headers, such as `WWW-Authenticate`.
        error: The OAuth error code in the JSON body (RFC 6749 section 5.2); by default one that fits the status.
    """

    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = ()
    error: str = ""

    def body(self, accept: str | None) -> tuple[str, bytes]:
        """Return the content type and the body for an `Accept` header: text for browsers, otherwise JSON.

        Clients read the body of any failure as an OAuth error, where `error` is a string (RFC 6749 section 5.2).
        """
        if accept is not None and "text/html" in accept.lower() and not self.error:
            return "text/plain; charset=utf-8", self.text.encode()
        error = self.error or _ERRORS.get(self.status, "invalid_request")
        members = {"error": error, "error_description": self.text.strip()}
        return "application/json", encode(members)


# Takes the headers of a request (with lower-case names and credentials) and returns its principal or a refusal.
Authenticator: TypeAlias = Callable[[Mapping[str, str]], Principal | Refusal | Awaitable[Principal | Refusal]]


def unavailable(text: str) -> Refusal:
    """Return the refusal of a client that should try again in five seconds."""
    return Refusal(503, text, (("Retry-After", "5"),))


_UNAVAILABLE = unavailable("The server cannot authenticate you now; try again later, or see its log.\n")
_BUSY = unavailable("The server is busy authenticating other clients; try again later.\n")
_TWICE = Refusal(
    400,
    "Authorization was sent more than once: send one credential.\n",
    (("WWW-Authenticate", 'Bearer error="invalid_request"'),),
)


class RequestHeaders(Mapping[str, str]):
    """The headers of a request by lower-case name, decoded on access.

    `repeated` are the names that occurred more than once. `path` is "" for the endpoint itself.
    """

    __slots__ = ("_fields", "method", "path", "repeated")

    def __init__(
        self,
        fields: Mapping[bytes, bytes],
        repeated: frozenset[bytes] = frozenset(),
        method: str = "GET",
        path: str = "",
    ) -> None:
        self._fields = fields
        self.repeated = repeated
        self.method = method
        self.path = path

    @classmethod
    def of(cls, pairs: Iterable[tuple[bytes, bytes]]) -> RequestHeaders:
        """Build the mapping from raw headers. Repeated headers are joined by commas."""
        fields: dict[bytes, bytes] = {}
        repeated = set()
        for raw, value in pairs:
            name = raw.lower()
            if name in fields:
                repeated.add(name)
                value = fields[name] + b", " + value
            fields[name] = value
        return cls(fields, frozenset(repeated))

    def __getitem__(self, name: str) -> str:
        try:
            return self._fields[name.lower().encode("latin-1")].decode("latin-1")
        except UnicodeEncodeError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class Protection(ABC):
    """An authenticator that implements OAuth, see `mcpd.auth`: it serves metadata and can refuse single calls."""

    known_scopes: set[str]
    """All scopes that the server may require."""
    has_anonymous: bool
    """Whether parts of the server are open to anonymous users."""
    public_url: str
    """The URL that clients use for the endpoint; "" while it is unknown."""
    principals: Sequence[Principal] = ()
    """The principals that are known before the first request."""
    on_forget: list[Callable[[Callable[[Principal], bool]], None]]
    """Called with a predicate to end everything that belongs to the matching principals, e.g. after a revocation."""

    @abstractmethod
    def __call__(self, headers: Mapping[str, str], /) -> Principal | Refusal | Coroutine[Any, Any, Principal | Refusal]:
        """Authenticate a request. A request without credentials is refused with the error "unauthorized"."""

    @property
    def routes(self) -> Sequence[Route]:
        """The routes of a login server."""
        return ()

    def known(self, authorization: bytes) -> Principal | None:
        """Return the principal of a cached `Authorization` header, or None.

        A fast path for clients that send many requests: after None, the whole request is authenticated.
        """
        return None

    def share(self, keys: StateKeys) -> None:  # noqa: B027 - most share nothing
        """Receive the keys that all processes of the service share, before the first request."""

    @abstractmethod
    def locate(self, url: str, *, is_public: bool, is_guess: bool, is_hosted: bool = False) -> None:
        """Set the URL of the endpoint, unless it was configured. Raises ConfigurationError for an unusable URL.

        Args:
            url: The URL.
            is_public: Whether other machines can reach it.
            is_guess: Whether it was derived from the listening address.
            is_hosted: Whether another application embeds the server.
        """

    @abstractmethod
    def documents(self, endpoint: str) -> Mapping[str, Callable[[str], bytes]]:
        """Return the public metadata documents by path, as functions of the client's `Host` that return JSON."""

    @abstractmethod
    def refuse(self, denied: AccessDenied, user: Principal) -> Refusal:
        """Return the answer to a request of an authenticated principal whose access was denied."""

    @abstractmethod
    def spelled(self, refusal: Refusal, headers: Mapping[str, str]) -> Refusal:
        """Return the refusal with the URLs of this machine as the client of this request writes them."""

    @abstractmethod
    def url_of_metadata(self) -> str | None:
        """Return the URL of the metadata that names the authorization servers; None if there are no such servers."""


def warn_of_readers(what: str, path: str, mode: int) -> None:
    """Log a warning if other users of this machine can read a file with secrets, as mounted secrets often allow."""
    if os.name == "posix" and mode & 0o044 and stat.S_ISREG(mode):  # not a pipe or a device
        how = printable(f"chmod 600 {shlex.quote(path)}", 1000)
        log.warning("%s: other users of this machine can read the file; run: %s", printable(what), how)


class TokenAuthenticator:
    """Requires one token that all clients share, sent as `Authorization: Bearer …`. They are one principal, `token`.

    Raises ConfigurationError for a token that cannot be sent in a header.
    """

    def __init__(self, token: str) -> None:
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigurationError("The token must be printable ASCII without spaces, because it is sent in a header")
        self._token = token.encode()
        self._principal = Principal("token")

    def __call__(self, headers: Mapping[str, str]) -> Principal | Refusal:
        authorization = headers.get("authorization")
        if authorization is None:
            return _challenge("This server requires a token: send the header Authorization: Bearer TOKEN.\n")

        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return _challenge(
                "Authorization is not a bearer token: send the server's token as Authorization: Bearer TOKEN.\n"
            )
        if compare_digest(token.strip().encode("utf-8", "replace"), self._token):
            return self._principal

        text = "The token is wrong: send the one that the server was started with as Authorization: Bearer TOKEN.\n"
        return _challenge(text, 'Bearer error="invalid_token"')


def _challenge(text: str, challenge: str = "Bearer") -> Refusal:
    return Refusal(401, text, (("WWW-Authenticate", challenge),))


class Authentication:
    """Calls an authenticator, with a timeout in seconds and a limit of calls at once.

    Without an authenticator, all requests are anonymous.
    """

    def __init__(self, authenticator: Authenticator | None, timeout: float) -> None:
        self._authenticator = authenticator
        self._timeout = timeout
        self._is_ours = isinstance(authenticator, TokenAuthenticator | None)
        self._tasks: set[asyncio.Task[Principal | Refusal]] = set()

    def check(
        self, headers: RequestHeaders, *, may_wait: bool = True
    ) -> Principal | Refusal | Coroutine[Any, Any, Principal | Refusal]:
        """Return the principal of a request or a refusal, or a coroutine of one if the authenticator is asynchronous.

        Without `may_wait`, a request that an asynchronous authenticator must decide is refused.
        """
        # A proxy might read another credential than we do. `TokenAuthenticator` refuses joined headers itself.
        if b"authorization" in headers.repeated and not self._is_ours:
            return _TWICE
        return ANONYMOUS if self._authenticator is None else self.call(self._authenticator, headers, may_wait=may_wait)

    def call(
        self, authenticator: Callable[[T], object], request: T, *, may_wait: bool = True
    ) -> Principal | Refusal | Coroutine[Any, Any, Principal | Refusal]:
        """Call any function that authenticates; otherwise as `check`."""
        try:
            answer = authenticator(request)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # even SystemExit, which would end the server
            log.error("An authenticator failed", exc_info=error)
            return _UNAVAILABLE

        if answer.__class__ is Principal:
            return answer  # the usual case
        if not isinstance(answer, Awaitable):
            return _judged(answer)
        if may_wait and len(self._tasks) < _MOST_AT_ONCE:
            return self._wait(answer)

        if isinstance(answer, Coroutine):
            answer.close()
        log.warning("Too many requests are being authenticated: new ones are refused with 503")
        return _BUSY

    async def _wait(self, pending: Awaitable[object]) -> Principal | Refusal:
        # Run an asynchronous authenticator in a task, which is left behind if it cannot be cancelled.
        task = asyncio.ensure_future(_outcome(pending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait((task,), timeout=self._timeout)
        except asyncio.CancelledError:
            task.cancel()  # the client has left
            raise

        if not task.done():
            task.cancel()
            log.error("An authenticator did not answer within %g s", self._timeout)
            return _UNAVAILABLE

        if task.cancelled():
            log.error("An authenticator was cancelled")
            return _UNAVAILABLE
        return task.result()


async def _outcome(pending: Awaitable[object]) -> Principal | Refusal:
    try:
        return _judged(await pending)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # even SystemExit, which would end the server
        log.error("An authenticator failed", exc_info=error)
        return _UNAVAILABLE


def _judged(found: object) -> Principal | Refusal:
    # Check the return value of an authenticator. Only its type is logged, because the value may be a secret.
    if isinstance(found, Principal):
        return found
    if not isinstance(found, Refusal):
        log.error("An authenticator returned a %s instead of a Principal or a Refusal",
                  printable(type(found).__qualname__))  # fmt: skip
        return _UNAVAILABLE

    if not _is_proper(found):
        log.error("An authenticator returned a Refusal that cannot be sent: the status must be one of %s, text and "
                  "headers must be strings", printable(", ".join(map(str, sorted(_REFUSALS)))))  # fmt: skip
        return _UNAVAILABLE

    if found.status == 401 and not any(name.lower() == "www-authenticate" for name, _ in found.headers):
        return Refusal(401, found.text, (*found.headers, ("WWW-Authenticate", "Bearer")))
    return found


def _is_proper(refusal: Refusal) -> bool:
    try:
        names = [name.replace("-", "") for name, _ in refusal.headers]
        values = [value for _, value in refusal.headers]
        is_good = all(name.isascii() and name.isalnum() for name in names)
        is_good &= all(value.isascii() and value.isprintable() for value in values)
        refusal.text.encode()
    except (AttributeError, TypeError, ValueError):
        return False

    texts: list[object] = [refusal.text, refusal.error, *values]
    return is_good and refusal.status in _REFUSALS and all(isinstance(text, str) for text in texts)


class HandshakeFields:
    """The parts of a WebSocket handshake that are kept for the life of the connection."""

    __slots__ = ("_lines", "path", "user")

    def __init__(self, path: str, fields: Sequence[tuple[bytes, bytes]], user: Principal) -> None:
        self.path = path
        self.user = user
        # Stored as one string to save memory, and without credentials.
        kept = Origin("websocket", fields=fields).headers()
        self._lines = "\n".join(f"{name}:{value}" for name, value in kept.items()).encode("latin-1")

    def origin(self) -> Origin:
        """Return the origin of the connection, for tools."""
        lines = [line.partition(b":") for line in self._lines.split(b"\n") if line]
        return Origin("websocket", self.user, [(name, value) for name, _, value in lines])


# The longest timer in seconds: connections whose token lasts longer end after this time and may reconnect.
_LONGEST = 24 * 60 * 60.0


def at_expiry(user: Principal, function: Callable[[], object]) -> asyncio.TimerHandle | None:
    """Call a function when this principal's token expires. The caller cancels the timer. None if it never expires."""
    if user.expires is None:
        return None
    left = min(max(user.expires - time(), 0.0), _LONGEST)
    return asyncio.get_running_loop().call_later(left, function)


def refusal_of(protection: Protection | None, denied: AccessDenied, user: Principal) -> Refusal:
    if protection is not None:
        return protection.refuse(denied, user)
    challenge = build("Bearer", {"error": denied.error, "scope": " ".join(denied.scopes) or None})
    status = 403 if denied.error == "insufficient_scope" else 401
    return Refusal(status, f"{denied.message}.\n", (("WWW-Authenticate", challenge),), denied.error)


def challenges_of(protection: Protection | None, denied: AccessDenied, user: Principal) -> list[str]:
    """Return the challenges of a refusal, for responses whose status is already sent."""
    headers = refusal_of(protection, denied, user).headers
    return [value for name, value in headers if name == "WWW-Authenticate"]
