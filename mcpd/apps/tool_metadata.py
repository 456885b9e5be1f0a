"""The declarations of tools in `_meta.ui`: the resource that shows their results, and their visibility.

The host enforces the visibility, because a server cannot distinguish a call of the model from one of a View. Without
`_meta.ui.visibility` both may call the tool. An invalid value hides the tool from both instead of showing it to one.

Spec: MCP Apps 2026-01-26, "Resource Discovery", Visibility; rules APP-S-01, APP-S-12, APP-S-13 of docs/rules.toml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

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


class ToolProblem(NamedTuple):
    """A mistake in the `_meta` of a tool, for the author of the server."""

    text: str
    advice: str
    rule: str
    """The rule of docs/rules.toml."""
    is_error: bool = True


def tool_problems(meta: Mapping[str, Any] | None) -> Iterator[ToolProblem]:
    """Yield the problems of the `_meta` of a tool as it was listed."""
    meta = meta or {}
    if meta.get("ui") is not None and not isinstance(meta["ui"], Mapping):
        yield ToolProblem(f"_meta.ui is {meta['ui']!r}", "write an object", "APP-S-10")
    ui = ui_member(meta)
    nested, flat = ui.get("resourceUri"), meta.get(FLAT_URI)
    uri = flat if nested is None else nested
    if uri is not None and not (isinstance(uri, str) and uri.startswith(SCHEME)):
        yield ToolProblem(f"{uri!r} does not begin with {SCHEME}", f"write {SCHEME}name/page", "APP-S-01")
    if nested is None and flat is not None:
        text = f"_meta.ui.resourceUri is missing; current hosts do not read _meta[{FLAT_URI!r}], the older form"
        yield ToolProblem(text, "write _meta.ui.resourceUri too", "APP-S-11", is_error=False)
    elif flat is not None and nested != flat:
        text = f"names two apps: {nested!r} and, in the older form, {flat!r}; the first is used"
        yield ToolProblem(text, "name one", "APP-S-11")

    for name in ("csp", "permissions"):
        if name in ui:
            yield ToolProblem(f"_meta.ui.{name} means nothing on a tool", "write it on the resource", "APP-S-12")

    visibility = ui.get("visibility")
    if visibility is None:
        return
    if not isinstance(visibility, list) or not visibility:
        advice = 'write an array with "model", "app" or both'
        yield ToolProblem(f"visibility is {visibility!r}", advice, "APP-S-13")
    elif unknown := [audience for audience in visibility if audience not in _AUDIENCES]:
        yield ToolProblem(f"visibility names {unknown!r}", 'only "model" and "app" exist', "APP-S-13")
