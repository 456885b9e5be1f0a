"""Results of tools that have a View: text for the model, and data for the View.

The data is sent twice, because some hosts drop one of them: as `structuredContent`, and in `_meta` (APP-S-16). Clients
without MCP Apps receive neither: some show the data to the model instead of the text.
Spec: MCP Apps 2026-01-26, "Data Passing", "Graceful Degradation".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, Raw, structs

from mcpd.protocol.types.features import CallToolResult, ContentBlock, EmbeddedResource, ResourceLink, TextContent
from mcpd.server.registry.content import encode_data
from .constants import SCHEME

# The key of `_meta` with the data of a View, if a host drops `structuredContent`.
VIEW_DATA: Final = "mcpd/data"


class ViewResult(CallToolResult, kw_only=True):
    """A result of `view_result`; `view_meta` is the part of `_meta` for the View."""

    view_meta: dict[str, Any] = {}


def view_result(
    text: str | ContentBlock | Sequence[str | ContentBlock],
    data: Any = UNSET,
    *,
    meta: Mapping[str, Any] | None = None,
    is_error: bool = False,
) -> ViewResult:
    """Return a result with `text` for the model and `data` for the View.

    `data` is any JSON value, preferably an object. It is sent as `structuredContent` and as `_meta["mcpd/data"]`.
    `meta` are further members of `_meta`. Clients without MCP Apps receive the text, and the structured content if the
    tool has an output schema.
    """
    parts = [text] if isinstance(text, str) or not isinstance(text, Sequence) else text
    content = [TextContent(part) if isinstance(part, str) else part for part in parts]
    for_view = dict(meta or {})
    if data is not UNSET:
        data = Raw(encode_data(data))
        for_view.setdefault(VIEW_DATA, data)
    return ViewResult(content=content, structured_content=data, is_error=is_error, view_meta=for_view)


def finished(result: CallToolResult, *, has_apps: bool, has_schema: bool, name: str) -> CallToolResult:
    """Return a tool's result for a client with or without MCP Apps.

    `name` is the name of the tool, for the text of a result that has no text (APP-S-06).
    """
    content, structured, meta = result.content, result.structured_content, result.meta
    if isinstance(result, ViewResult):
        if has_apps:
            meta = {**result.view_meta, **_members(meta)} or None
        elif not has_schema:
            structured = UNSET

    if not has_apps:
        if any(map(_is_view_block, content)):
            content = [block for block in content if not _is_view_block(block)]
        if any(map(is_view_key, _members(meta))):
            meta = {key: value for key, value in _members(meta).items() if not is_view_key(key)}

    if not any(map(_is_readable, content)):
        content = [*content, TextContent(_fallback(structured, result.is_error, name))]
    if result.__class__ is CallToolResult:
        if content is result.content and meta is result.meta:
            return result
        return structs.replace(result, content=content, meta=meta or None)

    return CallToolResult(
        result_type=result.result_type,
        content=content,
        structured_content=structured,
        is_error=result.is_error,
        meta=meta or None,
    )


def _members(meta: dict[str, Any] | Raw | None) -> dict[str, Any]:
    return meta if isinstance(meta, dict) else {}


def is_view_key(key: str) -> bool:
    """Whether a member of `_meta` is for Views only."""
    return key == "ui" or key.startswith("ui/") or key == VIEW_DATA


def _is_view_block(block: object) -> bool:
    if isinstance(block, ResourceLink):
        return block.uri.startswith(SCHEME)
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        uri = resource.get("uri") if isinstance(resource, dict) else getattr(resource, "uri", "")
        return str(uri).startswith(SCHEME)
    return False


def _is_readable(block: object) -> bool:
    return bool(block.text.strip()) if isinstance(block, TextContent) else not _is_view_block(block)


def _fallback(structured: Any, is_error: bool, name: str) -> str:
    if structured is not UNSET and structured is not None:
        return encode_data(structured).decode()
    return f"The tool {name} failed without a message." if is_error else f"The tool {name} is done."
