"""DPoP proofs (RFC 9449), when they are required, and client assertions (RFC 7523). Signing requires joserfc.

Spec: RFC 9449 4.2, 7.1, 8; SEP-1932 (draft); the extension for client credentials.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from mcpd.auth.dpop import b64
from mcpd.client.auth.discovery import Discovery
from mcpd.errors import AuthorizationFailed, ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.challenge import Challenge

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
