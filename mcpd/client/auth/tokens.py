"""Requests to a token endpoint, their results, and the keys that tokens are bound to. No I/O.

Signing (DPoP proofs and client assertions) requires joserfc. Spec: RFC 6749 2.3, 4.1.3, 5, 6; RFC 7009; RFC 7523; RFC
8707; RFC 9449 4.2, 5, 7.1, 8; SEP-1932 (draft).
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote_plus, urlsplit

from msgspec import Struct

from mcpd.auth.signatures import b64
from mcpd.client.auth.discovery import Discovery
from mcpd.client.auth.documents import shown
from mcpd.client.auth.steps import HttpStep, StepResponse, Steps, form, json_object, send
from mcpd.errors import AuthorizationFailed, ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.challenge import Challenge

_PREFERRED = ("client_secret_basic", "client_secret_post")
_LONGEST = 16 * 1024


class ClientId(Struct, frozen=True):
    """The client at one authorization server. `method` is how it authenticates (RFC 7591)."""

    client_id: str
    client_secret: str | None = None
    method: str = "none"

    def __repr__(self) -> str:
        return f"ClientId({self.client_id!r}, method={self.method!r})"


class Tokens(Struct, frozen=True, kw_only=True):
    """The tokens of a response. `lifetime` is in seconds; None if the response does not contain it."""

    access_token: str
    token_type: str
    lifetime: float | None = None
    refresh_token: str | None = None
    scopes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Tokens({self.token_type}, lifetime={self.lifetime}, scopes={self.scopes})"


class Refusal(AuthorizationFailed):
    """An endpoint refused a request. `code` is the OAuth error, "" without one.

    `is_temporary` means that a later attempt may succeed.
    """

    def __init__(self, text: str, code: str = "", status: int = 0) -> None:
        self.code = code
        self.status = status
        self.is_temporary = status >= 500 or status == 429
        super().__init__(text)


def choose_method(listed: Sequence[str] | None, secret: str | None) -> str:
    """Return an authentication method of those that the server lists. Raises AuthorizationFailed if there is none."""
    if secret is None:
        return "none"
    # Spec: RFC 8414 2: without a list, the method is Basic.
    for method in _PREFERRED:
        if method in (_PREFERRED[:1] if listed is None else listed):
            return method
    if listed and "none" in listed:
        return "none"
    raise AuthorizationFailed(
        "the authorization server does not accept a client secret: it lists "
        f"{printable(', '.join(listed or ()), 200) or 'nothing'}"
    )


def authenticate_client(
    client: ClientId, fields: dict[str, str | None]
) -> tuple[dict[str, str | None], dict[str, str]]:
    """Return the fields and the header fields of a request with the identity of the client."""
    if client.method == "client_secret_basic" and client.client_secret is not None:
        # Spec: RFC 6749 2.3.1: both are form-encoded before they are joined.
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        # Some servers also need the client id in the body to find the client.
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
    requires_dpop: bool = False,
    what: str = "token endpoint",
) -> Steps[Tokens]:
    """Send a token request, with a DPoP proof if there is a `prover`. It is repeated once if the server requires a
    nonce.

    `requires_dpop` refuses a token that is not bound to the key of the prover. Raises Refusal, AuthorizationFailed and
    FetchError.
    """
    body, headers = (fields, {}) if client is None else authenticate_client(client, fields)
    for attempt in range(2):
        sent = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **headers}
        if prover is not None:
            sent["DPoP"] = prover.proof("POST", endpoint)
        answer = yield from send(HttpStep(endpoint, what, "POST", tuple(sent.items()), form(body)))
        if prover is not None:
            prover.on_response(endpoint, answer.headers)
        if answer.status in (200, 201):
            return _read(answer, endpoint, what, prover, requires_dpop=requires_dpop)

        refused = refusal_of(answer, endpoint, what)
        # Spec: RFC 9449 8: repeat the request with the nonce and a new proof.
        if attempt or prover is None or refused.code != "use_dpop_nonce":
            raise refused
    raise AssertionError


def _read(answer: StepResponse, endpoint: str, what: str, prover: Prover | None, *, requires_dpop: bool) -> Tokens:
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
        raise AuthorizationFailed(f"the {what} {shown(endpoint)} returned no access token")
    if kind is None:
        kind = "Bearer"  # like the official Python client
    kind = kind if isinstance(kind, str) else ""
    if kind.lower() not in ("bearer", "dpop", "n_a"):
        raise AuthorizationFailed(
            f"the {what} {shown(endpoint)} returned a token of the unknown type {printable(kind, 60)!r}"
        )
    if kind.lower() == "dpop" and prover is None:
        raise AuthorizationFailed(f"the {what} {shown(endpoint)} returned a DPoP token that was not requested")
    if requires_dpop and kind.lower() != "dpop":
        # Spec: RFC 9449 5: a client that needs the protection discards such a token.
        raise AuthorizationFailed(f"the {what} {shown(endpoint)} returned a bearer token instead of a DPoP token")

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
    # In this order, because an integer of 400 digits cannot be converted to float.
    return float(min(found, 10 * 365 * 86400)) if is_number and found > 0 else None


def refusal_of(answer: StepResponse, endpoint: str, what: str) -> Refusal:
    """Return the error of a response."""
    document: Mapping[str, Any] = json_object(answer.body) or {}
    code = document.get("error")
    code = code if isinstance(code, str) else ""
    description = document.get("error_description")
    text = (
        f"{printable(code, 60)}: {printable(description, 300)}"
        if isinstance(description, str) and description
        else printable(code, 60)
    )
    return Refusal(
        f"the {what} {shown(endpoint)} refused ({answer.status}){f': {text}' if text else ''}", code, answer.status
    )


def revoke(endpoint: str, token: str, hint: str, client: ClientId) -> Steps[None]:
    """Revoke a token (RFC 7009). Raises Refusal, FetchError."""
    body, headers = authenticate_client(client, {"token": token, "token_type_hint": hint})
    sent = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    answer = yield from send(HttpStep(endpoint, "revocation endpoint", "POST", tuple(sent.items()), form(body)))
    if not 200 <= answer.status < 300:
        raise refusal_of(answer, endpoint, "revocation endpoint")


ALGORITHM = "ES256"
_MOST_ORIGINS = 100
_ASSERTION_SECONDS = 120
_ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA")


def _library() -> Any:
    try:
        import joserfc.jwk
        import joserfc.jwt
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "joserfc":
            raise
        raise ConfigurationError("DPoP and key assertions need a package: pip install 'mcpd-server[auth]'") from None
    return joserfc


class Prover:
    """An ES256 key, and the nonces that servers require in its proofs. `key` is a value of `private`; None creates a
    key.
    """

    def __init__(self, key: Mapping[str, Any] | None = None) -> None:
        jose = _library()
        kind = jose.jwk.ECKey
        self._key = kind.generate_key("P-256", private=True) if key is None else kind.import_key(dict(key))
        self._public = self._key.as_dict(private=False)
        self._public = {name: self._public[name] for name in ("kty", "crv", "x", "y")}
        self._nonces: dict[str, str] = {}

    def __repr__(self) -> str:
        return "Prover()"

    @property
    def private(self) -> dict[str, Any]:
        """The private key as a JWK. It is a secret."""
        found: dict[str, Any] = self._key.as_dict(private=True)
        return found

    def proof(self, method: str, url: str, token: str | None = None) -> str:
        """Return a new proof for one request, and for the token that it is sent with."""
        parts = urlsplit(url)
        claims: dict[str, Any] = {
            "jti": token_urlsafe(16),
            "htm": method,
            # Spec: RFC 9449 4.2: without query and fragment.
            "htu": f"{parts.scheme}://{parts.netloc}{parts.path}",
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = b64(sha256(token.encode()).digest())
        if nonce := self._nonces.get(_origin(url)):
            claims["nonce"] = nonce
        header = {"typ": "dpop+jwt", "alg": ALGORITHM, "jwk": self._public}
        return str(_library().jwt.encode(header, claims, self._key, algorithms=[ALGORITHM]))

    def on_response(self, url: str, headers: Mapping[str, str]) -> bool:
        """Keep the nonce of a response. Return whether it has one. Header names are in lower case."""
        nonce = headers.get("dpop-nonce")
        if not nonce or len(nonce) > 1024:
            return False
        if len(self._nonces) >= _MOST_ORIGINS:
            self._nonces.clear()
        self._nonces[_origin(url)] = nonce
        return True


def assertion(client_id: str, audience: str, key_pem: str, algorithm: str) -> str:
    """Return a client assertion. The audience is the issuer of the authorization server.

    Raises ConfigurationError for an unreadable key, and for a key that does not fit the algorithm.
    """
    if algorithm not in _ALGORITHMS:
        raise ConfigurationError(f"PrivateKeyJwt: algorithm must be one of {', '.join(_ALGORITHMS)}")
    jose = _library()
    now = int(time.time())
    claims = {
        "iss": client_id, "sub": client_id, "aud": audience, "jti": token_urlsafe(16),
        "iat": now, "exp": now + _ASSERTION_SECONDS,
    }  # fmt: skip
    kind = {"E": jose.jwk.ECKey, "R": jose.jwk.RSAKey, "P": jose.jwk.RSAKey}.get(algorithm[0], jose.jwk.ECKey)
    if algorithm == "EdDSA":
        kind = jose.jwk.OKPKey
    try:
        key = kind.import_key(key_pem)
        return str(jose.jwt.encode({"alg": algorithm, "typ": "JWT"}, claims, key, algorithms=[algorithm]))
    except Exception:
        # The library's message may contain the key.
        raise ConfigurationError(f"PrivateKeyJwt: key_pem must be a PKCS 8 private key for {algorithm}") from None


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class Binding(Struct, frozen=True):
    """The key that tokens are bound to. `is_required` refuses tokens that are not bound to it."""

    prover: Prover | None = None
    is_required: bool = False


UNBOUND = Binding()


def binding(wants: bool, challenge: Challenge | None, found: Discovery) -> Binding:
    """Create a key if the program, the challenge or the resource requires DPoP. Raises AuthorizationFailed."""
    metadata = found.metadata
    is_required = wants or (challenge is not None and challenge.is_of("DPoP"))
    is_required = is_required or (metadata is not None and metadata.wants_dpop)
    if not is_required:
        return UNBOUND
    if ALGORITHM not in found.server.dpop_algorithms:
        raise AuthorizationFailed(
            f"DPoP tokens are required, but {printable(found.server.issuer, 200)} does not announce DPoP with "
            f"{ALGORITHM} (dpop_signing_alg_values_supported)"
        )

    return Binding(Prover(), is_required=True)


def binding_of(key: Mapping[str, Any] | None) -> Binding:
    """Return the key of a stored login."""
    if key is None:
        return UNBOUND

    return Binding(Prover(key), is_required=True)
