"""The Server Card and the catalog that names it: what a client may read before it connects.

A card says who the server is, where its endpoint is and which versions it speaks; never what it offers. SEP-2127, and
its extension's schema and page on discovery; the catalog is an AI Catalog.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any
from urllib.parse import urlsplit

from msgspec.json import encode

from mcpd.errors import ConfigurationError
from mcpd.protocol.types.base import Implementation
from mcpd.protocol.versions import table
from mcpd.server.functions.results import to_builtins
from mcpd.server.registry.routes import Route, RouteRequest, RouteResponse

CARD = "/server-card"
"""Where the card is, below the endpoint."""

CATALOG = "/.well-known/ai-catalog.json"

_CARD_TYPE = "application/mcp-server-card+json"
_CATALOG_TYPE = "application/ai-catalog+json"
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_MOST_CHARACTERS = 100
_FOR_PAGES = {
    "Access-Control-Allow-Methods": "GET",
    "Access-Control-Allow-Headers": "Content-Type, If-None-Match",
    "Access-Control-Expose-Headers": "ETag",
}
_in_no_route = re.compile(r"[?#\\ {}]").search
_is_full_name = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+").fullmatch
_is_address = re.compile(r"[\d.]+|\[.*|.*:.*").fullmatch


def checked_public_url(url: str) -> str:
    """The URL that clients know the endpoint by, without a slash at its end. Raises ConfigurationError."""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
        raise ConfigurationError(f"public_url {url!r}: write the whole URL of the endpoint, as https://example.com/mcp")
    return url.rstrip("/")


class ServerCard:
    """The card of one application, and its catalog.

    `endpoint` is the endpoint's path, `public_url` its URL where that is known, else it is what the request was made
    to. With `is_public` everybody may read both, with `any_origin` web pages too; `needs_token` says that clients need
    a bearer token.
    """

    def __init__(
        self,
        identity: Implementation,
        endpoint: str,
        public_url: str,
        *,
        is_public: bool,
        any_origin: bool,
        needs_token: bool,
    ) -> None:
        self._identity = identity
        self._endpoint = endpoint.rstrip("/")
        self._url = checked_public_url(public_url)
        self._needs_token = needs_token
        self._headers = {"Cache-Control": f"{'public' if is_public else 'private'}, max-age=3600"}
        if any_origin:
            self._headers |= _FOR_PAGES
        # A path with characters that no route has is taken by the endpoint alone.
        paths = (f"{self._endpoint}{CARD}", CATALOG)
        self.routes = tuple(
            Route(path, function, public=is_public, any_origin=any_origin)
            for path, function in zip(paths, (self.card, self.catalog), strict=True)
            if not _in_no_route(paths[0])
        )

    async def card(self, request: RouteRequest) -> RouteResponse:
        """The card."""
        identity, url = self._identity, self._url_of(request)
        remote: dict[str, Any] = {
            "type": "streamable-http",
            "url": url,
            "supportedProtocolVersions": [name for name in table.SUPPORTED if name >= _FIRST_OVER_HTTP],
        }
        if self._needs_token:
            remote["headers"] = [{"name": "Authorization", "isRequired": True, "isSecret": True}]
        members: dict[str, Any] = {
            "$schema": _SCHEMA,
            "name": self._name(url),
            "version": identity.version[:255],
            "description": _cut(identity.description or identity.title or f"The MCP server {identity.name}"),
            "title": _cut(identity.title or ""),
            "websiteUrl": identity.website_url,
            "icons": to_builtins(identity.icons),
            "remotes": [remote],
        }
        card = {name: value for name, value in members.items() if value or name == "version"}
        return self._answer(request, card, _CARD_TYPE)

    async def catalog(self, request: RouteRequest) -> RouteResponse:
        """The catalog, which names the card."""
        url = self._url_of(request)
        shown = self._identity.title or self._identity.name
        space, _, last = self._name(url).partition("/")
        # Whose name it is comes first, as a domain: the name's own where the author gave one.
        publisher = ".".join(reversed(space.split("."))) if self._has_full_name else _publisher(_host(url))
        entry = {
            "identifier": f"urn:air:{publisher}:mcp:{last}",
            "displayName": shown,
            "type": _CARD_TYPE,
            "url": f"{url}{CARD}",
        }
        catalog = {"specVersion": "1.0", "host": {"displayName": shown}, "entries": [entry]}
        return self._answer(request, catalog, _CATALOG_TYPE)

    def _answer(self, request: RouteRequest, document: dict[str, Any], kind: str) -> RouteResponse:
        """A document with its tag, or 304 for a client that has it (RFC 9110 13.1.2)."""
        body = encode(document)
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {**self._headers, "ETag": tag}
        known = request.headers.get("if-none-match", "")
        if known.strip() == "*" or tag in _tags(known):
            return RouteResponse(status=304, headers=headers)
        return RouteResponse(body, headers=headers, content_type=kind)

    def _url_of(self, request: RouteRequest) -> str:
        # `Host` was checked: it is a name by which this server may be reached.
        host = request.headers.get("host") or "localhost"
        return self._url or f"{request.scheme}://{host}{request.root_path.rstrip('/')}{self._endpoint}"

    @property
    def _has_full_name(self) -> bool:
        return _is_full_name(self._identity.name) is not None and len(self._identity.name) <= 200

    def _name(self, url: str) -> str:
        """The name in reverse-DNS form: the server's own if it has that form, else below the host's."""
        name = self._identity.name
        if self._has_full_name:
            return name
        host = _host(url)
        space = host if _is_address(host) else ".".join(reversed(host.split(".")))
        last = re.sub(r"[^a-zA-Z0-9._-]+", "-", name).strip("-.") or "mcpd"
        return f"{re.sub(r'[^a-zA-Z0-9.-]', '-', space)}/{last}"[:200]


_FIRST_OVER_HTTP = "2025-03-26"


def _host(url: str) -> str:
    return urlsplit(url).hostname or "localhost"


def _publisher(host: str) -> str:
    """A host as a part of a URN, in which colons separate and all is ASCII (RFC 8141)."""
    try:
        host = host.encode("idna").decode()
    except UnicodeError:
        pass
    return re.sub(r"[^a-zA-Z0-9.-]", "-", host)


def _tags(header: str) -> set[str]:
    """The tags of `If-None-Match`; that one is weak makes no difference to it."""
    return set(re.findall(r'"[^"]*"', header))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
