"""What a server asks its client: sampling, elicitation, roots."""

from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, FileUrl

from mcpd.compat.types.base import (
    BareRequest,
    BaseNotification,
    BaseRequest,
    MetaModel,
    Model,
    NotificationParams,
    RequestParams,
    Result,
    Role,
    tagged,
)
from mcpd.compat.types.content import AudioContent, ContentBlock, ImageContent, TextContent
from mcpd.compat.types.tools import Tool

__all__ = [
    "CreateMessageRequest",
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "CreateMessageResultWithTools",
    "ElicitCompleteNotification",
    "ElicitCompleteNotificationParams",
    "ElicitRequest",
    "ElicitRequestFormParams",
    "ElicitRequestParams",
    "ElicitRequestURLParams",
    "ElicitRequestedSchema",
    "ElicitResult",
    "ElicitationRequiredErrorData",
    "IncludeContext",
    "ListRootsRequest",
    "ListRootsResult",
    "ModelHint",
    "ModelPreferences",
    "Root",
    "SamplingContent",
    "SamplingMessage",
    "SamplingMessageContentBlock",
    "StopReason",
    "ToolChoice",
    "ToolResultContent",
    "ToolUseContent",
]

IncludeContext = Literal["none", "thisServer", "allServers"]
StopReason = Literal["endTurn", "stopSequence", "maxTokens", "toolUse"] | str


class ToolUseContent(MetaModel):
    """The model wants a tool called."""

    model_config = ConfigDict(json_schema_extra=tagged)

    type: Literal["tool_use"] = "tool_use"
    name: str
    id: str
    input: dict[str, Any]


class ToolResultContent(MetaModel):
    """What that call gave."""

    model_config = ConfigDict(json_schema_extra=tagged)

    type: Literal["tool_result"] = "tool_result"
    toolUseId: str
    content: list[ContentBlock] = []
    structuredContent: dict[str, Any] | None = None
    isError: bool | None = None


SamplingMessageContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent
SamplingContent: TypeAlias = TextContent | ImageContent | AudioContent


class _Said(Model):
    """What has one content block or several."""

    content: Any

    @property
    def content_as_list(self) -> list[SamplingMessageContentBlock]:
        """The blocks, of which there may be one."""
        return self.content if isinstance(self.content, list) else [self.content]


class SamplingMessage(_Said, MetaModel):
    """One message of the conversation with the model."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]


class ModelHint(Model):
    """Part of a model's name."""

    name: str | None = None


class ModelPreferences(Model):
    """What matters in the choice of a model, 0 to 1 each."""

    hints: list[ModelHint] | None = None
    costPriority: float | None = None
    speedPriority: float | None = None
    intelligencePriority: float | None = None


class ToolChoice(Model):
    """Whether the model may, must or must not use tools."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageRequestParams(RequestParams):
    """What is asked of the model."""

    messages: list[SamplingMessage]
    modelPreferences: ModelPreferences | None = None
    systemPrompt: str | None = None
    includeContext: IncludeContext | None = None
    temperature: float | None = None
    maxTokens: int
    stopSequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    toolChoice: ToolChoice | None = None


class CreateMessageRequest(BaseRequest):
    """Asks the client's model."""

    method: Literal["sampling/createMessage"] = "sampling/createMessage"
    params: CreateMessageRequestParams


class CreateMessageResult(Result):
    """What the model said, in one block."""

    role: Role
    content: SamplingContent
    model: str
    stopReason: StopReason | None = None


class CreateMessageResultWithTools(_Said, Result):
    """What the model said, where it may use tools."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    model: str
    stopReason: StopReason | None = None


class Root(MetaModel):
    """A folder or file that a server may work on."""

    uri: FileUrl
    name: str | None = None


class ListRootsRequest(BareRequest):
    """Asks for the roots."""

    method: Literal["roots/list"] = "roots/list"


class ListRootsResult(Result):
    """The roots."""

    roots: list[Root]


ElicitRequestedSchema: TypeAlias = dict[str, Any]


class ElicitRequestFormParams(RequestParams):
    """A form."""

    mode: Literal["form"] = "form"
    message: str
    requestedSchema: ElicitRequestedSchema


class ElicitRequestURLParams(RequestParams):
    """A page to visit."""

    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitationId: str


ElicitRequestParams: TypeAlias = ElicitRequestURLParams | ElicitRequestFormParams


class ElicitRequest(BaseRequest):
    """Asks the user."""

    method: Literal["elicitation/create"] = "elicitation/create"
    params: ElicitRequestParams


class ElicitResult(Result):
    """What the user did."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, str | int | float | bool | list[str] | None] | None = None


class ElicitCompleteNotificationParams(NotificationParams):
    """What has happened by now."""

    elicitationId: str


class ElicitCompleteNotification(BaseNotification):
    """What was asked by URL has happened."""

    method: Literal["notifications/elicitation/complete"] = "notifications/elicitation/complete"
    params: ElicitCompleteNotificationParams


class ElicitationRequiredErrorData(Model):
    """The data of the error -32042."""

    elicitations: list[ElicitRequestURLParams]
