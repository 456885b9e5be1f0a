"""Proofs of possession: that who sends a token has the key that it is bound to. Spec: RFC 9449 4.3, 7, 8, 11.1.

No verdict on a proof is kept, as each is for one request; the imported keys are, ready to check. A proof that came
before is refused from memory; when that is full, or where several processes serve, nonces take its place, which need
none.
"""

from __future__ import annotations

import hmac
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from time import time
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, encode

from mcpd.auth.signatures import bytes_in, object_in, segments_of

if TYPE_CHECKING:
    from mcpd.auth.signatures import SignatureCheck

ALGORITHMS = ("ES256", "EdDSA", "Ed25519", "RS256", "PS256")
"""The signatures of proofs that are taken. Those of RSA are the quickest to check, and the slowest to make."""

_MEMBERS = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
_KIND_OF = {
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
    "RS256": ("RSA", None),
    "PS256": ("RSA", None),
}
_MOST_BITS = 4096
"""Of an RSA key, which anybody may send: a check with one of 8,192 takes four times as long."""
_SECRET = frozenset(("d", "k", "p", "q", "dp", "dq", "qi", "oth"))
_MOST_BYTES = 8 * 1024
_MOST_KEYS = 1_000
_WINDOW = 300.0
_GENERATION = 600.0
_MOST_SEEN = 200_000
_SLOT = 60
_escape = re.compile(r"%[0-9A-Fa-f]{2}")
_PORTS = {"https": 443, "http": 80}


class BadProof(Struct, frozen=True):
    """Why a proof is refused; `nonce` is one to use, where that is all that is wanted."""

    why: str
    nonce: str = ""


class _Known(Struct, frozen=True):
    is_signed: SignatureCheck
    thumbprint: str


class _Claims(Struct):
    """What a proof says; a member of another type makes it none."""

    htm: str = ""
    htu: str = ""
    iat: int | float | None = None
    jti: str = ""
    ath: str = ""
    nonce: str = ""


_claims_in = Decoder(_Claims).decode


