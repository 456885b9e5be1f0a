"""`mcp.server.auth` as far as a resource server goes: a verifier of tokens, its settings, and the token that came."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import time
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import AnyHttpUrl, BaseModel

from mcpd.protocol.principal import Principal
from mcpd.server.registry.routes import RouteResponse
from mcpd.transports.authentication import Refusal

if TYPE_CHECKING:
    from mcpd.server import Server

__all__ = [
    "AccessToken",
    "AuthSettings",
    "ClientRegistrationOptions",
    "RevocationOptions",
    "TokenVerifier",
    "add_metadata",
    "authenticator",
    "get_access_token",
    "token_of",
]


class AccessToken(BaseModel):
    """What is known of a token."""

    token: str
    client_id: str
    scopes: list[str]
    expires_at: int | None = None
    resource: str | None = None


class ClientRegistrationOptions(BaseModel):
    """Of an authorization server, which mcpd is not."""

    enabled: bool = False
    client_secret_expiry_seconds: int | None = None
    valid_scopes: list[str] | None = None
    default_scopes: list[str] | None = None


class RevocationOptions(BaseModel):
    """Of an authorization server, which mcpd is not."""

    enabled: bool = False


class AuthSettings(BaseModel):
    """Who issues tokens, for which server, and what they have to allow."""

    issuer_url: AnyHttpUrl
    service_documentation_url: AnyHttpUrl | None = None
    client_registration_options: ClientRegistrationOptions | None = None
    revocation_options: RevocationOptions | None = None
    required_scopes: list[str] | None = None
    resource_server_url: AnyHttpUrl | None = None


class TokenVerifier(Protocol):
    """What a server gives as `token_verifier`."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """What is known of a token; None for one that is not good."""


def get_access_token() -> AccessToken | None:
    """The token of the request that runs."""
    from mcpd.compat.lowlevel.context import current_exchange

    exchange = current_exchange.get(None)
    return None if exchange is None else token_of(exchange.origin.user)


def token_of(user: Principal) -> AccessToken | None:
    """The token that a principal was made of."""
    found = user.claims.get("access_token")
    return found if isinstance(found, AccessToken) else None


def authenticator(
    verifier: TokenVerifier, settings: AuthSettings
) -> Callable[[Mapping[str, str]], Awaitable[Principal | Refusal]]:
    """What says who sends a request, by its bearer token."""
    required = settings.required_scopes or []
    where = _metadata_of(settings)
    told = f', resource_metadata="{where}"' if where else ""

    async def authenticate(headers: Mapping[str, str]) -> Principal | Refusal:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        found: Any = await verifier.verify_token(token) if scheme.lower() == "bearer" and token else None
        if found is None or (found.expires_at and found.expires_at < time()):
            text = "Authentication required"
            fields = f'Bearer error="invalid_token", error_description="{text}"{told}'
            return Refusal(401, f"{text}\n", (("WWW-Authenticate", fields),))
        missing = [scope for scope in required if scope not in found.scopes]
        if missing:
            text = f"Required scope: {missing[0]}"
            fields = f'Bearer error="insufficient_scope", error_description="{text}"{told}'
            return Refusal(403, f"{text}\n", (("WWW-Authenticate", fields),))
        return Principal(
            found.client_id,
            issuer=str(settings.issuer_url),
            client=found.client_id,
            scopes=found.scopes,
            claims={"access_token": found},
        )

    return authenticate


def add_metadata(server: Server, settings: AuthSettings) -> None:
    """Serve the document that says where tokens are to be had (RFC 9728), if the server has an address."""
    where = _metadata_of(settings)
    if not where:
        return
    document = {
        "resource": str(settings.resource_server_url),
        "authorization_servers": [str(settings.issuer_url)],
        "scopes_supported": settings.required_scopes,
        "bearer_methods_supported": ["header"],
    }
    told = {name: value for name, value in document.items() if value is not None}
    path = where[where.index("/.well-known/") :]
    server.route(path, public=True, any_origin=True)(lambda: RouteResponse(told))


def _metadata_of(settings: AuthSettings) -> str:
    """The address of the document that says where tokens are to be had (RFC 9728), "" if the server has no address."""
    url = settings.resource_server_url
    if url is None:
        return ""
    path = "" if url.path in (None, "/") else url.path
    port = f":{url.port}" if url.port and url.port not in (80, 443) else ""
    return f"{url.scheme}://{url.host}{port}/.well-known/oauth-protected-resource{path}"
