"""`mcp.server.auth` for a resource server: a verifier of tokens, its settings, and the token of the current request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import time
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import AnyHttpUrl, BaseModel

from mcpd.compat.lowlevel.context import current_exchange
from mcpd.protocol.principal import Principal
from mcpd.transports.authentication import Refusal
from mcpd.transports.routes import RouteResponse

if TYPE_CHECKING:
    from mcpd.server.app import Server


class AccessToken(BaseModel):
    """A token and what it permits. mcpd keeps no tokens, so `token` is empty unless the server verified it itself."""

    token: str = ""
    client_id: str = ""
    scopes: list[str] = []
    expires_at: int | None = None
    resource: str | None = None
    subject: str | None = None
    claims: dict[str, Any] = {}


class ClientRegistrationOptions(BaseModel):
    """An option of authorization servers. It has no effect."""

    enabled: bool = False
    client_secret_expiry_seconds: int | None = None
    valid_scopes: list[str] | None = None
    default_scopes: list[str] | None = None


class RevocationOptions(BaseModel):
    """An option of authorization servers. It has no effect."""

    enabled: bool = False


class AuthSettings(BaseModel):
    """The issuer of tokens, the server that they are for, and the scopes that they must have."""

    issuer_url: AnyHttpUrl
    service_documentation_url: AnyHttpUrl | None = None
    client_registration_options: ClientRegistrationOptions | None = None
    revocation_options: RevocationOptions | None = None
    required_scopes: list[str] | None = None
    resource_server_url: AnyHttpUrl | None = None


class TokenVerifier(Protocol):
    """The `token_verifier` of a server."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the token with its permissions, None for an invalid one."""


def _caller() -> Principal | None:
    exchange = current_exchange.get(None)
    return None if exchange is None else exchange.origin.user


def get_access_token() -> AccessToken | None:
    """Return the token that the server's `TokenVerifier` accepted for the current request."""
    caller = _caller()
    found = None if caller is None else caller.claims.get("access_token")
    return found if isinstance(found, AccessToken) else None


def caller_token() -> AccessToken | None:
    """Return the caller of the current request in the form of a token, None for an anonymous one."""
    caller = _caller()
    if caller is None or not caller.is_authenticated:
        return None

    claims = {**caller.claims}
    if caller.subject:
        claims.setdefault("sub", caller.subject)
    return AccessToken(
        client_id=caller.client or caller.subject,
        scopes=sorted(caller.scopes),
        subject=caller.subject or None,
        claims=claims,
    )


def authenticator(
    verifier: TokenVerifier, settings: AuthSettings
) -> Callable[[Mapping[str, str]], Awaitable[Principal | Refusal]]:
    """Return a function that identifies the caller of a request by its bearer token."""
    required = settings.required_scopes or []
    address = _metadata_address(settings)
    metadata = f', resource_metadata="{address}"' if address else ""

    async def authenticate(headers: Mapping[str, str]) -> Principal | Refusal:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        found: Any = await verifier.verify_token(token) if scheme.lower() == "bearer" and token else None
        # A verifier may return tokens that have expired.
        if found is None or (found.expires_at and found.expires_at < time()):
            text = "Authentication required"
            challenge = f'Bearer error="invalid_token", error_description="{text}"{metadata}'
            return Refusal(401, f"{text}\n", (("WWW-Authenticate", challenge),))

        missing = [scope for scope in required if scope not in found.scopes]
        if missing:
            text = f"Required scope: {missing[0]}"
            challenge = f'Bearer error="insufficient_scope", error_description="{text}"{metadata}'
            return Refusal(403, f"{text}\n", (("WWW-Authenticate", challenge),))
        return Principal(
            found.client_id,
            issuer=str(settings.issuer_url),
            client=found.client_id,
            scopes=found.scopes,
            claims={"access_token": found},
        )

    return authenticate


def add_metadata(server: Server, settings: AuthSettings) -> None:
    """Serve the protected resource metadata (RFC 9728), if the settings have the server's address."""
    address = _metadata_address(settings)
    if not address:
        return
    document = {
        "resource": str(settings.resource_server_url),
        "authorization_servers": [str(settings.issuer_url)],
        "scopes_supported": settings.required_scopes,
        "bearer_methods_supported": ["header"],
    }
    members = {name: value for name, value in document.items() if value is not None}
    path = address[address.index("/.well-known/") :]
    server.route(path, public=True, any_origin=True)(lambda: RouteResponse(members))


def _metadata_address(settings: AuthSettings) -> str:
    """Return the address of the protected resource metadata, "" if the server's own address is unknown."""
    url = settings.resource_server_url
    if url is None:
        return ""
    path = "" if url.path in (None, "/") else url.path
    port = f":{url.port}" if url.port and url.port not in (80, 443) else ""
    return f"{url.scheme}://{url.host}{port}/.well-known/oauth-protected-resource{path}"
