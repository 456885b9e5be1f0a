"""The newest vocabulary (2026-07-28) as msgspec structs: `from mcpd.types import TextContent`.

A module per chapter of the specification, each loaded when one of its names is first asked for.

Handlers, registries and the client speak these and nothing older; `versions` turns them into
older shapes by blanking what a version does not know (a blank field is not written).
An optional field is None when absent; UNSET stands where null is a value of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpd.types.base import (
        CacheableResult as CacheableResult,
        EmptyResult as EmptyResult,
        Icon as Icon,
        ObjectResult as ObjectResult,
        PageParams as PageParams,
        Params as Params,
        RequestMeta as RequestMeta,
        Result as Result,
    )
    from mcpd.types.completion import (
        CompleteParams as CompleteParams,
        CompleteResult as CompleteResult,
        Completion as Completion,
        CompletionArgument as CompletionArgument,
        CompletionContext as CompletionContext,
        PromptReference as PromptReference,
        ResourceTemplateReference as ResourceTemplateReference,
    )
    from mcpd.types.content import (
        Annotations as Annotations,
        AudioContent as AudioContent,
        BlobResourceContents as BlobResourceContents,
        ContentBlock as ContentBlock,
        EmbeddedResource as EmbeddedResource,
        ImageContent as ImageContent,
        ResourceLink as ResourceLink,
        TextContent as TextContent,
        TextResourceContents as TextResourceContents,
    )
    from mcpd.types.elicitation import (
        ElicitationCompleteParams as ElicitationCompleteParams,
        ElicitFormParams as ElicitFormParams,
        ElicitResult as ElicitResult,
        ElicitUrlParams as ElicitUrlParams,
    )
    from mcpd.types.lifecycle import (
        ClientCapabilities as ClientCapabilities,
        DiscoverResult as DiscoverResult,
        ElicitationCapability as ElicitationCapability,
        Implementation as Implementation,
        InitializeParams as InitializeParams,
        InitializeResult as InitializeResult,
        ListChanged as ListChanged,
        ResourcesCapability as ResourcesCapability,
        SamplingCapability as SamplingCapability,
        ServerCapabilities as ServerCapabilities,
    )
    from mcpd.types.notifications import (
        LOG_LEVELS as LOG_LEVELS,
        CancelledParams as CancelledParams,
        LogLevel as LogLevel,
        LogMessageParams as LogMessageParams,
        NotificationParams as NotificationParams,
        ProgressParams as ProgressParams,
        SetLevelParams as SetLevelParams,
    )
    from mcpd.types.prompts import (
        GetPromptParams as GetPromptParams,
        GetPromptResult as GetPromptResult,
        ListPromptsResult as ListPromptsResult,
        Prompt as Prompt,
        PromptArgument as PromptArgument,
        PromptMessage as PromptMessage,
    )
    from mcpd.types.resources import (
        ListResourcesResult as ListResourcesResult,
        ListResourceTemplatesResult as ListResourceTemplatesResult,
        ReadResourceParams as ReadResourceParams,
        ReadResourceResult as ReadResourceResult,
        Resource as Resource,
        ResourceTemplate as ResourceTemplate,
        ResourceUpdatedParams as ResourceUpdatedParams,
        SubscribeParams as SubscribeParams,
    )
    from mcpd.types.rounds import (
        AcknowledgedParams as AcknowledgedParams,
        InputRequest as InputRequest,
        InputRequiredResult as InputRequiredResult,
        ListenParams as ListenParams,
        ListenResult as ListenResult,
        SubscriptionFilter as SubscriptionFilter,
    )
    from mcpd.types.sampling import (
        CreateMessageParams as CreateMessageParams,
        CreateMessageResult as CreateMessageResult,
        ListRootsParams as ListRootsParams,
        ListRootsResult as ListRootsResult,
        ModelHint as ModelHint,
        ModelPreferences as ModelPreferences,
        Root as Root,
        SamplingContent as SamplingContent,
        SamplingMessage as SamplingMessage,
        ToolChoice as ToolChoice,
        ToolResultContent as ToolResultContent,
        ToolUseContent as ToolUseContent,
    )
    from mcpd.types.tools import (
        CallToolParams as CallToolParams,
        CallToolResult as CallToolResult,
        ListToolsResult as ListToolsResult,
        Tool as Tool,
        ToolAnnotations as ToolAnnotations,
        ToolExecution as ToolExecution,
    )

__all__ = [
    "LOG_LEVELS",
    "AcknowledgedParams",
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "CacheableResult",
    "CallToolParams",
    "CallToolResult",
    "CancelledParams",
    "ClientCapabilities",
    "CompleteParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "ContentBlock",
    "CreateMessageParams",
    "CreateMessageResult",
    "DiscoverResult",
    "ElicitFormParams",
    "ElicitResult",
    "ElicitUrlParams",
    "ElicitationCapability",
    "ElicitationCompleteParams",
    "EmbeddedResource",
    "EmptyResult",
    "GetPromptParams",
    "GetPromptResult",
    "Icon",
    "ImageContent",
    "Implementation",
    "InitializeParams",
    "InitializeResult",
    "InputRequest",
    "InputRequiredResult",
    "ListChanged",
    "ListPromptsResult",
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ListRootsParams",
    "ListRootsResult",
    "ListToolsResult",
    "ListenParams",
    "ListenResult",
    "LogLevel",
    "LogMessageParams",
    "ModelHint",
    "ModelPreferences",
    "NotificationParams",
    "ObjectResult",
    "PageParams",
    "Params",
    "ProgressParams",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptReference",
    "ReadResourceParams",
    "ReadResourceResult",
    "RequestMeta",
    "Resource",
    "ResourceLink",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "ResourceUpdatedParams",
    "ResourcesCapability",
    "Result",
    "Root",
    "SamplingCapability",
    "SamplingContent",
    "SamplingMessage",
    "ServerCapabilities",
    "SetLevelParams",
    "SubscribeParams",
    "SubscriptionFilter",
    "TextContent",
    "TextResourceContents",
    "Tool",
    "ToolAnnotations",
    "ToolChoice",
    "ToolExecution",
    "ToolResultContent",
    "ToolUseContent",
]

_CHAPTERS = (
    "base",
    "completion",
    "content",
    "elicitation",
    "lifecycle",
    "notifications",
    "prompts",
    "resources",
    "rounds",
    "sampling",
    "tools",
)

if not TYPE_CHECKING:
    # Hidden from type checkers: to them a name that is not listed above is a mistake, not Any.
    def __getattr__(name):
        if name in __all__:
            from importlib import import_module

            for chapter in _CHAPTERS:
                module = import_module(f"{__name__}.{chapter}")
                if name in module.__all__:
                    value = globals()[name] = getattr(module, name)
                    return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
