"""Who the client is at an authorization server: given, by a metadata document, kept from before, or registered now.

Spec: 2026-07-28 basic/authorization, client registration; RFC 7591. No I/O.
"""

from __future__ import annotations

from msgspec.json import encode

from mcpd.client.auth.documents import ServerMetadata, is_loopback_url
from mcpd.client.auth.records import Registration
from mcpd.client.auth.settings import OAuth
from mcpd.client.auth.steps import HttpStep, Steps, ask, json_object
from mcpd.client.auth.tokens import ClientId, Refusal, choose_method, refusal_of
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable

_MOST_TEXT = 8 * 1024
_METHODS = ("none", "client_secret_post", "client_secret_basic")
"""In this order: a secret in the body is read alike by all, which Basic with its encoding is not."""
_ADJUSTABLE = ("invalid_client_metadata", "invalid_redirect_uri")


def known_client(settings: OAuth, server: ServerMetadata) -> ClientId | None:
    """The client that needs no registration here. Raises AuthorizationFailed for one of another issuer."""
    if settings.client_id is not None:
        if settings.issuer is not None and settings.issuer != server.issuer:
            raise AuthorizationFailed(
                f"client id {printable(settings.client_id, 100)} is registered at {printable(settings.issuer, 200)}, "
                f"and the server now names {printable(server.issuer, 200)}: register there, or ask who runs the server"
            )
        return ClientId(
            settings.client_id, settings.client_secret, choose_method(server.auth_methods, settings.client_secret)
        )
    if settings.client_metadata_url is not None and server.takes_documents:
        return ClientId(settings.client_metadata_url)
    return None


def register(
    settings: OAuth, server: ServerMetadata, redirect_uri: str, scopes: tuple[str, ...] | None = None
) -> Steps[Registration]:
    """Register at the authorization server, with one more try if it dislikes how.

    `scopes` are said only after a refusal for want of them: some servers take them for all that the client may ever
    ask. Raises AuthorizationFailed, FetchError.
    """
    endpoint = server.registration_endpoint
    if endpoint is None:
        raise AuthorizationFailed(
            f"{printable(server.issuer, 200)} registers no clients by itself: get a client id there, and give it "
            "(mcpd login --client-id ID, OAuth(client_id=…))"
        )
    methods = server.auth_methods or ("client_secret_basic",)
    preferred = [each for each in _METHODS if each in methods] or ["none"]
    body: dict[str, object] = {
        "client_name": settings.client_name,
        "redirect_uris": [redirect_uri],
        # Spec: 2026-07-28 client registration: "web", the default, refuses redirects to loopback, "native" others.
        "application_type": "native" if is_loopback_url(redirect_uri) else "web",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": preferred[0],
    }
    if settings.device and server.device_endpoint is not None:
        body["grant_types"] = [*_GRANTS, "urn:ietf:params:oauth:grant-type:device_code"]
    if scopes:
        body["scope"] = " ".join(scopes)

    for attempt in range(2):
        fields = (("Content-Type", "application/json"), ("Accept", "application/json"))
        answer = yield from ask(HttpStep(endpoint, "registration endpoint", "POST", fields, encode(body)))
        if answer.status in (200, 201):
            return _read(json_object(answer.body) or {}, server, redirect_uri, preferred[0])
        refused: Refusal = refusal_of(answer, endpoint, "registration endpoint")
        if refused.code == "invalid_redirect_uri" and "127.0.0.1" in redirect_uri:
            hint = "if it takes localhost only: mcpd login --localhost, OAuth(redirect='http://localhost:0/callback')"
            raise Refusal(f"{refused}; {hint}", refused.code, refused.status)
        if attempt or refused.code not in _ADJUSTABLE:
            raise refused
        body["token_endpoint_auth_method"] = preferred[-1] if len(preferred) > 1 else preferred[0]
        body["grant_types"] = list(_GRANTS[:1])
    raise AssertionError


_GRANTS = ("authorization_code", "refresh_token")


def _read(document: dict[str, object], server: ServerMetadata, redirect_uri: str, asked: str) -> Registration:
    client_id, secret = document.get("client_id"), document.get("client_secret")
    method, ends = document.get("token_endpoint_auth_method"), document.get("client_secret_expires_at")
    if not isinstance(client_id, str) or not client_id or len(client_id) > _MOST_TEXT:
        raise AuthorizationFailed(f"{printable(server.issuer, 200)} registers the client and gives it no client_id")
    secret = secret if isinstance(secret, str) and secret else None
    if not isinstance(method, str):
        method = asked if secret is None or asked != "none" else choose_method(server.auth_methods, secret)
    if method not in ("none", "client_secret_basic", "client_secret_post"):
        raise AuthorizationFailed(
            f"{printable(server.issuer, 200)} wants clients to prove themselves by {printable(method, 60)}"
        )
    has_end = isinstance(ends, (int, float)) and not isinstance(ends, bool) and ends > 0
    return Registration(
        issuer=server.issuer,
        client_id=client_id,
        client_secret=secret,
        method=method if secret is not None else "none",
        redirect_uri=redirect_uri,
        expires_at=float(min(ends, 1e11)) if has_end and isinstance(ends, (int, float)) else None,
    )
