"""A login, from the refusal of a request to tokens; and the ways to new tokens without one. No I/O.

    login      a person, by a browser or by a code on another device
    obtain     a program with credentials of its own (`grants.py`)
    refresh    the tokens of a login, renewed

Spec: 2026-07-28 basic/authorization; RFC 6749 4.1, 6; RFC 8628; RFC 8707; RFC 9449.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mcpd.auth.challenge import Challenge
from mcpd.client.auth.authorization import authorization_url, begin, read_callback, scopes_to_ask
from mcpd.client.auth.discovery import Found, discover
from mcpd.client.auth.documents import ServerMetadata, check_endpoint
from mcpd.client.auth.proofs_needed import Binding, binding
from mcpd.client.auth.records import Kept, Login, Registration
from mcpd.client.auth.registration import known_client, register
from mcpd.client.auth.settings import OAuth
from mcpd.client.auth.steps import HttpStep, Listen, Steps, Tell, Visit, ask, form, json_object
from mcpd.client.auth.tokens import ClientId, Refusal, Tokens, identified, refusal_of, request_tokens
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable

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
