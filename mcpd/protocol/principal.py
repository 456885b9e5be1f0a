"""The user behind a request (`Principal`, decision D15) and how the request arrived (`Origin`).

A principal is identified by issuer, subject and client, never by a token: tokens are refreshed, and must not appear in
a debugger or a log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

Transport: TypeAlias = Literal["stdio", "websocket", "http", "memory"]
"""The transport of a connection."""


class Principal:
    """The authenticated user behind a request. Immutable.

    Issuer, subject and client together are the identity: after a token is refreshed, the principal is the same even if
    scopes and claims differ.

    Args:
        subject: The user's id at the issuer.
        issuer: The URL of the authorization server, or "".
        client: The id of the client application, "" if unknown.
        scopes: The granted scopes, as an iterable of strings.
        claims: Everything else that the token says.
        expires: When the token expires, in seconds since 1970. Streams and WebSockets of this principal end then.
            None means never.

    Raises:
        TypeError: A name is not a string, or `scopes` is a single string.
    """

    __slots__ = ("_id", "claims", "client", "expires", "issuer", "scopes", "subject", "upstream")

    subject: str
    issuer: str
    client: str
    scopes: frozenset[str]
    claims: Mapping[str, object]
    expires: float | None
    upstream: Callable[[], Awaitable[str]] | None
    """Returns the user's token at the identity provider, if the server's own login server keeps these tokens."""
    _id: str | None

    def __init__(
        self,
        subject: str,
        *,
        issuer: str = "",
        client: str = "",
        scopes: Iterable[str] = (),
        claims: Mapping[str, object] | None = None,
        expires: float | None = None,
    ) -> None:
        for name, value in (("subject", subject), ("issuer", issuer), ("client", client)):
            if not isinstance(value, str):
                raise TypeError(f"Principal: {name} must be a string, not {value!r}")
        if isinstance(scopes, str):
            raise TypeError('Principal: scopes must be several strings; write scopes=text.split() for "read write"')
        # Assignment is refused below.
        keep = object.__setattr__
        keep(self, "subject", subject)
        keep(self, "issuer", issuer)
        keep(self, "client", client)
        keep(self, "scopes", frozenset(scopes))
        keep(self, "claims", MappingProxyType({**(claims or {})}))
        keep(self, "expires", expires)
        keep(self, "upstream", None)
        keep(self, "_id", None if subject or issuer or client else "")

    @property
    def id(self) -> str:
        """A hash of issuer, subject and client, as a string; "" for the anonymous principal."""
        identifier = self._id
        if identifier is None:
            from hashlib import sha256  # not needed on stdio

            parts = [part.encode("utf-8", "surrogatepass") for part in (self.issuer, self.subject, self.client)]
            # The lengths keep ("ab", "c") and ("a", "bc") apart.
            identifier = sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).hexdigest()
            object.__setattr__(self, "_id", identifier)
        return identifier

    def with_scopes(self, scopes: Iterable[str]) -> Principal:
        """Return a copy with other scopes."""
        principal = Principal(
            self.subject,
            issuer=self.issuer,
            client=self.client,
            scopes=scopes,
            claims=self.claims,
            expires=self.expires,
        )
        object.__setattr__(principal, "upstream", self.upstream)
        return principal

    def with_upstream(self, upstream: Callable[[], Awaitable[str]]) -> Principal:
        """Return a copy with a function that returns the user's token at the identity provider."""
        principal = self.with_scopes(self.scopes)
        object.__setattr__(principal, "upstream", upstream)
        return principal

    @property
    def is_authenticated(self) -> bool:
        """Whether this is not the anonymous principal."""
        return bool(self.subject or self.issuer or self.client)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Principal is immutable: create a new one ({name})")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Principal is immutable ({name})")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Principal):
            return NotImplemented
        return self._key() == other._key() and self.scopes == other.scopes and self.claims == other.claims

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        # Claims are personal data and must not end up in logs.
        more = "".join(
            f", {name}={value!r}" for name, value in (("issuer", self.issuer), ("client", self.client)) if value
        )
        return f"Principal({self.subject!r}{more})" if self.is_authenticated else "ANONYMOUS"

    def _key(self) -> tuple[str, str, str]:
        return self.issuer, self.subject, self.client


ANONYMOUS = Principal("")
"""The principal of requests that were not authenticated."""


class ClientProcess(Struct, frozen=True):
    """The process that a host started for one client, where clients share a daemon (`mcpd serve --stdio --attach`)."""

    pid: int
    cwd: str
    """Its working folder."""
    environ: Mapping[str, str]
    """Those of its variables that `Attach.environ` names."""


class Origin(Struct, frozen=True):
    """How a request arrived: its transport, its user, its headers as received, and its ASGI scheme and mount point."""

    transport: Transport
    user: Principal = ANONYMOUS
    fields: Sequence[tuple[bytes, bytes]] = ()
    process: ClientProcess | None = None
    scheme: str = "http"
    root_path: str = ""

    @property
    def url(self) -> str:
        """The URL of the mount point, as the sender named it."""
        scheme = "https" if self.scheme in ("https", "wss") else "http"
        return f"{scheme}://{self.headers().get('host') or 'localhost'}{self.root_path.rstrip('/')}"

    def headers(self) -> dict[str, str]:
        """Return the headers by lower-case name, without credentials. Repeated headers are joined by commas."""
        by_name: dict[str, str] = {}
        for raw, value in self.fields:
            name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
            if not _is_credential(name):
                by_name[name] = f"{by_name[name]}, {text}" if name in by_name else text
        return by_name


_TELLING = ("authorization", "cookie", "token", "secret", "passw", "credential", "jwt", "apikey", "assertion", "bearer")
# Browsers can set no header of a WebSocket except the last of these, so some programs put their token there.
_WHOLE = frozenset(("dpop", "x-auth", "sec-websocket-protocol"))
_HARMLESS_KEYS = frozenset(("idempotency-key", "x-idempotency-key"))


def _is_credential(name: str) -> bool:
    # Return whether a header may hold a secret. Errs on the side of hiding it.
    if name in _WHOLE or any(word in name for word in _TELLING):
        return True
    return "key" in name.replace("_", "-").split("-") and name not in _HARMLESS_KEYS
