"""Who sends a request, and which way it came: a `Principal` (decision D15), and an `Origin`.

A principal is known by issuer, subject and client, never by a token: tokens are refreshed, and nobody should find one
in a debugger or a log. Pure, and known to every layer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

Transport: TypeAlias = Literal["stdio", "websocket", "http", "memory"]
"""What carries the messages of a connection."""


class Principal:
    """Who sends a request: a `subject` that an `issuer` knows, by way of a `client`; each is "" where it means nothing.

    These three are who it is: the same three with other scopes or claims, as after a token was refreshed, are the
    same principal. `scopes` are what it may do, `claims` all else that is known of it, neither of which can be
    changed. `expires` is when that ends, in seconds since 1970, as the token it came with: streams and WebSockets of
    this principal end then; None for never. Raises TypeError for anything but texts, and for `scopes` that are one
    text.
    """

    __slots__ = ("_id", "claims", "client", "expires", "issuer", "scopes", "subject", "upstream")

    subject: str
    issuer: str
    client: str
    scopes: frozenset[str]
    claims: Mapping[str, object]
    expires: float | None
    upstream: Callable[[], Awaitable[str]] | None
    """Gives the token of the provider by which it signed in, where the server's own login keeps these."""
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
                raise TypeError(f"Principal: {name} is a text, not {value!r}")
        if isinstance(scopes, str):
            raise TypeError('Principal: scopes are a set of texts; write scopes=text.split() for "read write"')
        # Not by assignment, which is refused below.
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
        """A text that is the same for the same issuer, subject and client, and tells nothing of them; "" for nobody."""
        found = self._id
        if found is None:
            from hashlib import sha256  # costs start-up, and on stdio nobody is asked who they are

            parts = [part.encode("utf-8", "surrogatepass") for part in (self.issuer, self.subject, self.client)]
            # With their lengths: else "ab" of "c" would be "a" of "bc".
            found = sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).hexdigest()
            object.__setattr__(self, "_id", found)
        return found

    def with_scopes(self, scopes: Iterable[str]) -> Principal:
        """The same with other scopes."""
        found = Principal(
            self.subject,
            issuer=self.issuer,
            client=self.client,
            scopes=scopes,
            claims=self.claims,
            expires=self.expires,
        )
        return found if self.upstream is None else found.with_upstream(self.upstream)

    def with_upstream(self, upstream: Callable[[], Awaitable[str]]) -> Principal:
        """The same, with what gives its provider's token."""
        found = Principal(
            self.subject,
            issuer=self.issuer,
            client=self.client,
            scopes=self.scopes,
            claims=self.claims,
            expires=self.expires,
        )
        object.__setattr__(found, "upstream", upstream)
        return found

    @property
    def is_authenticated(self) -> bool:
        """Whether it is not anonymous."""
        return bool(self.subject or self.issuer or self.client)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Principal cannot be changed: make another one ({name})")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Principal cannot be changed ({name})")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Principal):
            return NotImplemented
        return self._key() == other._key() and self.scopes == other.scopes and self.claims == other.claims

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        # Without the claims, which are personal, and end up in logs.
        more = "".join(
            f", {name}={value!r}" for name, value in (("issuer", self.issuer), ("client", self.client)) if value
        )
        return f"Principal({self.subject!r}{more})" if self.is_authenticated else "ANONYMOUS"

    def _key(self) -> tuple[str, str, str]:
        return self.issuer, self.subject, self.client


ANONYMOUS = Principal("")
"""The principal of all requests without an authenticator, or of those that one lets in without a name."""


class Origin(Struct, frozen=True):
    """Where a request came from. `fields` are the headers as they came; names may be in any case."""

    transport: Transport
    user: Principal = ANONYMOUS
    fields: Sequence[tuple[bytes, bytes]] = ()

    def headers(self) -> dict[str, str]:
        """The headers by lower-case name, without credentials; one that came twice is joined by a comma."""
        found: dict[str, str] = {}
        for raw, value in self.fields:
            name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
            if not _is_credential(name):
                found[name] = f"{found[name]}, {text}" if name in found else text
        return found


_TELLING = ("authorization", "cookie", "token", "secret", "passw", "credential", "jwt", "apikey", "assertion", "bearer")
# A browser's WebSocket can set no header but the last, so that some programs put their token there.
_WHOLE = frozenset(("dpop", "x-auth", "sec-websocket-protocol"))
_HARMLESS_KEYS = frozenset(("idempotency-key", "x-idempotency-key"))


def _is_credential(name: str) -> bool:
    """Whether a header of that name may hold what a tool should not see, log or pass on; rather once too often."""
    if name in _WHOLE or any(word in name for word in _TELLING):
        return True
    return "key" in name.replace("_", "-").split("-") and name not in _HARMLESS_KEYS
