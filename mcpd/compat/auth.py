"""`mcp.server.auth` for a resource server: a verifier of tokens, its settings, and the token of the current request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import time
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import AnyHttpUrl, BaseModel

from mcpd.auth.metadata import WELL_KNOWN, metadata_document, metadata_url
from mcpd.compat.lowlevel.session import current_exchange
from mcpd.protocol.principal import Principal
from mcpd.transports.authentication import Refusal
from mcpd.transports.challenge import build
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


class ClientRegistrationOptions(BaseModel, extra="allow"):
    """An option of authorization servers. It has no effect."""


RevocationOptions = ClientRegistrationOptions


class AuthSettings(BaseModel):
    """The issuer of tokens, the server that they are for, and the scopes that they must have."""

    issuer_url: AnyHttpUrl
    service_documentation_url: AnyHttpUrl | None = None
    client_registration_options: ClientRegistrationOptions | None = None
    revocation_options: RevocationOptions | None = None
    required_scopes: list[str] | None = None
    resource_server_url: AnyHttpUrl | None = None


class TokenVerifier(Protocol):
    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the token with its permissions, None for an invalid one."""


def _caller() -> Principal | None:
    exchange = current_exchange.get(None)
    return None if exchange is None else exchange.origin.user


def get_access_token() -> AccessToken | None:
    """Return the token that the server's `TokenVerifier` accepted for the current request."""
    caller = _caller()
    token = None if caller is None else caller.claims.get("access_token")
    return token if isinstance(token, AccessToken) else None


def caller_token() -> AccessToken | None:
    """Return the caller of the current request in the form of a token, None for an anonymous one."""
    caller = _caller()
    if caller is None or not caller.is_authenticated:
        return None

    # mcpd does not keep tokens, so `token` stays empty.
    return AccessToken(
        client_id=caller.client or caller.subject,
        scopes=sorted(caller.scopes),
        subject=caller.subject or None,
        claims={**({"sub": caller.subject} if caller.subject else {}), **caller.claims},
    )


def authenticator(
    verifier: TokenVerifier, settings: AuthSettings
) -> Callable[[Mapping[str, str]], Awaitable[Principal | Refusal]]:
    """Return a function that identifies the caller of a request by its bearer token."""
    address = _metadata_address(settings)

    def refusal(status: int, error: str, text: str) -> Refusal:
        params = {"error": error, "error_description": text, "resource_metadata": address}
        return Refusal(status, f"{text}\n", (("WWW-Authenticate", build("Bearer", params)),))

    async def authenticate(headers: Mapping[str, str]) -> Principal | Refusal:
        # Tokens are accepted in this header only (RFC 6750, section 2.1), as by the library.
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        token = await verifier.verify_token(sent) if scheme.lower() == "bearer" and sent else None
        # A verifier may return tokens that have expired.
        if token is None or (token.expires_at and token.expires_at < time()):
            return refusal(401, "invalid_token", "Authentication required")

        missing = [scope for scope in settings.required_scopes or () if scope not in token.scopes]
        if missing:
            return refusal(403, "insufficient_scope", f"Required scope: {missing[0]}")
        return Principal(
            # Many users may use one client, and none of them may continue the session of another.
            token.subject or str(token.claims.get("sub") or token.client_id),
            issuer=str(settings.issuer_url),
            client=token.client_id,
            scopes=token.scopes,
            claims={"access_token": token},
            expires=token.expires_at or None,
        )

    return authenticate


def add_metadata(server: Server, settings: AuthSettings) -> None:
    """Serve the protected resource metadata (RFC 9728), if the settings have the server's address."""
    address = _metadata_address(settings)
    if address is None:
        return

    members = {
        "resource": str(settings.resource_server_url),
        "authorization_servers": [str(settings.issuer_url)],
        "scopes_supported": settings.required_scopes,
        "bearer_methods_supported": ["header"],
    }
    # Clients in web pages read the document before they log in, so every origin may (RFC 9728, section 3).
    response = RouteResponse(metadata_document(members), content_type="application/json")
    server.route(address[address.index(WELL_KNOWN) :], public=True, any_origin=True)(lambda: response)


def _metadata_address(settings: AuthSettings) -> str | None:
    # Returns the address of the protected resource metadata, None if the server's own address is unknown.
    url = settings.resource_server_url
    return None if url is None else metadata_url(str(url), url.path or "")
