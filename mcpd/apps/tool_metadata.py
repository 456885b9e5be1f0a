"""Which of a server's tools the model may see and which a View may call.

The host is the one who enforces this: a server that listed a tool cannot tell a model's call from a View's.
`_meta.ui.visibility` absent means both. Present, it counts as written: what is not in it is not allowed,
so a value that makes no sense hides the tool from both sides rather than showing it to one.

Spec: MCP Apps 2026-01-26, "Resource Discovery", Visibility.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mcpd.extensions.ui.constants import FLAT_URI, MIME_TYPE, UI
from mcpd.protocol.types.tools import Tool


def is_for_model(tool: Tool) -> bool:
    """Whether the model may see and call this tool."""
    return _has(tool, "model")


def is_for_app(tool: Tool) -> bool:
    """Whether a View of the same server may call this tool."""
    return _has(tool, "app")


def model_tools(tools: Iterable[Tool]) -> list[Tool]:
    """The tools a model may see: for lists, searches, prompts and whatever else reaches it."""
    return [tool for tool in tools if is_for_model(tool)]


def resource_uri(tool: Tool) -> str | None:
    """The `ui://` resource that shows this tool's results; the nested member wins over the old flat key."""
    meta = tool.meta or {}
    uri = _ui(meta).get("resourceUri")
    if not isinstance(uri, str):
        uri = meta.get("ui/resourceUri")
    return uri if isinstance(uri, str) and uri.startswith("ui://") else None


def _has(tool: Tool, who: str) -> bool:
    visibility = _ui(tool.meta or {}).get("visibility")
    if visibility is None:
        return True
    if isinstance(visibility, str):  # seen in the wild; the author's wish is plain
        return visibility == who
    return isinstance(visibility, (list, tuple)) and who in visibility


def _ui(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    ui = meta.get("ui")
    return ui if isinstance(ui, Mapping) else {}


KIND = "apps"
"""What such tools are called in a list, and on a command line."""

OFFER: Mapping[str, Any] = {UI: {"mimeTypes": [MIME_TYPE]}}
"""The extensions of a client that is to be told of Views."""


def view_uri(tool: Tool) -> str:
    """The URI of the page that hosts show with the tool's result, or "" if it has none."""
    meta = tool.meta or {}
    ui = meta.get("ui")
    uri = ui.get("resourceUri") if isinstance(ui, dict) else meta.get(FLAT_URI)
    return uri if isinstance(uri, str) else ""


_AUDIENCES = ("model", "app")


def tool_problems(listed: Mapping[str, Any]) -> list[str]:
    """Of a tool as it was listed; a line for each."""
    meta = listed.get("_meta")
    if not isinstance(meta, Mapping):
        return []

    problems: list[str] = []
    ui, flat = meta.get("ui"), meta.get("ui/resourceUri")
    if ui is not None and not isinstance(ui, Mapping):
        problems.append("_meta.ui is an object")
    members: Mapping[str, Any] = ui if isinstance(ui, Mapping) else {}

    nested = members.get("resourceUri")
    for where, uri in (("_meta.ui.resourceUri", nested), ('_meta["ui/resourceUri"]', flat)):
        if uri is not None and not (isinstance(uri, str) and uri.startswith("ui://")):
            problems.append(f"{where} begins with ui://")
    if nested is not None and flat is not None and nested != flat:
        problems.append('_meta.ui.resourceUri and _meta["ui/resourceUri"] name different resources; the first counts')
    if nested is None and isinstance(flat, str):
        problems.append("_meta.ui.resourceUri is missing: hosts of today read that one")

    visibility = members.get("visibility")
    if visibility is not None and not isinstance(visibility, list):
        problems.append("_meta.ui.visibility is an array")
    elif visibility is not None and not [who for who in visibility if who in _AUDIENCES]:
        problems.append('_meta.ui.visibility has neither "model" nor "app": nobody may call this tool')
    elif visibility is not None and any(who not in _AUDIENCES for who in visibility):
        problems.append('_meta.ui.visibility has "model" and "app", and nothing else')

    problems += [
        f"_meta.ui.{name} of a tool is passed over: it belongs to the resource"
        for name in ("csp", "permissions")
        if name in members
    ]
    return problems
