"""What servers ask of clients (sampling, elicitation, roots), and the unions of the messages that servers send."""

from typing import Any, Literal, TypeAlias

from pydantic import FileUrl, TypeAdapter

from . import features

# -- sampling, elicitation and roots ---------------------------------------------------------

IncludeContext = Literal["none", "thisServer", "allServers"]
StopReason = Literal["endTurn", "stopSequence", "maxTokens", "toolUse"] | str


class ToolUseContent(features.TaggedModel, features.MetaModel):
    type: Literal["tool_use"] = "tool_use"
    name: str
    id: str
    input: dict[str, Any]


class ToolResultContent(features.TaggedModel, features.MetaModel):
    type: Literal["tool_result"] = "tool_result"
    toolUseId: str
    content: list[features.ContentBlock] = []
    structuredContent: dict[str, Any] | None = None
    isError: bool | None = None


SamplingMessageContentBlock: TypeAlias = (
    features.TextContent | features.ImageContent | features.AudioContent | ToolUseContent | ToolResultContent
)
SamplingContent: TypeAlias = features.TextContent | features.ImageContent | features.AudioContent


class _HasContent(features.Model):
    content: Any

    @property
    def content_as_list(self) -> list[SamplingMessageContentBlock]:
        # The content as a list of blocks, even if it is a single block.
        return self.content if isinstance(self.content, list) else [self.content]


class SamplingMessage(_HasContent, features.MetaModel):
    role: features.Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]


class ModelHint(features.Model):
    name: str | None = None


class ModelPreferences(features.Model):
    hints: list[ModelHint] | None = None
    costPriority: float | None = None
    speedPriority: float | None = None
    intelligencePriority: float | None = None


class ToolChoice(features.Model):
    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageRequestParams(features.RequestParams):
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


class CreateMessageRequest(features.BaseRequest):
    method: Literal["sampling/createMessage"] = "sampling/createMessage"
    params: CreateMessageRequestParams


class CreateMessageResult(features.Result):
    role: features.Role
    content: SamplingContent
    model: str
    stopReason: StopReason | None = None


class CreateMessageResultWithTools(_HasContent, features.Result):
    role: features.Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    model: str
    stopReason: StopReason | None = None


class Root(features.MetaModel):
    uri: FileUrl
    name: str | None = None


class ListRootsRequest(features.BareRequest):
    method: Literal["roots/list"] = "roots/list"


class ListRootsResult(features.Result):
    roots: list[Root]


ElicitRequestedSchema: TypeAlias = dict[str, Any]


class ElicitRequestFormParams(features.RequestParams):
    mode: Literal["form"] = "form"
    message: str
    requestedSchema: ElicitRequestedSchema


class ElicitRequestURLParams(features.RequestParams):
    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitationId: str


ElicitRequestParams: TypeAlias = ElicitRequestURLParams | ElicitRequestFormParams


class ElicitRequest(features.BaseRequest):
    method: Literal["elicitation/create"] = "elicitation/create"
    params: ElicitRequestParams


class ElicitResult(features.Result):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, str | int | float | bool | list[str] | None] | None = None


class ElicitCompleteNotificationParams(features.NotificationParams):
    elicitationId: str


class ElicitCompleteNotification(features.BaseNotification):
    method: Literal["notifications/elicitation/complete"] = "notifications/elicitation/complete"
    params: ElicitCompleteNotificationParams


class ElicitationRequiredErrorData(features.Model):
    elicitations: list[ElicitRequestURLParams]


# -- requests inside a result ----------------------------------------------------------------

InputRequest: TypeAlias = ElicitRequest | CreateMessageRequest | ListRootsRequest
InputResponse: TypeAlias = ElicitResult | CreateMessageResult | ListRootsResult
InputRequests: TypeAlias = dict[str, InputRequest]
InputResponses: TypeAlias = dict[str, InputResponse]


class InputRequiredResult(features.Result):
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
    if isinstance(request, features.BaseRequest):
        return request  # type: ignore[return-value]

    message: InputRequest = TypeAdapter(InputRequest).validate_python(request)
    return message


# -- what servers send -----------------------------------------------------------------------

# The versions of the library that these names come from. mcpd speaks others, too.
LATEST_PROTOCOL_VERSION = "2025-11-25"
DEFAULT_NEGOTIATED_VERSION = "2025-03-26"


ServerRequestType: Any = features.PingRequest | CreateMessageRequest | ListRootsRequest | ElicitRequest
ServerNotificationType: Any = (
    features.CancelledNotification | features.ProgressNotification | features.LoggingMessageNotification
    | features.ResourceUpdatedNotification | features.ResourceListChangedNotification
    | features.ToolListChangedNotification | features.PromptListChangedNotification | ElicitCompleteNotification
)  # fmt: skip


class ServerRequest(features.AnyOf):
    root: ServerRequestType


class ServerNotification(features.AnyOf):
    root: ServerNotificationType
