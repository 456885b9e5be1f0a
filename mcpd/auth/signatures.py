"""Signed tokens: the parts of a compact JWS, its signature, and proofs of possession (DPoP).

Callers check the header of a token before its signature. A proof shows that the sender of a token has the key that it
is bound to. Each proof is for one request, so results are not cached, but imported keys are. Used proofs are remembered
and refused. If that memory is full or several processes serve, proofs need a nonce instead.

Spec: RFC 7515 sections 3.1 and 5.2; RFC 9449 sections 4.3, 7, 8 and 11.1.
"""

from __future__ import annotations

import hmac
import os
import re
from base64 import urlsafe_b64encode
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from time import time
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, unquote, urlsplit

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, decode, encode

T = TypeVar("T")

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# Maps base64url to base64, and all other characters, including + and /, to an invalid one.
_TO_BASE64 = bytes(code if code in _ALPHABET else {45: 43, 95: 47}.get(code, 33) for code in range(256))
_PADDING = (b"", b"===", b"==", b"=")


def segments_of(text: str) -> tuple[str, str, str] | None:
    """Return header, payload and signature without decoding them, or None if the text is not a compact JWS."""
    parts = text.split(".", 3)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


def bytes_in(segment: str) -> bytes | None:
    """Return the bytes of a segment, or None if it is not base64url."""
    try:
        data = segment.encode("ascii").translate(_TO_BASE64)
        return a2b_base64(data + _PADDING[len(data) % 4], strict_mode=True)
    except ValueError:
        return None


def object_in(segment: str) -> dict[str, Any] | None:
    """Return the JSON object in a segment, or None."""
    found = _decoded(segment, decode)
    return found if isinstance(found, dict) else None


def _decoded(segment: str, read: Callable[[bytes], T]) -> T | None:
    data = bytes_in(segment)
    try:
        return None if data is None else read(data)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        return None


# Takes the signed bytes and the signature, and returns whether the key made it. Does not raise.
SignatureCheck: TypeAlias = Callable[[bytes, bytes], bool]


def signature_check(key: Any, alg: str) -> SignatureCheck | None:
    """Return a function that checks signatures of a key with an algorithm, or None if the key does not fit."""
    from joserfc.jws import JWSRegistry  # loaded with the first token

    model = JWSRegistry.algorithms.get(alg)
    if model is None:
        return None
    try:
        model.check_key(key)
    except Exception:  # keys come from anybody, and the library raises errors of many classes
        return None
    return partial(_is_of, model.verify, key)


def is_signed(parts: tuple[str, str, str], key: Any, alg: str) -> bool:
    """Return whether a key signed header and payload with an algorithm. The caller must have checked `crit`."""
    signature, check = bytes_in(parts[2]), signature_check(key, alg)
    return signature is not None and check is not None and check(f"{parts[0]}.{parts[1]}".encode(), signature)


def _is_of(verify: Callable[[bytes, bytes, Any], bool], key: Any, signed: bytes, signature: bytes) -> bool:
    try:
        return bool(verify(signed, signature, key))
    except Exception:  # signatures come from anybody, and the library raises errors of many classes
        return False


def is_sound(given: Mapping[str, Any], max_bits: int) -> bool:
    """Return whether an RSA key has 2,048 to `max_bits` bits and a safe exponent."""
    numbers = []
    for name, most in (("n", 2048), ("e", 16)):
        text = given.get(name)
        data = bytes_in(text.rstrip("=")) if isinstance(text, str) and len(text) <= most else None
        if data is None:
            return False
        numbers.append(int.from_bytes(data, "big"))
    n, e = numbers
    return 2048 <= n.bit_length() <= max_bits and e >= 3 and e % 2 == 1


# Accepted signature algorithms of proofs.
ALGORITHMS = ("ES256", "EdDSA", "Ed25519", "RS256", "PS256")

# The key type and curve of each asymmetric algorithm.
KEY_TYPES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", "")),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}

