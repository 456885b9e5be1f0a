"""What all models of `mcp.types` share, content blocks, and errors.

Members are spelled as on the wire (`inputSchema`), like in version 1 of the official SDK. Constructors and attributes
accept the spelling of version 2 (`input_schema`), too.
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
    UrlConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
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
