"""`initialize`, `ping`, `server/discover`. Spec: 2025-11-25 basic/lifecycle; 2026-07-28 server/discover."""

from __future__ import annotations

from mcpd.context.exchange import Exchange
from mcpd.errors import MethodNotFound
from mcpd.protocol.types.base import (
    DiscoverResult,
    EmptyResult,
    InitializeParams,
    InitializeResult,
    ListChanged,
    Params,
    ResourcesCapability,
    ServerCapabilities,
)
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.registry.catalog import Catalog


def initialize(catalog: Catalog, exchange: Exchange, params: InitializeParams) -> InitializeResult:
    """The legacy handshake; the session has chosen the version already."""
    return InitializeResult(
        protocol_version=exchange.protocol_version,
        capabilities=_capabilities(catalog, exchange),
        server_info=catalog.identity,
        instructions=catalog.instructions,
    )


def discover(catalog: Catalog, exchange: Exchange, params: Params) -> DiscoverResult:
    """What this server offers and in which versions. Its identity is in `_meta`, as in every result."""
    return DiscoverResult(
        supported_versions=list(SUPPORTED),
        capabilities=_capabilities(catalog, exchange),
        instructions=catalog.instructions,
    )


def ping(catalog: Catalog, exchange: Exchange, params: Params) -> EmptyResult:
    """Alive."""
    return EmptyResult()


def _capabilities(catalog: Catalog, exchange: Exchange) -> ServerCapabilities:
    active = catalog.active_extensions(exchange)
    extensions = {name: catalog.extensions.get(name, {}) for name in sorted(active)}
    offers = catalog.offers
    keeps = not exchange.is_stateless  # without a session nothing is told later, and no level or subscription is kept
    changes = ListChanged(list_changed=keeps)
    return ServerCapabilities(
        logging={} if keeps else None,
        completions={} if "completions" in offers else None,
        prompts=changes if "prompts" in offers else None,
        resources=ResourcesCapability(subscribe=keeps, list_changed=keeps) if "resources" in offers else None,
        tools=changes if "tools" in offers else None,
        extensions=extensions or None,
    )


def check_session(exchange: Exchange) -> None:
    """Raise MethodNotFound where nothing can be kept for later: there such a method was not offered."""
    if exchange.is_stateless:
        raise MethodNotFound(f"Method not found: {exchange.method} needs a session, and this request has none")
