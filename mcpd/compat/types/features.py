"""What clients ask of servers: tools, resources, prompts and completion, logging, progress, and the handshake."""

from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, RootModel

from .base import (
    BareNotification,
    BareRequest,
    BaseNotification,
    BaseRequest,
    BlobResourceContents,
    ContentBlock,
    Described,
    HasAnnotations,
    Icon,
    Model,
    Named,
    NamedRequestParams,
    NotificationParams,
    PaginatedRequest,
    PaginatedResult,
    ProgressToken,
    RequestId,
    RequestParams,
    Resource,
    Result,
    Role,
    TaggedModel,
    TextResourceContents,
    Uri,
)

# -- tools -----------------------------------------------------------------------------------


class ToolAnnotations(Model):
    title: str | None = None
    readOnlyHint: bool | None = None
    destructiveHint: bool | None = None
    idempotentHint: bool | None = None
    openWorldHint: bool | None = None


class ToolExecution(Model):
    taskSupport: Literal["forbidden", "optional", "required"] | None = None


class Tool(Described):
    inputSchema: dict[str, Any]
    outputSchema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None


class ListToolsRequest(PaginatedRequest):
    method: Literal["tools/list"] = "tools/list"


class ListToolsResult(PaginatedResult):
    tools: list[Tool]


class CallToolRequestParams(NamedRequestParams):
    """Which tool, with which arguments."""


class CallToolRequest(BaseRequest):
    method: Literal["tools/call"] = "tools/call"
    params: CallToolRequestParams


class CallToolResult(Result):
    content: list[ContentBlock]
    structuredContent: dict[str, Any] | None = None
    isError: bool = False


class ToolListChangedNotification(BareNotification):
    method: Literal["notifications/tools/list_changed"] = "notifications/tools/list_changed"


# -- resources -------------------------------------------------------------------------------


class ResourceTemplate(Described, HasAnnotations):
    uriTemplate: str
    mimeType: str | None = None


class ListResourcesRequest(PaginatedRequest):
    method: Literal["resources/list"] = "resources/list"


class ListResourcesResult(PaginatedResult):
    resources: list[Resource]


class ListResourceTemplatesRequest(PaginatedRequest):
    method: Literal["resources/templates/list"] = "resources/templates/list"


class ListResourceTemplatesResult(PaginatedResult):
    resourceTemplates: list[ResourceTemplate]


class ReadResourceRequestParams(RequestParams):
    uri: Uri


SubscribeRequestParams = ReadResourceRequestParams
UnsubscribeRequestParams = ReadResourceRequestParams


class ReadResourceRequest(BaseRequest):
    method: Literal["resources/read"] = "resources/read"
    params: ReadResourceRequestParams


class ReadResourceResult(Result):
    contents: list[TextResourceContents | BlobResourceContents]


class SubscribeRequest(BaseRequest):
    method: Literal["resources/subscribe"] = "resources/subscribe"
    params: SubscribeRequestParams


class UnsubscribeRequest(BaseRequest):
    method: Literal["resources/unsubscribe"] = "resources/unsubscribe"
    params: UnsubscribeRequestParams


class ResourceListChangedNotification(BareNotification):
    method: Literal["notifications/resources/list_changed"] = "notifications/resources/list_changed"


class ResourceUpdatedNotificationParams(NotificationParams):
    uri: Uri


class ResourceUpdatedNotification(BaseNotification):
    method: Literal["notifications/resources/updated"] = "notifications/resources/updated"
    params: ResourceUpdatedNotificationParams


# -- prompts and completion ------------------------------------------------------------------


class PromptArgument(Model):
    name: str
    description: str | None = None
    required: bool | None = None


class Prompt(Described):
    arguments: list[PromptArgument] | None = None


class ListPromptsRequest(PaginatedRequest):
    method: Literal["prompts/list"] = "prompts/list"


class ListPromptsResult(PaginatedResult):
    prompts: list[Prompt]


class GetPromptRequestParams(NamedRequestParams):
    arguments: dict[str, str] | None = None


class GetPromptRequest(BaseRequest):
    method: Literal["prompts/get"] = "prompts/get"
    params: GetPromptRequestParams


class PromptMessage(Model):
    role: Role
    content: ContentBlock


class GetPromptResult(Result):
    description: str | None = None
    messages: list[PromptMessage]


class PromptListChangedNotification(BareNotification):
    method: Literal["notifications/prompts/list_changed"] = "notifications/prompts/list_changed"


