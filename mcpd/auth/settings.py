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


_SIGN_IN = "its tokens name no audience, so any app could use them here; use it to sign in at mcpd's login server"

PROVIDERS: Mapping[str, Provider] = {
    "auth0": Provider(
        title="Auth0",
        issuer="https://{tenant}/",
        tenant_is="the domain, such as example.eu.auth0.com",
        steps=(
            "Applications > APIs > Create API: set the identifier to the public URL, the signing algorithm to RS256",
            "in that API, Permissions: add one for each scope",
            "Settings > Advanced: enable OIDC Dynamic Application Registration, set the default audience to that API",
            "Authentication > Database: promote the connection to domain level, so that registered clients may use it",
        ),
        trap="tokens without an audience are opaque, and mcpd refuses them",
    ),
    "entra": Provider(
        title="Microsoft Entra ID",
        issuer="https://login.microsoftonline.com/{tenant}/v2.0",
        tenant_is="the directory (tenant) ID",
        settings={"scope_claims": ("scp", "roles"), "client_claims": ("azp", "appid")},
        needs_audience="the application (client) ID of the registration, without api://",
        steps=(
            "App registrations > New registration, for the server",
            "Manifest: set requestedAccessTokenVersion to 2",
            "Expose an API: set an Application ID URI, and add a scope such as tools.use",
            "a second registration for clients: allow public client flows, redirect to http://localhost, add that API",
        ),
        trap="dynamic registration is missing, and clients that send both resource and scopes get AADSTS9010010",
    ),
    "google": Provider(title="Google", trap=_SIGN_IN),
    "github": Provider(title="GitHub", trap=_SIGN_IN),
    "okta": Provider(
        title="Okta",
        issuer="https://{tenant}",
        tenant_is="the domain with the path of a custom authorization server, such as example.okta.com/oauth2/default",
        settings={"client_claims": ("cid",)},
        steps=(
            "Security > API > Authorization Servers: add one, with the public URL of this server as audience",
            "there, Scopes: add one for each scope; Access Policies: choose who gets them",
            "Applications > Create App Integration > OIDC, native: add clients; dynamic registration needs a key",
        ),
        trap="the organization's own server, without /oauth2/…, issues tokens for Okta's APIs only",
    ),
    "keycloak": Provider(
        title="Keycloak",
        issuer="https://{tenant}",
        tenant_is="the host with the realm, such as sso.example.com/realms/tools",
        steps=(
            "Client scopes > Create: add a mapper of the type Audience, whose custom audience is the public URL",
            "make that scope a default of the realm, or name it in scopes here so that clients request it",
            "Clients > Client registration: set trusted hosts and allowed scopes as your clients need them",
        ),
        trap="it supports the parameter resource only as an experiment; the audience comes from the mapper",
    ),
    "cognito": Provider(
        title="Amazon Cognito",
        issuer="https://cognito-idp.{region}.amazonaws.com/{tenant}",
        tenant_is="the user pool ID, such as eu-west-1_AbCdEfGhI",
        settings={"expect": {"token_use": "access"}},
        needs_audience="leave it out, and set expect.client_id to the IDs of the app clients: tokens have no aud",
        steps=(
            "User pools > App clients: add a public client with the code grant, and its redirect URLs",
            "Domain > Resource servers: add one for this server, with a custom scope for each scope",
        ),
        trap="dynamic registration is missing, and its metadata does not announce PKCE: clients need --assume-pkce",
    ),
    "workos": Provider(
        title="WorkOS AuthKit",
        issuer="https://{tenant}",
        tenant_is="the AuthKit domain, such as example.authkit.app",
        steps=(
            "Connect > Configuration: enable Client ID Metadata Document, for older clients dynamic registration",
            "there, MCP resource indicators: add the public URL of this server",
        ),
        trap="clients that send no resource get tokens for their client ID, which mcpd refuses",
    ),
    "clerk": Provider(
        title="Clerk",
        issuer="https://{tenant}",
        tenant_is="the host of the Frontend API, such as verb-noun-42.clerk.accounts.dev",
        needs_audience="leave it out, and set expect.client_id to the IDs of the OAuth applications",
        steps=(
            "Configure > OAuth applications: add a public one for each client, or enable dynamic client registration",
            "there: choose JWT access tokens, and enable the consent screen",
        ),
        trap="with dynamic registration, client IDs are not known beforehand; use mcpd's login server in that case",
    ),
    "supabase": Provider(
        title="Supabase",
        issuer="https://{tenant}.supabase.co/auth/v1",
        tenant_is="the project's reference",
        settings={"audience": ("authenticated",)},
        steps=(
            "Authentication > OAuth Server: enable it with dynamic registration, set the path of your consent page",
            "Project Settings > JWT keys: use an asymmetric signing key, because others are not published",
        ),
        trap="aud is always 'authenticated', so all clients of the project are accepted; use a project for this server",
    ),
    "descope": Provider(
        title="Descope",
        issuer="https://api.descope.com/v1/apps/agentic/{tenant}",
        tenant_is="the IDs of the project and of the MCP server, such as P2abc/M3def",
        needs_audience="the ID of the project, which aud contains besides the client's",
        steps=(
            "MCP Servers > New: set its URL to the public URL of this server, and enable dynamic client registration",
            "there, Scopes: add one for each scope",
        ),
        trap="Connection Information shows the issuer; with a domain of your own, write issuer instead of provider",
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
