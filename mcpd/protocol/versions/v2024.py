"""The revisions of 2024.

2024-10-07 is the first one that is named by a date, known only from the histories of both SDKs: no page or schema was
published. 2024-11-05 has content blocks instead of `toolResult`, cancellation, roots and embedded resources.

Spec: spec/mcp-2024-11-05.
"""

from typing import Any

from msgspec import structs

from mcpd.protocol.types.base import (
    CancelledParams,
    ClientCapabilities,
    InitializeParams,
    InitializeResult,
    LogMessageParams,
    NotificationParams,
    PageParams,
    Params,
    ProgressParams,
    SetLevelParams,
)
from mcpd.protocol.types.features import (
    AudioContent,
    BlobResourceContents,
    CallToolParams,
    CallToolResult,
    EmbeddedResource,
    GetPromptParams,
    ImageContent,
    ReadResourceParams,
    Resource,
    ResourceTemplate,
    SubscribeParams,
    TextContent,
    TextResourceContents,
)
from .table import Revision

_2024_10_07 = Revision(
    version="2024-10-07",
    null_id=True,
    requests={
        "initialize": InitializeParams,
        "ping": Params,
        "tools/list": PageParams,
        "tools/call": CallToolParams,
        "resources/list": PageParams,
        "resources/templates/list": PageParams,
        "resources/read": ReadResourceParams,
        "resources/subscribe": SubscribeParams,
        "resources/unsubscribe": SubscribeParams,
        "prompts/list": PageParams,
        "prompts/get": GetPromptParams,
        "completion/complete": "CompleteParams",
        "logging/setLevel": SetLevelParams,
    },
    notifications={
        "notifications/initialized": NotificationParams,
        "notifications/progress": ProgressParams,
    },
    server_requests=("ping", "sampling/createMessage"),
    server_notifications=(
        "notifications/progress",
        "notifications/message",
        "notifications/resources/updated",
        "notifications/resources/list_changed",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
    ),
)


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


_2024_11_05 = Revision(
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


REVISIONS = (_2024_10_07, _2024_11_05)
