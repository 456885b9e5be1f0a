"""`/oauth/authorize` and `/oauth/register`: logins begin, and clients register themselves.

Until client and redirect URI are known to belong together, an error is a page and never a redirect. Registered clients
are not verified, and unused registrations expire soon.

Spec: OAuth 2.1 section 4.1, RFC 7591 section 3; AUTH-123, AUTH-125 to AUTH-129, AUTH-144, AUTH-145.
"""

from __future__ import annotations

import re
import secrets
from typing import Any
from urllib.parse import urlsplit

from msgspec import DecodeError
from msgspec.json import decode

from mcpd.auth.metadata import as_reached
from mcpd.auth.server.clients import METHODS, Client, read_metadata
from mcpd.auth.server.core import Core
from mcpd.auth.server.interaction import Interaction, message_page
from mcpd.auth.server.replies import (
    OAuthError,
    failed,
    host_of,
    is_loopback_redirect,
    json_answer,
    matching,
    query,
    why_not,
)
from mcpd.auth.server.store import digest
from mcpd.auth.server.users import rate_limit_key
from mcpd.transports.routes import RouteRequest, RouteResponse

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
    """Return the checked parameters. Raises OAuthError."""
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
    """Return the redirect URI. Raises OAuthError if the client has not registered it."""
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
    """Return whether a browser may be redirected to this client without a confirmation.

    Anybody can register a client, and could abuse the name of this server in a link. Spec: 2026-07-28 security
    considerations, open redirection.
    """
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
    """Register a client and return its registration."""
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
