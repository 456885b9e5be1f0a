"""`/oauth/token` and `/oauth/revoke`: codes and refresh tokens become access tokens, and end.

AUTH-124, 129 … 132, 148, 153. Spec: OAuth 2.1 3.2 and 4, RFC 7009, RFC 9068.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from hashlib import sha256
from hmac import compare_digest
from typing import TypeAlias

from mcpd.auth_server.authorize import is_resource
from mcpd.auth_server.client_authentication import authenticated
from mcpd.auth_server.clients import Client
from mcpd.auth_server.core import GRACE_SECONDS, OFFLINE, Core
from mcpd.auth_server.keys import b64
from mcpd.auth_server.replies import OAuthError, failed, form, json_answer
from mcpd.auth_server.store import Grant
from mcpd.server.registry.routes import RouteRequest, RouteResponse

_is_verifier = re.compile(r"[A-Za-z0-9._~-]{43,128}").fullmatch

CheckProof: TypeAlias = Callable[[RouteRequest], str]
"""Gives the thumbprint of the key of a request's DPoP proof, "" if it has none. Raises OAuthError."""


def _no_proof(request: RouteRequest) -> str:
    return ""


class TokenEndpoint:
    """The endpoints. `check_proof` is what looks at DPoP proofs, where they mean something."""

    def __init__(self, core: Core, check_proof: CheckProof = _no_proof) -> None:
        self._core = core
        self._check_proof = check_proof

    async def token(self, request: RouteRequest) -> RouteResponse:
        """Answer a request for tokens."""
        grants: dict[str, Callable[[Client, dict[str, str], str], Awaitable[RouteResponse]]] = {
            "authorization_code": self._by_code,
            "refresh_token": self._by_refresh,
        }
        try:
            said = form(request)
            client = await authenticated(self._core, request, said)
            grant = grants.get(said.get("grant_type", ""))
            if grant is None:
                raise OAuthError("unsupported_grant_type", "grant_type is authorization_code or refresh_token")
            return await grant(client, said, self._check_proof(request))
        except OAuthError as error:
            return failed(error)

    async def _by_code(self, client: Client, said: dict[str, str], key: str) -> RouteResponse:
        core = self._core
        code, verifier = said.get("code", ""), said.get("code_verifier", "")
        if not code or not _is_verifier(verifier):
            raise OAuthError("invalid_request", "code and code_verifier are needed")

        found = await core.store.code(code)
        if found is None or found.grant.is_revoked:
            raise _invalid("the code is unknown")
        if found.is_used:
            # Somebody else has it too: whoever came first may be the wrong one.
            await core.end(found.grant)
            raise _invalid("the code was used before; what it gave is revoked")
        if found.expires <= core.clock():
            raise _invalid("the code is over")

        if found.grant.client != client.id:
            raise _invalid("the code is another client's")
        if said.get("redirect_uri", found.redirect_uri) != found.redirect_uri:
            raise _invalid("redirect_uri is another one than the code was sent to")

        challenge = b64(sha256(verifier.encode()).digest())
        if not compare_digest(challenge.encode(), found.challenge.encode()):
            raise _invalid("code_verifier does not fit the challenge")
        if found.grant.key and key != found.grant.key:
            raise _invalid("the code is bound to another key")
        self._check_resource(found.grant, said)

        wants = "refresh_token" in client.grant_types or OFFLINE in found.grant.scope.split()
        refresh = secrets.token_urlsafe(32) if wants else None
        if not await core.store.use_code(code, refresh, key):
            await core.end(found.grant)
            raise _invalid("the code was used before; what it gave is revoked")
        return self._answer(found.grant, found.grant.scope, refresh, key)

    async def _by_refresh(self, client: Client, said: dict[str, str], key: str) -> RouteResponse:
        core, token = self._core, said.get("refresh_token", "")
        if not token:
            raise OAuthError("invalid_request", "refresh_token is needed")

        grant = await core.store.refresh(token)
        if grant is None or grant.is_revoked or grant.client != client.id:
            raise _invalid("the refresh token is unknown")
        if grant.used + core.settings.idle_seconds < core.clock():
            raise _invalid("the refresh token was not used for too long")
        if grant.key and key != grant.key:
            raise _invalid("the refresh token is bound to another key")
        self._check_resource(grant, said)

        held = grant.scope.split()
        known = {*held, *core.all_scopes()}  # as at the login, others are ignored
        asked = [scope for scope in said.get("scope", "").split() if scope in known] or held
        if not {*asked} <= {*held}:
            raise OAuthError("invalid_scope", "a refresh token gives no scope that the user has not allowed")

        user = core.still(grant.user)
        if user is None:
            await core.end(grant)
            raise _invalid("this user may not log in any more")

        # Made of the old one: who sends that again within the grace time gets the same, and nothing of it is kept.
        successor = core.keys.mac("refresh", token)
        came_of = await core.store.rotate(token, successor, GRACE_SECONDS)
        if came_of == "reused":
            await core.end(grant)
            raise _invalid("the refresh token was used before; what came of it is revoked")
        if came_of == "unknown":
            raise _invalid("the refresh token is unknown")
        return self._answer(grant, " ".join(core.scopes_for(user, asked)), successor, key)

    def _check_resource(self, grant: Grant, said: dict[str, str]) -> None:
        if not is_resource(said.get("resource", grant.resource), grant.resource):
            raise OAuthError("invalid_target", "resource is another one than the user has allowed")

    def _answer(self, grant: Grant, scope: str, refresh: str | None, key: str) -> RouteResponse:
        core, now = self._core, int(self._core.clock())
        claims: dict[str, object] = {
            "iss": core.issuer,
            "sub": grant.user.subject,
            "aud": grant.resource,
            "iat": now,
            "exp": now + core.settings.token_seconds,
            "jti": secrets.token_urlsafe(12),
            "client_id": grant.client,
            "scope": " ".join(one for one in scope.split() if one != OFFLINE),
            "grant": grant.id,
            "name": grant.user.name,
        }
        if grant.user.email:
            claims["email"] = grant.user.email
        if key:
            claims["cnf"] = {"jkt": key}
        said = {
            "access_token": core.keys.sign(claims, "at+jwt"),
            "token_type": "DPoP" if key else "Bearer",
            "expires_in": core.settings.token_seconds,
            "scope": scope,
        }
        return json_answer({**said, "refresh_token": refresh} if refresh is not None else said)

    async def revoke(self, request: RouteRequest) -> RouteResponse:
        """End a grant by one of its tokens; an unknown one is ended already. Spec: RFC 7009 2."""
        core = self._core
        try:
            said = form(request)
            client = await authenticated(core, request, said)
            token = said.get("token", "")
            if not token:
                raise OAuthError("invalid_request", "token is needed")
        except OAuthError as error:
            return failed(error)

        grant = await core.store.refresh(token)
        if grant is None and (id := core.keys.grant_of(token)):
            grant = await core.store.grant(id)
        if grant is not None and grant.client == client.id:
            await core.end(grant)
        return json_answer({})


def _invalid(text: str) -> OAuthError:
    return OAuthError("invalid_grant", text)
