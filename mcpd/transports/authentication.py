"""Who sends a request: what an authenticator is, the one for a fixed token, and how one is asked.

An authenticator is the author's or the operator's code. Whatever it does (raise, hang, give something else), nobody
is let in by it: that is answered with 503, and logged. Nothing of HTTP but header names and statuses lives here.
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
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.json import encode

from mcpd.errors import AccessDenied, ConfigurationError
from mcpd.protocol.principal import ANONYMOUS, Origin, Principal
from mcpd.protocol.printable import printable
from mcpd.protocol.state_keys import StateKeys

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
_MOST_AT_ONCE = 1024
"""How many authenticators run at once for one port, those that were given up and do not stop among them."""


class Refusal(Struct, frozen=True):
    """An HTTP answer in place of the service: its status, a text for people, and headers that the status wants.

    `error` is the word for programs in its JSON (RFC 6749 section 5.2); by default one that fits the status.
    """

    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = ()
    error: str = ""

    def body(self, accept: str | None) -> tuple[str, bytes]:
        """The content type and the body for a client that takes this: a text for browsers, JSON for all else.

        Clients read the body of any failure as an OAuth error: `error` is a string (RFC 6749 section 5.2).
        """
        if accept is not None and "text/html" in accept.lower() and not self.error:
            return "text/plain; charset=utf-8", self.text.encode()
        error = self.error or _ERRORS.get(self.status, "invalid_request")
        said = {"error": error, "error_description": self.text.strip()}
        return "application/json", encode(said)


Authenticator: TypeAlias = Callable[[Mapping[str, str]], Principal | Refusal | Awaitable[Principal | Refusal]]
"""Says who sends a request, by its headers (names in lower case, and credentials among them), or why it is refused."""

_UNAVAILABLE = Refusal(
    503, "The server cannot tell now who you are; try again later, or see its log.\n", (("Retry-After", "5"),)
)
_BUSY = Refusal(503, "The server is busy with telling who its clients are; try again later.\n", (("Retry-After", "5"),))
_TWICE = Refusal(
    400,
    "Authorization was sent more than once: send one credential.\n",
    (("WWW-Authenticate", 'Bearer error="invalid_request"'),),
)


class RequestHeaders(Mapping[str, str]):
    """The headers of a request by lower-case name, decoded when they are looked at. `repeated` came more than once.

    `method` and `path` are the request's; "" for the path of the endpoint.
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
        """Those of a request, in the order in which they came; what came twice is joined by a comma."""
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
    """An authenticator that speaks OAuth, see `auth.base`: it has documents of its own, and refuses single calls."""

    known_scopes: set[str]
    """All scopes that the server may ask for."""
    has_anonymous: bool
    """Whether something of the server is for those too who do not say who they are."""
    public_url: str
    """The URL by which clients know the endpoint; "" while nobody has said it."""
    principals: Sequence[Principal] = ()
    """Those who are known before anybody sends a request."""
    on_forget: list[Callable[[Callable[[Principal], bool]], None]]
    """What ends all that belongs to principals of a kind; those who serve add themselves."""

    @abstractmethod
    def __call__(self, headers: Mapping[str, str], /) -> Principal | Refusal | Coroutine[Any, Any, Principal | Refusal]:
        """What any authenticator does. One without credentials is refused with `error` being "unauthorized"."""

    def known(self, authorization: bytes) -> Principal | None:
        """Who sends a request with this `Authorization`, where that alone says that it is let in; else None.

        None says nothing: then the request is judged whole. Whoever sends many is asked about here, without a turn
        through all that a request may be.
        """
        return None

    def share(self, keys: StateKeys) -> None:  # noqa: B027 - most share nothing
        """What all processes of the service have in common, before the first request."""

    @abstractmethod
    def locate(self, url: str, *, is_public: bool, is_guess: bool, is_hosted: bool = False) -> None:
        """The endpoint is at this URL, unless it was said before. Raises ConfigurationError for what it cannot be.

        With `is_public` others than this machine reach it; `is_guess` is for an address that is listened on;
        `is_hosted` for an application that embeds the server.
        """

    @abstractmethod
    def documents(self, endpoint: str) -> Mapping[str, Callable[[str], bytes]]:
        """The JSON that everybody may read, by path; `endpoint` is the endpoint's. It is made for a client's `Host`."""

    @abstractmethod
    def refuse(self, denied: AccessDenied, user: Principal) -> Refusal:
        """The answer to a request of this principal that was denied after it had been let in."""

    @abstractmethod
    def spelled(self, refusal: Refusal, headers: Mapping[str, str]) -> Refusal:
        """The refusal of a request with these headers, where URLs of this machine are written as its client does."""

    @abstractmethod
    def url_of_metadata(self) -> str | None:
        """Where a client finds whom to ask for a token; None if there is nobody."""


def warn_of_readers(option: str, path: str, mode: int) -> None:
    """Log a warning if other users of this machine can read a file with tokens; containers mount secrets so."""
    if os.name == "posix" and mode & 0o044 and stat.S_ISREG(mode):  # no pipe of a shell, and no device
        how = printable(f"chmod 600 {shlex.quote(path)}", 1000)
        log.warning("%s: other users of this machine can read it; run: %s", printable(f"{option} {path}", 1000), how)


