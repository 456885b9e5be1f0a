"""`Auth`: the base class of all kinds of authorization, an OAuth resource server.

It reads `Authorization`, looks the token up in a cache, has a subclass verify unknown tokens, and turns failures into
challenges. A known token costs a SHA-256 and a dict lookup, and no iteration of the event loop.

Spec: 2026-07-28 basic/authorization; RFC 6750, RFC 9728.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from inspect import isawaitable
from time import time
from traceback import extract_tb
from typing import Any, Literal, TypeAlias, TypedDict, Unpack
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from mcpd.errors import AccessDenied, ConfigurationError, McpdError
from mcpd.protocol.principal import Principal
from mcpd.protocol.printable import printable
from mcpd.protocol.state_keys import StateKeys
from mcpd.transports.authentication import Protection, Refusal, RequestHeaders
from mcpd.transports.challenge import build
from .metadata import (
    Hierarchy,
    as_reached,
    checked_public_url,
    checked_scopes,
    metadata_document,
    metadata_paths,
    metadata_url,
)
from .signatures import ALGORITHMS, BadProof, ProofChecker, b64, normalized

_MAX_ACCEPTED = 10_000
_MAX_REFUSED = 1_000
_REFUSED_SECONDS = 10.0


class TokenCache:
    """Verified tokens, and refused tokens with the refusal, for at most `seconds`.

    Tokens are stored by their SHA-256. The size is limited, and no entry outlives its token. Refused tokens are limited
    separately, so that a flood of them cannot displace verified ones.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._accepted: dict[bytes, tuple[float, _KnownToken]] = {}
        self._refused: dict[bytes, tuple[float, Refusal]] = {}

    @staticmethod
    def key(token: bytes) -> bytes:
        """Return the key of a token. The token itself is not stored."""
        return sha256(token).digest()

    def accepted(self, key: bytes) -> _KnownToken | None:
        """Return the value of a verified token, or None if it is unknown or has expired."""
        found = self._accepted.get(key)
        if found is None:
            return None
        now = self._clock()
        # The upper limit matters if the clock is set back; the entry would otherwise live longer.
        if now < found[0] <= now + self._seconds:
            return found[1]
        del self._accepted[key]
        return None

    def refused(self, key: bytes) -> Refusal | None:
        """Return why a token was refused in the last seconds, or None."""
        found = self._refused.get(key)
        if found is None:
            return None
        now = self._clock()
        return found[1] if now < found[0] <= now + _REFUSED_SECONDS else None

    def accept(self, key: bytes, value: _KnownToken, expires: float | None, seconds: float | None = None) -> None:
        """Store a verified token until `expires` (seconds since 1970), for at most `seconds`."""
        until = self._clock() + (self._seconds if seconds is None else min(self._seconds, seconds))
        self._accepted.pop(key, None)
        if len(self._accepted) >= _MAX_ACCEPTED:
            del self._accepted[next(iter(self._accepted))]
        self._accepted[key] = (until if expires is None else min(until, expires), value)

    def refuse(self, key: bytes, why: Refusal) -> None:
        """Store for some seconds why a token was refused."""
        self._refused.pop(key, None)
        if len(self._refused) >= _MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[key] = (self._clock() + min(_REFUSED_SECONDS, self._seconds), why)

    def forget(self, matches: Callable[[_KnownToken], bool]) -> None:
        """Remove the verified tokens whose values match."""
        for key in [key for key, (_, value) in self._accepted.items() if matches(value)]:
            del self._accepted[key]


log = logging.getLogger("mcpd")

_MAX_BYTES = 16 * 1024
_is_token = re.compile(r"[A-Za-z0-9._~+/-]+=*").fullmatch
_RETRY = (("Retry-After", "5"),)
# How many tokens are verified concurrently, including those whose clients have disconnected.
_MAX_AT_ONCE = 1024
_VERIFY_SECONDS = 30.0

