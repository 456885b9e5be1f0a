"""The messages and types of the specification (2026-07-28) as msgspec structs.

    from mcpd.types import CallToolResult, TextContent

An optional field is None when it is absent; `UNSET` is used where null is a value of its own.
"""

from __future__ import annotations

from mcpd.protocol.types.base import (
    LOG_LEVELS as LOG_LEVELS,
    CacheableResult as CacheableResult,
    CancelledParams as CancelledParams,
    ClientCapabilities as ClientCapabilities,
    DiscoverResult as DiscoverResult,
    ElicitationCapability as ElicitationCapability,
    EmptyResult as EmptyResult,
    Icon as Icon,
    Implementation as Implementation,
    InitializeParams as InitializeParams,
    InitializeResult as InitializeResult,
    ListChanged as ListChanged,
    LogLevel as LogLevel,
    LogMessageParams as LogMessageParams,
    NotificationParams as NotificationParams,
    ObjectResult as ObjectResult,
    PageParams as PageParams,
    Params as Params,
    ProgressParams as ProgressParams,
    RequestMeta as RequestMeta,
    ResourcesCapability as ResourcesCapability,
    Result as Result,
    SamplingCapability as SamplingCapability,
    ServerCapabilities as ServerCapabilities,
    SetLevelParams as SetLevelParams,
)
from mcpd.protocol.types.content import (
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
from mcpd.protocol.types.interaction import (
    AcknowledgedParams as AcknowledgedParams,
    CompleteParams as CompleteParams,
    CompleteResult as CompleteResult,
    Completion as Completion,
    CompletionArgument as CompletionArgument,
    CompletionContext as CompletionContext,
    CreateMessageParams as CreateMessageParams,
    CreateMessageResult as CreateMessageResult,
    ElicitationCompleteParams as ElicitationCompleteParams,
    ElicitFormParams as ElicitFormParams,
    ElicitResult as ElicitResult,
    ElicitUrlParams as ElicitUrlParams,
    InputRequest as InputRequest,
    InputRequiredResult as InputRequiredResult,
    ListenParams as ListenParams,
    ListenResult as ListenResult,
    ListRootsParams as ListRootsParams,
    ListRootsResult as ListRootsResult,
    ModelHint as ModelHint,
    ModelPreferences as ModelPreferences,
    PromptReference as PromptReference,
    ResourceTemplateReference as ResourceTemplateReference,
    Root as Root,
    SamplingContent as SamplingContent,
    SamplingMessage as SamplingMessage,
    SubscriptionFilter as SubscriptionFilter,
    ToolChoice as ToolChoice,
    ToolResultContent as ToolResultContent,
    ToolUseContent as ToolUseContent,
)
from mcpd.protocol.types.prompts import (
    GetPromptParams as GetPromptParams,
    GetPromptResult as GetPromptResult,
    ListPromptsResult as ListPromptsResult,
    Prompt as Prompt,
    PromptArgument as PromptArgument,
    PromptMessage as PromptMessage,
)
from mcpd.protocol.types.resources import (
    ListResourcesResult as ListResourcesResult,
    ListResourceTemplatesResult as ListResourceTemplatesResult,
    ReadResourceParams as ReadResourceParams,
    ReadResourceResult as ReadResourceResult,
    Resource as Resource,
    ResourceTemplate as ResourceTemplate,
    ResourceUpdatedParams as ResourceUpdatedParams,
    SubscribeParams as SubscribeParams,
)
from mcpd.protocol.types.tools import (
    CallToolParams as CallToolParams,
    CallToolResult as CallToolResult,
    ListToolsResult as ListToolsResult,
    Tool as Tool,
    ToolAnnotations as ToolAnnotations,
    ToolExecution as ToolExecution,
)
