"""An issuer's metadata and keys.

Keys are fetched with the first token, cached, and refreshed in the background. An unknown key causes one request for
all that wait for it, at most every 30 s. If newer keys cannot be fetched, the old ones stay valid.

Spec: RFC 8414 section 3, OpenID Connect Discovery section 4, RFC 7517, RFC 8725 sections 3.1 and 3.10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from msgspec import Struct

from mcpd.auth.base import Unavailable
from mcpd.auth.fetch import FetchError, Limits, fetch_json, reach_from
from mcpd.auth.metadata import metadata_urls, split_url
from mcpd.auth.signatures import KEY_TYPES, SECRET_MEMBERS, is_sound
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.address import is_loopback

_METADATA_LIMITS = Limits(seconds=5.0, redirects=0)


def checked_issuer(issuer: str) -> str:
    """Return the issuer unchanged, because tokens name it in this spelling. Raises ConfigurationError if it is not a
    URL.
    """
    parts = split_url(issuer)
    if parts is None or "?" in issuer or "#" in issuer or not issuer.isascii() or not issuer.isprintable():
        raise ConfigurationError(
            f"issuer {issuer!r}: write its URL exactly as in its metadata, such as https://idp.example.com/realms/tools"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigurationError(f"issuer {issuer!r}: it must begin with https:// unless it is on this machine")
    return issuer


async def fetch_issuer_metadata(issuer: str) -> dict[str, Any]:
    """Return the metadata of an issuer, which must name exactly this issuer. Raises FetchError."""
    reach = await reach_from(issuer)
    failure: FetchError | None = None
    for url in metadata_urls(issuer):
        try:
            found, _ = await fetch_json(url, what="the metadata of the issuer", reach=reach, limits=_METADATA_LIMITS)
        except FetchError as error:
            if error.status == 0:
                raise  # not reached, so the other URLs will not be either
            failure = failure or error
            continue
        if found.get("issuer") == issuer:
            return found
        failure = FetchError("the metadata of the issuer", url, "it names an issuer other than the configured one")
    assert failure is not None
    raise failure


log = logging.getLogger("mcpd")

_LIMITS = Limits(max_bytes=128 * 1024, seconds=5.0, redirects=0)
_MAX_KEYS = 100
_MAX_BITS = 8192
_MIN_FRESH_SECONDS, _MAX_FRESH_SECONDS = 300.0, 24 * 3600.0
_BETWEEN_TRIES = 30.0


class VerifyingKey(Struct, frozen=True):
    """A public key for checking signatures. If `alg` is not "", the key is for that algorithm only."""

    kid: str
    kty: str
    curve: str
    alg: str
    key: Any

    def fits(self, alg: str) -> bool:
        """Return whether the key may check signatures of this algorithm."""
        return KEY_TYPES.get(alg) == (self.kty, self.curve) and self.alg in ("", alg)


def usable_keys(document: Mapping[str, Any]) -> list[VerifyingKey]:
    """Return the keys of a JWKS that can check signatures. Others, such as private keys, are left out."""
    given = document.get("keys")
    if not isinstance(given, list):
        return []
    return [key for one in given[:_MAX_KEYS] if (key := _key(one)) is not None]


def _key(given: Any) -> VerifyingKey | None:
    if not isinstance(given, dict) or not SECRET_MEMBERS.isdisjoint(given):
        return None
    kid, kty, curve, alg = (given.get(name, "") for name in ("kid", "kty", "crv", "alg"))
    use, operations = given.get("use", "sig"), given.get("key_ops", ["verify"])
    if not all(isinstance(text, str) for text in (kid, kty, curve, alg)) or len(kid) > 1024:
        return None
    if use != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    if kty == "RSA":
        curve = ""
    if (kty, curve) not in KEY_TYPES.values() or (kty == "RSA" and not is_sound(given, _MAX_BITS)):
        return None

    from joserfc import jwk

    public = {name: given[name] for name in ("kty", "crv", "x", "y", "n", "e") if isinstance(given.get(name), str)}
    try:
        return VerifyingKey(kid, kty, curve, alg, jwk.import_key(public))
    except Exception as error:  # keys come from anybody, and the library raises errors of many classes
        log.warning("A key of an issuer cannot be used: %s", printable(type(error).__name__))
        return None


class IssuerKeys:
    """The keys of one issuer, from `jwks_url` or from the URL in its metadata."""

    def __init__(self, issuer: str, jwks_url: str | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._issuer = issuer
        self._url = jwks_url
        self._clock = clock
        self._keys: list[VerifyingKey] | None = None
        self._fresh_until = 0.0
        self._tried_at: float | None = None
        self._failure: FetchError | None = None
        self._fetching: asyncio.Task[None] | None = None

    def find(self, kid: str | None, alg: str) -> list[VerifyingKey] | None:
        """Return the keys that may have made a signature, or None if newer keys must be fetched first.

        Without a `kid`, a key is returned only if no other key fits.
        """
        if self._keys is None:
            return None
        if self._clock() > self._fresh_until and self._may_try():
            self._start()  # the old keys are used meanwhile
        fitting = [key for key in self._keys if key.fits(alg)]
        if kid is None:
            return fitting if len(fitting) == 1 else []
        named = [key for key in fitting if key.kid == kid]
        if named:
            return named
        # Retrying at once would let anybody flood the issuer with invented key names.
        return None if self._may_try() or self._fetching is not None else []

    async def refreshed(self, kid: str | None, alg: str) -> list[VerifyingKey]:
        """Fetch newer keys, then do the same. Raises Unavailable if they cannot be fetched."""
        if self._fetching is None and self._may_try():
            self._start()
        if self._fetching is not None:
            await asyncio.shield(self._fetching)
        found = self.find(kid, alg)
        if found:
            return found
        if self._failure is not None:
            raise Unavailable(str(self._failure))
        return []

    async def load(self) -> None:
        """Fetch the keys now. Raises Unavailable."""
        await self._fetch()
        if self._failure is not None:
            raise Unavailable(str(self._failure))

    def _may_try(self) -> bool:
        return self._tried_at is None or self._clock() - self._tried_at >= _BETWEEN_TRIES

    def _start(self) -> None:
        if self._fetching is None:
            self._tried_at = self._clock()
            self._fetching = asyncio.ensure_future(self._fetch())
            self._fetching.add_done_callback(self._fetched)

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled() and task.exception() is not None:
            log.error("The keys of %s cannot be read", printable(self._issuer), exc_info=task.exception())

    async def _fetch(self) -> None:
        try:
            url = self._url or await self._url_in_metadata()
            reach = await reach_from(self._issuer)
            document, response = await fetch_json(url, what="the keys of the issuer", reach=reach, limits=_LIMITS)
            keys = usable_keys(document)
            if not keys:
                raise FetchError("the keys of the issuer", url, "it has no usable key", status=200)
        except FetchError as error:
            self._failure = error
            log.warning("The keys of %s cannot be fetched: %s", printable(self._issuer), printable(error))
            return
        self._failure = None
        self._keys = keys
        self._fresh_until = self._clock() + response.fresh_seconds(_MIN_FRESH_SECONDS, _MAX_FRESH_SECONDS)

    async def _url_in_metadata(self) -> str:
        metadata = await fetch_issuer_metadata(self._issuer)
        url = metadata.get("jwks_uri")
        if not isinstance(url, str):
            raise FetchError("the metadata of the issuer", self._issuer, "it names no jwks_uri", status=200)
        return url
