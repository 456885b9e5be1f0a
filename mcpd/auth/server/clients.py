"""Data that the endpoints receive and send: clients, their documents and redirect URIs, parameters, answers and errors.

The client ID of most clients is the URL of the document that describes them.

Spec: draft-ietf-oauth-client-id-metadata-document, 2026-07-28 client-registration; RFC 6749 sections 3.1, 4.1.2.1 and
5.2; OAuth 2.1 sections 2.3 and 4.1.1, RFC 8252 section 7.3; AUTH-125, AUTH-127, AUTH-133, AUTH-134, AUTH-145, AUTH-148,
AUTH-153.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct, ValidationError, convert

from mcpd.auth.fetch import FetchError, Limits, fetch_json
from mcpd.errors import McpdError
from mcpd.protocol.printable import printable
from mcpd.transports.address import Reach
from mcpd.transports.routes import RouteRequest, RouteResponse

NO_STORE = (("Cache-Control", "no-store"), ("Pragma", "no-cache"))
_MAX_FIELDS = 64


class OAuthError(McpdError):
    """An OAuth error. `text` is a fixed text and contains nothing from the request."""

    def __init__(
        self, error: str, text: str = "", *, status: int = 400, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.error = error
        self.text = text
        self.status = status
        self.headers = headers
        super().__init__(error)

    @property
    def sentence(self) -> str:
        text = self.text or self.error
        return f"{text[:1].upper()}{text[1:]}."


def json_answer(value: object, status: int = 200, *headers: tuple[str, str]) -> RouteResponse:
    """Return a JSON answer that is not cached."""
    exposed = ("Access-Control-Expose-Headers", "DPoP-Nonce, WWW-Authenticate")
    return RouteResponse(value, status, (*NO_STORE, exposed, *headers), "application/json")


def failed(error: OAuthError) -> RouteResponse:
    """Return an error as JSON. Spec: RFC 6749 section 5.2."""
    body = {"error": error.error}
    if error.text:
        body["error_description"] = error.text
    return json_answer(body, error.status, *error.headers)


def redirect(url: str, status: int = 302) -> RouteResponse:
    """Return a redirect without a referrer."""
    return RouteResponse(b"", status, (("Location", url), *NO_STORE, ("Referrer-Policy", "no-referrer")))


def query(request: RouteRequest) -> dict[str, str]:
    """Return the parameters of the URL. Raises OAuthError if one is repeated."""
    return _once(request.query_string)


def form(request: RouteRequest) -> dict[str, str]:
    """Return the fields of a form. Raises OAuthError if it is not a form or a field is repeated."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise OAuthError("invalid_request", "the body must be application/x-www-form-urlencoded")
    try:
        return _once(request.body.decode("ascii"))
    except UnicodeDecodeError:
        raise OAuthError("invalid_request", "the body is not a form") from None


def _once(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise OAuthError("invalid_request", "the parameters are malformed") from None

    found = dict(pairs)
    if len(found) != len(pairs):
        # RFC 8707 allows several `resource` parameters; this server has only one resource.
        raise OAuthError("invalid_request", "a parameter is repeated")
    # A parameter without a value counts as missing.
    return {name: value for name, value in found.items() if value}


_MAX_URI_CHARACTERS = 1024
# Matched as text, because URL parsers may disagree about the host of an unusual URL.
_loopback = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d{1,5})?((?:[/?][^#]*)?)").fullmatch
_https = re.compile(
    r"https://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?([/?][^#]*)?"
).fullmatch


def why_not(uri: str) -> str:
    """Return why a redirect URI cannot be registered, or ""."""
    is_plain = uri.isascii() and uri.isprintable() and not any(c in uri for c in ' "\\<>^`{|}*')
    if not is_plain or len(uri) > _MAX_URI_CHARACTERS:
        return "a redirect URI must be a URL of up to 1,024 characters without wildcards"
    if "#" in uri:
        return "a redirect URI must not have a fragment"

    if not _https(uri) and not _loopback(uri):
        return "a redirect URI must be https, or http on 127.0.0.1, [::1] or localhost"
    try:
        _ = urlsplit(uri).port
    except ValueError:  # an invalid address in brackets or an invalid port
        return "a redirect URI must have a valid address and port"
    return ""


def is_loopback_redirect(uri: str) -> bool:
    """Return whether a redirect URI leads to a program on the user's machine."""
    return _loopback(uri) is not None


def matching(registered: Iterable[str], asked: str) -> bool:
    """Return whether a requested URI was registered. The port of loopback URIs may differ."""
    own = _portless(asked)
    return not why_not(asked) and any(asked == one or (own is not None and own == _portless(one)) for one in registered)


def _portless(uri: str) -> tuple[str, str] | None:
    found = _loopback(uri)
    return None if found is None else (found[1], found[2])


def host_of(uri: str) -> str:
    """Return the host to show to users, with the port unless it is a loopback URI."""
    parts = urlsplit(uri)
    return (parts.hostname or "") if is_loopback_redirect(uri) else parts.netloc


log = logging.getLogger("mcpd")

# How clients may authenticate. `none` comes first, because some clients look for it.
METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")

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
        # Failures are kept, too, but only for some seconds.
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
    log.info("The document of a client cannot be used: %s", printable(error))
    return error.reason if error.status else "it cannot be reached"


def _read(id: str, document: Mapping[str, Any]) -> Client:
    # Return the client that a document describes. Raises OAuthError.
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
    # Return a name for pages, without invisible characters and characters that change the text direction.
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
