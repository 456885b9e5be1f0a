"""Which of a server's tools the model may see and which a View may call.

The host is the one who enforces this: a server that listed a tool cannot tell a model's call from a View's.
`_meta.ui.visibility` absent means both. Present, it counts as written: what is not in it is not allowed,
so a value that makes no sense hides the tool from both sides rather than showing it to one.

Spec: MCP Apps 2026-01-26, "Resource Discovery", Visibility.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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