class TokenAuthenticator:
    """Asks for one token that all clients share, as `Authorization: Bearer …`: they are one principal, `token`.

    Raises ConfigurationError for a token that no request could carry.
    """

    def __init__(self, token: str) -> None:
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigurationError("The token must be printable ASCII without spaces: it has to fit into a header")
        self._token = token.encode()
        self._principal = Principal("token")

    def __call__(self, headers: Mapping[str, str]) -> Principal | Refusal:
        authorization = headers.get("authorization")
        if authorization is None:
            return Refusal(
                401,
                "This server asks for its token: send the header Authorization: Bearer TOKEN.\n",
                (("WWW-Authenticate", "Bearer"),),
            )

        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            text = "Authorization is not a bearer token: send the server's token as Authorization: Bearer TOKEN.\n"
            return Refusal(401, text, (("WWW-Authenticate", "Bearer"),))
        if compare_digest(token.strip().encode("utf-8", "replace"), self._token):
            return self._principal

        return Refusal(
            401,
            "The token is wrong: send the one that the server was started with as Authorization: Bearer TOKEN.\n",
            (("WWW-Authenticate", 'Bearer error="invalid_token"'),),
        )


class Authentication:
    """How an authenticator is asked: within `timeout` seconds, not too often at once, and never trusted to answer.

    Without one nobody is in particular.
    """

    def __init__(self, authenticator: Authenticator | None, timeout: float) -> None:
        self._authenticator = authenticator
        self._timeout = timeout
        self._is_ours = isinstance(authenticator, TokenAuthenticator | None)
        self._tasks: set[asyncio.Task[Principal | Refusal]] = set()

    def check(
        self, headers: RequestHeaders, *, may_wait: bool = True
    ) -> Principal | Refusal | Coroutine[Any, Any, Principal | Refusal]:
        """Who sends a request with these headers, or why it is refused; to be awaited if that is not known at once.

        Without `may_wait` a request of which it is not known at once is refused.
        """
        # Joined by a comma they might be taken for one, and another one by a proxy. Ours takes no such token (401).
        if b"authorization" in headers.repeated and not self._is_ours:
            return _TWICE
        return ANONYMOUS if self._authenticator is None else self.ask(self._authenticator, headers, may_wait=may_wait)

    def ask(
        self, who: Callable[[T], object], about: T, *, may_wait: bool = True
    ) -> Principal | Refusal | Coroutine[Any, Any, Principal | Refusal]:
        """The same by any function of that kind."""
        try:
            found = who(about)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # even SystemExit, which would end the server
            log.error("An authenticator failed", exc_info=error)
            return _UNAVAILABLE

        if found.__class__ is Principal:
            return found  # nearly always, and to ask whether it is to be awaited costs more than all of this
        if not isinstance(found, Awaitable):
            return _judged(found)
        if may_wait and len(self._tasks) < _MOST_AT_ONCE:
            return self._wait(found)

        if isinstance(found, Coroutine):
            found.close()
        log.warning("Too many wait to hear who they are; who comes now is told to try again")
        return _BUSY

    async def _wait(self, pending: Awaitable[object]) -> Principal | Refusal:
        """What an asynchronous authenticator says, in a task: one that cannot be cancelled stays behind."""
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
    """What an authenticator gave, if that can be used. It may be anything, and hold a secret: its type is logged."""
    if isinstance(found, Principal):
        return found
    if not isinstance(found, Refusal):
        log.error("An authenticator gave a %s, where a Principal or a Refusal is wanted",
                  printable(type(found).__qualname__))  # fmt: skip
        return _UNAVAILABLE

    if not _is_proper(found):
        log.error("An authenticator gave a Refusal that cannot be sent: its status is one of %s, text and headers are "
                  "strings", printable(", ".join(map(str, sorted(_REFUSALS)))))  # fmt: skip
        return _UNAVAILABLE

    if found.status == 401 and not any(name.lower() == "www-authenticate" for name, _ in found.headers):
        return Refusal(401, found.text, (*found.headers, ("WWW-Authenticate", "Bearer")))
    return found


def _is_proper(refusal: Refusal) -> bool:
    texts: list[object] = [refusal.text]
    try:
        for name, value in refusal.headers:
            if not name.isascii() or not name.replace("-", "").isalnum():
                return False
            texts.append(value)
            if not value.isascii() or not value.isprintable():
                return False

        refusal.text.encode()
    except (AttributeError, TypeError, ValueError):
        return False
    texts.append(refusal.error)
    return refusal.status in _REFUSALS and all(isinstance(text, str) for text in texts)


class HandshakeFields:
    """What a server keeps of a WebSocket's handshake that was accepted, for as long as its connection lasts."""

    __slots__ = ("_lines", "path", "user")

    def __init__(self, path: str, fields: Sequence[tuple[bytes, bytes]], user: Principal) -> None:
        self.path = path
        """What it asked for, with its query."""
        self.user = user
        """Who sent it, as far as anybody asked."""
        # In one piece, as a connection lasts and few tools ask; and without credentials, for that same reason.
        kept = Origin("websocket", fields=fields).headers()
        self._lines = "\n".join(f"{name}:{value}" for name, value in kept.items()).encode("latin-1")

    def origin(self) -> Origin:
        """Where the connection comes from, for authors."""
        lines = [line.partition(b":") for line in self._lines.split(b"\n") if line]
        return Origin("websocket", self.user, [(name, value) for name, _, value in lines])


_LONGEST = 24 * 60 * 60.0
"""What lasts longer is ended all the same, and may begin again: no clock of ours has to be right for years."""


def at_expiry(user: Principal, function: Callable[[], object]) -> asyncio.TimerHandle | None:
    """Call a function when this principal's token ends; None for one without end. The caller cancels the timer."""
    if user.expires is None:
        return None
    left = min(max(user.expires - time(), 0.0), _LONGEST)
    return asyncio.get_running_loop().call_later(left, function)