class ResourceTemplateReference(TaggedModel):
    type: Literal["ref/resource"] = "ref/resource"
    uri: str


ResourceReference = ResourceTemplateReference


class PromptReference(TaggedModel):
    type: Literal["ref/prompt"] = "ref/prompt"
    name: str


class CompletionArgument(Model):
    name: str
    value: str


class CompletionContext(Model):
    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams):
    ref: ResourceTemplateReference | PromptReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class CompleteRequest(BaseRequest):
    method: Literal["completion/complete"] = "completion/complete"
    params: CompleteRequestParams


class Completion(Model):
    values: list[str]
    total: int | None = None
    hasMore: bool | None = None


class CompleteResult(Result):
    completion: Completion


# -- logging, progress and cancellation ------------------------------------------------------

LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class ProgressNotificationParams(NotificationParams):
    progressToken: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None


class ProgressNotification(BaseNotification):
    method: Literal["notifications/progress"] = "notifications/progress"
    params: ProgressNotificationParams


class CancelledNotificationParams(NotificationParams):
    requestId: RequestId | None = None
    reason: str | None = None


class CancelledNotification(BaseNotification):
    method: Literal["notifications/cancelled"] = "notifications/cancelled"
    params: CancelledNotificationParams


class SetLevelRequestParams(RequestParams):
    level: LoggingLevel


class SetLevelRequest(BaseRequest):
    method: Literal["logging/setLevel"] = "logging/setLevel"
    params: SetLevelRequestParams


class LoggingMessageNotificationParams(NotificationParams):
    level: LoggingLevel
    logger: str | None = None
    data: Any


class LoggingMessageNotification(BaseNotification):
    method: Literal["notifications/message"] = "notifications/message"
    params: LoggingMessageNotificationParams


class RootsListChangedNotification(BareNotification):
    method: Literal["notifications/roots/list_changed"] = "notifications/roots/list_changed"


# -- the handshake ---------------------------------------------------------------------------


class EmptyCapability(Model):
    """A capability without members."""


class ListChangedCapability(Model):
    """A capability of a server that may notify clients of a changed list."""

    listChanged: bool | None = None


SamplingContextCapability = SamplingToolsCapability = EmptyCapability
FormElicitationCapability = UrlElicitationCapability = EmptyCapability
LoggingCapability = CompletionsCapability = EmptyCapability
RootsCapability = PromptsCapability = ToolsCapability = ListChangedCapability


class SamplingCapability(Model):
    context: EmptyCapability | None = None
    tools: EmptyCapability | None = None


class ElicitationCapability(Model):
    form: EmptyCapability | None = None
    url: EmptyCapability | None = None


class ClientCapabilities(Model):
    experimental: dict[str, dict[str, Any]] | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    roots: ListChangedCapability | None = None
    tasks: dict[str, Any] | None = None


class ResourcesCapability(Model):
    subscribe: bool | None = None
    listChanged: bool | None = None


class ServerCapabilities(Model):
    experimental: dict[str, dict[str, Any]] | None = None
    logging: EmptyCapability | None = None
    prompts: ListChangedCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ListChangedCapability | None = None
    completions: EmptyCapability | None = None


class Implementation(Named):
    version: str
    description: str | None = None
    websiteUrl: str | None = None
    icons: list[Icon] | None = None


class InitializeRequestParams(RequestParams):
    protocolVersion: str | int
    capabilities: ClientCapabilities
    clientInfo: Implementation


class InitializeRequest(BaseRequest):
    method: Literal["initialize"] = "initialize"
    params: InitializeRequestParams


class InitializeResult(Result):
    protocolVersion: str | int
    capabilities: ServerCapabilities
    serverInfo: Implementation
    instructions: str | None = None


class InitializedNotification(BareNotification):
    method: Literal["notifications/initialized"] = "notifications/initialized"


class PingRequest(BareRequest):
    method: Literal["ping"] = "ping"


class EmptyResult(Result):
    """A result without members of its own."""


# -- any result of a server ------------------------------------------------------------------

ServerResultType: TypeAlias = (
    EmptyResult
    | InitializeResult
    | CompleteResult
    | GetPromptResult
    | ListPromptsResult
    | ListResourcesResult
    | ListResourceTemplatesResult
    | ReadResourceResult
    | CallToolResult
    | ListToolsResult
)


class AnyOf(RootModel[Any]):
    """One of several models. It is built when it is first used, unlike `RootModel[A | B]`."""

    model_config = ConfigDict(defer_build=True)


class ServerResult(AnyOf):
    root: ServerResultType