class ProofChecker:
    """Checks proofs. With `nonces`, or a full memory, each has to have a nonce, which is made with `nonce_key`.

    `nonce_keys` are all by which nonces are taken; they are made with the first.
    """

    def __init__(
        self,
        *,
        nonces: bool = False,
        nonce_key: bytes | None = None,
        most_seen: int = _MOST_SEEN,
        clock: Callable[[], float] = time,
    ) -> None:
        self._wants_nonces = nonces
        self.nonce_keys: tuple[bytes, ...] = (nonce_key or os.urandom(32),)
        self._most_seen = most_seen
        self._clock = clock
        self._keys: dict[str, _Known] = {}
        """By the header that brings the key, as far as a proof with it was good."""
        self._seen: set[bytes] = set()
        self._seen_before: set[bytes] = set()
        self._began = clock()

    def check(self, proofs: str | None, *, method: str, url: str, ath: str, thumbprint: str) -> BadProof | None:
        """Why this header proves nothing for this request; None if it does.

        `url` is normalized, `ath` the SHA-256 of the token that came with it, in base64url.
        """
        found = self._found(proofs, method, url, ath, thumbprint)
        return found if isinstance(found, BadProof) else None

    def key_of(self, proofs: str | None, *, method: str, url: str) -> str | BadProof:
        """The thumbprint of the key that this header proves, where a token is asked for and none is sent."""
        return self._found(proofs, method, url, None, None)

    def _found(
        self, proofs: str | None, method: str, url: str, ath: str | None, thumbprint: str | None
    ) -> str | BadProof:
        if proofs is None:
            return BadProof("the DPoP header is missing")
        if len(proofs) > _MOST_BYTES:
            return BadProof("the proof is too long")
        parts = segments_of(proofs)
        if parts is None:
            return BadProof("the DPoP header is not one JWT")

        known = self._keys.get(parts[0])
        if known is None:
            found = _known_key(parts[0])
            if isinstance(found, BadProof):
                return found
            known = found

        claims = _claims_of(parts[1])
        if claims is None:
            return BadProof("the proof cannot be read")
        signature = bytes_in(parts[2])
        if signature is None or not known.is_signed(f"{parts[0]}.{parts[1]}".encode(), signature):
            return BadProof("the signature of the proof is wrong")

        if parts[0] not in self._keys:
            if len(self._keys) >= _MOST_KEYS:
                del self._keys[next(iter(self._keys))]
            self._keys[parts[0]] = known

        its_thumbprint = known.thumbprint
        bad = self._check_claims(claims, method, url, ath, thumbprint, its_thumbprint)
        return its_thumbprint if bad is None else bad

    def _check_claims(
        self,
        claims: _Claims,
        method: str,
        url: str,
        ath: str | None,
        thumbprint: str | None,
        its_thumbprint: str,
    ) -> BadProof | None:
        if claims.htm != method:
            return BadProof("the proof is for another method")
        if claims.htu != url and normalized(claims.htu) != url:
            return BadProof("the proof is for another URL")

        now = self._clock()  # compared as it is: a number of 400 digits is no float
        if claims.iat is None:
            return BadProof("the proof does not say when it was made")
        if not now - _WINDOW <= claims.iat <= now + _WINDOW:
            return BadProof("the proof was not made now")

        if ath is not None and claims.ath != ath:
            return BadProof("the proof is for another token")
        if thumbprint is not None and its_thumbprint != thumbprint:
            return BadProof("the token is bound to another key")
        if not 1 <= len(claims.jti) <= 512:
            return BadProof("the proof has no identifier")

        if self._is_full(now) and not self._has_nonce(claims.nonce):
            return BadProof("the proof has to have a nonce of this server", self.nonce())
        if not self._remember(its_thumbprint, claims.jti):
            return BadProof("the proof was used before")
        return None

    # -- replay, nonces ----------------------------------------------------------------------

    def nonce(self) -> str:
        """The nonce of this minute: it says when it was given, and nothing else."""
        return self._nonce_of(self.nonce_keys[0], 0)

    def _nonce_of(self, key: bytes, slots_ago: int) -> str:
        slot = int(self._clock() // _SLOT) - slots_ago
        return urlsafe_b64encode(hmac.digest(key, b"nonce %d" % slot, "sha256")[:18]).decode()

    def _has_nonce(self, given: str) -> bool:
        said = given.encode()
        return any(
            hmac.compare_digest(said, self._nonce_of(key, ago).encode()) for key in self.nonce_keys for ago in (0, 1)
        )

    def _is_full(self, now: float) -> bool:
        self._turn(now)
        return self._wants_nonces or len(self._seen) + len(self._seen_before) >= self._most_seen

    def _turn(self, now: float) -> None:
        if now - self._began >= _GENERATION:
            # What is older than two windows can come no more: its time alone refuses it.
            is_old = now - self._began >= 2 * _GENERATION
            self._seen_before = set() if is_old else self._seen
            self._seen = set()
            self._began = now

    def _remember(self, thumbprint: str, jti: str) -> bool:
        """Take down that a proof was used; False if it was before."""
        mark = sha256(f"{thumbprint} {jti}".encode()).digest()
        if mark in self._seen or mark in self._seen_before:
            return False
        if len(self._seen) + len(self._seen_before) < self._most_seen:
            self._seen.add(mark)
        return True


def _claims_of(segment: str) -> _Claims | None:
    """What a proof says; None if that cannot be read."""
    data = bytes_in(segment)
    if data is None:
        return None
    try:
        return _claims_in(data)
    except (DecodeError, ValidationError, RecursionError, UnicodeDecodeError):
        return None


def _known_key(segment: str) -> _Known | BadProof:
    """The key in the header of a proof, which is the same for all proofs of one client."""
    head = object_in(segment)
    if head is None:
        return BadProof("the proof cannot be read")
    alg = head.get("alg")
    if head.get("typ") != "dpop+jwt" or "crit" in head or not isinstance(alg, str) or alg not in ALGORITHMS:
        return BadProof("the header of the proof is not that of one, or its algorithm is not taken")
    own = _public_key(head.get("jwk"), alg)
    if own is None:
        return BadProof("the key of the proof is no public key that fits its algorithm")
    from joserfc import jwk

    from mcpd.auth.signatures import signature_check

    try:
        check = signature_check(jwk.import_key(dict(own)), alg)
    except Exception:  # whatever a library finds wrong with what anybody wrote
        check = None
    return (
        BadProof("the key of the proof is none") if check is None else _Known(check, b64(sha256(encode(own)).digest()))
    )


def _public_key(given: object, alg: str) -> dict[str, str] | None:
    """The members that make the key, as its thumbprint has them (RFC 7638); None for what is none that fits."""
    if not isinstance(given, dict) or not _SECRET.isdisjoint(given):
        return None
    names = _MEMBERS.get(str(given.get("kty")))
    if names is None or (given["kty"], given.get("crv")) != _KIND_OF[alg]:
        return None
    members = {name: given.get(name) for name in names}
    if not all(isinstance(text, str) for text in members.values()):
        return None
    if given["kty"] == "RSA":
        from mcpd.auth.signatures import is_sound  # with joserfc

        if not is_sound(given, _MOST_BITS):
            return None
    return {name: str(text) for name, text in members.items()}


def b64(digest: bytes) -> str:
    """Base64url without padding, as everything of a JWS is written."""
    return urlsafe_b64encode(digest).decode().rstrip("=")


def normalized(url: str) -> str | None:
    """A URL without query and fragment, as RFC 3986 6.2.2 and 6.2.3 write it; None for what is none."""
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
    """An escape as it is written: a character that needs none as itself, others in capitals."""
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
