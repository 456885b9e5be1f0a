"""`Jwt`: access tokens that an issuer has signed.

Checks go from cheap to expensive: format, header, issuer, key, signature, claims. In the header only `alg`, `kid`,
`typ` and `crit` matter; a key in it is ignored. `signatures` and `issuers` load joserfc.

Spec: RFC 9068 section 4, RFC 8725.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import time
from typing import Any, Unpack

from msgspec import Struct

from mcpd.auth.base import Auth, AuthOptions, InvalidToken, TokenRequest, Verified
from mcpd.auth.claims import ClaimChecks, Expected
from mcpd.auth.signatures import KEY_TYPES, is_signed, object_in, segments_of
from mcpd.errors import ConfigurationError, missing_extra
from mcpd.protocol.printable import printable

try:
    import joserfc  # noqa: F401 - `signatures` and `keys` load its modules with the first token

    from mcpd.auth.issuers import IssuerKeys, VerifyingKey, checked_issuer
except ModuleNotFoundError as error:
    raise missing_extra(error, "checking access tokens", "auth") from None

_DEFAULT_ALGORITHMS = ("RS256", "PS256", "ES256", "ES384", "EdDSA", "Ed25519")
_WITH_SECRET = ("HS256", "HS384", "HS512")
_MIN_SECRET_BYTES = 32
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
    """An issuer with its checks and keys."""

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
        """Return the algorithm and the key name. Raises InvalidToken."""
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
        """Check the signature, then the claims."""
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
    """Return a part of a token as a JSON object. Raises InvalidToken."""
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


def _texts(given: Sequence[str], where: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ConfigurationError(f"{where}: must be a list of strings, such as [{given!r}]")
    return tuple(given)
