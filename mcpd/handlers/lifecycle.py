"""`initialize`, `ping`, `server/discover`. Spec: 2025-11-25 basic/lifecycle; 2026-07-28 server/discover."""

from __future__ import annotations

from ..context import Context
from ..errors import MethodNotFound
from ..registry.catalog import Catalog
from ..types.base import EmptyResult, Params
from ..types.lifecycle import (
    DiscoverResult,
    InitializeParams,
    InitializeResult,
    ListChanged,
    ResourcesCapability,
    ServerCapabilities,
)
from ..versions.table import SUPPORTED

__all__ = ["check_session", "discover", "initialize", "ping"]


def initialize(catalog: Catalog, ctx: Context, params: InitializeParams) -> InitializeResult:
    """The legacy handshake; the session has chosen the version already."""
    return InitializeResult(
        protocol_version=ctx.protocol_version,
        capabilities=_capabilities(catalog, ctx),
        server_info=catalog.identity,
        instructions=catalog.instructions,
    )


def discover(catalog: Catalog, ctx: Context, params: Params) -> DiscoverResult:
    """What this server offers and in which versions. Its identity is in `_meta`, as in every result."""
    return DiscoverResult(
        supported_versions=list(SUPPORTED),
        capabilities=_capabilities(catalog, ctx),
        instructions=catalog.instructions,
    )


def ping(catalog: Catalog, ctx: Context, params: Params) -> EmptyResult:
    """Alive."""
    return EmptyResult()


def _capabilities(catalog: Catalog, ctx: Context) -> ServerCapabilities:
    audience = catalog.audience(ctx)
    extensions = {name: catalog.extensions.get(name, {}) for name in sorted(audience)}
    offers = catalog.offers
    keeps = not ctx.is_alone  # without a session nothing is told later, and no level or subscription is kept
    changes = ListChanged(list_changed=keeps)
    return ServerCapabilities(
        logging={} if keeps else None,
        completions={} if "completions" in offers else None,
        prompts=changes if "prompts" in offers else None,
        resources=ResourcesCapability(subscribe=keeps, list_changed=keeps) if "resources" in offers else None,
        tools=changes if "tools" in offers else None,
        extensions=extensions or None,
    )


def check_session(ctx: Context) -> None:
    """Raise MethodNotFound where nothing can be kept for later: there such a method was not offered."""
    if ctx.is_alone:
        raise MethodNotFound(f"Method not found: {ctx.method} needs a session, and this request has none")
