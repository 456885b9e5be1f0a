"""The newest vocabulary (2026-07-28) as msgspec structs: `from mcpd.types import TextContent`.

A module per chapter of the specification, each loaded when one of its names is first asked for.

Handlers, registries and the client speak these and nothing older; `versions` turns them into
older shapes by blanking what a version does not know (a blank field is not written).
An optional field is None when absent; UNSET stands where null is a value of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import CacheableResult as CacheableResult
    from .base import EmptyResult as EmptyResult
    from .base import Icon as Icon
    from .base import ObjectResult as ObjectResult
    from .base import PageParams as PageParams
    from .base import Params as Params
    from .base import RequestMeta as RequestMeta
    from .base import Result as Result
    from .completion import CompleteParams as CompleteParams
    from .completion import CompleteResult as CompleteResult
    from .completion import Completion as Completion
    from .completion import CompletionArgument as CompletionArgument
    from .completion import CompletionContext as CompletionContext
    from .completion import PromptReference as PromptReference
    from .completion import ResourceTemplateReference as ResourceTemplateReference
    from .content import Annotations as Annotations
    from .content import AudioContent as AudioContent
    from .content import BlobResourceContents as BlobResourceContents
    from .content import ContentBlock as ContentBlock
    from .content import EmbeddedResource as EmbeddedResource
    from .content import ImageContent as ImageContent
    from .content import ResourceLink as ResourceLink
    from .content import TextContent as TextContent
    from .content import TextResourceContents as TextResourceContents
    from .elicitation import ElicitationCompleteParams as ElicitationCompleteParams
    from .elicitation import ElicitFormParams as ElicitFormParams
    from .elicitation import ElicitResult as ElicitResult
    from .elicitation import ElicitUrlParams as ElicitUrlParams
    from .lifecycle import ClientCapabilities as ClientCapabilities
    from .lifecycle import DiscoverResult as DiscoverResult
    from .lifecycle import ElicitationCapability as ElicitationCapability
    from .lifecycle import Implementation as Implementation
    from .lifecycle import InitializeParams as InitializeParams
    from .lifecycle import InitializeResult as InitializeResult
    from .lifecycle import ListChanged as ListChanged
    from .lifecycle import ResourcesCapability as ResourcesCapability
    from .lifecycle import SamplingCapability as SamplingCapability
    from .lifecycle import ServerCapabilities as ServerCapabilities
    from .notifications import LOG_LEVELS as LOG_LEVELS
    from .notifications import CancelledParams as CancelledParams
    from .notifications import LogLevel as LogLevel
    from .notifications import LogMessageParams as LogMessageParams
    from .notifications import NotificationParams as NotificationParams
    from .notifications import ProgressParams as ProgressParams
    from .notifications import SetLevelParams as SetLevelParams
    from .prompts import GetPromptParams as GetPromptParams
    from .prompts import GetPromptResult as GetPromptResult
    from .prompts import ListPromptsResult as ListPromptsResult
    from .prompts import Prompt as Prompt
    from .prompts import PromptArgument as PromptArgument
    from .prompts import PromptMessage as PromptMessage
    from .resources import ListResourcesResult as ListResourcesResult
    from .resources import ListResourceTemplatesResult as ListResourceTemplatesResult
    from .resources import ReadResourceParams as ReadResourceParams
    from .resources import ReadResourceResult as ReadResourceResult
    from .resources import Resource as Resource
    from .resources import ResourceTemplate as ResourceTemplate
    from .resources import ResourceUpdatedParams as ResourceUpdatedParams
    from .resources import SubscribeParams as SubscribeParams
    from .rounds import AcknowledgedParams as AcknowledgedParams
    from .rounds import InputRequest as InputRequest
    from .rounds import InputRequiredResult as InputRequiredResult
    from .rounds import ListenParams as ListenParams
    from .rounds import ListenResult as ListenResult
    from .rounds import SubscriptionFilter as SubscriptionFilter
    from .sampling import CreateMessageParams as CreateMessageParams
    from .sampling import CreateMessageResult as CreateMessageResult
    from .sampling import ListRootsParams as ListRootsParams
    from .sampling import ListRootsResult as ListRootsResult
    from .sampling import ModelHint as ModelHint
    from .sampling import ModelPreferences as ModelPreferences
    from .sampling import Root as Root
    from .sampling import SamplingContent as SamplingContent
    from .sampling import SamplingMessage as SamplingMessage
    from .sampling import ToolChoice as ToolChoice
    from .sampling import ToolResultContent as ToolResultContent
    from .sampling import ToolUseContent as ToolUseContent
    from .tools import CallToolParams as CallToolParams
    from .tools import CallToolResult as CallToolResult
    from .tools import ListToolsResult as ListToolsResult
    from .tools import Tool as Tool
    from .tools import ToolAnnotations as ToolAnnotations
    from .tools import ToolExecution as ToolExecution

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
