"""Checks the claims of a token, from a JWT or from an introspection endpoint.

Spec: RFC 9068 section 4, RFC 7519 section 4.1, RFC 7662 section 2.2, RFC 9449 section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from mcpd.auth.base import InvalidToken, Verified
from mcpd.auth.metadata import as_reached
from mcpd.errors import ConfigurationError
from mcpd.protocol.principal import Principal

Expected: TypeAlias = Mapping[str, str | Sequence[str]]
"""Claims that must have one of these values."""

_MAX_SKEW = 300.0
_END_OF_TIME = 253_402_300_800.0
"""The year 10000. Later times are not valid."""


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
        if isinstance(audience, str):
            raise ConfigurationError(f"audience: must be a list of strings, such as [{audience!r}]")
        if not 0 <= skew <= _MAX_SKEW:
            raise ConfigurationError(f"skew: must be 0 to {_MAX_SKEW:g} seconds, not {skew!r}")
        self.audience = frozenset(audience)
        self.expect = {name: {value} if isinstance(value, str) else {*value} for name, value in (expect or {}).items()}
        self.skew = skew
        self._needs_expiry = needs_expiry
        self._scope_claims = tuple(scope_claims)
        self._client_claims = tuple(client_claims)

    def verified(self, claims: Mapping[str, Any], issuer: str, default_audience: str, now: float) -> Verified:
        """Return the principal of a token with these claims. Raises InvalidToken, with the claim in its detail."""
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
        """Check that the token was made for this server. Otherwise any token of the issuer would be accepted."""
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
    """Return a time in seconds since 1970, or None if it is missing. Raises InvalidToken for other values."""
    given = claims.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < _END_OF_TIME:
        raise InvalidToken("a time in the token is not valid", f"{name} is {str(given)[:50]!r}")
    return float(given)


def _thumbprint(claims: Mapping[str, Any]) -> str:
    """Return the thumbprint of the key that the token is bound to, or "". Raises InvalidToken for other bindings."""
    bound = claims.get("cnf")
    if bound is None:
        return ""
    if not isinstance(bound, dict) or [*bound] != ["jkt"] or not isinstance(bound["jkt"], str) or not bound["jkt"]:
        raise InvalidToken("the token is bound to a key in an unsupported way")
    return str(bound["jkt"])
