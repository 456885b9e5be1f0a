"""What a low-level server offers, as entries of a catalog: for `mcpd check`, which lists it and looks for problems."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from msgspec import Raw

from mcpd.compat.lowlevel.application import Handlers
from mcpd.compat.types import prompts, resources, tools
from mcpd.compat.types.base import BaseRequest, PaginatedRequestParams
from mcpd.compat.wire import as_json, struct_of
from mcpd.errors import LocalProtocolError
from mcpd.protocol.types.prompts import GetPromptResult, ListPromptsResult, Prompt
from mcpd.protocol.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from mcpd.protocol.types.tools import CallToolResult, ListToolsResult, Tool
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.entries import Entries, PromptEntry, ResourceEntry, TemplateEntry, ToolEntry
from mcpd.server.registry.listing import ActiveExtensions

__all__ = ["entries"]

_UNSERVED = "this was listed to be looked at; its server's own handlers serve it"


async def entries(app: Handlers) -> Entries:
    """All that its list functions give, page after page."""
    found_tools: list[ToolEntry] = []
    found_resources: list[ResourceEntry] = []
    found_templates: list[TemplateEntry] = []
    found_prompts: list[PromptEntry] = []
    for page in await _pages(app, tools.ListToolsRequest):
        found_tools += [_Tool(one) for one in struct_of(page, ListToolsResult).tools]
    for page in await _pages(app, resources.ListResourcesRequest):
        found_resources += [_Resource(one) for one in struct_of(page, ListResourcesResult).resources]
    for page in await _pages(app, resources.ListResourceTemplatesRequest):
        listed = struct_of(page, ListResourceTemplatesResult).resource_templates
        found_templates += [_Template(one) for one in listed]
    for page in await _pages(app, prompts.ListPromptsRequest):
        found_prompts += [_Prompt(one) for one in struct_of(page, ListPromptsResult).prompts]
    return Entries(
        tools=found_tools or None,
        resources=found_resources or None,
        templates=found_templates or None,
        prompts=found_prompts or None,
    )


async def _pages(app: Handlers, request: type[BaseRequest]) -> list[dict[str, Any]]:
    lists = app.request_handlers.get(request)
    pages: list[dict[str, Any]] = []
    cursor: str | None = None
    while lists is not None:
        params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
        result: Any = await lists(
            request.model_validate({"method": request.model_fields["method"].default, "params": params})
        )
        pages.append(as_json(getattr(result, "root", result)))
        cursor = pages[-1].get("nextCursor")
        if cursor is None:
            break
    return pages


class _Tool(ToolEntry):
    def __init__(self, item: Tool) -> None:
        self.key, self._item = item.name, item

    def listed(self, active: ActiveExtensions) -> Tool:
        return self._item

    def run(self, arguments: Raw, exchange: Exchange) -> Coroutine[Any, Any, CallToolResult]:
        raise LocalProtocolError(_UNSERVED)


class _Resource(ResourceEntry):
    def __init__(self, item: Resource) -> None:
        self.key, self._item = item.uri, item

    def listed(self, active: ActiveExtensions) -> Resource:
        return self._item

    def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        raise LocalProtocolError(_UNSERVED)


class _Template(TemplateEntry):
    def __init__(self, item: ResourceTemplate) -> None:
        self.key, self._item = item.uri_template, item

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        return self._item

    def match(self, uri: str) -> dict[str, str] | None:
        return None

    def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> ReadResourceResult:
        raise LocalProtocolError(_UNSERVED)


class _Prompt(PromptEntry):
    def __init__(self, item: Prompt) -> None:
        self.key, self._item = item.name, item

    def listed(self, active: ActiveExtensions) -> Prompt:
        return self._item

    def run(self, arguments: dict[str, str | None], exchange: Exchange) -> GetPromptResult:
        raise LocalProtocolError(_UNSERVED)
