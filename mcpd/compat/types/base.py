"""What the models of `mcp.types` share: both spellings, unknown members kept, built when first used.

The members are spelled as on the wire (`inputSchema`), which is what version 1 of the official SDK calls them. What
version 2 calls them (`input_schema`) is taken too, by constructors and as attributes.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

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

__all__ = [
    "META",
    "BareNotification",
    "BareRequest",
    "BaseNotification",
    "BaseRequest",
    "Cursor",
    "MetaModel",
    "Model",
    "Named",
    "NamedRequestParams",
    "Notification",
    "NotificationParams",
    "PaginatedRequest",
    "PaginatedRequestParams",
    "PaginatedResult",
    "ProgressToken",
    "Request",
    "RequestId",
    "RequestParams",
    "Result",
    "Role",
    "TaskMetadata",
    "Uri",
    "snake",
    "tagged",
]

ProgressToken = str | int
Cursor = str
Role = Literal["user", "assistant"]
RequestId = Annotated[int, Field(strict=True)] | str


def _or_relative(value: Any, url: ValidatorFunctionWrapHandler) -> Any:
    """A URI; one without a scheme, as `/notes/{day}` of a template gives, stays the text that it is."""
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
    """`inputSchema` as `input_schema`."""
    return _CAPITAL.sub(r"_\1", name).lower()


def _accepted(name: str) -> AliasChoices:
    return AliasChoices(name, snake(name))


class Model(BaseModel):
    """A model of `mcp.types`. Members that it does not know are kept, and written again."""

    model_config = ConfigDict(
        extra="allow", defer_build=True, alias_generator=AliasGenerator(validation_alias=_accepted)
    )

    def __getattr__(self, name: str) -> Any:
        member = self._spelled(name)
        if member != name:
            return getattr(self, member)
        return super().__getattr__(name)  # type: ignore[misc]  # pydantic hides it from type checkers

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(self._spelled(name), value)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, with some members changed. Arguments and result are pydantic's."""
        spelled = {self._spelled(name): value for name, value in (update or {}).items()}

        return super().model_copy(update=spelled, deep=deep)

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """One of values that are not checked. Arguments and result are pydantic's."""
        fields = None if _fields_set is None else {cls._spelled(name) for name in _fields_set}

        return super().model_construct(fields, **{cls._spelled(name): value for name, value in values.items()})

    @classmethod
    def _spelled(cls, name: str) -> str:
        """What a member is called here, whose name may be that of version 2."""
        if name in cls.model_fields or name.startswith("_"):
            return name
        return next((member for member in cls.model_fields if snake(member) == name), name)


def tagged(schema: dict[str, Any]) -> None:
    """Make `type` a required member of a JSON schema, though constructors know its value without being told."""
    schema["properties"]["type"].pop("default", None)
    schema["required"] = ["type", *schema.get("required", ())]


META: Any = Field(
    default=None, alias="_meta", validation_alias=AliasChoices("_meta", "meta"), serialization_alias="_meta"
)
"""The member `meta`, which is `_meta` on the wire; a constructor takes either."""


class MetaModel(Model):
    """A model with a `_meta`."""

    meta: dict[str, Any] | None = META


class TaskMetadata(Model):
    """That a request is to run as a task, and how long its result is kept."""

    ttl: Annotated[int, Field(strict=True)] | None = None


class RequestParams(Model):
    """What the params of every request may hold."""

    class Meta(Model):
        """`_meta` of a request."""

        progressToken: ProgressToken | None = None

    task: TaskMetadata | None = None
    meta: Meta | None = META


class NamedRequestParams(RequestParams):
    """Params of what is asked for by its name, with arguments."""

    name: str
    arguments: dict[str, Any] | None = None


class PaginatedRequestParams(RequestParams):
    """Params of a list request."""

    cursor: Cursor | None = None


class NotificationParams(Model):
    """What the params of every notification may hold."""

    class Meta(Model):
        """`_meta` of a notification."""

    meta: Meta | None = META


class BaseRequest(Model):
    """A request: its method and its params."""

    method: str
    params: Any


class BaseNotification(Model):
    """A notification: its method and its params."""

    method: str
    params: Any


ParamsT = TypeVar("ParamsT")
MethodT = TypeVar("MethodT", bound=str)


class Request(BaseRequest, Generic[ParamsT, MethodT]):
    """A request of a server's own: `Request[Params, Literal["area/verb"]]`."""

    method: MethodT
    params: ParamsT


class Notification(BaseNotification, Generic[ParamsT, MethodT]):
    """A notification of a server's own."""

    method: MethodT
    params: ParamsT


class PaginatedRequest(BaseRequest):
    """A list request."""

    params: PaginatedRequestParams | None = None


class BareRequest(BaseRequest):
    """A request without params of its own."""

    params: RequestParams | None = None


class BareNotification(BaseNotification):
    """A notification without params of its own."""

    params: NotificationParams | None = None


class Result(MetaModel):
    """What every result may hold."""


class PaginatedResult(Result):
    """One page of a list."""

    nextCursor: Cursor | None = None


class Named(Model):
    """What has a name, and a title for people."""

    name: str
    title: str | None = None
