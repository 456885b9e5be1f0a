"""`Jwt` and `Introspection`: access tokens of issuers, their claims, and the metadata and keys of an issuer.

Checks of a JWT go from cheap to expensive: format, header, issuer, key, signature, claims. In the header only `alg`,
`kid`, `typ` and `crit` matter; a key in it is ignored. Keys are fetched with the first token, cached, and refreshed in
the background. An unknown key causes one request for all that wait for it, at most every 30 s. If newer keys cannot be
fetched, the old ones stay valid.

Spec: RFC 7517, RFC 7519 section 4.1, RFC 7662, RFC 8414 section 3, RFC 8725, RFC 9068 section 4, RFC 9449 section 6,
OpenID Connect Discovery section 4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from time import monotonic, time
from typing import Any, TypeAlias, Unpack
from urllib.parse import urlencode, urlsplit

from msgspec import Struct, ValidationError, convert

from mcpd.errors import ConfigurationError, missing_extra
from mcpd.protocol.principal import Principal
from mcpd.protocol.printable import printable
from mcpd.transports.address import is_loopback
from .base import Auth, AuthOptions, InvalidToken, TokenRequest, Unavailable, Verified
from .metadata import as_reached, metadata_urls, split_url
from .signatures import KEY_TYPES, SECRET_MEMBERS, is_signed, is_sound, object_in, segments_of

try:
    import joserfc  # noqa: F401 - its modules are loaded with the first token, but it must be installed at the start

    from .fetch import FetchError, Limits, basic_credentials, fetch, fetch_json, reach_from
except ModuleNotFoundError as error:
    raise missing_extra(error, "checking access tokens", "auth") from None

log = logging.getLogger("mcpd")

_METADATA_LIMITS = Limits(seconds=5.0, redirects=0)


def checked_issuer(issuer: str) -> str:
    """Return the issuer unchanged, as tokens spell it. Raises ConfigurationError if it is not a URL."""
    parts = split_url(issuer)
    if parts is None or "?" in issuer or "#" in issuer or not issuer.isascii() or not issuer.isprintable():
        raise ConfigurationError(
            f"issuer {issuer!r}: write its URL exactly as in its metadata, such as https://idp.example.com/realms/tools"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigurationError(f"issuer {issuer!r}: it must begin with https:// unless it is on this machine")
    return issuer


async def fetch_issuer_metadata(issuer: str) -> dict[str, Any]:
    """Return the metadata of an issuer, which must name exactly this issuer. Raises FetchError."""
    reach = await reach_from(issuer)
    failure: FetchError | None = None

    for url in metadata_urls(issuer):
        try:
            found, _ = await fetch_json(url, what="the metadata of the issuer", reach=reach, limits=_METADATA_LIMITS)
        except FetchError as error:
            if error.status == 0:
                raise  # not reached, so the other URLs will not be either
            failure = failure or error
            continue
        if found.get("issuer") == issuer:
            return found
        failure = FetchError("the metadata of the issuer", url, "it names an issuer other than the configured one")

    assert failure is not None
    raise failure


_LIMITS = Limits(max_bytes=128 * 1024, seconds=5.0, redirects=0)
_MAX_KEYS = 100
_MAX_BITS = 8192
_MIN_FRESH_SECONDS, _MAX_FRESH_SECONDS = 300.0, 24 * 3600.0
# Anybody may send tokens with invented key names, which must not become requests to the issuer.
_BETWEEN_TRIES = 30.0


class VerifyingKey(Struct, frozen=True):
    """A public key for checking signatures. If `alg` is not "", the key is for that algorithm only."""

    kid: str
    kty: str
    curve: str
    alg: str
    key: Any

    def fits(self, alg: str) -> bool:
        """Return whether the key may check signatures of this algorithm."""
        return KEY_TYPES.get(alg) == (self.kty, self.curve) and self.alg in ("", alg)


class _Jwk(Struct):
    """The members of a key that decide whether it can check signatures. Spec: RFC 7517 section 4."""

    kid: str = ""
    kty: str = ""
    crv: str = ""
    alg: str = ""
    use: str = "sig"
    key_ops: tuple[Any, ...] = ("verify",)


def usable_keys(document: Mapping[str, Any]) -> list[VerifyingKey]:
    """Return the keys of a JWKS that can check signatures. Others, such as private keys, are left out."""
    given = document.get("keys")
    if not isinstance(given, list):
        return []
    return [key for one in given[:_MAX_KEYS] if (key := _key(one)) is not None]


def _key(given: Any) -> VerifyingKey | None:
    if not isinstance(given, dict) or not SECRET_MEMBERS.isdisjoint(given):
        return None
    try:
        known = convert(given, _Jwk)
    except ValidationError:
        return None
    if len(known.kid) > 1024 or known.use != "sig" or "verify" not in known.key_ops:
        return None
    kty, curve = known.kty, "" if known.kty == "RSA" else known.crv
    if (kty, curve) not in KEY_TYPES.values() or (kty == "RSA" and not is_sound(given, _MAX_BITS)):
        return None

    from joserfc import jwk

    public = {name: given[name] for name in ("kty", "crv", "x", "y", "n", "e") if isinstance(given.get(name), str)}
    try:
        return VerifyingKey(known.kid, kty, curve, known.alg, jwk.import_key(public))
    except Exception as error:  # keys come from anybody, and the library raises errors of many classes
        log.warning("A key of an issuer cannot be used: %s", printable(type(error).__name__))
        return None


class IssuerKeys:
    """The keys of one issuer, from `jwks_url` or from the URL in its metadata."""

    def __init__(self, issuer: str, jwks_url: str | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._issuer = issuer
        self._url = jwks_url
        self._clock = clock
        self._keys: list[VerifyingKey] | None = None
        self._fresh_until = 0.0
        self._tried_at: float | None = None
        self._failure: FetchError | None = None
        self._fetching: asyncio.Task[None] | None = None

    def find(self, kid: str | None, alg: str) -> list[VerifyingKey] | None:
        """Return the keys that may have made a signature, or None if newer keys must be fetched first.

        Without a `kid`, a key is returned only if no other key fits.
        """
        if self._keys is None:
            return None
        if self._clock() > self._fresh_until and self._may_try():
            self._start()  # the old keys are used meanwhile

        fitting = [key for key in self._keys if key.fits(alg)]
        if kid is None:
            return fitting if len(fitting) == 1 else []
        named = [key for key in fitting if key.kid == kid]
        if named:
            return named
        # Retrying at once would let anybody flood the issuer with invented key names.
        return None if self._may_try() or self._fetching is not None else []

    async def refreshed(self, kid: str | None, alg: str) -> list[VerifyingKey]:
        """Fetch newer keys, then do the same. Raises Unavailable if they cannot be fetched."""
        if self._fetching is None and self._may_try():
            self._start()
        if self._fetching is not None:
            await asyncio.shield(self._fetching)
        found = self.find(kid, alg)
        if found:
            return found
        if self._failure is not None:
            raise Unavailable(str(self._failure))
        return []

    async def load(self) -> None:
        """Fetch the keys now. Raises Unavailable."""
        await self._fetch()
        if self._failure is not None:
            raise Unavailable(str(self._failure))

    def _may_try(self) -> bool:
        return self._tried_at is None or self._clock() - self._tried_at >= _BETWEEN_TRIES

    def _start(self) -> None:
        if self._fetching is None:
            # Also after a failure, so that an issuer that is down is not asked for each token.
            self._tried_at = self._clock()
            self._fetching = asyncio.ensure_future(self._fetch())
            self._fetching.add_done_callback(self._fetched)

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled() and task.exception() is not None:
            log.error("The keys of %s cannot be read", printable(self._issuer), exc_info=task.exception())

    async def _fetch(self) -> None:
        try:
            url = self._url or await self._url_in_metadata()
            reach = await reach_from(self._issuer)
            document, response = await fetch_json(url, what="the keys of the issuer", reach=reach, limits=_LIMITS)
            keys = usable_keys(document)
            if not keys:
                raise FetchError("the keys of the issuer", url, "it has no usable key", status=200)
        except FetchError as error:
            self._failure = error
            log.warning("The keys of %s cannot be fetched: %s", printable(self._issuer), printable(error))
            return

        self._failure = None
        self._keys = keys
        self._fresh_until = self._clock() + response.fresh_seconds(_MIN_FRESH_SECONDS, _MAX_FRESH_SECONDS)

    async def _url_in_metadata(self) -> str:
        metadata = await fetch_issuer_metadata(self._issuer)
        url = metadata.get("jwks_uri")
        if not isinstance(url, str):
            raise FetchError("the metadata of the issuer", self._issuer, "it names no jwks_uri", status=200)
        return url


# Claims that must have one of these values.
Expected: TypeAlias = Mapping[str, str | Sequence[str]]

_MAX_SKEW = 300.0
# The year 10000. Later times are not valid.
_END_OF_TIME = 253_402_300_800.0


class ClaimChecks:
    """The checks for the claims of one issuer. Raises ConfigurationError.

    Args:
        audience: Accepted values of `aud`.
        expect: Claims that prove that a token without audience is for this server.
        skew: The tolerated clock difference in seconds.
        needs_expiry: Whether tokens without `exp` are refused.
    """

    def __init__(
        self,
        *,
        audience: Iterable[str] = (),
        expect: Expected | None = None,
        skew: float = 60.0,
        scope_claims: Sequence[str] = ("scope", "scp"),
        client_claims: Sequence[str] = ("client_id", "azp"),
        needs_expiry: bool = True,
    ) -> None:
        if not 0 <= skew <= _MAX_SKEW:
            raise ConfigurationError(f"skew: must be 0 to {_MAX_SKEW:g} seconds, not {skew!r}")
        self.audience = frozenset(_texts(audience, "audience"))
        self.expect = {name: {value} if isinstance(value, str) else {*value} for name, value in (expect or {}).items()}
        self.skew = skew
        self._needs_expiry = needs_expiry
        self._scope_claims = tuple(scope_claims)
        self._client_claims = tuple(client_claims)

    def verified(self, claims: Mapping[str, Any], issuer: str, default_audience: str, now: float) -> Verified:
        """Return the principal of a token with these claims. Raises InvalidToken, with the claim in its detail."""
        # RFC 8707, RFC 9068 section 4: a token for another resource must not be accepted.
        self._check_recipient(claims, default_audience)
        expires = self._check_times(claims, now)

        subject = _text(claims, "sub")
        client = next((text for name in self._client_claims if (text := _text(claims, name))), "")
        if not subject and not client:
            raise InvalidToken("the token names neither a subject nor a client")

        principal = Principal(
            subject or client,
            issuer=issuer,
            client=client,
            scopes=self._scopes(claims),
            claims=claims,
            # The skew is added because the token is accepted until then.
            expires=None if expires is None else expires + self.skew,
        )
        return Verified(principal, _thumbprint(claims))

    def _check_recipient(self, claims: Mapping[str, Any], default_audience: str) -> None:
        # Check that the token was made for this server. Otherwise any token of the issuer would be accepted.
        ours = self.audience or (frozenset() if self.expect else {default_audience})
        if ours:
            given = claims.get("aud")
            found = [given] if isinstance(given, str) else given
            if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
                raise InvalidToken("the token names no audience", f"aud is {given!r}")
            here = urlsplit(default_audience).netloc
            if ours.isdisjoint(as_reached(one, here) if default_audience in ours else one for one in found):
                raise InvalidToken(
                    "the token is for another audience", f"aud is {found!r}, not one of {sorted(ours)!r}"
                )

        for name, values in self.expect.items():
            given = claims.get(name)
            found = [given] if isinstance(given, str) else given if isinstance(given, list) else []
            if not any(isinstance(one, str) and one in values for one in found):
                raise InvalidToken("the token is for another recipient", f"{name} is {given!r}")

    def _check_times(self, claims: Mapping[str, Any], now: float) -> float | None:
        expires = _seconds(claims, "exp")
        if expires is None and self._needs_expiry:
            raise InvalidToken("the token has no expiry")
        if expires is not None and expires + self.skew <= now:
            raise InvalidToken("the token has expired", f"by {now - expires:.0f} s")
        for name in ("nbf", "iat"):
            begins = _seconds(claims, name)
            if begins is not None and begins - self.skew > now:
                raise InvalidToken("the token is not valid yet", f"{name} is {begins - now:.0f} s ahead")
        return expires

    def _scopes(self, claims: Mapping[str, Any]) -> set[str]:
        found: set[str] = set()
        for name in self._scope_claims:
            given = claims.get(name)
            if isinstance(given, str):
                found.update(given.split())
            elif isinstance(given, list):
                # Each item is one scope, so items with spaces are ignored.
                found.update(one for one in given if isinstance(one, str) and one and not one.split()[1:])
        return found


def _text(claims: Mapping[str, Any], name: str) -> str:
    given = claims.get(name)
    return given if isinstance(given, str) else ""


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    # Return a time in seconds since 1970, or None if it is missing. Raises InvalidToken for other values.
    given = claims.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < _END_OF_TIME:
        raise InvalidToken("a time in the token is not valid", f"{name} is {str(given)[:50]!r}")
    return float(given)


def _thumbprint(claims: Mapping[str, Any]) -> str:
    # Return the thumbprint of the key that the token is bound to, or "". Raises InvalidToken for other bindings.
    bound = claims.get("cnf")
    if bound is None:
        return ""
    if not isinstance(bound, dict) or [*bound] != ["jkt"] or not isinstance(bound["jkt"], str) or not bound["jkt"]:
        raise InvalidToken("the token is bound to a key in an unsupported way")
    return str(bound["jkt"])


_DEFAULT_ALGORITHMS = ("RS256", "PS256", "ES256", "ES384", "EdDSA", "Ed25519")
_WITH_SECRET = ("HS256", "HS384", "HS512")
_MIN_SECRET_BYTES = 32
# Several keys may have one name, and each try costs a signature check.
_MAX_TRIED = 4


class Issuer(Struct, frozen=True, kw_only=True):
    """An authorization server.

    Args:
        url: The issuer as its tokens name it.
        audience: Accepted values of `aud`; by default the public URL.
        expect: Claims that prove that a token is for this server, if the issuer does not set `aud`.
        jwks_url: The URL of its keys; by default from its metadata.
        keys: The keys of an issuer in this process, which are not fetched.
    """

    url: str
    audience: tuple[str, ...] = ()
    expect: Expected = {}
    jwks_url: str | None = None
    keys: IssuerKeys | None = None


class _Source(Struct, frozen=True):
    url: str
    checks: ClaimChecks
    keys: IssuerKeys | None


class Jwt(Auth):
    """Verifies access tokens that are JWTs: `Jwt("https://idp.example.com",
    public_url="https://tools.example.com/mcp")`.

    Args:
        issuer: One or several issuers, each with its own keys.
        secret: At least 32 bytes; tokens are then signed by HMAC, and no keys are fetched.
        strict: Accept only tokens of the type `at+jwt`.
        scope_claims: The claims with the scopes.
        client_claims: The claims with the client.

    Requires the extra `auth`. Raises ConfigurationError.
    """

    def __init__(
        self,
        issuer: str | Issuer | Sequence[str | Issuer],
        *,
        audience: Sequence[str] = (),
        expect: Expected | None = None,
        jwks_url: str | None = None,
        secret: str | bytes | None = None,
        algorithms: Sequence[str] = (),
        strict: bool = False,
        skew: float = 60.0,
        scope_claims: Sequence[str] = ("scope", "scp"),
        client_claims: Sequence[str] = ("client_id", "azp"),
        cache_seconds: float = 300.0,
        **options: Unpack[AuthOptions],
    ) -> None:
        given = [issuer] if isinstance(issuer, (str, Issuer)) else list(issuer)
        issuers = [
            Issuer(url=one, audience=_texts(audience, "audience"), expect=expect or {}, jwks_url=jwks_url)
            if isinstance(one, str)
            else one
            for one in given
        ]
        if not issuers or len({one.url for one in issuers}) != len(issuers):
            raise ConfigurationError("issuer: name at least one, without duplicates")
        if jwks_url is not None and len(issuers) > 1:
            raise ConfigurationError("jwks_url: with several issuers write Issuer(url=…, jwks_url=…) for each")

        self._key = _secret_key(secret)
        self._algorithms = _checked_algorithms(algorithms, has_secret=secret is not None)
        self._types = ("at+jwt",) if strict else ("at+jwt", "jwt", "")
        self.authorization_servers = tuple(checked_issuer(one.url) for one in issuers)

        self._sources: dict[str, _Source] = {}
        for one in issuers:
            checks = ClaimChecks(
                audience=one.audience,
                expect=one.expect,
                skew=skew,
                scope_claims=scope_claims,
                client_claims=client_claims,
            )
            keys = None if self._key is not None else one.keys or IssuerKeys(one.url, one.jwks_url)
            self._sources[one.url] = _Source(one.url, checks, keys)
        super().__init__(cache_seconds=min(cache_seconds, 300.0), **options)

    async def load(self) -> None:
        """Fetch the keys of all issuers now, for `mcpd check`. Raises Unavailable."""
        for source in self._sources.values():
            if source.keys is not None:
                await source.keys.load()

    def _verify(self, token: str, request: TokenRequest) -> Verified | Coroutine[Any, Any, Verified]:
        parts = segments_of(token)
        if parts is None:
            raise InvalidToken("the token is not a JWT")

        head = _object(parts[0], "header")
        alg, kid = self._check_head(head)
        # Not verified yet; it only selects the keys.
        claims = _object(parts[1], "payload")
        named = claims.get("iss")
        source = self._sources.get(named) if isinstance(named, str) else None
        if source is None:
            raise InvalidToken("the token is from another issuer", f"iss is {str(named)[:200]!r}")

        check = partial(self._check, parts, claims, alg, source)
        if source.keys is None:
            return check([self._key])
        keys = source.keys.find(kid, alg)
        return _check_later(check, source.keys.refreshed(kid, alg)) if keys is None else check(_usable(keys))

    def _check_head(self, head: dict[str, Any]) -> tuple[str, str | None]:
        # Return the algorithm and the key name. Raises InvalidToken.
        alg, kid, kind = head.get("alg"), head.get("kid"), head.get("typ", "")
        if not isinstance(alg, str) or alg not in self._algorithms:
            raise InvalidToken(
                "the token is signed with an algorithm that is not accepted", f"alg is {str(alg)[:50]!r}"
            )

        if "crit" in head or "b64" in head or "zip" in head or "enc" in head:
            raise InvalidToken("the header of the token requires an unsupported feature")
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in self._types:
            raise InvalidToken("the token is not an access token", f"typ is {str(kind)[:50]!r}")
        if kid is not None and (not isinstance(kid, str) or len(kid) > 1024):
            raise InvalidToken("the key ID of the token is not valid")
        return alg, kid

    def _check(
        self, parts: tuple[str, str, str], claims: dict[str, Any], alg: str, source: _Source, keys: list[Any]
    ) -> Verified:
        # Check the signature, then the claims.
        if not keys:
            raise InvalidToken("the token is signed with an unknown key")
        if not any(is_signed(parts, key, alg) for key in keys[:_MAX_TRIED]):
            raise InvalidToken("the signature of the token is not valid")
        return source.checks.verified(claims, source.url, self.public_url, time())


async def _check_later(
    check: Callable[[list[Any]], Verified], fetched: Coroutine[Any, Any, list[VerifyingKey]]
) -> Verified:
    return check(_usable(await fetched))


def _usable(keys: list[VerifyingKey]) -> list[Any]:
    return [key.key for key in keys]


def _object(segment: str, what: str) -> dict[str, Any]:
    # Return a part of a token as a JSON object. Raises InvalidToken.
    found = object_in(segment)
    if found is None:
        raise InvalidToken(f"the {what} of the token cannot be read")
    return found


def _secret_key(secret: str | bytes | None) -> Any:
    if secret is None:
        return None
    data = secret.encode() if isinstance(secret, str) else secret
    if len(data) < _MIN_SECRET_BYTES or data.lstrip().startswith((b"-----BEGIN", b"{")):
        raise ConfigurationError(
            f"secret: must have at least {_MIN_SECRET_BYTES} bytes and must not be a key of another kind"
        )
    from joserfc.jwk import OctKey

    return OctKey.import_key(data)


def _checked_algorithms(given: Sequence[str], *, has_secret: bool) -> tuple[str, ...]:
    known = _WITH_SECRET if has_secret else tuple(KEY_TYPES)
    default = ("HS256",) if has_secret else _DEFAULT_ALGORITHMS
    found = _texts(given, "algorithms") or default
    unknown = [name for name in found if name not in known]
    if unknown:
        raise ConfigurationError(f"algorithms: {printable(unknown[0])} is not supported; use {', '.join(known)}")
    return found


def _texts(given: Iterable[str], where: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ConfigurationError(f"{where}: must be a list of strings, such as [{given!r}]")
    return tuple(given)


class Introspection(Auth):
    """Verifies tokens at the issuer's introspection endpoint, as the client `client_id`. Requires the extra `auth`.

    `endpoint` is by default read from the issuer's metadata. Results are cached for `cache_seconds` (0 to 60), but not
    longer than the token is valid. For `audience` and `expect`, see `Jwt`. Raises ConfigurationError.
    """

    def __init__(
        self,
        issuer: str,
        *,
        client_id: str,
        client_secret: str,
        endpoint: str | None = None,
        audience: Sequence[str] = (),
        expect: Expected | None = None,
        scope_claims: Sequence[str] = ("scope", "scp"),
        client_claims: Sequence[str] = ("client_id", "azp"),
        cache_seconds: float = 60.0,
        **options: Unpack[AuthOptions],
    ) -> None:
        if not client_id or not client_secret:
            raise ConfigurationError("introspection: client-id and its secret are required")
        self.authorization_servers = (checked_issuer(issuer),)
        self._issuer = issuer
        self._endpoint_url = None if endpoint is None else checked_issuer(endpoint)
        self._credentials = basic_credentials(client_id, client_secret)
        self._checks = ClaimChecks(
            audience=audience,
            expect=expect,
            scope_claims=scope_claims,
            client_claims=client_claims,
            needs_expiry=False,
        )
        super().__init__(cache_seconds=min(max(cache_seconds, 0.0), 60.0), **options)

    async def _verify(self, token: str, request: TokenRequest) -> Verified:
        found = await self._ask_issuer(token)
        if found.get("active") is not True:
            raise InvalidToken("the token is not active")
        if found.get("iss", self._issuer) != self._issuer:
            raise InvalidToken("the token is from another issuer")
        return self._checks.verified(found, self._issuer, self.public_url, time())

    async def _ask_issuer(self, token: str) -> dict[str, Any]:
        headers = {
            "Authorization": self._credentials,
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }

        try:
            if self._endpoint_url is None:
                self._endpoint_url = await self._from_metadata()
            answer = await fetch(
                self._endpoint_url,
                what="the introspection endpoint",
                method="POST",
                headers=headers,
                body=urlencode({"token": token, "token_type_hint": "access_token"}).encode(),
                reach=await reach_from(self._issuer),
                limits=Limits(seconds=5.0, redirects=0),
            )
            if answer.status != 200:
                raise Unavailable(f"the introspection endpoint of {self._issuer} answers {answer.status}")
            return answer.json_object()
        except FetchError as error:
            raise Unavailable(str(error)) from None
        except ValueError as error:
            raise Unavailable(f"the introspection endpoint of {self._issuer}: {error}") from None

    async def _from_metadata(self) -> str:
        url = (await fetch_issuer_metadata(self._issuer)).get("introspection_endpoint")
        if not isinstance(url, str):
            raise Unavailable(f"the metadata of {self._issuer} has no introspection_endpoint; set endpoint")
        return url
