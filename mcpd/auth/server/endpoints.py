"""The endpoints: `/oauth/authorize`, `/oauth/register`, `/oauth/token` and `/oauth/revoke`.

Until client and redirect URI are known to belong together, an error of a login is a page and never a redirect.
Registered clients are not verified, and unused registrations expire soon.

Spec: OAuth 2.1 sections 3.2 and 4, RFC 6749 section 2.3, RFC 7009, RFC 7523 section 3, RFC 7591 section 3, RFC 9068;
AUTH-123 to AUTH-132, AUTH-144, AUTH-145, AUTH-148, AUTH-153.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from hmac import compare_digest
from typing import Any, TypeAlias
from urllib.parse import unquote_plus, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec import DecodeError
from msgspec.json import decode

from mcpd.auth.fetch import FetchError, Limits, fetch_json
from mcpd.auth.metadata import as_reached
from mcpd.auth.signatures import b64, object_in, segments_of
from mcpd.transports.routes import RouteRequest, RouteResponse
from .clients import (
    METHODS,
    Client,
    OAuthError,
    failed,
    form,
    host_of,
    is_loopback_redirect,
    json_answer,
    matching,
    public_reason,
    query,
    read_metadata,
    why_not,
)
from .core import GRACE_SECONDS, OFFLINE, Core
from .interaction import Interaction, message_page
from .settings import rate_limit_key
from .store import Grant, digest
from .upstream import signing_keys

_is_challenge = re.compile(r"[A-Za-z0-9_-]{43}").fullmatch
_is_thumbprint = _is_challenge
_MAX_STATE_CHARACTERS = 4096


async def authorize(core: Core, interaction: Interaction, request: RouteRequest) -> RouteResponse:
    """Begin a login with a page to sign in. Spec: OAuth 2.1 section 4.1.1."""
    try:
        fields = query(request)
        client = await core.client(fields.get("client_id", ""))
        uri = _redirect_uri(client, fields.get("redirect_uri", ""))
    except OAuthError as error:
        return page_or_json(request, error)

    state = fields.get("state", "")
    try:
        if len(state) > _MAX_STATE_CHARACTERS:
            state = ""
            raise OAuthError("invalid_request", "state is too long")
        asked = _parameters(core, fields)
    except OAuthError as error:
        params = {"error": error.error, "error_description": error.text}
        if _may_redirect(request, client, uri):
            return core.answer(uri, state, params)
        # The page has a link with which the user can continue to the client, which then receives the error.
        where = core.way_back(uri, state, params)
        return message_page("This login cannot continue", error.sentence, 400, where, f"Back to {host_of(uri)}")

    browser = core.transactions.browser(request.headers.get("cookie", ""))
    cookies = []
    if not browser:
        browser, cookie = core.transactions.new_browser()
        cookies.append(cookie)
    place = rate_limit_key(core.address(request))
    transaction = core.transactions.begin(
        browser=browser, address=place, client=client, redirect_uri=uri, state=state, **asked
    )
    return interaction.first_page(transaction, *cookies)


def _parameters(core: Core, fields: dict[str, str]) -> dict[str, object]:
    # Return the checked parameters. Raises OAuthError.
    if "request" in fields or "request_uri" in fields:
        raise OAuthError("request_not_supported", "request objects are not supported; send parameters in the URL")
    if fields.get("response_type") != "code":
        raise OAuthError(
            "unsupported_response_type" if fields.get("response_type") else "invalid_request",
            "response_type must be code",
        )
    if fields.get("response_mode", "query") != "query":
        raise OAuthError("invalid_request", "response_mode must be query")

    if fields.get("code_challenge_method") != "S256" or not _is_challenge(fields.get("code_challenge", "")):
        raise OAuthError("invalid_request", "PKCE is required: send code_challenge with code_challenge_method S256")
    if not is_resource(fields.get("resource", core.resource), core.resource):
        raise OAuthError("invalid_target", "resource does not name this server")
    if fields.get("prompt") == "none":
        raise OAuthError("interaction_required", "logins without interaction are not supported")
    key = fields.get("dpop_jkt", "")
    if key and not _is_thumbprint(key):
        raise OAuthError("invalid_request", "dpop_jkt is not a thumbprint")

    return {
        "challenge": fields["code_challenge"],
        "resource": core.resource,
        "scopes": core.asked_scopes(fields.get("scope", "")),
        "key": key,
    }


def is_resource(asked: str, resource: str) -> bool:
    """Return whether a URI names this resource.

    Scheme and host are compared ignoring case, an origin may end in a slash, and names of this machine are equivalent.
    Spec: 2026-07-28 basic/authorization, canonical server URI.
    """
    return _canonical(as_reached(asked, urlsplit(resource).netloc)) == _canonical(resource)


def _canonical(uri: str) -> tuple[str, str]:
    scheme, separator, rest = uri.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}{separator}{host}".lower(), path


def _redirect_uri(client: Client, asked: str) -> str:
    # Return the redirect URI. Raises OAuthError if the client has not registered it.
    if not asked:
        if len(client.redirect_uris) == 1:
            return client.redirect_uris[0]
        raise OAuthError("invalid_request", "redirect_uri is missing")
    if not matching(client.redirect_uris, asked):
        why = why_not(asked)
        text = f"redirect_uri is not registered for this client{f': {why}' if why else ''}"
        raise OAuthError("invalid_request", text)
    return asked


def _may_redirect(request: RouteRequest, client: Client, uri: str) -> bool:
    # Return whether a browser may be redirected to this client without a confirmation.
    # Anybody can register a client, and could abuse the name of this server in a link. Spec: 2026-07-28 security
    # considerations, open redirection.
    is_page = "text/html" in request.headers.get("accept", "").lower()
    return client.kind == "listed" or is_loopback_redirect(uri) or not is_page


def page_or_json(request: RouteRequest, error: OAuthError) -> RouteResponse:
    """Return an error as a page for browsers, otherwise as JSON."""
    if "text/html" not in request.headers.get("accept", "").lower():
        return failed(error)
    status = 400 if error.status == 401 else error.status
    return message_page("This login cannot continue", error.sentence, status)


_GRANTS = ("authorization_code", "refresh_token")


async def register(core: Core, request: RouteRequest) -> RouteResponse:
    try:
        return await _register(core, request, _json_object(request.body))
    except OAuthError as error:
        return failed(error)


async def _register(core: Core, request: RouteRequest, fields: dict[str, Any]) -> RouteResponse:
    method = fields.get("token_endpoint_auth_method", "client_secret_basic")
    if method not in METHODS:
        raise OAuthError("invalid_client_metadata", f"token_endpoint_auth_method must be one of {', '.join(METHODS)}")

    responses = fields.get("response_types", ["code"])
    if not isinstance(responses, list) or "code" not in responses:
        raise OAuthError("invalid_client_metadata", "response_types must include code")
    grants = fields.get("grant_types", ["authorization_code"])
    if not isinstance(grants, list) or "authorization_code" not in grants:
        raise OAuthError("invalid_client_metadata", "grant_types must include authorization_code")

    secret = secrets.token_urlsafe(32) if method.startswith("client_secret") else ""
    id = f"c-{secrets.token_urlsafe(16)}"
    client = read_metadata(id, fields, kind="registered", method=method, secret_digest=digest(secret) if secret else "")
    await core.store.add_client(client, rate_limit_key(core.address(request)))

    # `scope` is not returned, because the registration does not limit the scopes that may be requested later.
    answer: dict[str, object] = {
        "client_id": id,
        "client_id_issued_at": int(core.clock()),
        "client_name": client.name,
        "redirect_uris": client.redirect_uris,
        "grant_types": [grant for grant in _GRANTS if grant in client.grant_types],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    if secret:
        answer |= {"client_secret": secret, "client_secret_expires_at": 0}
    for name in ("application_type", "client_uri", "logo_uri"):
        if isinstance(fields.get(name), str):
            answer[name] = fields[name]
    return json_answer(answer, 201)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        found = decode(body)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise OAuthError("invalid_client_metadata", "the body must be a JSON object")
    return found


_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ALGORITHMS = ["ES256", "RS256", "PS256", "ES384", "EdDSA"]
_MAX_ASSERTION_CHARACTERS = 8192
_SECONDS = 300.0
_SKEW = 60.0
_MAX_AT_ONCE = 8
_KEYS = Limits(max_bytes=64 * 1024, seconds=5.0, redirects=0)


async def authenticated(core: Core, request: RouteRequest, fields: dict[str, str]) -> Client:
    """Return the authenticated client of a request. Raises OAuthError."""
    basic = request.headers.get("authorization", "")
    shown = [bool(basic), "client_secret" in fields, "client_assertion" in fields]
    if sum(shown) > 1:
        raise OAuthError("invalid_request", "the client used several authentication methods: use one")

    if basic:
        id, secret = _basic(basic)
        if fields.get("client_id", id) != id:
            raise OAuthError("invalid_request", "client_id differs from the one in Authorization")
        client = await _known(core, id, basic=True)
        return _by_secret(client, "client_secret_basic", secret)
    if "client_assertion" in fields:
        return await _by_assertion(core, fields)

    client = await _known(core, fields.get("client_id", ""))
    if "client_secret" in fields:
        return _by_secret(client, "client_secret_post", fields["client_secret"])
    if client.method != "none":
        raise _refused(f"this client is registered with {client.method}", basic=client.method == "client_secret_basic")
    return client


async def _known(core: Core, id: str, *, basic: bool = False) -> Client:
    try:
        return await core.client(id)
    except OAuthError as error:
        if error.error != "invalid_client":
            raise
        raise _refused(error.text, basic=basic) from None


def _basic(header: str) -> tuple[str, str]:
    # Return ID and secret, which are form-encoded. Raises OAuthError.
    scheme, _, value = header.partition(" ")
    try:
        id, found, secret = b64decode(value.strip(), validate=True).decode().partition(":")
    except ValueError:
        found = ""
    if scheme.lower() != "basic" or not found:
        raise _refused("Authorization is not Basic", basic=True)
    return unquote_plus(id), unquote_plus(secret)


def _by_secret(client: Client, method: str, secret: str) -> Client:
    # A client in the settings may send its secret in either way.
    is_right_way = client.method == method or (client.kind == "listed" and client.secret_digest)
    is_right = compare_digest(client.secret_digest.encode(), digest(secret).encode()) if client.secret_digest else False
    if not is_right_way or not is_right:
        raise _refused(
            "the client's secret is wrong, or sent with another method than registered",
            basic=method == "client_secret_basic",
        )
    return client


async def _by_assertion(core: Core, fields: dict[str, str]) -> Client:
    # Authenticate a client by a JWT that it has signed for this server, recently and only once. Raises OAuthError.
    assertion = fields["client_assertion"]
    if fields.get("client_assertion_type") != _ASSERTION or len(assertion) > _MAX_ASSERTION_CHARACTERS:
        raise OAuthError("invalid_request", "client_assertion is not a JWT of the accepted type")
    client = await _known(core, fields.get("client_id") or _subject(assertion))
    if client.method != "private_key_jwt":
        raise _refused(f"this client is registered with {client.method}")

    try:
        token = jwt.decode(assertion, await _keys_of(core, client), algorithms=_ALGORITHMS)
    except (JoseError, ValueError, TypeError, KeyError):
        raise _refused("the client's assertion is not signed by its key") from None

    claims, now = token.claims, core.clock()
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    expires, jti = claims.get("exp"), claims.get("jti")
    if claims.get("iss") != client.id or claims.get("sub") != client.id:
        raise _refused("the client's assertion is about another client")
    if not {core.issuer, f"{core.issuer}/", f"{core.issuer}/oauth/token"} & {*map(str, audiences)}:
        raise _refused("the client's assertion is for another server")
    if not isinstance(expires, int | float) or not now - _SKEW < expires <= now + _SECONDS + _SKEW:
        raise _refused("the client's assertion has expired, or is valid for more than five minutes")
    if not isinstance(jti, str) or not await core.store.is_new_assertion(f"{client.id} {jti}", expires + _SKEW):
        raise _refused("the client's assertion was used before, or has no jti")
    return client


def _subject(assertion: str) -> str:
    # Return the subject of an assertion that is not verified yet.
    parts = segments_of(assertion)
    claims = None if parts is None else object_in(parts[1])
    return str((claims or {}).get("sub", ""))


async def _keys_of(core: Core, client: Client) -> KeySet:
    # Return the public keys of a client. Raises OAuthError, and ValueError for malformed keys.
    document: dict[str, Any] = client.jwks or {}
    if client.jwks_uri:
        if core.fetching_keys >= _MAX_AT_ONCE:
            raise OAuthError("temporarily_unavailable", "too many clients' keys are being fetched; try again")
        core.fetching_keys += 1
        try:
            document, _ = await fetch_json(client.jwks_uri, what="the client's keys", reach=core.reach, limits=_KEYS)
        except FetchError as error:
            raise _refused(f"the client's keys cannot be fetched: {public_reason(error)}") from None
        finally:
            core.fetching_keys -= 1
    return signing_keys(document)


def _refused(text: str, *, basic: bool = False) -> OAuthError:
    headers = (("WWW-Authenticate", 'Basic realm="oauth"'),) if basic else ()
    return OAuthError("invalid_client", text, status=401, headers=headers)


_is_verifier = re.compile(r"[A-Za-z0-9._~-]{43,128}").fullmatch

# Returns the thumbprint of the key of a request's DPoP proof, "" without one. Raises OAuthError.
CheckProof: TypeAlias = Callable[[RouteRequest], str]


class TokenEndpoint:
    """The token and revocation endpoints. `check_proof` checks DPoP proofs."""

    def __init__(self, core: Core, check_proof: CheckProof) -> None:
        self._core = core
        self._check_proof = check_proof

    async def token(self, request: RouteRequest) -> RouteResponse:
        grants: dict[str, Callable[[Client, dict[str, str], str], Awaitable[RouteResponse]]] = {
            "authorization_code": self._by_code,
            "refresh_token": self._by_refresh,
        }
        try:
            fields = form(request)
            client = await authenticated(self._core, request, fields)
            grant = grants.get(fields.get("grant_type", ""))
            if grant is None:
                raise OAuthError("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
            return await grant(client, fields, self._check_proof(request))
        except OAuthError as error:
            return failed(error)

    async def _by_code(self, client: Client, fields: dict[str, str], key: str) -> RouteResponse:
        core = self._core
        code, verifier = fields.get("code", ""), fields.get("code_verifier", "")
        if not code or not _is_verifier(verifier):
            raise OAuthError("invalid_request", "code and code_verifier are required")

        found = await core.store.code(code)
        if found is None or found.grant.is_revoked:
            raise _invalid("the code is unknown")
        if found.is_used:
            # Somebody else also has the code, and it is unknown which of them is the client.
            await core.end(found.grant)
            raise _invalid("the code was used before; its tokens are revoked")
        # OAuth 2.1 section 4.1.2: codes must be short-lived.
        if found.expires <= core.clock():
            raise _invalid("the code has expired")

        if found.grant.client != client.id:
            raise _invalid("the code was issued to another client")
        if fields.get("redirect_uri", found.redirect_uri) != found.redirect_uri:
            raise _invalid("redirect_uri differs from the one in the authorization request")

        # RFC 7636 section 4.6.
        challenge = b64(sha256(verifier.encode()).digest())
        if not compare_digest(challenge.encode(), found.challenge.encode()):
            raise _invalid("code_verifier does not match the challenge")
        if found.grant.key and key != found.grant.key:
            raise _invalid("the code is bound to another key")
        self._check_resource(found.grant, fields)

        wants = "refresh_token" in client.grant_types or OFFLINE in found.grant.scope.split()
        refresh = secrets.token_urlsafe(32) if wants else None
        if not await core.store.use_code(code, refresh, key):
            await core.end(found.grant)
            raise _invalid("the code was used before; its tokens are revoked")
        return self._answer(found.grant, found.grant.scope, refresh, key)

    async def _by_refresh(self, client: Client, fields: dict[str, str], key: str) -> RouteResponse:
        core, token = self._core, fields.get("refresh_token", "")
        if not token:
            raise OAuthError("invalid_request", "refresh_token is required")

        grant = await core.store.refresh(token)
        if grant is None or grant.is_revoked or grant.client != client.id:
            raise _invalid("the refresh token is unknown")
        # OAuth 2.1 section 4.3.1: refresh tokens expire when they are not used.
        if grant.used + core.settings.idle_seconds < core.clock():
            raise _invalid("the refresh token has expired because it was not used")
        if grant.key and key != grant.key:
            raise _invalid("the refresh token is bound to another key")
        self._check_resource(grant, fields)

        held = grant.scope.split()
        known = {*held, *core.all_scopes()}  # as at the login, unknown scopes are ignored
        asked = [scope for scope in fields.get("scope", "").split() if scope in known] or held
        if not {*asked} <= {*held}:
            raise OAuthError("invalid_scope", "the user has not allowed all requested scopes")

        user = core.current_user(grant.user)
        if user is None:
            await core.end(grant)
            raise _invalid("this user may not log in any more")

        # The successor is computed from the old token, so a repetition within the grace time gives the same one, and
        # only digests need to be stored.
        successor = core.keys.mac("refresh", token)
        came_of = await core.store.rotate(token, successor, GRACE_SECONDS)
        if came_of == "reused":
            await core.end(grant)
            raise _invalid("the refresh token was used before; all tokens of this login are revoked")
        if came_of == "unknown":
            raise _invalid("the refresh token is unknown")
        return self._answer(grant, " ".join(core.scopes_for(user, asked)), successor, key)

    def _check_resource(self, grant: Grant, fields: dict[str, str]) -> None:
        if not is_resource(fields.get("resource", grant.resource), grant.resource):
            raise OAuthError("invalid_target", "resource differs from the one that the user allowed")

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
        fields = {
            "access_token": core.keys.sign(claims, "at+jwt"),
            "token_type": "DPoP" if key else "Bearer",
            "expires_in": core.settings.token_seconds,
            "scope": scope,
        }
        return json_answer({**fields, "refresh_token": refresh} if refresh is not None else fields)

    async def revoke(self, request: RouteRequest) -> RouteResponse:
        """Revoke the grant of a token. An unknown token counts as revoked. Spec: RFC 7009 section 2."""
        core = self._core
        try:
            fields = form(request)
            client = await authenticated(core, request, fields)
            token = fields.get("token", "")
            if not token:
                raise OAuthError("invalid_request", "token is required")
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
