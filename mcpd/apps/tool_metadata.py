"""The declarations of tools in `_meta.ui`: the resource that shows their results, and their visibility.

The host enforces the visibility, because a server cannot distinguish a call of the model from one of a View. Without
`_meta.ui.visibility` both may call the tool. An invalid value hides the tool from both instead of showing it to one.

Spec: MCP Apps 2026-01-26, "Resource Discovery", Visibility; rules APP-S-01, APP-S-12, APP-S-13 of docs/rules.toml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mcpd.protocol.types.features import Tool
from mcpd.server.extensions.ui.constants import FLAT_URI, MIME_TYPE, SCHEME, UI

KIND = "apps"
"""The name of tools with an app in lists and on the command line."""

OFFER: Mapping[str, Any] = {UI: {"mimeTypes": [MIME_TYPE]}}
"""The extensions with which a client offers to show apps."""

_AUDIENCES = ("model", "app")


def is_for_model(tool: Tool) -> bool:
    """Return whether the model may see and call the tool."""
    return _is_visible(tool, "model")


def is_for_app(tool: Tool) -> bool:
    """Return whether a View of the same server may call the tool."""
    return _is_visible(tool, "app")


def model_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools that the model may see, for any text or list that reaches it."""
    return [tool for tool in tools if is_for_model(tool)]


def linked_uri(tool: Tool) -> str | None:
    """Return the URI that a tool names for its app, valid or not. The nested member wins over the older flat key."""
    uri = ui_member(tool.meta).get("resourceUri")
    if not isinstance(uri, str):
        uri = (tool.meta or {}).get(FLAT_URI)
    return uri if isinstance(uri, str) else None


def resource_uri(tool: Tool) -> str | None:
    """Return the `ui://` resource that shows the results of a tool, or None."""
    uri = linked_uri(tool)
    return uri if uri is not None and uri.startswith(SCHEME) else None


def ui_member(meta: object) -> Mapping[str, Any]:
    """Return `_meta.ui` of a tool or a resource; empty if it is absent or not an object."""
    ui = meta.get("ui") if isinstance(meta, Mapping) else None
    return ui if isinstance(ui, Mapping) else {}


def _is_visible(tool: Tool, audience: str) -> bool:
    visibility = ui_member(tool.meta).get("visibility")
    if visibility is None:
        return True
    # Published servers send a string, and its meaning is clear.
    if isinstance(visibility, str):
        return visibility == audience
    return isinstance(visibility, list) and audience in visibility


def tool_problems(listed: Mapping[str, Any]) -> list[str]:
    """Return the problems of the `_meta` of a tool as it was listed, one line each for the author of the server."""
    meta = listed.get("_meta")
    if not isinstance(meta, Mapping):
        return []

    problems: list[str] = []
    if meta.get("ui") is not None and not isinstance(meta["ui"], Mapping):
        problems.append("_meta.ui must be an object")
    ui = ui_member(meta)
    nested, flat = ui.get("resourceUri"), meta.get(FLAT_URI)
    for where, uri in (("_meta.ui.resourceUri", nested), (f'_meta["{FLAT_URI}"]', flat)):
        if uri is not None and not (isinstance(uri, str) and uri.startswith(SCHEME)):
            problems.append(f"{where} must begin with {SCHEME}")
    if nested is not None and flat is not None and nested != flat:
        problems.append(f'_meta.ui.resourceUri and _meta["{FLAT_URI}"] name different resources; the first is used')
    if nested is None and isinstance(flat, str):
        problems.append(f'_meta.ui.resourceUri is missing; current hosts do not read _meta["{FLAT_URI}"]')

    visibility = ui.get("visibility")
    if visibility is not None and not isinstance(visibility, list):
        problems.append("_meta.ui.visibility must be an array")
    elif visibility is not None and not [who for who in visibility if who in _AUDIENCES]:
        problems.append('_meta.ui.visibility has neither "model" nor "app", so nobody may call this tool')
    elif visibility is not None and any(who not in _AUDIENCES for who in visibility):
        problems.append('_meta.ui.visibility may contain only "model" and "app"')

    problems += [f"_meta.ui.{name} is ignored on a tool; declare it on the resource" for name in ("csp", "permissions")
                 if name in ui]  # fmt: skip
    return problems
