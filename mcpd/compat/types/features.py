"""What all models of `mcp.types` share, content blocks, errors, and what clients ask of servers.

The latter are tools, resources, prompts and completion, logging, progress, and the handshake. Members are spelled as on
the wire (`inputSchema`), like in version 1 of the official SDK. Constructors and attributes accept the spelling of
version 2 (`input_schema`), too.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AliasChoices,
    AliasGenerator,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    UrlConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
)

ProgressToken = str | int
Cursor = str
Role = Literal["user", "assistant"]
RequestId = Annotated[int, Field(strict=True)] | str


def _or_relative(value: Any, url: ValidatorFunctionWrapHandler) -> Any:
    # A URI without a scheme, such as `/notes/{day}` of a template gives, stays a string.
    try:
        return url(value)
    except ValidationError:
        if not isinstance(value, str) or not value or ":" in value:
            raise
        return value


Uri = Annotated[
    AnyUrl,
    UrlConstraints(host_required=False),
    WrapValidator(_or_relative),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema({"format": "uri", "minLength": 1, "type": "string"}),
]

_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake(name: str) -> str:
    """Return `inputSchema` as `input_schema`."""
    return _CAPITAL.sub(r"_\1", name).lower()


def _accepted(name: str) -> AliasChoices:
    return AliasChoices(name, snake(name))


class Model(BaseModel):
    """A model of `mcp.types`. Unknown members are kept and written again."""

    model_config = ConfigDict(
        extra="allow", defer_build=True, alias_generator=AliasGenerator(validation_alias=_accepted)
    )

    def __getattr__(self, name: str) -> Any:
        # Version 2 names attributes in snake case. Servers of both versions use these models.
        member = self._spelled(name)
        if member != name:
            return getattr(self, member)
        return super().__getattr__(name)  # type: ignore[misc]  # pydantic hides it from type checkers

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(self._spelled(name), value)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Like pydantic's method; `update` may use either spelling."""
        spelled = {self._spelled(name): value for name, value in (update or {}).items()}
        return super().model_copy(update=spelled, deep=deep)

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """Like pydantic's method; `values` may use either spelling."""
        fields = None if _fields_set is None else {cls._spelled(name) for name in _fields_set}
        return super().model_construct(fields, **{cls._spelled(name): value for name, value in values.items()})

    @classmethod
    def _spelled(cls, name: str) -> str:
        # Returns the name of a member, which may be given in the spelling of version 2.
        if name in cls.model_fields or name.startswith("_"):
            return name

        return next((member for member in cls.model_fields if snake(member) == name), name)


def _require_type(schema: dict[str, Any]) -> None:
    schema["properties"]["type"].pop("default", None)
    schema["required"] = ["type", *schema.get("required", ())]


class TaggedModel(Model):
    """A model whose member `type` is required in the JSON schema, although constructors fill it in."""

    model_config = ConfigDict(json_schema_extra=_require_type)


META: Any = Field(
    default=None, alias="_meta", validation_alias=AliasChoices("_meta", "meta"), serialization_alias="_meta"
)
"""The member `meta`, which is `_meta` on the wire. Constructors take either name."""


class MetaModel(Model):
    meta: dict[str, Any] | None = META


class Named(Model):
    name: str
    title: str | None = None


# -- requests, notifications and results -----------------------------------------------------


class RequestParams(Model):
    """Members that the params of every request may have."""

    class Meta(Model):
        """`_meta` of a request."""

        progressToken: ProgressToken | None = None

    meta: Meta | None = META


class NamedRequestParams(RequestParams):
    """Params that name a tool or prompt, with its arguments."""

    name: str
    arguments: dict[str, Any] | None = None


class PaginatedRequestParams(RequestParams):
    cursor: Cursor | None = None


class NotificationParams(Model):
    """Members that the params of every notification may have."""

    class Meta(Model):
        """`_meta` of a notification."""

    meta: Meta | None = META


class BaseRequest(Model):
    method: str
    params: Any


class BaseNotification(Model):
    method: str
    params: Any


ParamsT = TypeVar("ParamsT")
MethodT = TypeVar("MethodT", bound=str)


