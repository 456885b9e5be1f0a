"""A login, from the refusal of a request to tokens; and the ways to new tokens without one. No I/O.

    login      a person, by a browser or by a code on another device
    obtain     a program with credentials of its own (`grants.py`)
    refresh    the tokens of a login, renewed

Spec: 2026-07-28 basic/authorization; RFC 6749 4.1, 6; RFC 8628; RFC 8707; RFC 9449.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from mcpd.auth.challenge import Challenge
from mcpd.client.auth.discovery import Found, discover
from mcpd.client.auth.documents import ServerMetadata, check_endpoint, is_loopback_url
from mcpd.client.auth.dpop import Binding, binding
from mcpd.client.auth.settings import OAuth
from mcpd.client.auth.steps import HttpStep, Listen, Steps, Tell, Visit, ask, form, json_object
from mcpd.client.auth.store import Kept, Login, Registration
from mcpd.client.auth.tokens import ClientId, Refusal, Tokens, choose_method, identified, refusal_of, request_tokens
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable


class Attempt(Struct, frozen=True, kw_only=True):
    """One authorization request, kept until its response: recorded before the browser starts."""

    issuer: str
    state: str
    verifier: str
    redirect_uri: str
    client_id: str
    resource: str | None
    scopes: tuple[str, ...] | None
    allows_slash: bool = False
    """Whether the response may name the issuer with another slash at its end."""

    def __repr__(self) -> str:
        return f"Attempt({self.issuer!r}, {self.client_id!r}, scopes={self.scopes})"


def scopes_to_ask(
    settings: OAuth,
    server: ServerMetadata,
    challenged: Sequence[str],
    supported: Sequence[str] | None,
    before: Sequence[str] = (),
    held: Sequence[str] = (),
) -> tuple[str, ...] | None:
    """What to ask for: the program's choice, else the challenge's, else all that the resource lists; None for nothing.

    `before` is what was asked for already: a step up asks for both. `held` is what the last login was granted: the
    next one keeps that. Spec: 2026-07-28 scope selection strategy, step-up.
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
) -> Attempt:
    """A fresh attempt. Raises AuthorizationFailed for a server that does not say that it has PKCE."""
    name = printable(server.issuer, 200)
    if server.authorization_endpoint is None:
        raise AuthorizationFailed(f"{name} has no authorization endpoint: nobody can log in there with a browser")
    methods = server.challenge_methods
    if not server.is_guessed and not settings.assume_pkce and "S256" not in (methods or ()):
        # Spec: 2026-07-28 security considerations: clients "MUST refuse to proceed".
        said = "does not say that it has PKCE" if methods is None else "does not list S256 for PKCE"
        raise AuthorizationFailed(
            f"{name} {said} (code_challenge_methods_supported); if you know that it has, go on with "
            "mcpd login --assume-pkce, OAuth(assume_pkce=True)"
        )
    return Attempt(
        issuer=server.issuer,
        state=token_urlsafe(16),
        verifier=token_urlsafe(48),
        redirect_uri=redirect_uri,
        client_id=client_id,
        resource=resource,
        scopes=scopes,
        allows_slash=settings.assume_issuer,
    )


