"""Authorization servers that people use, as data: how they spell themselves, what their tokens say, what to click.

Gathered from their own pages and from the field; none of them could be tried from here with an account.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from mcpd.errors import ConfigurationError


class Provider(Struct, frozen=True, kw_only=True):
    """One provider.

    `issuer` is how it spells itself, with `{tenant}` for what `tenant` says in `tenant_is`; "" for one whose tokens
    cannot protect a server. `settings` are those that its tokens need. `steps` are what has to be clicked there, `trap`
    is what goes wrong most.
    """

    title: str
    issuer: str = ""
    tenant_is: str = ""
    settings: Mapping[str, Any] = {}
    needs_audience: str = ""
    """What `audience` has to say, "" where the public URL will do."""
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
    """The settings of a provider, the issuer among them. Raises ConfigurationError that says what it is or needs."""
    found = PROVIDERS.get(name)
    if found is None:
        raise ConfigurationError(f"provider {name!r}: there are {', '.join(PROVIDERS)}; for others write issuer")
    if not found.issuer:
        raise ConfigurationError(f"provider {name!r}: {found.trap}")
    if not tenant:
        raise ConfigurationError(f"provider {name!r}: write tenant, which is {found.tenant_is}")
    tenant = tenant.removeprefix("https://").strip("/")
    region = tenant.partition("_")[0]
    return {**found.settings, "issuer": found.issuer.format(tenant=tenant, region=region)}