_Answer: TypeAlias = Principal | Refusal
_Matches: TypeAlias = Callable[[Principal], bool]


class InvalidToken(McpdError):
    """A token is not accepted. Clients receive `why`, a fixed text; `detail` is only logged."""

    def __init__(self, why: str = "the token is not valid", detail: str = "") -> None:
        self.why = why
        self.detail = detail
        super().__init__(why)


class Unavailable(McpdError):
    """The token cannot be verified now, because keys or the introspection endpoint are not available."""


class TokenRequest(Struct, frozen=True):
    """The request with a token: its method, its path ("" for the endpoint), and its headers."""

    method: str
    path: str
    headers: Mapping[str, str]


class Verified(Struct, frozen=True):
    """The result of verifying a token.

    `key_thumbprint` belongs to the key that the token is bound to (RFC 9449 section 6.1), or is "". The result may be
    cached for at most `seconds`.
    """

    principal: Principal
    key_thumbprint: str = ""
    seconds: float | None = None


_Result: TypeAlias = Verified | None | Awaitable[Verified | None]


class AuthOptions(TypedDict, total=False):
    """Options of every kind of authorization.

    Args:
        public_url: The URL of the endpoint for clients. Tokens are made for it, and challenges refer to it. By default,
            and on this machine only, it is the address on which the server listens.
        scopes: Scopes that every request requires.
        implies: Scopes that include other scopes.
        resource_name: A name for people.
        documentation: The URL of a page for developers.
        names_held: Whether a challenge for more scopes also lists the scopes that the token has. Clients of 2025-11-25
            would lose them otherwise.
        dpop: "off" refuses tokens that are bound to a key (RFC 9449), "accept" accepts them with a proof, "require"
            accepts no other tokens.
        dpop_nonces: Whether proofs need a nonce. Several processes need this; they share the server's `state_key` or a
            `dpop_nonce_key`.
    """

    public_url: str
    scopes: Sequence[str]
    implies: Mapping[str, Iterable[str]]
    resource_name: str
    documentation: str
    names_held: bool
    dpop: Literal["off", "accept", "require"]
    dpop_nonces: bool
    dpop_nonce_key: bytes


class _KnownToken(Struct, frozen=True):
    principal: Principal
    key_thumbprint: str
    missing_scope: Refusal | None
    # The principal, if the token needs no proof and grants all required scopes.
    plain: Principal | None
    # The hash of the token for a proof; "" if it is not bound to a key.
    ath: str


