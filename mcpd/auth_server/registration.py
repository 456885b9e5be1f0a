"""`/oauth/register`: clients that register themselves. Nobody vouches for them.

Those that come to nothing end soon. AUTH-144, AUTH-145. Spec: RFC 7591 3.
"""

from __future__ import annotations

import secrets
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode

from mcpd.auth_server.addresses import place_of
from mcpd.auth_server.clients import METHODS, read_metadata
from mcpd.auth_server.core import Core
from mcpd.auth_server.replies import OAuthError, failed, json_answer
from mcpd.auth_server.store import digest
from mcpd.server.registry.routes import RouteRequest, RouteResponse

_GRANTS = ("authorization_code", "refresh_token")


class Registration:
    """The endpoint."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def __call__(self, request: RouteRequest) -> RouteResponse:
        """Register a client, and say how it is registered."""
        try:
            return await self._register(request, _read(request.body))
        except OAuthError as error:
            return failed(error)

    async def _register(self, request: RouteRequest, said: dict[str, Any]) -> RouteResponse:
        method = said.get("token_endpoint_auth_method", "client_secret_basic")
        if method not in METHODS:
            raise OAuthError("invalid_client_metadata", f"token_endpoint_auth_method is one of {', '.join(METHODS)}")
        responses = said.get("response_types", ["code"])
        if not isinstance(responses, list) or "code" not in responses:
            raise OAuthError("invalid_client_metadata", "response_types has to have code")
        grants = said.get("grant_types", ["authorization_code"])
        if not isinstance(grants, list) or "authorization_code" not in grants:
            raise OAuthError("invalid_client_metadata", "grant_types has to have authorization_code")

        secret = secrets.token_urlsafe(32) if method.startswith("client_secret") else ""
        id = f"c-{secrets.token_urlsafe(16)}"
        client = read_metadata(
            id, said, kind="registered", method=method, secret_digest=digest(secret) if secret else ""
        )
        await self._core.store.add_client(client, place_of(self._core.address(request)))

        # `scope` is not repeated: what is said here is no limit to what may be asked for later.
        answer: dict[str, object] = {
            "client_id": id,
            "client_id_issued_at": int(self._core.clock()),
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "grant_types": [grant for grant in _GRANTS if grant in client.grant_types],
            "response_types": ["code"],
            "token_endpoint_auth_method": method,
        }
        if secret:
            answer |= {"client_secret": secret, "client_secret_expires_at": 0}
        for name in ("application_type", "client_uri", "logo_uri"):
            if isinstance(said.get(name), str):
                answer[name] = said[name]
        return json_answer(answer, 201)


def _read(body: bytes) -> dict[str, Any]:
    try:
        found = decode(body)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise OAuthError("invalid_client_metadata", "the body has to be one JSON object")
    return found
