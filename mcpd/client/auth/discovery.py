"""From a refusal to the authorization server: the resource's metadata, then the server's, in every protocol version.

The version is not known before the first success, so there is one order for all: what the newest asks for first, and
the ways of 2025-03-26 only where there is no resource metadata at all.
Spec: 2026-07-28 basic/authorization, authorization server discovery; 2025-03-26 basic/authorization; RFC 9728, 8414.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from mcpd.auth.challenge import Challenge
from mcpd.auth.fetch import FetchError
from mcpd.client.auth.documents import ResourceMetadata, ServerMetadata, check_endpoint, covers, origin_of, shown
from mcpd.client.auth.steps import Answer, HttpStep, Steps, ask, json_object
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable
from mcpd.protocol.versions import table


class Looked(Struct, frozen=True):
    """One place that was asked, and what was there. `doctor` tells of all of them."""

    what: str
    url: str
    said: str
    is_good: bool = False


class Found(Struct, frozen=True):
    """What a discovery gave: the authorization server, and what is asked of it in the name of which resource."""

    server: ServerMetadata
    resource: str | None
    """What is sent as `resource`; None in the branch of 2025-03-26."""
    metadata: ResourceMetadata | None
    looked: tuple[Looked, ...] = ()


def challenge_of(challenges: Sequence[Challenge]) -> Challenge | None:
    """The challenge that counts: the first with resource metadata, else the first of a scheme for tokens."""
    for one in challenges:
        if one.params.get("resource_metadata"):
            return one
    return next((one for one in challenges if one.is_of("Bearer") or one.is_of("DPoP")), None)


def resource_urls(url: str, named: str | None) -> list[str]:
    """Where a resource's metadata may be, in order."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    path = parts.path.rstrip("/")
    found = [_joined(url, named)] if named else []
    if path:
        found.append(f"{origin}/.well-known/oauth-protected-resource{path}")
    found.append(f"{origin}/.well-known/oauth-protected-resource")
    return list(dict.fromkeys(found))


def _is_below(url: str, place: str) -> bool:
    """Whether a place is at the origin of the server."""
    try:
        return origin_of(place) == origin_of(url)
    except ValueError:
        return False


def _joined(url: str, named: str) -> str:
    """A URL out of a challenge; some are written without their origin."""
    try:
        return urljoin(url, named)
    except ValueError:
        return named


def metadata_urls(issuer: str) -> list[str]:
    """Where an authorization server's metadata may be, in order."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if not path:
        return [f"{origin}/.well-known/oauth-authorization-server", f"{origin}/.well-known/openid-configuration"]
    return [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    ]


def discover(
    url: str,
    challenge: Challenge | None,
    *,
    prefers: Callable[[str], int] = lambda issuer: 0,
    legacy: bool = True,
    looked: list[Looked] | None = None,
    assume_issuer: bool = False,
) -> Steps[Found]:
    """The authorization server of the MCP server at `url`. `prefers` sorts issuers, where there are several: low first.

    `legacy` allows the ways of 2025-03-26; `looked` gets each place as it is asked; `assume_issuer` takes one that
    differs from the named issuer by a slash at its end. Raises AuthorizationFailed, which names every place that was
    asked and what it answered.
    """
    places: list[Looked] = [] if looked is None else looked
    named = challenge.params.get("resource_metadata") if challenge is not None else None
    metadata = yield from _resource(url, named, places)
    if metadata is not None:
        server = yield from _first_usable(
            url, sorted(metadata.authorization_servers, key=prefers), places, assume_issuer
        )
        return Found(server, metadata.resource, metadata, tuple(places))
    if not legacy:
        raise AuthorizationFailed(f"{shown(url)} has no metadata of a protected resource: {_in_words(places)}")

    # Spec: 2025-03-26 basic/authorization: the authorization server is at the MCP server's origin.
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    found = yield from _metadata(url, origin, places, is_origin=True)
    return Found(found or ServerMetadata.guessed(origin), None, None, tuple(places))


def _resource(url: str, named: str | None, places: list[Looked]) -> Steps[ResourceMetadata | None]:
    """The resource's metadata; None if there is none at any place, and none was named."""
    what = "resource metadata"
    if named and not _is_below(url, _joined(url, named)):
        # At the server's own origin it is as safe as the server.
        check_endpoint(what, _joined(url, named), url)
    for place in resource_urls(url, named):
        try:
            answer = yield from _get(place, what)
        except FetchError as error:
            places.append(Looked(what, place, error.reason))
            raise AuthorizationFailed(f"{error}; without it nobody can log in to {shown(url)}") from None
        if answer.status == 404:
            places.append(Looked(what, place, "404"))
            continue

        problem, metadata = _read_resource(answer, url)
        places.append(Looked(what, place, problem or "it is there", not problem))
        if metadata is None or problem:
            raise AuthorizationFailed(f"the {what} at {shown(place)} cannot be used: {problem}")
        return metadata
    if named:
        raise AuthorizationFailed(f"{shown(url)} names {what} that is not there: {_in_words(places)}")
    return None