def authorization_url(server: ServerMetadata, attempt: Attempt, mcp_url: str) -> str:
    """The page that the user visits. Raises AuthorizationFailed for one that no browser may be sent to."""
    endpoint = server.authorization_endpoint or ""
    check_endpoint("authorization endpoint", endpoint, mcp_url)
    digest = sha256(attempt.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": attempt.client_id,
        "redirect_uri": attempt.redirect_uri,
        "state": attempt.state,
        "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    if attempt.resource is not None:
        query["resource"] = attempt.resource
    if attempt.scopes:
        query["scope"] = " ".join(attempt.scopes)
        if "offline_access" in attempt.scopes:
            query["prompt"] = "consent"  # OpenID Connect Core 11: without it no refresh token need be given
    joined = "&" if urlsplit(endpoint).query else "?"
    return f"{endpoint}{joined}{urlencode(query)}"


def read_callback(server: ServerMetadata, attempt: Attempt, url: str) -> str:
    """The code in the URL that the browser was sent back to. Raises AuthorizationFailed.

    Nothing of a response is used, or shown, before its state and its issuer are found to be right.
    """
    query = urlsplit(url.strip()).query if "?" in url else url.strip()
    pairs = parse_qsl(query, keep_blank_values=True)
    found = dict(pairs)
    if any(sum(name == other for other, _ in pairs) > 1 for name in ("code", "state", "iss", "error")):
        raise AuthorizationFailed("the browser came back with a parameter given twice: log in again")
    if not compare_digest(found.get("state", "").encode(), attempt.state.encode()):
        raise AuthorizationFailed("the browser came back from another login (state): log in again")

    # Spec: 2026-07-28 security considerations; RFC 9207 2.4: compared as it stands, in error responses too.
    issuer = found.get("iss")
    if issuer is None and server.sends_issuer:
        raise AuthorizationFailed(
            f"the response does not name its issuer (iss), which {printable(attempt.issuer, 200)} says it does: refused"
        )
    is_same = issuer == attempt.issuer
    if issuer is not None and attempt.allows_slash:
        is_same = issuer.removesuffix("/") == attempt.issuer.removesuffix("/")
    if issuer is not None and not is_same:
        raise AuthorizationFailed(
            f"the response came from another authorization server than {printable(attempt.issuer, 200)} (iss): refused"
        )
    if "error" in found:
        said = printable(found.get("error_description", ""), 300)
        code = printable(found["error"], 60)
        text = f"{printable(attempt.issuer, 200)} refused: {code}{f': {said}' if said else ''}"
        raise Refusal(text, found["error"])
    if not found.get("code"):
        raise AuthorizationFailed("the browser came back without a code: log in again")
    return found["code"]


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


_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_MOST_DEVICE_SECONDS = 900.0
_MOST_DEVICE_PAUSE = 60.0


class LoggedIn(Struct, frozen=True):
    """What a login gave: the record to keep, and the registration if there is a new one."""

    login: Login
    registration: Registration | None = None
    dropped: str | None = None
    """The issuer whose registration was refused, so that it is to be forgotten."""


class _Client(Struct, frozen=True):
    client: ClientId
    redirect_uri: str
    registration: Registration | None
    is_new: bool = False


def login(
    url: str,
    settings: OAuth,
    challenge: Challenge | None,
    kept: Kept,
    *,
    before: Sequence[str] = (),
    held: Sequence[str] = (),
    saw_metadata: bool = False,
) -> Steps[LoggedIn]:
    """Log a person in to the MCP server at `url`. `before` are the scopes that were asked for, for a step up;
    `held` are those that the last login was granted.

    Raises AuthorizationFailed, FetchError.
    """
    found = yield from discover(
        url,
        challenge,
        prefers=_preference(settings, kept),
        legacy=settings.legacy and not saw_metadata,
        assume_issuer=settings.assume_issuer,
    )
    server = found.server
    _check_issuer(settings, kept, url, server)
    supported = found.metadata.scopes_supported if found.metadata is not None else None
    challenged = challenge.scopes if challenge is not None else ()
    scopes = scopes_to_ask(settings, server, challenged, supported, before, held)
    bound = binding(settings.dpop, challenge, found)

    known = known_client(settings, server)
    stored = kept.registration(server.issuer) if known is None else None
    try:
        client = yield from _client(settings, server, known, stored)
        tokens = yield from _tokens(url, settings, found, client, scopes, bound)
    except Refusal as error:
        if held and error.code == "invalid_scope":
            # What was granted once may be no more.
            return (yield from login(url, settings, challenge, kept, saw_metadata=saw_metadata))
        # A registration that the server has forgotten, or that lacks scopes, is made anew: once.
        has_scopes = error.code == "invalid_scope" and known is None
        if known is not None or not (has_scopes or (stored is not None and error.code in _FORGOTTEN)):
            raise
        client = yield from _client(settings, server, None, None, scopes if has_scopes else None)
        tokens = yield from _tokens(url, settings, found, client, scopes, bound)
    record = login_of(url, found, client.client, tokens, scopes, bound)
    return LoggedIn(record, client.registration if client.is_new else None)


_FORGOTTEN = ("invalid_client", "unauthorized_client")


def _preference(settings: OAuth, kept: Kept) -> Callable[[str], int]:
    """Spec: RFC 9728 7.6: which of several issuers; where we are registered, then as the resource sorts them."""

    def rank(issuer: str) -> int:
        if settings.issuer is not None:
            return int(issuer != settings.issuer)
        return int(kept.registration(issuer) is None)

    return rank


def _check_issuer(settings: OAuth, kept: Kept, url: str, server: ServerMetadata) -> None:
    """A given client id belongs to one issuer, said or learnt. Raises AuthorizationFailed."""
    if settings.client_id is None or settings.issuer is not None:
        return
    before = kept.login(url, settings.client_id)
    if before is not None and before.issuer != server.issuer:
        raise AuthorizationFailed(
            f"client id {printable(settings.client_id, 100)} was used at {printable(before.issuer, 200)}, and the "
            f"server now names {printable(server.issuer, 200)}: if that is right, mcpd logout {url}, and log in with "
            "an id of it"
        )


def _client(
    settings: OAuth,
    server: ServerMetadata,
    known: ClientId | None,
    stored: Registration | None,
    scopes: tuple[str, ...] | None = None,
) -> Steps[_Client]:
    """Who we are there, with a place that the browser comes back to: registered now if need be."""
    wanted = stored.redirect_uri if stored is not None else None
    if settings.device:
        redirect: str | None = settings.redirect
    else:
        redirect = yield Listen(wanted)
        if redirect is None:
            # The port of the registration is taken: one more registration, for another.
            stored = None
            redirect = yield Listen(None)
    assert isinstance(redirect, str)
    if known is not None:
        return _Client(known, redirect, None)
    if stored is not None:
        return _Client(stored.client, redirect, stored)
    made = yield from register(settings, server, redirect, scopes)
    return _Client(made.client, redirect, made, is_new=True)


def _tokens(
    url: str,
    settings: OAuth,
    found: Found,
    client: _Client,
    scopes: tuple[str, ...] | None,
    bound: Binding,
) -> Steps[Tokens]:
    if settings.device:
        return (yield from _by_device(url, found, client.client, scopes, bound))
    server = found.server
    attempt = begin(settings, server, client.client.client_id, client.redirect_uri, found.resource, scopes)
    returned: str = yield Visit(authorization_url(server, attempt, url), server.issuer, scopes or ())
    code = read_callback(server, attempt, returned)
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_uri,
        "code_verifier": attempt.verifier,
        "resource": attempt.resource,
    }
    return (
        yield from request_tokens(
            server.token_endpoint, fields, client.client, prover=bound.prover, needs_bound=bound.is_needed
        )
    )


