"""`mcp_types.methods`: the models of each method's request and result, by protocol version.

Few servers look at these tables, and making them loads every protocol version.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mcpd.compat.lowlevel.wire import REQUESTS
from mcpd.compat.types import features
from mcpd.protocol.versions import table

_RESULTS: dict[str, type[Any]] = {
    "initialize": features.InitializeResult,
    "tools/list": features.ListToolsResult,
    "tools/call": features.CallToolResult,
    "resources/list": features.ListResourcesResult,
    "resources/templates/list": features.ListResourceTemplatesResult,
    "resources/read": features.ReadResourceResult,
    "prompts/list": features.ListPromptsResult,
    "prompts/get": features.GetPromptResult,
    "completion/complete": features.CompleteResult,
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


CLIENT_REQUESTS = _by_version({"initialize": features.InitializeRequest, **REQUESTS})
"""The model of each request, by its method and a protocol version that has it."""
SERVER_RESULTS = _by_version({**dict.fromkeys(REQUESTS, features.EmptyResult), **_RESULTS})
"""The model of each request's result, by its method and a protocol version that has it."""
