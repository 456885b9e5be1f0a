"""Requests to a token endpoint, and what they give: tokens, or the error in words. No I/O.

Spec: RFC 6749 2.3, 4.1.3, 5, 6; RFC 7009; RFC 8707; RFC 9449 5 and 8.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from msgspec import Struct

from mcpd.client.auth.documents import shown
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client.auth.dpop import Prover
from mcpd.client.auth.steps import Answer, HttpStep, Steps, ask, form, json_object

_PREFERRED = ("client_secret_basic", "client_secret_post")
_LONGEST = 16 * 1024


class ClientId(Struct, frozen=True):
    """Who the client is at one authorization server, and how it proves that: `method` is the one of RFC 7591."""

    client_id: str
    client_secret: str | None = None
    method: str = "none"

    def __repr__(self) -> str:
        return f"ClientId({self.client_id!r}, method={self.method!r})"


class Tokens(Struct, frozen=True, kw_only=True):
    """What a token endpoint gave. `lifetime` is in seconds, None if it does not say."""

    access_token: str
    token_type: str
    lifetime: float | None = None
    refresh_token: str | None = None
    scopes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Tokens({self.token_type}, lifetime={self.lifetime}, scopes={self.scopes})"


class Refusal(AuthorizationFailed):
    """A token endpoint, or another one, refused a request: `code` is OAuth's error, "" if it gave none.

    `is_passing`: it may go well another time, so that nothing is to be forgotten.
    """

    def __init__(self, text: str, code: str = "", status: int = 0) -> None:
        self.code = code
        self.status = status
        self.is_passing = status >= 500 or status == 429
        super().__init__(text)


def choose_method(listed: Sequence[str] | None, secret: str | None) -> str:
    """How a client proves itself, of what the server lists. Raises AuthorizationFailed if there is no way."""
    if secret is None:
        return "none"
    # Spec: RFC 8414 2: where nothing is listed it is Basic.
    for method in _PREFERRED:
        if method in (_PREFERRED[:1] if listed is None else listed):
            return method
    if listed and "none" in listed:
        return "none"
    raise AuthorizationFailed(
        "the authorization server takes no client secret: it lists "
        f"{printable(', '.join(listed or ()), 200) or 'nothing'}"
    )


def identified(client: ClientId, fields: dict[str, str | None]) -> tuple[dict[str, str | None], dict[str, str]]:
    """The fields of a request with the client's identity, and the header fields for it."""
    if client.method == "client_secret_basic" and client.client_secret is not None:
        # Spec: RFC 6749 2.3.1: both are form-encoded before they are joined.
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        # The id beside it proves nothing, and some servers find the client by it.
        return {**fields, "client_id": client.client_id}, {
            "Authorization": f"Basic {b64encode(pair.encode()).decode()}"
        }
    named = {**fields, "client_id": client.client_id}
    if client.method == "client_secret_post":
        named["client_secret"] = client.client_secret
    return named, {}


def request_tokens(
    endpoint: str,
    fields: dict[str, str | None],
    client: ClientId | None,
    *,
    prover: Prover | None = None,
    needs_bound: bool = False,
    what: str = "token endpoint",
) -> Steps[Tokens]:
    """One token request, with a proof where there is a prover: sent again once if a nonce is wanted.

    `needs_bound` refuses a token that is not bound to the prover's key. Raises Refusal, AuthorizationFailed and
    FetchError.
    """
    body, headers = (fields, {}) if client is None else identified(client, fields)
    for attempt in range(2):
        said = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **headers}
        if prover is not None:
            said["DPoP"] = prover.proof("POST", endpoint)
        answer = yield from ask(HttpStep(endpoint, what, "POST", tuple(said.items()), form(body)))
        if prover is not None:
            prover.heard(endpoint, answer.headers)
        if answer.status in (200, 201):
            return _read(answer, endpoint, what, prover, needs_bound=needs_bound)

        refused = refusal_of(answer, endpoint, what)
        # Spec: RFC 9449 8: once more, with the nonce and a proof of its own.
        if attempt or prover is None or refused.code != "use_dpop_nonce":
            raise refused
    raise AssertionError


def _read(answer: Answer, endpoint: str, what: str, prover: Prover | None, *, needs_bound: bool) -> Tokens:
    document = json_object(answer.body) or {}
    if document.get("error"):  # some servers send errors with status 200
        raise refusal_of(answer, endpoint, what)
    token, kind = document.get("access_token"), document.get("token_type")
    if (
        not isinstance(token, str)
        or not token
        or len(token) > _LONGEST
        or not token.isascii()
        or not token.isprintable()
    ):
        raise AuthorizationFailed(f"the {what} {shown(endpoint)} answers without an access token")
    if kind is None:
        kind = "Bearer"  # as the official Python client reads a token without a type
    kind = kind if isinstance(kind, str) else ""
    if kind.lower() not in ("bearer", "dpop", "n_a"):
        raise AuthorizationFailed(
            f"the {what} {shown(endpoint)} gives a token of the unknown type {printable(kind, 60)!r}"
        )
    if kind.lower() == "dpop" and prover is None:
        raise AuthorizationFailed(f"the {what} {shown(endpoint)} gives a token that is bound to a key, unasked")
    if needs_bound and kind.lower() != "dpop":
        # Spec: RFC 9449 5: a client that needs the protection discards such a token.
        raise AuthorizationFailed(f"the {what} {shown(endpoint)} gives a plain token where one bound by DPoP is wanted")

    scope, refresh = document.get("scope"), document.get("refresh_token")
    return Tokens(
        access_token=token,
        token_type="DPoP" if kind.lower() == "dpop" else "Bearer",
        lifetime=_seconds(document.get("expires_in")),
        refresh_token=refresh if isinstance(refresh, str) and refresh else None,
        scopes=tuple(scope.split()) if isinstance(scope, str) else None,
    )


def _seconds(found: Any) -> float | None:
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= 20:
        found = int(found)
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    # In this order: a number of 400 digits is no float.
    return float(min(found, 10 * 365 * 86400)) if is_number and found > 0 else None


def refusal_of(answer: Answer, endpoint: str, what: str) -> Refusal:
    """What an endpoint says of why it refuses, printable and short."""
    document: Mapping[str, Any] = json_object(answer.body) or {}
    code = document.get("error")
    code = code if isinstance(code, str) else ""
    said = document.get("error_description")
    text = f"{printable(code, 60)}: {printable(said, 300)}" if isinstance(said, str) and said else printable(code, 60)
    return Refusal(
        f"the {what} {shown(endpoint)} refuses ({answer.status}){f': {text}' if text else ''}", code, answer.status
    )


def revoke(endpoint: str, token: str, hint: str, client: ClientId) -> Steps[None]:
    """Spec: RFC 7009. Raises Refusal, FetchError."""
    body, headers = identified(client, {"token": token, "token_type_hint": hint})
    said = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    answer = yield from ask(HttpStep(endpoint, "revocation endpoint", "POST", tuple(said.items()), form(body)))
    if not 200 <= answer.status < 300:
        raise refusal_of(answer, endpoint, "revocation endpoint")