def _by_device(
    url: str, found: Found, client: ClientId, scopes: tuple[str, ...] | None, bound: Binding
) -> Steps[Tokens]:
    """Spec: RFC 8628: a code that is typed elsewhere, and a question every few seconds whether it was."""
    server = found.server
    if server.device_endpoint is None:
        raise AuthorizationFailed(
            f"{printable(server.issuer, 200)} has no login by a code: leave out --device; --no-browser works over SSH"
        )
    fields, headers = identified(client, {"scope": " ".join(scopes) if scopes else None, "resource": found.resource})
    said = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **headers}
    what = "device authorization endpoint"
    answer = yield from ask(HttpStep(server.device_endpoint, what, "POST", tuple(said.items()), form(fields)))
    if answer.status != 200:
        raise refusal_of(answer, server.device_endpoint, what)
    document = json_object(answer.body) or {}
    code, page, user_code = (document.get(name) for name in ("device_code", "verification_uri", "user_code"))
    if not (isinstance(code, str) and isinstance(page, str) and isinstance(user_code, str)):
        raise AuthorizationFailed(f"the {what} of {printable(server.issuer, 200)} gives no code")

    check_endpoint("page for the code", page, url)  # a program may show it in a browser
    pause, left = _number(document.get("interval"), 5.0), _number(document.get("expires_in"), 600.0)
    pause, left = min(pause, _MOST_DEVICE_PAUSE), min(left, _MOST_DEVICE_SECONDS)
    whole = document.get("verification_uri_complete")
    if isinstance(whole, str):
        check_endpoint("page for the code", whole, url)
    asked = {"grant_type": _DEVICE_GRANT, "device_code": code, "resource": found.resource}
    is_first = True
    while left > 0:
        yield Tell(page, user_code, pause, whole if isinstance(whole, str) else None, is_first)
        is_first = False
        left -= pause
        try:
            return (
                yield from request_tokens(
                    server.token_endpoint, dict(asked), client, prover=bound.prover, needs_bound=bound.is_needed
                )
            )
        except Refusal as error:
            if error.code == "slow_down":
                pause += 5
            elif error.code != "authorization_pending":
                raise
    raise AuthorizationFailed("the code was not typed in time: log in again")


def _number(found: object, default: float) -> float:
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return float(min(max(found, 0.05), 1e9)) if is_number and isinstance(found, (int, float)) else default


def login_of(
    url: str, found: Found, client: ClientId | None, tokens: Tokens, scopes: Sequence[str] | None, bound: Binding
) -> Login:
    """The record of what a token endpoint gave."""
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
        # Spec: RFC 6749 5.1: where the scope is left out it is what was asked for.
        granted=tuple(scopes or ()) if tokens.scopes is None else tokens.scopes,
        client_secret=None if client is None else client.client_secret,
        method="none" if client is None else client.method,
        token_endpoint=found.server.token_endpoint,
        revocation_endpoint=found.server.revocation_endpoint,
        dpop_key=None if bound.prover is None else bound.prover.private,
        saw_metadata=found.metadata is not None,
    )


def refresh(login: Login, bound: Binding) -> Steps[Login]:
    """The login with new tokens. Raises Refusal, AuthorizationFailed, FetchError."""
    assert login.refresh_token is not None
    client = ClientId(login.client_id, login.client_secret, login.method)
    fields = {"grant_type": "refresh_token", "refresh_token": login.refresh_token, "resource": login.resource}
    tokens = yield from request_tokens(
        login.token_endpoint, fields, client, prover=bound.prover, needs_bound=login.token_type == "DPoP"
    )
    return refreshed(login, tokens)


def refreshed(login: Login, tokens: Tokens) -> Login:
    """Spec: RFC 6749 6: a refresh token and scopes that the answer leaves out stay as they were."""
    now = time.time()
    return replace(
        login,
        access_token=tokens.access_token,
        token_type=tokens.token_type,
        issued_at=now,
        expires_at=None if tokens.lifetime is None else now + tokens.lifetime,
        refresh_token=tokens.refresh_token or login.refresh_token,
        granted=login.granted if tokens.scopes is None else tokens.scopes,
    )