class Request(BaseRequest, Generic[ParamsT, MethodT]):
    """A custom request: `Request[Params, Literal["area/verb"]]`."""

    method: MethodT
    params: ParamsT


class Notification(BaseNotification, Generic[ParamsT, MethodT]):
    method: MethodT
    params: ParamsT


class PaginatedRequest(BaseRequest):
    params: PaginatedRequestParams | None = None


class BareRequest(BaseRequest):
    """A request without params of its own."""

    params: RequestParams | None = None


class BareNotification(BaseNotification):
    """A notification without params of its own."""

    params: NotificationParams | None = None


class Result(MetaModel):
    """Members that every result may have."""


class PaginatedResult(Result):
    nextCursor: Cursor | None = None


# -- content ---------------------------------------------------------------------------------


class Annotations(Model):
    """Who content is for, and its priority from 0 to 1."""

    audience: list[Role] | None = None
    priority: Annotated[float, Field(ge=0.0, le=1.0)] | None = None


class Icon(Model):
    """An icon: an address or data URI. Sizes are like "48x48" or "any"."""

    src: str
    mimeType: str | None = None
    sizes: list[str] | None = None


class HasAnnotations(MetaModel):
    annotations: Annotations | None = None


class Described(Named, MetaModel):
    description: str | None = None
    icons: list[Icon] | None = None


class TextContent(TaggedModel, HasAnnotations):
    type: Literal["text"] = "text"
    text: str


class ImageContent(TaggedModel, HasAnnotations):
    """An image block. `data` is base64."""

    type: Literal["image"] = "image"
    data: str
    mimeType: str


class AudioContent(TaggedModel, HasAnnotations):
    """An audio block. `data` is base64."""

    type: Literal["audio"] = "audio"
    data: str
    mimeType: str


class ResourceContents(MetaModel):
    uri: Uri
    mimeType: str | None = None


class TextResourceContents(ResourceContents):
    text: str


class BlobResourceContents(ResourceContents):
    """Contents that are binary, as base64."""

    blob: str


class EmbeddedResource(TaggedModel, HasAnnotations):
    type: Literal["resource"] = "resource"
    resource: TextResourceContents | BlobResourceContents


class Resource(Described, HasAnnotations):
    uri: Uri
    mimeType: str | None = None
    size: int | None = None


class ResourceLink(TaggedModel, Resource):
    """A link to a resource, which the client may read."""

    type: Literal["resource_link"] = "resource_link"


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
Content: TypeAlias = ContentBlock

# -- errors ----------------------------------------------------------------------------------

URL_ELICITATION_REQUIRED = -32042
CONNECTION_CLOSED = -32000
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class ErrorData(Model):
    code: int
    message: str
    data: Any | None = None


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


class ListToolsResult(PaginatedResult):
    tools: list[Tool]


class CallToolRequestParams(NamedRequestParams):
    """Which tool, with which arguments."""


class CallToolResult(Result):
    content: list[ContentBlock]
    structuredContent: dict[str, Any] | None = None
    isError: bool = False


# -- resources -------------------------------------------------------------------------------


class ResourceTemplate(Described, HasAnnotations):
    uriTemplate: str
    mimeType: str | None = None


class ListResourcesResult(PaginatedResult):
    resources: list[Resource]


class ListResourceTemplatesResult(PaginatedResult):
    resourceTemplates: list[ResourceTemplate]


class ReadResourceRequestParams(RequestParams):
    uri: Uri


SubscribeRequestParams = ReadResourceRequestParams
UnsubscribeRequestParams = ReadResourceRequestParams


class ReadResourceResult(Result):
    contents: list[TextResourceContents | BlobResourceContents]


class ResourceUpdatedNotificationParams(NotificationParams):
    uri: Uri


# -- prompts and completion ------------------------------------------------------------------


class PromptArgument(Model):
    name: str
    description: str | None = None
    required: bool | None = None


class Prompt(Described):
    arguments: list[PromptArgument] | None = None


class ListPromptsResult(PaginatedResult):
    prompts: list[Prompt]


class GetPromptRequestParams(NamedRequestParams):
    arguments: dict[str, str] | None = None


class PromptMessage(Model):
    role: Role
    content: ContentBlock