_KEY_MEMBERS = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
# The largest RSA key, in bits. Anybody may send a key, and a check with 8,192 bits takes four times as long.
_MAX_BITS = 4096
# Members of a JWK that only its owner may have.
SECRET_MEMBERS = frozenset(("d", "k", "p", "q", "dp", "dq", "qi", "oth"))
_MAX_BYTES = 8 * 1024
_MAX_KEYS = 1_000
_WINDOW = 300.0
_GENERATION = 600.0
_MAX_SEEN = 200_000
_SLOT = 60
_escape = re.compile(r"%[0-9A-Fa-f]{2}")
_PORTS = {"https": 443, "http": 80}


class BadProof(Struct, frozen=True):
    """Why a proof is refused. If only a nonce is missing, `nonce` is one to use."""

    why: str
    nonce: str = ""


class _KnownKey(Struct, frozen=True):
    is_signed: SignatureCheck
    thumbprint: str


class _Claims(Struct):
    """The claims of a proof. Members of other types make it invalid."""

    htm: str = ""
    htu: str = ""
    iat: int | float | None = None
    jti: str = ""
    ath: str = ""
    nonce: str = ""


_claims_in = Decoder(_Claims).decode


class ProofChecker:
    """Checks proofs. With `nonces`, or when the memory is full, each proof needs a nonce.

    Nonces are made with the first of `nonce_keys`, and accepted if made with any of them.
    """

    def __init__(
        self,
        *,
        nonces: bool = False,
        nonce_key: bytes | None = None,
        max_seen: int = _MAX_SEEN,
        clock: Callable[[], float] = time,
    ) -> None:
        self._wants_nonces = nonces
        self.nonce_keys: tuple[bytes, ...] = (nonce_key or os.urandom(32),)
        self._max_seen = max_seen
        self._clock = clock
        # Keys of valid proofs by the encoded header.
        self._keys: dict[str, _KnownKey] = {}
        self._seen: set[bytes] = set()
        self._seen_before: set[bytes] = set()
        self._began = clock()

    def check(
        self, proofs: str | None, *, method: str, url: str, ath: str | None = None, thumbprint: str | None = None
    ) -> str | BadProof:
        """Return the thumbprint of the key of a valid proof for a request, or why the proof is not valid.

        `url` is normalized. `ath` is the base64url SHA-256 of the token and `thumbprint` its key; None without a token.
        """
        if proofs is None:
            return BadProof("the DPoP header is missing")
        if len(proofs) > _MAX_BYTES:
            return BadProof("the proof is too long")
        parts = segments_of(proofs)
        if parts is None:
            return BadProof("the DPoP header is not one JWT")

        known = self._keys.get(parts[0]) or _key_of_header(parts[0])
        if isinstance(known, BadProof):
            return known
        claims = _decoded(parts[1], _claims_in)
        if claims is None:
            return BadProof("the proof cannot be read")
        signature = bytes_in(parts[2])
        if signature is None or not known.is_signed(f"{parts[0]}.{parts[1]}".encode(), signature):
            return BadProof("the signature of the proof is not valid")

        if parts[0] not in self._keys:
            if len(self._keys) >= _MAX_KEYS:
                del self._keys[next(iter(self._keys))]
            self._keys[parts[0]] = known

        if claims.htm != method:
            return BadProof("the proof is for another method")
        # RFC 9449 section 4.3: compared after normalization, without query and fragment.
        if claims.htu != url and normalized(claims.htu) != url:
            return BadProof("the proof is for another URL")
        now = self._clock()  # not converted: an integer of 400 digits does not fit into a float
        if claims.iat is None:
            return BadProof("the proof has no time")
        if not now - _WINDOW <= claims.iat <= now + _WINDOW:
            return BadProof("the time of the proof is not current")
        if ath is not None and claims.ath != ath:
            return BadProof("the proof is for another token")
        if thumbprint is not None and known.thumbprint != thumbprint:
            return BadProof("the token is bound to another key")
        if not 1 <= len(claims.jti) <= 512:
            return BadProof("the proof has no identifier")

        # Last, so that only valid proofs are remembered.
        if self._is_full(now) and not self._has_nonce(claims.nonce):
            return BadProof("the proof must have a nonce from this server", self.nonce())
        if not self._remember(known.thumbprint, claims.jti):
            return BadProof("the proof was used before")
        return known.thumbprint

    # -- replay, nonces ----------------------------------------------------------------------

    def nonce(self) -> str:
        """Return the current nonce. It contains nothing but the minute in which it was made."""
        return self._nonce_of(self.nonce_keys[0], 0)

    def _nonce_of(self, key: bytes, slots_ago: int) -> str:
        slot = int(self._clock() // _SLOT) - slots_ago
        return b64(hmac.digest(key, b"nonce %d" % slot, "sha256")[:18])

    def _has_nonce(self, nonce: str) -> bool:
        valid = (self._nonce_of(key, ago) for key in self.nonce_keys for ago in (0, 1))
        return any(hmac.compare_digest(nonce.encode(), each.encode()) for each in valid)

    def _is_full(self, now: float) -> bool:
        if now - self._began >= _GENERATION:
            # Proofs older than two windows are refused because of their time.
            is_old = now - self._began >= 2 * _GENERATION
            self._seen_before = set() if is_old else self._seen
            self._seen = set()
            self._began = now
        return self._wants_nonces or len(self._seen) + len(self._seen_before) >= self._max_seen

    def _remember(self, thumbprint: str, jti: str) -> bool:
        # Record that a proof was used. Returns False if it was used before.
        mark = sha256(f"{thumbprint} {jti}".encode()).digest()
        if mark in self._seen or mark in self._seen_before:
            return False
        if len(self._seen) + len(self._seen_before) < self._max_seen:
            # Hashes of one size, so that a long `jti` cannot fill the memory.
            self._seen.add(mark)
        return True


def _key_of_header(segment: str) -> _KnownKey | BadProof:
    # Return the key in the header of a proof. All proofs of a client have the same header.
    head = object_in(segment)
    if head is None:
        return BadProof("the proof cannot be read")
    alg = head.get("alg")
    if head.get("typ") != "dpop+jwt" or "crit" in head or not isinstance(alg, str) or alg not in ALGORITHMS:
        return BadProof("the header of the proof is not valid, or its algorithm is not accepted")
    own = _public_key(head.get("jwk"), alg)
    if own is None:
        return BadProof("the key of the proof is not a public key for its algorithm")

    from joserfc import jwk

    try:
        check = signature_check(jwk.import_key(dict(own)), alg)
    except Exception:  # keys come from anybody, and the library raises errors of many classes
        check = None
    if check is None:
        return BadProof("the key of the proof is not valid")
    return _KnownKey(check, b64(sha256(encode(own)).digest()))


def _public_key(given: object, alg: str) -> dict[str, str] | None:
    # Return the members for the key and its thumbprint (RFC 7638), or None if the key does not fit the algorithm.
    if not isinstance(given, dict) or not SECRET_MEMBERS.isdisjoint(given):
        return None
    names = _KEY_MEMBERS.get(str(given.get("kty")))
    if names is None or (given["kty"], given.get("crv", "")) != KEY_TYPES[alg]:
        return None
    members = {name: given.get(name) for name in names}
    if not all(isinstance(text, str) for text in members.values()):
        return None
    if given["kty"] == "RSA" and not is_sound(given, _MAX_BITS):
        return None
    return {name: str(text) for name, text in members.items()}


def b64(digest: bytes) -> str:
    """Return base64url without padding, as in a JWS."""
    return urlsafe_b64encode(digest).decode().rstrip("=")


def normalized(url: str) -> str | None:
    """Return a URL without query and fragment in normal form (RFC 3986 sections 6.2.2 and 6.2.3), or None."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    if scheme not in _PORTS or not host or "@" in parts.netloc:
        return None
    host = f"[{host}]" if ":" in host else host
    shown = host if port is None or port == _PORTS[scheme] else f"{host}:{port}"
    return f"{scheme}://{shown}{_without_dots(_escape.sub(_unescaped, parts.path)) or '/'}"


def _unescaped(match: re.Match[str]) -> str:
    # Decode an escaped unreserved character; write other escapes in upper case.
    text = unquote(match[0], "latin-1")
    return text if text == quote(text, safe="~") else match[0].upper()


def _without_dots(path: str) -> str:
    if "/." not in path:
        return path
    found: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if len(found) > 1:
                found.pop()
        elif part != ".":
            found.append(part)
    return "/".join(found) + ("/" if path.endswith(("/.", "/..")) and found[-1:] != [""] else "")
