"""`mcp_types.methods`: the requests of each version, and the models of their results."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mcpd.compat.mcpserver.requests import REQUESTS
from mcpd.compat.types import lifecycle, prompts, resources, tools
from mcpd.protocol.versions import table

__all__ = ["CLIENT_REQUESTS", "SERVER_RESULTS"]

_RESULTS: dict[str, type[Any]] = {
    "initialize": lifecycle.InitializeResult,
    "tools/list": tools.ListToolsResult,
    "tools/call": tools.CallToolResult,
    "resources/list": resources.ListResourcesResult,
    "resources/templates/list": resources.ListResourceTemplatesResult,
    "resources/read": resources.ReadResourceResult,
    "prompts/list": prompts.ListPromptsResult,
    "prompts/get": prompts.GetPromptResult,
    "completion/complete": prompts.CompleteResult,
}


def _by_version(models: Mapping[str, type[Any]]) -> Mapping[tuple[str, str], type[Any]]:
    known = {version: table.get(version).requests for version in table.SUPPORTED}
    return MappingProxyType(
        {
            (method, version): model
            for version, requests in known.items()
            for method, model in models.items()
            if method in requests
        }
    )


CLIENT_REQUESTS = _by_version({"initialize": lifecycle.InitializeRequest, **REQUESTS})
SERVER_RESULTS = _by_version({**dict.fromkeys(REQUESTS, lifecycle.EmptyResult), **_RESULTS})
