"""The login of a person, from a refused request to tokens, and the refresh of tokens. No I/O.

    known_client, register       the client's registration at the authorization server
    begin, authorization_url,
    read_callback                the authorization request and its response: PKCE, state, issuer, scopes
    login                        the whole login, in a browser or with a code on another device
    refresh                      new tokens for a login

Spec: 2026-07-28 basic/authorization; RFC 6749 4.1, 6; RFC 7591; RFC 7636; RFC 8628; RFC 8707; RFC 9207; RFC 9449.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from mcpd.auth.signatures import b64
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable
from mcpd.transports.address import is_loopback_url
from mcpd.transports.challenge import Challenge
from .discovery import Discovery, ServerMetadata, check_endpoint, discover
from .settings import OAuth
from .steps import HttpStep, ListenForRedirect, OpenBrowser, ShowCode, Steps, send, send_form
from .store import Login, LoginRecords, Registration
from .tokens import (
    ClientId,
    Prover,
    Refusal,
    Tokens,
    authenticate_client,
    choose_method,
    positive,
    prover_for,
    refusal_of,
    request_tokens,
    seconds,
)


class AuthorizationRequest(Struct, frozen=True, kw_only=True):
    """One authorization request. It is stored until its response arrives."""

    issuer: str
    state: str
    verifier: str
    redirect_uri: str
    client_id: str
    resource: str | None
    scopes: tuple[str, ...] | None
    allows_slash: bool = False
    """Whether the issuer in the response may differ by a slash at its end."""

    def __repr__(self) -> str:
        return f"AuthorizationRequest({self.issuer!r}, {self.client_id!r}, scopes={self.scopes})"


def select_scopes(
    settings: OAuth,
    server: ServerMetadata,
    challenged: Sequence[str],
    supported: Sequence[str] | None,
    before: Sequence[str] = (),
    held: Sequence[str] = (),
) -> tuple[str, ...] | None:
    """Return the scopes to request: the program's, otherwise the challenge's, otherwise all that the resource lists.

    `before` are the scopes of an earlier request: a step up requests both. `held` are the scopes of the last login,
    which are requested again. Returns None for no scopes. Spec: 2026-07-28 scope selection strategy, step-up.
    """
    if before:
        found = [*before, *challenged]
    elif settings.scopes is not None:
        found = list(settings.scopes)
    else:
        found = [*(challenged or supported or ()), *held]
    if settings.offline and "offline_access" in (server.scopes_supported or ()):
        found.append("offline_access")
    elif "offline_access" not in (server.scopes_supported or ()) and settings.scopes is None:
        found = [scope for scope in found if scope != "offline_access"]
    return tuple(dict.fromkeys(found)) or None


def begin(
    settings: OAuth,
    server: ServerMetadata,
    client_id: str,
    redirect_uri: str,
    resource: str | None,
    scopes: tuple[str, ...] | None,
) -> AuthorizationRequest:
    """Create an authorization request. Raises AuthorizationFailed for a server that does not announce PKCE."""
    name = printable(server.issuer, 200)
    if server.authorization_endpoint is None:
        raise AuthorizationFailed(f"{name} has no authorization endpoint, which a login in a browser requires")
    methods = server.challenge_methods
    if not server.is_guessed and not settings.assume_pkce and "S256" not in (methods or ()):
        # Spec: 2026-07-28 security considerations: clients "MUST refuse to proceed".
        problem = "does not announce PKCE" if methods is None else "does not list S256 for PKCE"
        raise AuthorizationFailed(
            f"{name} {problem} (code_challenge_methods_supported); if it supports PKCE nevertheless, use "
            "mcpd login --assume-pkce or OAuth(assume_pkce=True)"
        )
    return AuthorizationRequest(
        issuer=server.issuer,
        state=token_urlsafe(16),
        verifier=token_urlsafe(48),
        redirect_uri=redirect_uri,
        client_id=client_id,
        resource=resource,
        scopes=scopes,
        allows_slash=settings.assume_issuer,
    )


def authorization_url(server: ServerMetadata, attempt: AuthorizationRequest, mcp_url: str) -> str:
    """Return the page that the user visits. Raises AuthorizationFailed for an unsafe URL."""
    endpoint = server.authorization_endpoint or ""
    # The program opens this URL in a browser.
    check_endpoint("authorization endpoint", endpoint, mcp_url)
    digest = sha256(attempt.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": attempt.client_id,
        "redirect_uri": attempt.redirect_uri,
        "state": attempt.state,
        "code_challenge": b64(digest),
        "code_challenge_method": "S256",
    }
    if attempt.resource is not None:
        query["resource"] = attempt.resource

    if attempt.scopes:
        query["scope"] = " ".join(attempt.scopes)
        if "offline_access" in attempt.scopes:
            query["prompt"] = "consent"  # OpenID Connect Core 11: required for a refresh token
    joined = "&" if urlsplit(endpoint).query else "?"
    return f"{endpoint}{joined}{urlencode(query)}"


def read_callback(server: ServerMetadata, attempt: AuthorizationRequest, url: str) -> str:
    """Return the code of the URL that the browser was redirected to. Raises AuthorizationFailed.

    No other parameter is used or shown before state and issuer have been verified.
    """
    query = urlsplit(url.strip()).query if "?" in url else url.strip()
    pairs = parse_qsl(query, keep_blank_values=True)
    found = dict(pairs)
    if any(sum(name == other for other, _ in pairs) > 1 for name in ("code", "state", "iss", "error")):
        raise AuthorizationFailed("the redirect of the browser repeats a parameter: log in again")
    if not compare_digest(found.get("state", "").encode(), attempt.state.encode()):
        raise AuthorizationFailed("the redirect of the browser belongs to another login (state): log in again")

    # Spec: 2026-07-28 security considerations; RFC 9207 2.4: compared literally, in error responses too.
    issuer = found.get("iss")
    if issuer is None and server.sends_issuer:
        raise AuthorizationFailed(
            f"the response does not contain iss, which {printable(attempt.issuer, 200)} announces: refused"
        )

    is_same = issuer == attempt.issuer
    if issuer is not None and attempt.allows_slash:
        is_same = issuer.removesuffix("/") == attempt.issuer.removesuffix("/")
    if issuer is not None and not is_same:
        raise AuthorizationFailed(
            f"the response is not from the authorization server {printable(attempt.issuer, 200)} (iss): refused"
        )
    # Only now: the parameters of a forged redirect must not be shown.
    if "error" in found:
        description = printable(found.get("error_description", ""), 300)
        code = printable(found["error"], 60)
        text = f"{printable(attempt.issuer, 200)} refused: {code}{f': {description}' if description else ''}"
        raise Refusal(text, found["error"])
    if not found.get("code"):
        raise AuthorizationFailed("the redirect of the browser has no code: log in again")
    return found["code"]


_MOST_TEXT = 8 * 1024
# In order of preference: servers disagree on the encoding of Basic, but not on a secret in the body.
_METHODS = ("none", "client_secret_post", "client_secret_basic")
_ADJUSTABLE = ("invalid_client_metadata", "invalid_redirect_uri")


def known_client(settings: OAuth, server: ServerMetadata) -> ClientId | None:
    """Return the client if it needs no registration. Raises AuthorizationFailed if its secret cannot be used."""
    if settings.client_id is not None:
        return ClientId.at(server, settings.client_id, settings.client_secret)
    if settings.client_metadata_url is not None and server.takes_documents:
        return ClientId(settings.client_metadata_url)
    return None


def register(
    settings: OAuth, server: ServerMetadata, redirect_uri: str, scopes: tuple[str, ...] | None = None
) -> Steps[Registration]:
    """Register the client, with one more attempt if the server refuses the metadata.

    `scopes` are sent only after a refusal that requires them, because some servers treat them as the maximum for all
    requests of the client. Raises AuthorizationFailed, FetchError.
    """
    endpoint = server.registration_endpoint
    if endpoint is None:
        raise AuthorizationFailed(
            f"{printable(server.issuer, 200)} has no dynamic registration: create a client id there, and use it with "
            "mcpd login --client-id ID or OAuth(client_id=…)"
        )

    methods = server.auth_methods or ("client_secret_basic",)
    preferred = [method for method in _METHODS if method in methods] or ["none"]
    body: dict[str, object] = {
        "client_name": settings.client_name,
        "redirect_uris": [redirect_uri],
        # Spec: 2026-07-28 client registration: "web", the default, refuses loopback redirects; "native" refuses others.
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
        response = yield from send(HttpStep(endpoint, "registration endpoint", "POST", fields, encode(body)))
        if response.status in (200, 201):
            return _read(response.members(), server, redirect_uri, preferred[0])
        refused: Refusal = refusal_of(response, endpoint, "registration endpoint")
        if refused.code == "invalid_redirect_uri" and "127.0.0.1" in redirect_uri:
            hint = "use mcpd login --localhost or OAuth(redirect='http://localhost:0/callback')"
            raise Refusal(f"{refused}; if it requires localhost, {hint}", refused.code, refused.status)
        if attempt or refused.code not in _ADJUSTABLE:
            raise refused
        body["token_endpoint_auth_method"] = preferred[-1] if len(preferred) > 1 else preferred[0]
        body["grant_types"] = list(_GRANTS[:1])
    raise AssertionError


_GRANTS = ("authorization_code", "refresh_token")


def _read(document: dict[str, object], server: ServerMetadata, redirect_uri: str, asked: str) -> Registration:
    client_id, secret = document.get("client_id"), document.get("client_secret")
    method = document.get("token_endpoint_auth_method")
    if not isinstance(client_id, str) or not client_id or len(client_id) > _MOST_TEXT:
        raise AuthorizationFailed(f"the registration at {printable(server.issuer, 200)} has no client_id")
    secret = secret if isinstance(secret, str) and secret else None
    if not isinstance(method, str):
        method = asked if secret is None or asked != "none" else choose_method(server.auth_methods, secret)

    if method not in ("none", "client_secret_basic", "client_secret_post"):
        raise AuthorizationFailed(
            f"{printable(server.issuer, 200)} requires the unsupported authentication method {printable(method, 60)}"
        )
    return Registration(
        issuer=server.issuer,
        client_id=client_id,
        client_secret=secret,
        method=method if secret is not None else "none",
        redirect_uri=redirect_uri,
        expires_at=positive(document.get("client_secret_expires_at"), 1e11),
    )


_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_MOST_DEVICE_SECONDS = 900.0
_MOST_DEVICE_PAUSE = 60.0


class LoginResult(Struct, frozen=True):
    """The result of a login: the record to store, and a new registration."""

    login: Login
    registration: Registration | None = None


class _Client(Struct, frozen=True):
    client: ClientId
    redirect_uri: str
    registration: Registration | None = None
    """The registration, if it is new."""


def login(
    url: str,
    settings: OAuth,
    challenge: Challenge | None,
    records: LoginRecords,
    *,
    before: Sequence[str] = (),
    held: Sequence[str] = (),
    saw_metadata: bool = False,
) -> Steps[LoginResult]:
    """Log a person in to the MCP server at `url`.

    `before` are the scopes of an earlier request, for a step up. `held` are the scopes that the last login was granted.
    Raises AuthorizationFailed, FetchError.
    """
    found = yield from discover(
        url,
        challenge,
        prefers=_preference(settings, records),
        legacy=settings.legacy and not saw_metadata,
        assume_issuer=settings.assume_issuer,
    )
    server = found.server
    _check_issuer(settings, records, url, server)
    supported = found.metadata.scopes_supported if found.metadata is not None else None
    challenged = challenge.scopes if challenge is not None else ()
    scopes = select_scopes(settings, server, challenged, supported, before, held)
    prover = prover_for(settings.dpop, challenge, found)

    known = known_client(settings, server)
    # A registration belongs to one issuer, and no other issuer receives its secret.
    stored = records.registration(server.issuer) if known is None else None
    try:
        client = yield from _client(settings, server, known, stored)
        tokens = yield from _tokens(url, settings, found, client, scopes, prover)
    except Refusal as error:
        if held and error.code == "invalid_scope":
            # Scopes that were granted once may be refused now.
            return (yield from login(url, settings, challenge, records, saw_metadata=saw_metadata))
        # Register once more if the server has forgotten the registration, or if it lacks scopes.
        has_scopes = error.code == "invalid_scope" and known is None
        if known is not None or not (has_scopes or (stored is not None and error.code in _FORGOTTEN)):
            raise
        client = yield from _client(settings, server, None, None, scopes if has_scopes else None)
        tokens = yield from _tokens(url, settings, found, client, scopes, prover)
    record = login_record(url, found, client.client, tokens, scopes, prover)
    return LoginResult(record, client.registration)


_FORGOTTEN = ("invalid_client", "unauthorized_client")


def _preference(settings: OAuth, records: LoginRecords) -> Callable[[str], int]:
    # Sort issuers: first where the client is registered, then in the order of the resource (RFC 9728 7.6).

    def rank(issuer: str) -> int:
        if settings.issuer is not None:
            return int(issuer != settings.issuer)
        return int(records.registration(issuer) is None)

    return rank


def _check_issuer(settings: OAuth, records: LoginRecords, url: str, server: ServerMetadata) -> None:
    # A client id belongs to one issuer, configured or recorded. Raises AuthorizationFailed.
    if settings.client_id is None:
        return
    before = records.login(url, settings.client_id)
    issuer = settings.issuer or (None if before is None else before.issuer)
    if issuer not in (None, server.issuer):
        raise AuthorizationFailed(
            f"client id {printable(settings.client_id, 100)} belongs to {printable(issuer, 200)}, but the server now "
            f"names {printable(server.issuer, 200)}: if that is intended, run mcpd logout {url}, and log in with a "
            "client id of the new one"
        )


def _client(
    settings: OAuth,
    server: ServerMetadata,
    known: ClientId | None,
    stored: Registration | None,
    scopes: tuple[str, ...] | None = None,
) -> Steps[_Client]:
    # Return the client with a redirect URI that is listened on, registering it if necessary.
    wanted = stored.redirect_uri if stored is not None else None
    if settings.device:
        redirect: str | None = settings.redirect
    else:
        redirect = yield ListenForRedirect(wanted)
        if redirect is None:
            # The registered port is in use. Register another one.
            stored = None
            redirect = yield ListenForRedirect(None)

    assert isinstance(redirect, str)
    if known is not None:
        return _Client(known, redirect)
    if stored is not None:
        return _Client(stored.client, redirect)
    made = yield from register(settings, server, redirect, scopes)
    return _Client(made.client, redirect, made)


def _tokens(
    url: str,
    settings: OAuth,
    found: Discovery,
    client: _Client,
    scopes: tuple[str, ...] | None,
    prover: Prover | None,
) -> Steps[Tokens]:
    if settings.device:
        return (yield from _by_device(url, found, client.client, scopes, prover))
    server = found.server
    attempt = begin(settings, server, client.client.client_id, client.redirect_uri, found.resource, scopes)
    returned: str = yield OpenBrowser(authorization_url(server, attempt, url))
    # The code is only used after state and issuer have been verified.
    code = read_callback(server, attempt, returned)
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_uri,
        "code_verifier": attempt.verifier,
        "resource": attempt.resource,
    }
    return (yield from request_tokens(server.token_endpoint, fields, client.client, prover))


def _by_device(
    url: str, found: Discovery, client: ClientId, scopes: tuple[str, ...] | None, prover: Prover | None
) -> Steps[Tokens]:
    # Show the user a code, and ask the server every few seconds whether it was typed (RFC 8628).
    server = found.server
    if server.device_endpoint is None:
        raise AuthorizationFailed(
            f"{printable(server.issuer, 200)} does not support --device; --no-browser also works over SSH"
        )
    fields, headers = authenticate_client(
        client, {"scope": " ".join(scopes) if scopes else None, "resource": found.resource}
    )
    what = "device authorization endpoint"
    response = yield from send_form(server.device_endpoint, what, fields, headers)
    if response.status != 200:
        raise refusal_of(response, server.device_endpoint, what)
    document = response.members()
    code, page, user_code = (document.get(name) for name in ("device_code", "verification_uri", "user_code"))
    if not (isinstance(code, str) and isinstance(page, str) and isinstance(user_code, str)):
        raise AuthorizationFailed(f"the {what} of {printable(server.issuer, 200)} returned no code")

    check_endpoint("page for the code", page, url)  # the program may open it in a browser
    pause = min(seconds(document.get("interval")) or 5.0, _MOST_DEVICE_PAUSE)
    left = min(seconds(document.get("expires_in")) or 600.0, _MOST_DEVICE_SECONDS)
    whole = document.get("verification_uri_complete")
    if isinstance(whole, str):
        check_endpoint("page for the code", whole, url)

    polled = {"grant_type": _DEVICE_GRANT, "device_code": code, "resource": found.resource}
    is_first = True
    while left > 0:
        yield ShowCode(page, user_code, pause, whole if isinstance(whole, str) else None, is_first)
        is_first = False
        left -= pause
        try:
            return (yield from request_tokens(server.token_endpoint, polled, client, prover))
        except Refusal as error:
            if error.code == "slow_down":
                # RFC 8628 3.5: by five seconds, for all further requests.
                pause += 5
            elif error.code != "authorization_pending":
                raise
    raise AuthorizationFailed("the code was not entered in time: log in again")


def login_record(
    url: str,
    found: Discovery,
    client: ClientId | None,
    tokens: Tokens,
    scopes: Sequence[str] | None,
    prover: Prover | None,
) -> Login:
    now = time.time()
    return Login(
        url=url,
        issuer=found.server.issuer,
        client_id="" if client is None else client.client_id,
        resource=found.resource,
        access_token=tokens.access_token,
        token_type=tokens.token_type,
        issued_at=now,
        expires_at=None if tokens.lifetime is None else now + tokens.lifetime,
        refresh_token=tokens.refresh_token,
        asked=tuple(scopes or ()),
        # Spec: RFC 6749 5.1: a missing scope means the requested scope.
        granted=tuple(scopes or ()) if tokens.scopes is None else tokens.scopes,
        client_secret=None if client is None else client.client_secret,
        method="none" if client is None else client.method,
        token_endpoint=found.server.token_endpoint,
        revocation_endpoint=found.server.revocation_endpoint,
        dpop_key=None if prover is None else prover.private,
        saw_metadata=found.metadata is not None,
    )


def refresh(login: Login, prover: Prover | None) -> Steps[Login]:
    """Return the login with new tokens. Raises Refusal, AuthorizationFailed, FetchError."""
    assert login.refresh_token is not None
    client = ClientId(login.client_id, login.client_secret, login.method)
    fields = {"grant_type": "refresh_token", "refresh_token": login.refresh_token, "resource": login.resource}
    tokens = yield from request_tokens(login.token_endpoint, fields, client, prover)
    now = time.time()
    # Spec: RFC 6749 6: a refresh token or scope that the response leaves out stays the same.
    return replace(
        login,
        access_token=tokens.access_token,
        token_type=tokens.token_type,
        issued_at=now,
        expires_at=None if tokens.lifetime is None else now + tokens.lifetime,
        refresh_token=tokens.refresh_token or login.refresh_token,
        granted=login.granted if tokens.scopes is None else tokens.scopes,
    )
