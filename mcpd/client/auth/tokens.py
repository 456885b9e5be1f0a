"""Requests to a token endpoint, their results, and the keys that tokens are bound to. No I/O.

Signing (DPoP proofs and client assertions) requires joserfc. Spec: RFC 6749 2.3, 4.1.3, 5, 6; RFC 7009; RFC 7523; RFC
8707; RFC 9449 4.2, 5, 7.1, 8; SEP-1932 (draft).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from mcpd.auth.fetch import Response, basic_credentials
from mcpd.auth.signatures import KEY_TYPES, b64
from mcpd.errors import AuthorizationFailed, ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.challenge import Challenge
from .discovery import Discovery, ServerMetadata, shown
from .steps import Steps, send_form

_PREFERRED = ("client_secret_basic", "client_secret_post")
_LONGEST = 16 * 1024
_ERROR = ("error", "error_description")


class ClientId(Struct, frozen=True):
    """The client at one authorization server. `method` is how it authenticates (RFC 7591)."""

    client_id: str
    client_secret: str | None = None
    method: str = "none"

    @classmethod
    def at(cls, server: ServerMetadata, client_id: str, secret: str | None) -> ClientId:
        """Return the client with a method that this server lists. Raises AuthorizationFailed if there is none."""
        return cls(client_id, secret, choose_method(server.auth_methods, secret))

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
    """Return an authentication method from the server's list. Raises AuthorizationFailed if no method fits."""
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
    # Some servers also need the client id in the body with Basic, to find the client.
    named = {**fields, "client_id": client.client_id}
    if client.method == "client_secret_post":
        named["client_secret"] = client.client_secret
    if client.method == "client_secret_basic" and client.client_secret is not None:
        return named, {"Authorization": basic_credentials(client.client_id, client.client_secret)}
    return named, {}


def request_tokens(
    endpoint: str, fields: dict[str, str | None], client: ClientId | None, prover: Prover | None = None
) -> Steps[Tokens]:
    """Send a token request. It is repeated once if the server requires a nonce.

    With a `prover` it has a DPoP proof, and a token that is not bound to its key is refused. Raises Refusal,
    AuthorizationFailed and FetchError.
    """
    what = "token endpoint"
    body, headers = (fields, {}) if client is None else authenticate_client(client, fields)
    for attempt in range(2):
        if prover is not None:
            headers["DPoP"] = prover.proof("POST", endpoint)
        response = yield from send_form(endpoint, what, body, headers)
        if prover is not None:
            # RFC 9449 8.2: any response may bring a new nonce, also an error.
            prover.on_response(endpoint, response.header("DPoP-Nonce"))
        # Some servers send errors with status 200.
        if response.status in (200, 201) and not response.members().get("error"):
            return _read(response.members(), f"the {what} {shown(endpoint)} returned", prover)

        refused = refusal_of(response, endpoint, what)
        # Spec: RFC 9449 8: repeat the request with the nonce and a new proof.
        if attempt or prover is None or refused.code != "use_dpop_nonce":
            raise refused
    raise AssertionError


def _read(members: Mapping[str, Any], where: str, prover: Prover | None) -> Tokens:
    token, kind = members.get("access_token"), members.get("token_type", "Bearer")
    if not isinstance(token, str) or not 0 < len(token) <= _LONGEST or not token.isascii() or not token.isprintable():
        raise AuthorizationFailed(f"{where} no access token")
    # Spec: RFC 9449 5: a client that needs the protection discards a token without it.
    is_bound = isinstance(kind, str) and kind.lower() == "dpop"
    if not is_bound and kind is not None and str(kind).lower() not in ("bearer", "n_a"):
        raise AuthorizationFailed(f"{where} a token of the unknown type {printable(str(kind), 60)!r}")
    if is_bound and prover is None:
        raise AuthorizationFailed(f"{where} a DPoP token that was not requested")
    if prover is not None and not is_bound:
        raise AuthorizationFailed(f"{where} a bearer token instead of a DPoP token")

    scope, refresh = members.get("scope"), members.get("refresh_token")
    return Tokens(
        access_token=token,
        token_type="DPoP" if is_bound else "Bearer",
        lifetime=seconds(members.get("expires_in")),
        refresh_token=refresh if isinstance(refresh, str) and refresh else None,
        scopes=tuple(scope.split()) if isinstance(scope, str) else None,
    )