class GetPromptResult(Result):
    description: str | None = None
    messages: list[PromptMessage]


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


class CancelledNotificationParams(NotificationParams):
    requestId: RequestId | None = None
    reason: str | None = None


class SetLevelRequestParams(RequestParams):
    level: LoggingLevel


class LoggingMessageNotificationParams(NotificationParams):
    level: LoggingLevel
    logger: str | None = None
    data: Any


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


class InitializeResult(Result):
    protocolVersion: str | int
    capabilities: ServerCapabilities
    serverInfo: Implementation
    instructions: str | None = None


class EmptyResult(Result):
    """A result without members of its own."""


# -- requests and notifications --------------------------------------------------------------


_MESSAGES: dict[str, Any] = {}
"""The models of requests and notifications, by their methods."""


def _message(name: str, method: str, params: Any = None, base: Any = None) -> Any:
    # Returns the model of a request or notification. Keeps it under its method.
    general, bare = (BaseRequest, BareRequest) if name.endswith("Request") else (BaseNotification, BareNotification)
    fields: dict[str, Any] = {"method": (Literal[method], method)} | (
        {} if params is None else {"params": (params, ...)}
    )
    base = base or (bare if params is None else general)
    _MESSAGES[method] = model = create_model(name, __base__=base, __module__=__name__, **fields)
    return model


ListToolsRequest = _message("ListToolsRequest", "tools/list", base=PaginatedRequest)
CallToolRequest = _message("CallToolRequest", "tools/call", CallToolRequestParams)
ToolListChangedNotification = _message("ToolListChangedNotification", "notifications/tools/list_changed")
ListResourcesRequest = _message("ListResourcesRequest", "resources/list", base=PaginatedRequest)
ListResourceTemplatesRequest = _message(
    "ListResourceTemplatesRequest", "resources/templates/list", base=PaginatedRequest
)
ReadResourceRequest = _message("ReadResourceRequest", "resources/read", ReadResourceRequestParams)
SubscribeRequest = _message("SubscribeRequest", "resources/subscribe", SubscribeRequestParams)
UnsubscribeRequest = _message("UnsubscribeRequest", "resources/unsubscribe", UnsubscribeRequestParams)
ResourceListChangedNotification = _message("ResourceListChangedNotification", "notifications/resources/list_changed")
ResourceUpdatedNotification = _message(
    "ResourceUpdatedNotification", "notifications/resources/updated", ResourceUpdatedNotificationParams
)
ListPromptsRequest = _message("ListPromptsRequest", "prompts/list", base=PaginatedRequest)
GetPromptRequest = _message("GetPromptRequest", "prompts/get", GetPromptRequestParams)
PromptListChangedNotification = _message("PromptListChangedNotification", "notifications/prompts/list_changed")
CompleteRequest = _message("CompleteRequest", "completion/complete", CompleteRequestParams)
ProgressNotification = _message("ProgressNotification", "notifications/progress", ProgressNotificationParams)
CancelledNotification = _message("CancelledNotification", "notifications/cancelled", CancelledNotificationParams)
SetLevelRequest = _message("SetLevelRequest", "logging/setLevel", SetLevelRequestParams)
LoggingMessageNotification = _message(
    "LoggingMessageNotification", "notifications/message", LoggingMessageNotificationParams
)
RootsListChangedNotification = _message("RootsListChangedNotification", "notifications/roots/list_changed")
InitializeRequest = _message("InitializeRequest", "initialize", InitializeRequestParams)
InitializedNotification = _message("InitializedNotification", "notifications/initialized")
PingRequest = _message("PingRequest", "ping")

# -- any result of a server ------------------------------------------------------------------

ServerResultType: TypeAlias = (
    EmptyResult | InitializeResult | CompleteResult | GetPromptResult | ListPromptsResult | ListResourcesResult
    | ListResourceTemplatesResult | ReadResourceResult | CallToolResult | ListToolsResult
)  # fmt: skip


class AnyOf(RootModel[Any]):
    """One of several models. It is built when it is first used, unlike `RootModel[A | B]`."""

    model_config = ConfigDict(defer_build=True)


class ServerResult(AnyOf):
    root: ServerResultType
