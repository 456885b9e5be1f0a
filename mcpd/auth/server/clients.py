"""Clients, and the documents that describe most of them: the client ID is the document's URL.

Spec: draft-ietf-oauth-client-id-metadata-document, 2026-07-28 client-registration; AUTH-133, AUTH-134.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct, ValidationError, convert

from mcpd.auth.fetch import FetchError, Limits, Reach, fetch_json
from mcpd.auth.server.replies import OAuthError, why_not
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")

METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
"""How clients may authenticate. `none` comes first, because some clients look for it."""

LIMITS = Limits(max_bytes=5 * 1024, seconds=5.0, redirects=0)
MIN_SECONDS, MAX_SECONDS = 300.0, 86400.0
MAX_DOCUMENTS = 500
FAILED_SECONDS = 10.0
MAX_AT_ONCE = 8
MAX_NAME_CHARACTERS = 80
MAX_REDIRECTS = 20


class Client(Struct, frozen=True, kw_only=True):
    """A client. `kind` says whether a document, a registration or the settings describe it."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    kind: Literal["document", "registered", "listed"]
    method: str = "none"
    grant_types: tuple[str, ...] = ("authorization_code",)
    secret_digest: str = ""
    jwks: dict[str, Any] | None = None
    jwks_uri: str = ""


class _Metadata(Struct):
    """The members of a client's metadata that matter here. Spec: RFC 7591 section 2."""

    redirect_uris: list[str]
    client_name: str = ""
    grant_types: tuple[str, ...] = ("authorization_code",)
    jwks: dict[str, Any] | None = None
    jwks_uri: str = ""


def is_document_id(id: str) -> bool:
    """Return whether a client ID is the URL of a document: https, or http where loopback is allowed, with a path."""
    if not id.startswith(("https://", "http://")) or "#" in id or "@" in id or len(id) > 1024:
        return False
    try:
        parts = urlsplit(id)
    except ValueError:
        return False
    is_plain = not any(part in (".", "..") for part in parts.path.split("/"))
    return bool(parts.hostname) and len(parts.path) > 1 and is_plain


class ClientDocuments:
    """Fetches client documents and caches each as long as its response allows, within limits."""

    def __init__(self, clock: Callable[[], float], reach: Reach = ()) -> None:
        self._clock = clock
        self._reach = reach
        self._cache: dict[str, tuple[Client | OAuthError, float]] = {}
        self._pending: dict[str, asyncio.Task[Client]] = {}

    async def get(self, id: str) -> Client:
        """Return the client with this URL as its ID. Raises OAuthError."""
        kept = self._cache.get(id)
        if kept is not None and kept[1] > self._clock():
            if isinstance(kept[0], OAuthError):
                raise OAuthError(kept[0].error, kept[0].text)
            return kept[0]
        task = self._pending.get(id)
        if task is None:
            if len(self._pending) >= MAX_AT_ONCE:
                raise OAuthError("temporarily_unavailable", "too many client documents are being fetched; try again")
            task = self._pending[id] = asyncio.ensure_future(self._fetch(id))
            task.add_done_callback(lambda _: self._pending.pop(id, None))
        return await asyncio.shield(task)

    async def _fetch(self, id: str) -> Client:
        try:
            document, response = await fetch_json(id, what="the client's document", reach=self._reach, limits=LIMITS)
            client = _read(id, document)
        except FetchError as error:
            failure = OAuthError("invalid_client", f"the client's document cannot be fetched: {public_reason(error)}")
            self._store(id, failure, FAILED_SECONDS)
            raise failure from None
        except OAuthError as error:
            self._store(id, error, FAILED_SECONDS)
            raise
        self._store(id, client, response.fresh_seconds(MIN_SECONDS, MAX_SECONDS))
        return client

    def _store(self, id: str, found: Client | OAuthError, seconds: float) -> None:
        self._cache.pop(id, None)
        self._cache[id] = (found, self._clock() + seconds)
        if len(self._cache) > MAX_DOCUMENTS:
            del self._cache[next(iter(self._cache))]


def public_reason(error: FetchError) -> str:
    """Return the reason for a client, and log all of it.

    If the host did not respond, the reason is general, because it would otherwise reveal internal names and addresses.
    """
    log.info("A document of a client's: %s", printable(error))
    return error.reason if error.status else "it cannot be reached"


def _read(id: str, document: Mapping[str, Any]) -> Client:
    """Return the client that a document describes. Raises OAuthError."""
    if document.get("client_id") != id:
        raise OAuthError("invalid_client", "the client_id in the client's document is not its URL")
    if "client_secret" in document or "client_secret_expires_at" in document:
        raise OAuthError("invalid_client", "the client's document contains a secret, which everybody can read")
    method = document.get("token_endpoint_auth_method", "none")
    if method not in ("none", "private_key_jwt"):
        raise OAuthError("invalid_client", "the client's document uses a method that requires a shared secret")
    name = document.get("client_name")
    if not isinstance(name, str) or not name.strip():
        raise OAuthError("invalid_client", "the client's document has no client_name")
    return read_metadata(id, document, kind="document", method=method)


def _shown(name: str) -> str:
    """Return a name for pages, without invisible characters and characters that change the text direction."""
    return "".join(c for c in " ".join(name.split()) if c.isprintable())[:MAX_NAME_CHARACTERS].strip()


def read_metadata(
    id: str,
    document: Mapping[str, Any],
    *,
    kind: Literal["document", "registered"],
    method: str,
    secret_digest: str = "",
) -> Client:
    """Return the client for its metadata, ignoring unknown members. Raises OAuthError. Spec: RFC 7591 section 2."""
    error = "invalid_client" if kind == "document" else "invalid_client_metadata"
    uri_error = "invalid_redirect_uri" if kind == "registered" else error
    try:
        metadata = convert(document, _Metadata)
    except ValidationError as problem:
        text = str(problem)
        code = uri_error if "redirect_uris" in text else error
        raise OAuthError(code, f"the metadata of the client is not valid: {text}") from None
    uris = metadata.redirect_uris
    if not 0 < len(uris) <= MAX_REDIRECTS:
        raise OAuthError(uri_error, f"there must be 1 to {MAX_REDIRECTS} redirect_uris")

    # Clients also name URIs for other servers, such as cursor://…; only the other URIs count here (RFC 7591 section 2).
    wrong = {uri: why for uri in uris if (why := why_not(uri))}
    if wrong:
        log.info("A client's redirect URIs were left out: %s", printable(", ".join(wrong)))
    if len(wrong) == len({*uris}) and kind == "registered":
        text = f"none of the redirect_uris is accepted: {next(iter(wrong.values()))}"
        raise OAuthError("invalid_redirect_uri", text)

    jwks, jwks_uri = metadata.jwks, metadata.jwks_uri
    if jwks is not None and jwks_uri:
        raise OAuthError(error, "jwks and jwks_uri cannot be combined")
    if method == "private_key_jwt" and not jwks and not jwks_uri:
        raise OAuthError(error, "private_key_jwt requires jwks or jwks_uri")

    return Client(
        id=id,
        name=_shown(metadata.client_name),
        redirect_uris=tuple(uri for uri in uris if uri not in wrong),
        kind=kind,
        method=method,
        grant_types=metadata.grant_types[:8],
        secret_digest=secret_digest,
        jwks=jwks,
        jwks_uri=jwks_uri,
    )