def _read_resource(answer: Answer, url: str) -> tuple[str, ResourceMetadata | None]:
    """What is wrong with a document, and what it says."""
    if answer.status != 200:
        return f"it answers {answer.status}", None
    document = json_object(answer.body)
    if document is None:
        return "it is no JSON object", None
    try:
        metadata = ResourceMetadata.read(document)
    except ValueError as error:
        return str(error), None
    if not covers(metadata.resource, url):
        # Spec: RFC 9728 3.3: such metadata is not used; somebody may want our token for another server.
        return f"it is about {shown(metadata.resource)}, not about {shown(url)}", metadata
    if not metadata.authorization_servers:
        return "it names no authorization server", metadata
    return "", metadata


def _first_usable(url: str, issuers: Sequence[str], places: list[Looked], assume_issuer: bool) -> Steps[ServerMetadata]:
    before = len(places)
    for issuer in issuers:
        found = yield from _metadata(url, issuer, places, allows_slash=assume_issuer)
        if found is not None:
            return found
    text = "no authorization server can be used"
    raise AuthorizationFailed(f"{text}: {_in_words(places[before:])}")


def _metadata(
    url: str, issuer: str, places: list[Looked], *, is_origin: bool = False, allows_slash: bool = False
) -> Steps[ServerMetadata | None]:
    """The metadata of one authorization server; None if no document at its places can be used."""
    what = "authorization server metadata"
    try:
        check_endpoint("issuer", issuer, url)
    except AuthorizationFailed as error:
        places.append(Looked(what, shown(issuer), str(error)))
        return None

    for place in metadata_urls(issuer):
        try:
            answer = yield from _get(place, what)
        except FetchError as error:
            places.append(Looked(what, place, error.reason))
            if is_origin:
                raise AuthorizationFailed(str(error)) from None
            continue
        if answer.status != 200:
            places.append(Looked(what, place, str(answer.status)))
            if is_origin and answer.status != 404:
                raise AuthorizationFailed(f"the {what} at {shown(place)} answers {answer.status}")
            continue

        problem, found = _read_server(answer, issuer, url, allows_slash=is_origin or allows_slash)
        places.append(Looked(what, place, problem or "it is there", not problem))
        if found is not None:
            return found
        if is_origin:
            raise AuthorizationFailed(f"the {what} at {shown(place)} cannot be used: {problem}")
    return None


def _read_server(answer: Answer, issuer: str, url: str, *, allows_slash: bool) -> tuple[str, ServerMetadata | None]:
    """What is wrong with a document, else what it says."""
    document = json_object(answer.body)
    if document is None:
        return "it is no JSON object", None
    try:
        found = ServerMetadata.read(document)
    except ValueError as error:
        return str(error), None
    # Spec: RFC 8414 3.3: identical. An origin was put together by us, and has no spelling of its own.
    is_same_but_slash = found.issuer.removesuffix("/") == issuer.removesuffix("/")
    if found.issuer != issuer and not (allows_slash and is_same_but_slash):
        hint = "; to take both for one, mcpd login --assume-issuer, OAuth(assume_issuer=True)" * is_same_but_slash
        return f"its issuer is {printable(found.issuer, 200)}, not {printable(issuer, 200)}{hint}", None
    try:
        for name, endpoint in found.endpoints().items():
            check_endpoint(name, endpoint, url)
    except AuthorizationFailed as error:
        return str(error), None
    return "", found


def _get(url: str, what: str) -> Steps[Answer]:
    # Spec: 2025-03-26 basic/authorization: the header goes with the discovery, so that servers can tell versions apart.
    fields = (("Accept", "application/json"), ("MCP-Protocol-Version", table.SUPPORTED[0]))
    return (yield from ask(HttpStep(url, what, headers=fields)))


def _in_words(places: Sequence[Looked]) -> str:
    return "; ".join(f"{shown(one.url)}: {one.said}" for one in places) or "nothing was asked"
