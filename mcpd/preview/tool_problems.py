"""What is wrong with what a tool says of its app: in words for its author.

Spec: MCP Apps 2026-01-26, "Resource Discovery"; rules APP-S-01, -12, -13 of docs/rules.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
