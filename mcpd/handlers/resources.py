"""`resources/list`, `resources/templates/list`, `resources/read`. Spec: 2026-07-28 server/resources."""

from __future__ import annotations

from typing import Any

from mcpd.context.exchange import Exchange
from mcpd.errors import ResourceNotFound
from mcpd.protocol.types.base import PageParams
from mcpd.protocol.types.resources import ListResourcesResult, ListResourceTemplatesResult, ReadResourceParams
from mcpd.registry.catalog import Catalog


def list_resources(catalog: Catalog, exchange: Exchange, params: PageParams) -> ListResourcesResult:
    """One page of the resources that this client gets to see."""
    page: ListResourcesResult = catalog.resources.page(catalog.active_extensions(exchange), params.cursor)
    return page


def list_resource_templates(catalog: Catalog, exchange: Exchange, params: PageParams) -> ListResourceTemplatesResult:
    """One page of the templates."""
    page: ListResourceTemplatesResult = catalog.templates.page(catalog.active_extensions(exchange), params.cursor)
    return page


def read_resource(catalog: Catalog, exchange: Exchange, params: ReadResourceParams) -> Any:
    """What a resource holds: a fixed URI first, then the first template that matches.

    Raises ResourceNotFound, never an empty result (S26-117).
    """
    active = catalog.active_extensions(exchange)
    entry = catalog.find_resource(params.uri, active)
    if entry is not None:
        return entry.run(params.uri, exchange)
    for template in catalog.templates:
        if template.requires is None or template.requires in active:
            variables = template.match(params.uri)
            if variables is not None:
                return template.run(params.uri, variables, exchange)
    raise ResourceNotFound(params.uri)
