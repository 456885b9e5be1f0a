"""From a refused request to the authorization server: the resource's metadata, then the server's, in every version.

The protocol version is unknown before the first success, so all servers are tried in the same order: first what the
newest version requires, then the ways of 2025-03-26, but only if there is no resource metadata. Spec: 2026-07-28
basic/authorization, authorization server discovery; 2025-03-26 basic/authorization; RFC 9728, 8414.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from mcpd.auth.fetch import FetchError, Response
from mcpd.auth.metadata import WELL_KNOWN, metadata_urls
from mcpd.client.auth.documents import ResourceMetadata, ServerMetadata, check_endpoint, covers, origin_of, shown
from mcpd.client.auth.steps import HttpStep, Steps, send
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable
from mcpd.protocol.versions import table
from mcpd.transports.challenge import Challenge


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
    """Return a URL of a challenge. Some servers leave out the origin."""
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
    """Return the resource's metadata; None if it is at none of the well-known URLs and the challenge names no other."""
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
        if answer.status == 404:
            places.append(Lookup(what, place, "404"))
            continue

        problem, metadata = _read_resource(answer, url)
        places.append(Lookup(what, place, problem or "found", not problem))
        if metadata is None or problem:
            raise AuthorizationFailed(f"the {what} at {shown(place)} cannot be used: {problem}")
        return metadata
    if named:
        raise AuthorizationFailed(f"{shown(url)} names {what} that does not exist: {_summary(places)}")
    return None


def _read_resource(answer: Response, url: str) -> tuple[str, ResourceMetadata | None]:
    """Return the problem of a document, and its content."""
    if answer.status != 200:
        return f"the status is {answer.status}", None
    try:
        metadata = ResourceMetadata.read(answer.json_object())
    except ValueError as error:
        return str(error), None
    if not covers(metadata.resource, url):
        # Spec: RFC 9728 3.3: such metadata must not be used; it may try to obtain a token for another server.
        return f"its resource is {shown(metadata.resource)}, not {shown(url)}", metadata
    if not metadata.authorization_servers:
        return "it names no authorization server", metadata
    return "", metadata


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
    """Return the metadata of one authorization server; None if there is no usable document."""
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

        problem, found = _read_server(answer, issuer, url, allows_slash=is_origin or allows_slash)
        places.append(Lookup(what, place, problem or "found", not problem))
        if found is not None:
            return found
        if is_origin:
            raise AuthorizationFailed(f"the {what} at {shown(place)} cannot be used: {problem}")
    return None


def _read_server(answer: Response, issuer: str, url: str, *, allows_slash: bool) -> tuple[str, ServerMetadata | None]:
    """Return the problem of a document, and its content."""
    try:
        found = ServerMetadata.read(answer.json_object())
    except ValueError as error:
        return str(error), None
    # Spec: RFC 8414 3.3: identical. An origin was built by this client, so its spelling does not matter.
    is_same_but_slash = found.issuer.removesuffix("/") == issuer.removesuffix("/")
    if found.issuer != issuer and not (allows_slash and is_same_but_slash):
        hint = "; to accept it, use mcpd login --assume-issuer or OAuth(assume_issuer=True)" * is_same_but_slash
        return f"its issuer is {printable(found.issuer, 200)}, not {printable(issuer, 200)}{hint}", None
    try:
        for name, endpoint in found.endpoints().items():
            check_endpoint(name, endpoint, url)
    except AuthorizationFailed as error:
        return str(error), None
    return "", found


def _get(url: str, what: str) -> Steps[Response]:
    # Spec: 2025-03-26 basic/authorization: discovery requests have the header, so that servers can tell versions apart.
    fields = (("Accept", "application/json"), ("MCP-Protocol-Version", table.SUPPORTED[0]))
    return (yield from send(HttpStep(url, what, headers=fields)))


def _summary(places: Sequence[Lookup]) -> str:
    return "; ".join(f"{shown(place.url)}: {place.result}" for place in places) or "nothing was asked"
