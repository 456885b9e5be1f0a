"""Creates the authorization from `[auth]` in mcpd.toml and options of `mcpd serve`, and knows common providers.

The provider data is from their documentation and from reports; it could not be tested with accounts.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from mcpd.auth.base import Auth, AuthOptions
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")

_MAX_BYTES = 4096


def secret_in(path: str, what: str) -> str:
    """Return the text of a secret file without surrounding whitespace; "" for the path "".

    `what` names it in errors. The file may be readable for others, as volumes of Kubernetes are, so this is only a
    warning. Raises ConfigurationError.
    """
    if not path:
        return ""

    try:
        with open(path, encoding="utf-8") as file:
            secret = file.read(_MAX_BYTES).strip()
            warn_if_shared(path, os.fstat(file.fileno()))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"{what}: {printable(path)}: {why}; write the secret to that file") from None

    if not secret:
        raise ConfigurationError(f"{what}: {printable(path)} is empty; write the secret to it")
    return secret


def warn_if_shared(path: str, found: os.stat_result) -> None:
    """Log a warning if users other than the owner can read a file."""
    if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
        text = "%s contains secrets and is readable by other users of this machine; run: chmod 600 %s"
        log.warning(text, printable(path), printable(path))


class IntrospectionSettings(Struct, frozen=True, kw_only=True):
    """The settings for introspection."""

    client_id: str
    client_secret_file: str
    endpoint: str | None = None


class AuthSettings(Struct, frozen=True, kw_only=True):
    """The settings of authorization: `[auth]` in mcpd.toml, overridden by options of `mcpd serve`."""

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


def auth_of(settings: AuthSettings) -> Auth:
    """Return the authorization for these settings. Raises ConfigurationError if they are missing or contradictory."""
    if settings.provider is not None:
        settings = _add_provider(settings, settings_of(settings.provider, settings.tenant))
    issuers = [settings.issuer] if isinstance(settings.issuer, str) else list(settings.issuer)
    options = AuthOptions(
        public_url=settings.public_url or "",
        scopes=settings.scopes,
        implies=settings.implies,
        resource_name=settings.resource_name or "",
        dpop=settings.dpop,
        dpop_nonces=settings.dpop_nonces,
    )
    if settings.tokens_file is not None:
        if issuers:
            raise ConfigurationError("--issuer and --tokens-file cannot be combined: use one of them")
        from mcpd.auth.tokens import StaticTokens, read_tokens

        return StaticTokens(read_tokens(settings.tokens_file), **options)
    if not issuers:
        raise ConfigurationError("an issuer is missing: use --issuer URL or --tokens-file FILE")
    if settings.introspection is not None:
        return _introspection(settings, issuers, options)

    from mcpd.auth.jwt import Jwt

    return Jwt(
        issuers,
        audience=tuple(settings.audience),
        expect=settings.expect,
        jwks_url=settings.jwks_url,
        algorithms=tuple(settings.algorithms),
        strict=settings.strict,
        skew=settings.skew,
        scope_claims=settings.scope_claims,
        client_claims=settings.client_claims,
        **options,
    )


def _add_provider(settings: AuthSettings, known: Mapping[str, Any]) -> AuthSettings:
    """Add the settings that a provider needs."""
    if settings.issuer:
        raise ConfigurationError("provider and issuer cannot be combined: use one of them")
    expect = {**known.get("expect", {}), **settings.expect}
    audience = settings.audience or known.get("audience", ())
    return structs.replace(settings, **{**known, "expect": expect, "audience": audience})


def _introspection(settings: AuthSettings, issuers: list[str], options: AuthOptions) -> Auth:
    asked = settings.introspection
    assert asked is not None
    if len(issuers) != 1:
        raise ConfigurationError("introspection: only one issuer is possible")
    from mcpd.auth.introspection import Introspection

    return Introspection(
        issuers[0],
        client_id=asked.client_id,
        client_secret=secret_in(asked.client_secret_file, "introspection: client-secret-file"),
        endpoint=asked.endpoint,
        audience=tuple(settings.audience),
        expect=settings.expect,
        scope_claims=settings.scope_claims,
        client_claims=settings.client_claims,
        **options,
    )


class Provider(Struct, frozen=True, kw_only=True):
    """A provider of authorization.

    `issuer` may contain `{tenant}`, which `tenant_is` describes; it is "" if its tokens cannot protect a server.
    `settings` are needed for its tokens, `steps` are done in its console, and `trap` is the most common mistake.
    """

    title: str
    issuer: str = ""
    tenant_is: str = ""
    settings: Mapping[str, Any] = {}
    needs_audience: str = ""
    """What to set `audience` to; "" if the public URL is right."""
    steps: tuple[str, ...] = ()
    trap: str = ""


_SIGN_IN = "its tokens name no audience, so that any app's token would do: use it for signing in to mcpd's login server"

PROVIDERS: Mapping[str, Provider] = {
    "auth0": Provider(
        title="Auth0",
        issuer="https://{tenant}/",
        tenant_is="the domain, as example.eu.auth0.com",
        steps=(
            "Applications > APIs > Create API: as identifier the public URL of this server, signing algorithm RS256",
            "in that API under Permissions: one for each scope",
            "Settings > Advanced: OIDC Dynamic Application Registration on, and the default audience set to that API",
            "Authentication > Database: the connection promoted to domain level, so that registered clients may use it",
        ),
        trap="without an audience tokens are opaque, and are refused here",
    ),
    "entra": Provider(
        title="Microsoft Entra ID",
        issuer="https://login.microsoftonline.com/{tenant}/v2.0",
        tenant_is="the directory (tenant) ID",
        settings={"scope_claims": ("scp", "roles"), "client_claims": ("azp", "appid")},
        needs_audience="the application (client) ID of the registration, without api://",
        steps=(
            "App registrations > New registration, for the server",
            "Manifest: requestedAccessTokenVersion set to 2",
            "Expose an API: an Application ID URI, and a scope such as tools.use",
            "a second registration for clients: public client flows on, http://localhost as redirect, that API added",
        ),
        trap="no dynamic registration, and clients that send resource beside scopes get AADSTS9010010",
    ),
    "google": Provider(title="Google", trap=_SIGN_IN),
    "github": Provider(title="GitHub", trap=_SIGN_IN),
    "okta": Provider(
        title="Okta",
        issuer="https://{tenant}",
        tenant_is="the domain with the path of a custom authorization server, as example.okta.com/oauth2/default",
        settings={"client_claims": ("cid",)},
        steps=(
            "Security > API > Authorization Servers: one of its own, with the public URL of this server as audience",
            "there under Scopes: one for each scope; under Access Policies: who gets them",
            "Applications > Create App Integration > OIDC, native: for clients; dynamic registration needs a key",
        ),
        trap="the organization's own server, without /oauth2/…, makes tokens for Okta's APIs alone",
    ),
    "keycloak": Provider(
        title="Keycloak",
        issuer="https://{tenant}",
        tenant_is="the host with the realm, as sso.example.com/realms/tools",
        steps=(
            "Client scopes > Create: with a mapper of the type Audience, whose custom audience is the public URL",
            "that scope as a default one of the realm, or named in scopes here so that clients ask for it",
            "Clients > Client registration: trusted hosts and allowed scopes as your clients need them",
        ),
        trap="it takes the parameter resource only as an experimental feature: the audience comes from the mapper",
    ),
    "cognito": Provider(
        title="Amazon Cognito",
        issuer="https://cognito-idp.{region}.amazonaws.com/{tenant}",
        tenant_is="the user pool ID, as eu-west-1_AbCdEfGhI",
        settings={"expect": {"token_use": "access"}},
        needs_audience="no audience, but expect.client_id with the app clients' IDs: tokens have no aud",
        steps=(
            "User pools > App clients: a public client with the code grant, and its redirect URLs",
            "Domain > Resource servers: one for this server, with a custom scope for each scope",
        ),
        trap="no dynamic registration, and its metadata does not say that it knows PKCE: clients need --assume-pkce",
    ),
    "workos": Provider(
        title="WorkOS AuthKit",
        issuer="https://{tenant}",
        tenant_is="the AuthKit domain, as example.authkit.app",
        steps=(
            "Connect > Configuration: Client ID Metadata Document on, Dynamic Client Registration for older clients",
            "there under MCP resource indicators: the public URL of this server",
        ),
        trap="clients that send no resource get tokens for their client ID, which are refused here",
    ),
    "clerk": Provider(
        title="Clerk",
        issuer="https://{tenant}",
        tenant_is="the Frontend API's host, as verb-noun-42.clerk.accounts.dev",
        needs_audience="no audience, but expect.client_id with the OAuth applications' IDs",
        steps=(
            "Configure > OAuth applications: one for each client, public, or dynamic client registration",
            "there: access tokens as JWT, and the consent screen on",
        ),
        trap="with dynamic registration client IDs are not known beforehand: put mcpd's login server in front then",
    ),
    "supabase": Provider(
        title="Supabase",
        issuer="https://{tenant}.supabase.co/auth/v1",
        tenant_is="the project's reference",
        settings={"audience": ("authenticated",)},
        steps=(
            "Authentication > OAuth Server: on, with dynamic client registration, and the path of your consent page",
            "Project Settings > JWT keys: an asymmetric signing key, as others are not published",
        ),
        trap="aud is always authenticated: all clients of the project get in, so give this server one of its own",
    ),
    "descope": Provider(
        title="Descope",
        issuer="https://api.descope.com/v1/apps/agentic/{tenant}",
        tenant_is="the project's and the MCP server's IDs, as P2abc/M3def",
        needs_audience="the project's ID: aud holds it beside the client's",
        steps=(
            "MCP Servers > New: its URL is the public URL of this server, dynamic client registration on",
            "there under Scopes: one for each scope",
        ),
        trap="the issuer is the one that Connection Information shows; with a domain of your own write issuer instead",
    ),
}


def settings_of(name: str, tenant: str | None) -> dict[str, Any]:
    """Return the settings of a provider, including the issuer. Raises ConfigurationError."""
    found = PROVIDERS.get(name)
    if found is None:
        raise ConfigurationError(f"provider {name!r}: unknown; use {', '.join(PROVIDERS)}, or issuer for others")
    if not found.issuer:
        raise ConfigurationError(f"provider {name!r}: {found.trap}")
    if not tenant:
        raise ConfigurationError(f"provider {name!r}: tenant is missing: {found.tenant_is}")
    tenant = tenant.removeprefix("https://").strip("/")
    region = tenant.partition("_")[0]
    return {**found.settings, "issuer": found.issuer.format(tenant=tenant, region=region)}
