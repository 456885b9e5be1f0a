"""From what a command line and a file say to what protects a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from mcpd.auth.base import Auth, AuthOptions
from mcpd.auth.secret_files import secret_in
from mcpd.errors import ConfigurationError


class IntrospectionSettings(Struct, frozen=True, kw_only=True):
    """How an issuer is asked about tokens."""

    client_id: str
    client_secret_file: str
    endpoint: str | None = None


class AuthSettings(Struct, frozen=True, kw_only=True):
    """What may be said of authorization: `[auth]` of mcpd.toml, with the flags of `mcpd serve` in its place."""

    public_url: str | None = None
    issuer: Sequence[str] | str = ()
    audience: Sequence[str] = ()
    expect: Mapping[str, Sequence[str] | str] = {}
    jwks_url: str | None = None
    algorithms: Sequence[str] = ()
    provider: str | None = None
    tenant: str | None = None
    introspection: IntrospectionSettings | None = None
    scope_claims: Sequence[str] = ("scope", "scp")
    client_claims: Sequence[str] = ("client_id", "azp")
    strict: bool = False
    dpop: Literal["off", "accept", "require"] = "off"
    dpop_nonces: bool = False
    skew: float = 60.0
    tokens_file: str | None = None
    scopes: Sequence[str] = ()
    implies: Mapping[str, Sequence[str]] = {}
    resource_name: str | None = None


def auth_of(said: AuthSettings) -> Auth:
    """What these settings ask for. Raises ConfigurationError, also for those that say it in two ways or in none."""
    if said.provider is not None:
        from mcpd.auth.providers import settings_of

        said = _with_provider(said, settings_of(said.provider, said.tenant))
    issuers = [said.issuer] if isinstance(said.issuer, str) else list(said.issuer)
    options = AuthOptions(
        public_url=said.public_url or "",
        scopes=said.scopes,
        implies=said.implies,
        resource_name=said.resource_name or "",
        dpop=said.dpop,
        dpop_nonces=said.dpop_nonces,
    )
    if said.tokens_file is not None:
        if issuers:
            raise ConfigurationError("--issuer and --tokens-file are two ways to say whose tokens are taken: give one")
        from mcpd.auth.static_tokens import StaticTokens, read_tokens

        return StaticTokens(read_tokens(said.tokens_file), **options)
    if not issuers:
        raise ConfigurationError("whose tokens are taken? say it with --issuer URL, or with --tokens-file FILE")
    if said.introspection is not None:
        return _introspection(said, issuers, options)

    from mcpd.auth.jwt import Jwt

    return Jwt(
        issuers,
        audience=tuple(said.audience),
        expect=said.expect,
        jwks_url=said.jwks_url,
        algorithms=tuple(said.algorithms),
        strict=said.strict,
        skew=said.skew,
        scope_claims=said.scope_claims,
        client_claims=said.client_claims,
        **options,
    )


def _with_provider(said: AuthSettings, known: Mapping[str, Any]) -> AuthSettings:
    """What a provider's tokens need, for what was not said."""
    if said.issuer:
        raise ConfigurationError("provider and issuer say the same: write one of them")
    expect = {**known.get("expect", {}), **said.expect}
    audience = said.audience or known.get("audience", ())
    return structs.replace(said, **{**known, "expect": expect, "audience": audience})


def _introspection(said: AuthSettings, issuers: list[str], options: AuthOptions) -> Auth:
    asked = said.introspection
    assert asked is not None
    if len(issuers) != 1:
        raise ConfigurationError("introspection: it is of one issuer")
    from mcpd.auth.introspection import Introspection

    return Introspection(
        issuers[0],
        client_id=asked.client_id,
        client_secret=secret_in(asked.client_secret_file, "introspection: client-secret-file"),
        endpoint=asked.endpoint,
        audience=tuple(said.audience),
        expect=said.expect,
        scope_claims=said.scope_claims,
        client_claims=said.client_claims,
        **options,
    )
