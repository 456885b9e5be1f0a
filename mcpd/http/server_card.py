"""The Server Card and the catalog that names it: what a client may read before it connects.

A card says who the server is, where its endpoint is and which versions it speaks; never what it offers. SEP-2127, and
its extension's schema and page on discovery; the catalog is an AI Catalog.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from msgspec import to_builtins

from ..errors import ConfigurationError
from ..registry.routes import Route, RouteRequest, RouteResponse
from ..types.lifecycle import Implementation
from ..versions import table

__all__ = ["CARD", "CATALOG", "ServerCard", "checked_public_url"]

CARD = "/server-card"
"""Where the card is, below the endpoint."""

CATALOG = "/.well-known/ai-catalog.json"

_CARD_TYPE = "application/mcp-server-card+json"
_CATALOG_TYPE = "application/ai-catalog+json"
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_MOST_CHARACTERS = 100
_is_name = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+").fullmatch
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
        self.routes = (
            Route(f"{self._endpoint}{CARD}", self.card, public=is_public, any_origin=any_origin),
            Route(CATALOG, self.catalog, public=is_public, any_origin=any_origin),
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
        card = {name: value for name, value in members.items() if value}
        return RouteResponse(card, headers=self._headers, content_type=_CARD_TYPE)

    async def catalog(self, request: RouteRequest) -> RouteResponse:
        """The catalog, which names the card."""
        url = self._url_of(request)
        shown = self._identity.title or self._identity.name
        entry = {
            "identifier": f"urn:air:{_host(url)}:{self._name(url).partition('/')[2]}",
            "displayName": shown,
            "type": _CARD_TYPE,
            "url": f"{url}{CARD}",
        }
        catalog = {"specVersion": "1.0", "host": {"displayName": shown}, "entries": [entry]}
        return RouteResponse(catalog, headers=self._headers, content_type=_CATALOG_TYPE)

    def _url_of(self, request: RouteRequest) -> str:
        # `Host` was checked: it is a name by which this server may be reached.
        host = request.headers.get("host") or "localhost"
        return self._url or f"{request.scheme}://{host}{request.root_path.rstrip('/')}{self._endpoint}"

    def _name(self, url: str) -> str:
        """The name in reverse-DNS form: the server's own if it has that form, else below the host's."""
        name = self._identity.name
        if _is_name(name) and len(name) <= 200:
            return name
        host = _host(url)
        space = host if _is_address(host) else ".".join(reversed(host.split(".")))
        last = re.sub(r"[^a-zA-Z0-9._-]+", "-", name).strip("-.") or "mcpd"
        return f"{re.sub(r'[^a-zA-Z0-9.-]', '-', space)}/{last}"[:200]


_FIRST_OVER_HTTP = "2025-03-26"


def _host(url: str) -> str:
    return urlsplit(url).hostname or "localhost"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
