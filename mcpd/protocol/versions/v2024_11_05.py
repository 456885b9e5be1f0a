"""2024-11-05: content blocks instead of `toolResult`, cancellation, roots, embedded resources.

Spec: spec/mcp-2024-11-05.
"""

from typing import Any

from msgspec import structs

from mcpd.protocol.types.base import (
    CancelledParams,
    ClientCapabilities,
    InitializeResult,
    LogMessageParams,
    NotificationParams,
)
from mcpd.protocol.types.features import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)
from mcpd.protocol.versions.table import Revision


class _LegacyCallToolResult(CallToolResult, kw_only=True):
    """A tool result that also has the older `toolResult`, so that clients of both revisions can read it."""

    tool_result: Any


def _with_tool_result(result: CallToolResult) -> CallToolResult:
    content = result.content
    alone = content[0] if len(content) == 1 else None
    return _LegacyCallToolResult(
        content=content,
        is_error=result.is_error,
        meta=result.meta,
        tool_result=alone.text if isinstance(alone, TextContent) else content,
    )


def _resource_as_text(block: EmbeddedResource) -> TextContent:
    resource = block.resource
    if isinstance(resource, TextResourceContents):
        return TextContent(resource.text)
    if isinstance(resource, BlobResourceContents):
        return TextContent(f"[binary resource {resource.uri}, {len(resource.blob)} bytes]")
    return TextContent(str(resource.get("text", f"[binary resource {resource.get('uri')}]")))


_LEVELS = {"notice": "info", "critical": "error", "alert": "error", "emergency": "error"}


def _four_levels(params: LogMessageParams) -> LogMessageParams:
    level: Any = _LEVELS.get(params.level)
    return structs.replace(params, level=level) if level else params


REVISION = Revision(
    version="2024-11-05",
    null_id=True,
    notifications={
        "notifications/cancelled": CancelledParams,
        "notifications/roots/list_changed": NotificationParams,
    },
    server_requests=("roots/list",),
    server_notifications=("notifications/cancelled",),
    fields={
        ClientCapabilities: ("roots",),
        InitializeResult: ("instructions",),
        "CreateMessageParams": ("model_preferences",),
        Resource: ("size", "annotations"),
        ResourceTemplate: ("annotations",),
        TextContent: ("annotations",),
        ImageContent: ("annotations",),
        AudioContent: ("annotations",),
    },
    back={
        CallToolResult: _with_tool_result,
        EmbeddedResource: _resource_as_text,
        LogMessageParams: _four_levels,
    },
)
