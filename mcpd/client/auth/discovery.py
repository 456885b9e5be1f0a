"""From a refused request to the authorization server: the resource's metadata, then the server's, in every version.

The protocol version is unknown before the first success, so all servers are tried in the same order: first what the
newest version requires, then the ways of 2025-03-26, but only if there is no resource metadata. No I/O.

Spec: 2026-07-28 basic/authorization, authorization server discovery; 2025-03-26 basic/authorization; RFC 8414, 8628,
9449, 9728.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from mcpd.auth.fetch import FetchError, Response
from mcpd.auth.metadata import WELL_KNOWN, metadata_urls, split_url
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable
from mcpd.protocol.versions import table
from mcpd.transports.address import is_loopback_url
from mcpd.transports.challenge import Challenge
from .steps import HttpStep, Steps, send

_MOST_SCOPES = 200


class ResourceMetadata(Struct, frozen=True):
    """The metadata of a protected resource (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None = None
    """None if the document does not list scopes."""
    wants_dpop: bool = False
    dpop_algorithms: tuple[str, ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> ResourceMetadata:
        """Read a document. Raises ValueError, with the reason, for an unusable document."""
        return cls(
            resource=_needed(document, "resource"),
            authorization_servers=_texts(document, "authorization_servers") or (),
            scopes_supported=_texts(document, "scopes_supported"),
            wants_dpop=document.get("dpop_bound_access_tokens_required") is True,
            dpop_algorithms=_texts(document, "dpop_signing_alg_values_supported") or (),
        )


class ServerMetadata(Struct, frozen=True, kw_only=True):
    """The metadata of an authorization server (RFC 8414)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    device_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    auth_methods: tuple[str, ...] | None = None
    """None if the document does not list methods, which means `client_secret_basic`."""
    challenge_methods: tuple[str, ...] | None = None
    signing_algorithms: tuple[str, ...] | None = None
    """The algorithms for client assertions."""
    dpop_algorithms: tuple[str, ...] = ()
    takes_documents: bool = False
    """Whether a client id may be the URL of a metadata document."""
    sends_issuer: bool = False
    is_guessed: bool = False
    """Whether there was no document, so that the endpoints are the fallback paths of 2025-03-26."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> ServerMetadata:
        """Read a document. Raises ValueError, with the reason, for an unusable document."""
        return cls(
            issuer=_needed(document, "issuer"),
            token_endpoint=_needed(document, "token_endpoint"),
            authorization_endpoint=_text(document, "authorization_endpoint"),
            registration_endpoint=_text(document, "registration_endpoint"),
            revocation_endpoint=_text(document, "revocation_endpoint"),
            device_endpoint=_text(document, "device_authorization_endpoint"),
            scopes_supported=_texts(document, "scopes_supported"),
            auth_methods=_texts(document, "token_endpoint_auth_methods_supported"),
            challenge_methods=_texts(document, "code_challenge_methods_supported"),
            signing_algorithms=_texts(document, "token_endpoint_auth_signing_alg_values_supported"),
            dpop_algorithms=_texts(document, "dpop_signing_alg_values_supported") or (),
            takes_documents=document.get("client_id_metadata_document_supported") is True,
            sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        )

    @classmethod
    def guessed(cls, origin: str) -> ServerMetadata:
        """Spec: 2025-03-26 basic/authorization, fallbacks for servers without metadata discovery."""
        return cls(
            issuer=origin,
            token_endpoint=f"{origin}/token",
            authorization_endpoint=f"{origin}/authorize",
            registration_endpoint=f"{origin}/register",
            auth_methods=("none", "client_secret_post", "client_secret_basic"),
            is_guessed=True,
        )

    def endpoints(self) -> dict[str, str]:
        """The endpoints of the document, by their names in error messages."""
        named = {
            "authorization endpoint": self.authorization_endpoint,
            "token endpoint": self.token_endpoint,
            "registration endpoint": self.registration_endpoint,
            "revocation endpoint": self.revocation_endpoint,
            "device authorization endpoint": self.device_endpoint,
        }
        return {name: url for name, url in named.items() if url is not None}


def _text(document: Mapping[str, Any], name: str) -> str | None:
    found = document.get(name)
    return found if isinstance(found, str) and found else None


def _needed(document: Mapping[str, Any], name: str) -> str:
    found = _text(document, name)
    if found is None:
        raise ValueError(f"it has no {name}")
    return found


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    listed = document.get(name)
    if not isinstance(listed, list):
        return None
    return tuple(dict.fromkeys(text for text in listed if isinstance(text, str) and text))[:_MOST_SCOPES]


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of a URL; None for an invalid URL."""
    parts = split_url(url)
    if parts is None:
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, (parts.hostname or "").rstrip("."), port


def plain_url(url: str) -> str:
    """Return the URL that names a server as a resource: without user, query and fragment; `ws` becomes `http`."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def covers(resource: str, url: str) -> bool:
    """Whether the metadata of `resource` may describe the server at `url`: the same path, or one below it.

    Spec: RFC 9728 3.3, interpreted like both official libraries.
    """
    ours, theirs = split_url(url), split_url(resource)
    if ours is None or theirs is None or theirs.query or theirs.fragment or "@" in theirs.netloc:
        return False
    if origin_of(resource) != origin_of(url) or origin_of(url) is None:
        return False
    below = theirs.path.rstrip("/")
    return ours.path.rstrip("/") == below or ours.path.startswith(f"{below}/")


def check_endpoint(name: str, url: str, server: str) -> None:
    """Require https, or http between loopback addresses. Raises AuthorizationFailed.

    Spec: RFC 6749 3.1, AUTH-172.
    """
    parts = split_url(url)
    is_fine = parts is not None and not parts.fragment and "@" not in parts.netloc
    if is_fine and parts is not None:
        is_fine = parts.scheme == "https" or (
            parts.scheme == "http" and is_loopback_url(url) and is_loopback_url(server)
        )

    if not is_fine or not url.isascii() or not url.isprintable() or " " in url:
        raise AuthorizationFailed(
            f"the {name} {shown(url)} is not an https URL; report this to the operator of the authorization server"
        )


def shown(url: str) -> str:
    """Return a URL for messages: printable, short, and without its query."""
    return printable(url.partition("?")[0], 200)


class Lookup(Struct, frozen=True):
    """One URL that was requested during a discovery, and the result. `mcpd doctor` shows all of them."""

    what: str
    url: str
    result: str
    is_good: bool = False


class Discovery(Struct, frozen=True):
    """The result of a discovery: the authorization server, and the resource that tokens are requested for."""

    server: ServerMetadata
    resource: str | None
    """The value of the parameter `resource`; None for servers of 2025-03-26."""
    metadata: ResourceMetadata | None
    lookups: tuple[Lookup, ...] = ()


def challenge_of(challenges: Sequence[Challenge]) -> Challenge | None:
    """Return the relevant challenge: the first with resource metadata, otherwise the first of a token scheme."""
    named = (challenge for challenge in challenges if challenge.params.get("resource_metadata"))
    tokens = (challenge for challenge in challenges if challenge.is_of("Bearer") or challenge.is_of("DPoP"))
    return next(named, None) or next(tokens, None)


def resource_urls(url: str, named: str | None) -> list[str]:
    """Return the URLs where a resource's metadata may be, in order."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    path = parts.path.rstrip("/")
    found = [_joined(url, named)] if named else []
    if path:
        found.append(f"{origin}{WELL_KNOWN}{path}")
    found.append(f"{origin}{WELL_KNOWN}")
    return list(dict.fromkeys(found))


def _joined(url: str, named: str) -> str:
    # Return a URL of a challenge. Some servers leave out the origin.
    try:
        return urljoin(url, named)
    except ValueError:
        return named


def discover(
    url: str,
    challenge: Challenge | None,
    *,
    prefers: Callable[[str], int] = lambda issuer: 0,
    legacy: bool = True,
    lookups: list[Lookup] | None = None,
    assume_issuer: bool = False,
) -> Steps[Discovery]:
    """Find the authorization server of the MCP server at `url`.

    `prefers` is a sort key for issuers if there are several. `legacy` allows servers of 2025-03-26. `lookups` collects
    each URL as it is requested. `assume_issuer` accepts an issuer that differs by a slash at its end.

    Raises AuthorizationFailed, whose text has every URL that was requested and its result.
    """
    places: list[Lookup] = [] if lookups is None else lookups
    named = challenge.params.get("resource_metadata") if challenge is not None else None
    metadata = yield from _resource(url, named, places)
    if metadata is not None:
        server = yield from _first_usable(
            url, sorted(metadata.authorization_servers, key=prefers), places, assume_issuer
        )
        return Discovery(server, metadata.resource, metadata, tuple(places))
    if not legacy:
        raise AuthorizationFailed(f"{shown(url)} has no protected resource metadata: {_summary(places)}")

    # Spec: 2025-03-26 basic/authorization: the authorization server is at the MCP server's origin.
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    found = yield from _metadata(url, origin, places, is_origin=True)
    return Discovery(found or ServerMetadata.guessed(origin), None, None, tuple(places))


def _resource(url: str, named: str | None, places: list[Lookup]) -> Steps[ResourceMetadata | None]:
    # Return the resource's metadata; None if it is at none of the well-known URLs and the challenge names no other.
    what = "resource metadata"
    if named and origin_of(_joined(url, named)) != origin_of(url):
        # A URL of the server's own origin is as safe as the server itself.
        check_endpoint(what, _joined(url, named), url)
    for place in resource_urls(url, named):
        try:
            answer = yield from _get(place, what)
        except FetchError as error:
            places.append(Lookup(what, place, error.reason))
            raise AuthorizationFailed(f"{error}; it is required to log in to {shown(url)}") from None
        # Only 404 means that the document does not exist; any other failure must not select a fallback.
        if answer.status == 404:
            places.append(Lookup(what, place, "404"))
            continue

        try:
            metadata = _read_resource(answer, url)
        except ValueError as error:
            places.append(Lookup(what, place, str(error)))
            raise AuthorizationFailed(f"the {what} at {shown(place)} cannot be used: {error}") from None
        places.append(Lookup(what, place, "found", True))
        return metadata
    if named:
        raise AuthorizationFailed(f"{shown(url)} names {what} that does not exist: {_summary(places)}")
    return None


def _read_resource(answer: Response, url: str) -> ResourceMetadata:
    if answer.status != 200:
        raise ValueError(f"the status is {answer.status}")
    metadata = ResourceMetadata.read(answer.json_object())
    if not covers(metadata.resource, url):
        # Spec: RFC 9728 3.3: such metadata must not be used; it may try to obtain a token for another server.
        raise ValueError(f"its resource is {shown(metadata.resource)}, not {shown(url)}")
    if not metadata.authorization_servers:
        raise ValueError("it names no authorization server")
    return metadata


def _first_usable(url: str, issuers: Sequence[str], places: list[Lookup], assume_issuer: bool) -> Steps[ServerMetadata]:
    before = len(places)
    for issuer in issuers:
        found = yield from _metadata(url, issuer, places, allows_slash=assume_issuer)
        if found is not None:
            return found
    raise AuthorizationFailed(f"no usable authorization server: {_summary(places[before:])}")


def _metadata(
    url: str, issuer: str, places: list[Lookup], *, is_origin: bool = False, allows_slash: bool = False
) -> Steps[ServerMetadata | None]:
    # Return the metadata of one authorization server; None if there is no usable document.
    what = "authorization server metadata"
    try:
        check_endpoint("issuer", issuer, url)
    except AuthorizationFailed as error:
        places.append(Lookup(what, shown(issuer), str(error)))
        return None

    for place in metadata_urls(issuer):
        try:
            answer = yield from _get(place, what)
        except FetchError as error:
            places.append(Lookup(what, place, error.reason))
            if is_origin:
                raise AuthorizationFailed(str(error)) from None
            continue
        if answer.status != 200:
            places.append(Lookup(what, place, str(answer.status)))
            if is_origin and answer.status != 404:
                raise AuthorizationFailed(f"the {what} at {shown(place)} has the status {answer.status}")
            continue

        try:
            found = _read_server(answer, issuer, url, allows_slash=is_origin or allows_slash)
        except (ValueError, AuthorizationFailed) as error:
            places.append(Lookup(what, place, str(error)))
            if is_origin:
                raise AuthorizationFailed(f"the {what} at {shown(place)} cannot be used: {error}") from None
        else:
            places.append(Lookup(what, place, "found", True))
            return found
    return None


def _read_server(answer: Response, issuer: str, url: str, *, allows_slash: bool) -> ServerMetadata:
    # Return the content of a document. Raises ValueError and AuthorizationFailed with its problem.
    found = ServerMetadata.read(answer.json_object())
    # Spec: RFC 8414 3.3: identical. An origin was built by this client, so its spelling does not matter.
    is_same_but_slash = found.issuer.removesuffix("/") == issuer.removesuffix("/")
    if found.issuer != issuer and not (allows_slash and is_same_but_slash):
        hint = "; to accept it, use mcpd login --assume-issuer or OAuth(assume_issuer=True)" * is_same_but_slash
        raise ValueError(f"its issuer is {printable(found.issuer, 200)}, not {printable(issuer, 200)}{hint}")
    for name, endpoint in found.endpoints().items():
        check_endpoint(name, endpoint, url)
    return found


def _get(url: str, what: str) -> Steps[Response]:
    # Spec: 2025-03-26 basic/authorization: discovery requests have the header, so that servers can tell versions apart.
    fields = (("Accept", "application/json"), ("MCP-Protocol-Version", table.SUPPORTED[0]))
    return (yield from send(HttpStep(url, what, headers=fields)))


def _summary(places: Sequence[Lookup]) -> str:
    return "; ".join(f"{shown(place.url)}: {place.result}" for place in places) or "nothing was asked"