class Auth(Protection):
    """The base class of all kinds of authorization; see `AuthOptions`. Raises ConfigurationError."""

    authorization_servers: tuple[str, ...] = ()
    """The issuers from which clients get tokens, spelled as in their metadata."""

    def __init__(self, *, cache_seconds: float = 300.0, **options: Unpack[AuthOptions]) -> None:
        _check_names(options)
        self.scopes = checked_scopes(options.get("scopes", ()), "scopes")
        self.hierarchy = Hierarchy(options.get("implies", {}))
        self.names_held = options.get("names_held", True)
        self._resource_name = options.get("resource_name", "")
        self._documentation = options.get("documentation", "")
        self._dpop = options.get("dpop", "off")
        self._proofs = _proof_checker(options)
        self._has_nonce_key = "dpop_nonce_key" in options
        self._needed = frozenset(self.scopes)

        self._cache = TokenCache(cache_seconds)
        self._is_kept = cache_seconds > 0  # otherwise each request is verified separately
        self.on_forget = []
        self._pending: dict[bytes, asyncio.Task[_KnownToken | Refusal]] = {}
        # The running verifications, each with the predicates passed to `forget` since it began.
        self._running: dict[asyncio.Task[_KnownToken | Refusal], list[_Matches]] = {}

        self._endpoint = "/mcp"
        # The scopes that the server may require. Registering a tool adds its scopes.
        self.known_scopes: set[str] = {*self.scopes}
        self.has_anonymous = False
        self.public_url = ""
        self._is_configured = bool(options.get("public_url"))
        if self._is_configured:
            self.public_url = checked_public_url(options["public_url"], is_public=False)
        self._locate()

    def share(self, keys: StateKeys) -> None:
        """Use these keys for nonces, like all processes that have them, unless `dpop_nonce_key` is set."""
        if keys and self._proofs is not None and not self._has_nonce_key:
            self._proofs.nonce_keys = keys.of("nonce")

    # -- where it is -------------------------------------------------------------------------

    def locate(self, url: str, *, is_public: bool, is_guess: bool, is_hosted: bool = False) -> None:
        """Set the URL of the endpoint, unless `public_url` was given. Raises ConfigurationError."""
        if self._is_configured:
            url = self.public_url
        if self.authorization_servers:
            if is_guess and is_public and not self._is_configured:
                how = "--public-url https://example.com/mcp (in Python: public_url=)"
                if is_hosted:
                    how = f"{type(self).__name__}(…, public_url='https://example.com/mcp')"
                raise ConfigurationError(
                    f"Tokens are issued for one URL: set the URL that clients use for this server with {how}"
                )
            checked_public_url(url, is_public=is_public)
        self.public_url = url
        self._locate()

    def _locate(self) -> None:
        # Compute everything that depends on the URL only.
        self._own_url: str | None = None
        self._metadata = self.url_of_metadata()
        self._unauthenticated = Refusal(
            401,
            "Authentication is required: send an access token as Authorization: Bearer TOKEN.\n",
            self._challenges(scopes=self.scopes),
            "unauthorized",
        )

        self._other_scheme = replace(
            self._unauthenticated,
            text="Authorization is not a bearer token: send an access token as Authorization: Bearer TOKEN.\n",
        )
        self._malformed = Refusal(
            400,
            "Authorization is malformed: send one token as Authorization: Bearer TOKEN.\n",
            (("WWW-Authenticate", build("Bearer", {"error": "invalid_request"})),),
            "invalid_request",
        )

        self._bound = self._refused(InvalidToken("the token is bound to a key, but no proof was sent"))
        self._unbound = self._refused(InvalidToken("the token is not bound to a key, which this scheme requires"))
        self._too_long = self._refused(InvalidToken("the token is too long"))

    def url_of_metadata(self) -> str | None:
        """Return the URL of the protected resource metadata, or None without issuers."""
        if not self.authorization_servers or not self.public_url:
            return None
        return metadata_url(self.public_url, self._endpoint)

    def documents(self, endpoint: str) -> Mapping[str, Callable[[str], bytes]]:
        """Return functions that build the metadata, by the paths at which clients look for it."""
        if not self.authorization_servers:
            return {}
        self._endpoint = endpoint
        self._locate()
        return dict.fromkeys(metadata_paths(self.public_url, endpoint), self.metadata)

    def metadata(self, host: str = "") -> bytes:
        """Return the protected resource metadata as JSON for a client with this `Host` (RFC 9728 section 2)."""
        return metadata_document({**self._members(), "resource": as_reached(self.public_url, host)})

    def _members(self) -> dict[str, object]:
        return {
            "resource": self.public_url,
            "authorization_servers": self.authorization_servers,
            "scopes_supported": self.scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": self._resource_name,
            "resource_documentation": self._documentation,
            "dpop_signing_alg_values_supported": [] if self._proofs is None else ALGORITHMS,
            "dpop_bound_access_tokens_required": self._dpop == "require",
        }

    # -- a request ---------------------------------------------------------------------------

    def known(self, authorization: bytes) -> Principal | None:
        """Return the principal of a known bearer token that needs no proof, otherwise None."""
        if not authorization.startswith(b"Bearer ") or len(authorization) > _MAX_BYTES:
            return None
        # The value need not be checked: only tokens that were verified in this form are in the cache.
        found = self._cache.accepted(TokenCache.key(authorization[7:]))
        return None if found is None else found.plain

    def __call__(self, headers: Mapping[str, str], /) -> _Answer | Coroutine[Any, Any, _Answer]:
        """Return the principal of a request or a refusal. The result is awaitable if the token is not in the cache."""
        found = self._authenticate(headers)
        return self.spelled(found, headers) if isinstance(found, Refusal) else found

    def spelled(self, refusal: Refusal, headers: Mapping[str, str]) -> Refusal:
        metadata = self._metadata
        if metadata is None or (there := as_reached(metadata, headers.get("host", ""))) == metadata:
            return refusal
        fields = tuple((name, value.replace(f'"{metadata}"', f'"{there}"')) for name, value in refusal.headers)
        return replace(refusal, headers=fields)

    def _authenticate(self, headers: Mapping[str, str]) -> _Answer | Coroutine[Any, Any, _Answer]:
        authorization = headers.get("authorization")
        if authorization is None:
            return self._unauthenticated
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() not in (("bearer",) if self._proofs is None else ("bearer", "dpop")):
            return self._other_scheme
        if len(token) > _MAX_BYTES:
            return self._too_long
        token = token.strip(" ")

        key = TokenCache.key(token.encode())
        known = self._cache.accepted(key)
        if known is not None:
            return self._admitted(known, scheme, headers)
        if not _is_token(token):
            return self._malformed
        refused = self._cache.refused(key)
        return refused if refused is not None else self._verify_token(key, scheme, token, headers)

    def _admitted(self, known: _KnownToken, scheme: str, headers: Mapping[str, str]) -> _Answer:
        # Return the answer to a request with a valid token.
        if known.key_thumbprint or self._proofs is not None:
            refusal = self._missing_proof(known, scheme, headers)
            if refusal is not None:
                return refusal
        return known.missing_scope or known.principal

    def _missing_proof(self, known: _KnownToken, scheme: str, headers: Mapping[str, str]) -> Refusal | None:
        # Return why the sender has not proved to have the token's key, or None.
        is_bearer = scheme.lower() == "bearer"
        if not known.key_thumbprint:
            return None if is_bearer and self._dpop != "require" else self._unbound
        if is_bearer or self._proofs is None:
            return self._bound

        request = _request(headers)
        is_repeated = isinstance(headers, RequestHeaders) and b"dpop" in headers.repeated
        bad = self._proofs.check(
            None if is_repeated else headers.get("dpop"),
            method=request.method,
            url=as_reached(self._proved_url(request.path), headers.get("host", "")),
            ath=known.ath,
            thumbprint=known.key_thumbprint,
        )
        if not isinstance(bad, BadProof):
            return None

        log.info("Refused a proof: %s", printable(bad.why))
        error = "use_dpop_nonce" if bad.nonce else "invalid_dpop_proof"
        params = {"resource_metadata": self._metadata, "error": error, "error_description": bad.why}
        challenge = build("DPoP", {**params, "algs": " ".join(ALGORITHMS)})
        fields = [("WWW-Authenticate", challenge), *([("DPoP-Nonce", bad.nonce)] if bad.nonce else [])]
        return Refusal(401, f"{bad.why[0].upper()}{bad.why[1:]}.\n", tuple(fields), error)

    def _proved_url(self, path: str) -> str:
        # Return the URL that a proof for this path must name, from the configuration and never from `Host`.
        if not path:
            if self._own_url is None:
                self._own_url = normalized(self.public_url) or ""
            return self._own_url
        parts = urlsplit(self.public_url)
        return normalized(f"{parts.scheme}://{parts.netloc}{path}") or ""

    def _verify_token(
        self, key: bytes, scheme: str, token: str, headers: Mapping[str, str]
    ) -> _Answer | Coroutine[Any, Any, _Answer]:
        pending = self._pending.get(key)
        if pending is None:
            # Anybody may send tokens that need a slow verification.
            if len(self._running) >= _MAX_AT_ONCE:
                return self._failed(key, Unavailable("too many tokens are being verified"))
            verify = partial(self._verify, token, _request(headers))
            try:
                found = verify()
            except Exception as error:
                return self._failed(key, error)

            if not isawaitable(found):
                accepted = self._accept(key, found)
                return accepted if isinstance(accepted, Refusal) else self._admitted(accepted, scheme, headers)

            # One verification serves all requests with this token, even if the first of them is cancelled.
            forgotten: list[_Matches] = []
            pending = asyncio.ensure_future(self._verify_in_task(key, found, verify, forgotten))
            self._running[pending] = forgotten
            pending.add_done_callback(lambda task: self._running.pop(task, None))
            if self._is_kept:
                self._pending[key] = pending
        return self._wait(pending, scheme, headers)

    async def _wait(
        self, pending: asyncio.Task[_KnownToken | Refusal], scheme: str, headers: Mapping[str, str]
    ) -> _Answer:
        accepted = await asyncio.shield(pending)
        found = accepted if isinstance(accepted, Refusal) else self._admitted(accepted, scheme, headers)
        return self.spelled(found, headers) if isinstance(found, Refusal) else found

    async def _verify_in_task(
        self, key: bytes, asked: Awaitable[Verified | None], verify: Callable[[], _Result], forgotten: list[_Matches]
    ) -> _KnownToken | Refusal:
        try:
            async with asyncio.timeout(_VERIFY_SECONDS):
                found = await asked

                # A verification that began before `forget` was called may be out of date.
                while found is not None and any(matches(found.principal) for matches in forgotten):
                    forgotten.clear()
                    again = verify()
                    found = await again if isawaitable(again) else again
                return self._accept(key, found)
        except TimeoutError:
            return self._failed(key, Unavailable("the verification timed out"))
        except Exception as error:
            return self._failed(key, error)
        finally:
            self._pending.pop(key, None)

    @abstractmethod
    def _verify(self, token: str, request: TokenRequest) -> _Result:
        """Return the result for a token, or None if it is not valid. Raises InvalidToken and Unavailable."""

    # -- what came of it ---------------------------------------------------------------------

    def _accept(self, key: bytes, found: Verified | None) -> _KnownToken | Refusal:
        # Cache a valid token, with the scopes that its scopes include.
        if found is None:
            return self._failed(key, InvalidToken())
        who = found.principal
        scopes = self.hierarchy.expanded(who.scopes)
        if scopes != who.scopes:
            who = who.with_scopes(scopes)

        missing_scope = None
        if not self._needed <= scopes:
            named = " ".join(scope for scope in self.scopes if scope not in scopes)
            text = f"This server requires the scope {named}, which the token does not have"
            missing_scope = self.refuse(AccessDenied(text, scopes=self.scopes), who)

        is_plain = missing_scope is None and not found.key_thumbprint and self._dpop != "require"
        ath = b64(key) if found.key_thumbprint else ""
        known = _KnownToken(who, found.key_thumbprint, missing_scope, who if is_plain else None, ath)
        self._cache.accept(key, known, who.expires, found.seconds)
        return known

    def _failed(self, key: bytes, error: Exception) -> Refusal:
        if isinstance(error, InvalidToken):
            message = f"{error.why} ({error.detail})" if error.detail else error.why
            log.info("Refused a token: %s", printable(message))
            refusal = self._refused(error)
            # So that a client which repeats a bad token does not cause a verification each time.
            self._cache.refuse(key, refusal)
            return refusal
        if isinstance(error, Unavailable):
            log.error("A token cannot be verified now: %s", printable(error))
            text = "The server cannot verify your token now; try again later.\n"
            return Refusal(503, text, _RETRY, "temporarily_unavailable")

        # The message may contain the token, so only the class and the location are logged.
        where = extract_tb(error.__traceback__)[-1]
        log.error(
            "The verification of a token failed with %s (%s, line %d)",
            printable(type(error).__qualname__),
            printable(where.filename),
            where.lineno,
        )
        return Refusal(500, "The server failed to verify your token; see its log.\n", (), "server_error")

    def _refused(self, error: InvalidToken) -> Refusal:
        headers = self._challenges(scopes=self.scopes, error="invalid_token", description=error.why)
        return Refusal(401, f"{error.why[0].upper()}{error.why[1:]}.\n", headers, "invalid_token")

    def refuse(self, denied: AccessDenied, user: Principal) -> Refusal:
        """Return the challenge for a request that lacks scopes or a newer token, with all scopes that it requires."""
        needed = dict.fromkeys((*self.scopes, *denied.scopes))
        if denied.error == "unauthorized":
            return Refusal(401, self._unauthenticated.text, self._challenges(scopes=tuple(needed)), "unauthorized")
        held: Iterable[str] = ()
        if self.names_held and denied.error == "insufficient_scope":
            held = sorted((user.scopes & self.known_scopes) - needed.keys())
        headers = self._challenges(scopes=(*needed, *held), error=denied.error, description=_DESCRIPTIONS[denied.error])
        status = 403 if denied.error == "insufficient_scope" else 401
        return Refusal(status, f"{denied.message}.\n", headers, denied.error)

    def _challenges(
        self, *, scopes: Sequence[str] = (), error: str | None = None, description: str | None = None
    ) -> tuple[tuple[str, str], ...]:
        params = {
            "resource_metadata": self._metadata,
            "scope": " ".join(dict.fromkeys(scopes)) or None,
            "error": error,
            "error_description": description,
        }
        # Bearer comes first, because some clients look only at the first challenge.
        found = [] if self._dpop == "require" else [build("Bearer", params)]
        if self._proofs is not None:
            found.append(build("DPoP", {**params, "algs": " ".join(ALGORITHMS)}))
        return tuple(("WWW-Authenticate", challenge) for challenge in found)

    def forget(self, *, subject: str | None = None, client: str | None = None) -> None:
        """Forget this subject, this client, both together, or everybody.

        Their tokens are verified again, and their sessions, streams and WebSocket connections end. Call it in the
        thread of the event loop.
        """

        def matches(who: Principal) -> bool:
            return subject in (None, who.subject) and client in (None, who.client)

        self._cache.forget(lambda known: matches(known.principal))
        for forgotten in self._running.values():
            forgotten.append(matches)
        for end in self.on_forget:
            end(matches)


_DESCRIPTIONS: dict[str, str] = {
    "insufficient_scope": "the token does not allow this",
    "invalid_token": "the token must be exchanged for a new one",
}


def _request(headers: Mapping[str, str]) -> TokenRequest:
    if isinstance(headers, RequestHeaders):
        return TokenRequest(headers.method, headers.path, headers)
    return TokenRequest("POST", "", headers)


def _proof_checker(options: AuthOptions) -> ProofChecker | None:
    dpop = options.get("dpop", "off")
    if dpop not in ("off", "accept", "require"):
        raise ConfigurationError(f"dpop {dpop!r}: must be off, accept or require")
    if dpop == "off":
        return None
    if find_spec("joserfc") is None:
        raise ConfigurationError("Proofs of possession require joserfc: pip install 'mcpd-server[auth]'")
    return ProofChecker(nonces=options.get("dpop_nonces", False), nonce_key=options.get("dpop_nonce_key"))


def _check_names(options: Mapping[str, object]) -> None:
    unknown = [name for name in options if name not in AuthOptions.__annotations__]
    if unknown:
        raise ConfigurationError(
            f"auth: unknown option {unknown[0]!r}; known options: {', '.join(AuthOptions.__annotations__)}"
        )