def seconds(found: Any) -> float | None:
    """Return a lifetime; None for anything but a number above 0."""
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= 20:
        found = int(found)
    return positive(found, 10 * 365 * 86400)


def positive(found: Any, most: float) -> float | None:
    """Return a number above 0, at most `most`; None for anything else."""
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    # In this order, because an integer of 400 digits cannot be converted to float.
    return float(min(found, most)) if is_number and found > 0 else None


def refusal_of(response: Response, endpoint: str, what: str) -> Refusal:
    members = response.members()
    code, description = (text if isinstance(text := members.get(name), str) else "" for name in _ERROR)
    reason = ": ".join(filter(None, (printable(code, 60), printable(description, 300))))
    text = f"the {what} {shown(endpoint)} refused ({response.status}){f': {reason}' if reason else ''}"
    return Refusal(text, code, response.status)


def revoke(endpoint: str, token: str, hint: str, client: ClientId) -> Steps[None]:
    """Revoke a token (RFC 7009). Raises Refusal, FetchError."""
    body, headers = authenticate_client(client, {"token": token, "token_type_hint": hint})
    response = yield from send_form(endpoint, "revocation endpoint", body, headers)
    if not 200 <= response.status < 300:
        raise refusal_of(response, endpoint, "revocation endpoint")


ALGORITHM = "ES256"
_MOST_ORIGINS = 100
_ASSERTION_SECONDS = 120


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
    """An ES256 key, and the nonces that servers require in its proofs. `key` is a value of `private`, or new."""

    def __init__(self, key: Mapping[str, Any] | None = None) -> None:
        jose = _library()
        kind = jose.jwk.ECKey
        self._key = kind.generate_key("P-256", private=True) if key is None else kind.import_key(dict(key))
        public = self._key.as_dict(private=False)
        self._public = {name: public[name] for name in ("kty", "crv", "x", "y")}
        self._nonces: dict[str, str] = {}

    def __repr__(self) -> str:
        return "Prover()"

    @property
    def private(self) -> dict[str, Any]:
        """The private key as a JWK. It is a secret."""
        private: dict[str, Any] = self._key.as_dict(private=True)
        return private

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

    def on_response(self, url: str, nonce: str | None) -> None:
        """Keep the nonce of a response, if it has one."""
        if nonce and len(nonce) <= 1024:
            if len(self._nonces) >= _MOST_ORIGINS:
                self._nonces.clear()
            self._nonces[_origin(url)] = nonce


def assertion(client_id: str, audience: str, key_pem: str, algorithm: str) -> str:
    """Return a client assertion. The audience is the issuer of the authorization server.

    Raises ConfigurationError for an unreadable key, and for a key that does not fit the algorithm.
    """
    if algorithm not in KEY_TYPES:
        raise ConfigurationError(f"PrivateKeyJwt: algorithm must be one of {', '.join(KEY_TYPES)}")
    jose = _library()
    now = int(time.time())
    claims = {
        "iss": client_id, "sub": client_id, "aud": audience, "jti": token_urlsafe(16),
        "iat": now, "exp": now + _ASSERTION_SECONDS,
    }  # fmt: skip
    try:
        key = jose.jwk.import_key(key_pem, KEY_TYPES[algorithm][0])
        return str(jose.jwt.encode({"alg": algorithm, "typ": "JWT"}, claims, key, algorithms=[algorithm]))
    except Exception:
        # The library's message may contain the key.
        raise ConfigurationError(f"PrivateKeyJwt: key_pem must be a PKCS 8 private key for {algorithm}") from None


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def prover_for(wants: bool, challenge: Challenge | None, found: Discovery) -> Prover | None:
    """Create a key if the program, the challenge or the resource requires DPoP. Raises AuthorizationFailed."""
    metadata = found.metadata
    is_required = wants or (challenge is not None and challenge.is_of("DPoP"))
    if not is_required and (metadata is None or not metadata.wants_dpop):
        return None

    if ALGORITHM not in found.server.dpop_algorithms:
        raise AuthorizationFailed(
            f"DPoP tokens are required, but {printable(found.server.issuer, 200)} does not announce DPoP with "
            f"{ALGORITHM} (dpop_signing_alg_values_supported)"
        )
    return Prover()
