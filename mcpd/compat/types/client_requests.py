"""What servers ask of clients (sampling, elicitation, roots), and the unions of the messages that servers send."""

from typing import Any, Literal, TypeAlias

from pydantic import FileUrl, TypeAdapter

from . import features
from .features import (
    AudioContent,
    BareRequest,
    BaseNotification,
    BaseRequest,
    ContentBlock,
    ImageContent,
    MetaModel,
    Model,
    NotificationParams,
    RequestParams,
    Result,
    Role,
    TaggedModel,
    TextContent,
)

# -- sampling, elicitation and roots ---------------------------------------------------------

IncludeContext = Literal["none", "thisServer", "allServers"]
StopReason = Literal["endTurn", "stopSequence", "maxTokens", "toolUse"] | str


class ToolUseContent(TaggedModel, MetaModel):
    type: Literal["tool_use"] = "tool_use"
    name: str
    id: str
    input: dict[str, Any]


class ToolResultContent(TaggedModel, MetaModel):
    type: Literal["tool_result"] = "tool_result"
    toolUseId: str
    content: list[ContentBlock] = []
    structuredContent: dict[str, Any] | None = None
    isError: bool | None = None


SamplingMessageContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent
SamplingContent: TypeAlias = TextContent | ImageContent | AudioContent


class _HasContent(Model):
    content: Any

    @property
    def content_as_list(self) -> list[SamplingMessageContentBlock]:
        # The content as a list of blocks, even if it is a single block.
        return self.content if isinstance(self.content, list) else [self.content]


class SamplingMessage(_HasContent, MetaModel):
    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]


class ModelHint(Model):
    name: str | None = None


class ModelPreferences(Model):
    hints: list[ModelHint] | None = None
    costPriority: float | None = None
    speedPriority: float | None = None
    intelligencePriority: float | None = None


class ToolChoice(Model):
    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageRequestParams(RequestParams):
    messages: list[SamplingMessage]
    modelPreferences: ModelPreferences | None = None
    systemPrompt: str | None = None
    includeContext: IncludeContext | None = None
    temperature: float | None = None
    maxTokens: int
    stopSequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[features.Tool] | None = None
    toolChoice: ToolChoice | None = None


class CreateMessageRequest(BaseRequest):
    method: Literal["sampling/createMessage"] = "sampling/createMessage"
    params: CreateMessageRequestParams


class CreateMessageResult(Result):
    role: Role
    content: SamplingContent
    model: str
    stopReason: StopReason | None = None


class CreateMessageResultWithTools(_HasContent, Result):
    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    model: str
    stopReason: StopReason | None = None


class Root(MetaModel):
    uri: FileUrl
    name: str | None = None


class ListRootsRequest(BareRequest):
    method: Literal["roots/list"] = "roots/list"


class ListRootsResult(Result):
    roots: list[Root]


ElicitRequestedSchema: TypeAlias = dict[str, Any]


class ElicitRequestFormParams(RequestParams):
    mode: Literal["form"] = "form"
    message: str
    requestedSchema: ElicitRequestedSchema


class ElicitRequestURLParams(RequestParams):
    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitationId: str


ElicitRequestParams: TypeAlias = ElicitRequestURLParams | ElicitRequestFormParams


class ElicitRequest(BaseRequest):
    method: Literal["elicitation/create"] = "elicitation/create"
    params: ElicitRequestParams


class ElicitResult(Result):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, str | int | float | bool | list[str] | None] | None = None


class ElicitCompleteNotificationParams(NotificationParams):
    elicitationId: str


class ElicitCompleteNotification(BaseNotification):
    method: Literal["notifications/elicitation/complete"] = "notifications/elicitation/complete"
    params: ElicitCompleteNotificationParams


class ElicitationRequiredErrorData(Model):
    elicitations: list[ElicitRequestURLParams]


# -- requests inside a result ----------------------------------------------------------------

InputRequest: TypeAlias = ElicitRequest | CreateMessageRequest | ListRootsRequest
InputResponse: TypeAlias = ElicitResult | CreateMessageResult | ListRootsResult
InputRequests: TypeAlias = dict[str, InputRequest]
InputResponses: TypeAlias = dict[str, InputResponse]


class InputRequiredResult(Result):
    """A result of 2026-07-28 that asks the client for input. Its `requestState` comes back with the responses."""

    resultType: Literal["input_required"] = "input_required"
    inputRequests: dict[str, Any] | None = None
    requestState: str | None = None


def parse_responses(members: dict[str, Any] | None) -> InputResponses | None:
    """Return `inputResponses` of a request as models."""
    if members is None:
        return None

    adapter: TypeAdapter[Any] = TypeAdapter(InputResponse)
    return {name: adapter.validate_python(response) for name, response in members.items()}


def parse_request(request: Any) -> InputRequest:
    """Return a request of an `InputRequiredResult` as a model; it may be a dict."""
    if isinstance(request, BaseRequest):
        return request  # type: ignore[return-value]

    message: InputRequest = TypeAdapter(InputRequest).validate_python(request)
    return message


# -- what servers send -----------------------------------------------------------------------

# The versions of the library that these names come from. mcpd speaks others, too.
LATEST_PROTOCOL_VERSION = "2025-11-25"
DEFAULT_NEGOTIATED_VERSION = "2025-03-26"


ServerRequestType: Any = features.PingRequest | CreateMessageRequest | ListRootsRequest | ElicitRequest
ServerNotificationType: Any = (
    features.CancelledNotification
    | features.ProgressNotification
    | features.LoggingMessageNotification
    | features.ResourceUpdatedNotification
    | features.ResourceListChangedNotification
    | features.ToolListChangedNotification
    | features.PromptListChangedNotification
    | ElicitCompleteNotification
)


class ServerRequest(features.AnyOf):
    root: ServerRequestType  # type: ignore[valid-type]


class ServerNotification(features.AnyOf):
    root: ServerNotificationType  # type: ignore[valid-type]
