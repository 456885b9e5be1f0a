"""Prompts, and the completion of arguments."""

from typing import Literal

from pydantic import ConfigDict

from mcpd.compat.types.base import (
    BareNotification,
    BaseRequest,
    MetaModel,
    Model,
    Named,
    NamedRequestParams,
    PaginatedRequest,
    PaginatedResult,
    RequestParams,
    Result,
    Role,
    tagged,
)
from mcpd.compat.types.content import ContentBlock, Icon

__all__ = [
    "CompleteRequest",
    "CompleteRequestParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "GetPromptRequest",
    "GetPromptRequestParams",
    "GetPromptResult",
    "ListPromptsRequest",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptListChangedNotification",
    "PromptMessage",
    "PromptReference",
    "ResourceReference",
    "ResourceTemplateReference",
]


class PromptArgument(Model):
    """One argument of a prompt."""

    name: str
    description: str | None = None
    required: bool | None = None


class Prompt(Named, MetaModel):
    """A prompt as listed."""

    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None


class ListPromptsRequest(PaginatedRequest):
    """Asks for the prompts."""

    method: Literal["prompts/list"] = "prompts/list"


class ListPromptsResult(PaginatedResult):
    """One page of prompts."""

    prompts: list[Prompt]


class GetPromptRequestParams(NamedRequestParams):
    """Which prompt, with which arguments."""

    arguments: dict[str, str] | None = None


class GetPromptRequest(BaseRequest):
    """Gets a prompt."""

    method: Literal["prompts/get"] = "prompts/get"
    params: GetPromptRequestParams


class PromptMessage(Model):
    """One message of a prompt."""

    role: Role
    content: ContentBlock


class GetPromptResult(Result):
    """The messages of a prompt."""

    description: str | None = None
    messages: list[PromptMessage]


class PromptListChangedNotification(BareNotification):
    """The list of prompts is another one now."""

    method: Literal["notifications/prompts/list_changed"] = "notifications/prompts/list_changed"


class ResourceTemplateReference(Model):
    """A template, or a resource, by its URI."""

    model_config = ConfigDict(json_schema_extra=tagged)

    type: Literal["ref/resource"] = "ref/resource"
    uri: str


ResourceReference = ResourceTemplateReference


class PromptReference(Model):
    """A prompt, by its name."""

    model_config = ConfigDict(json_schema_extra=tagged)

    type: Literal["ref/prompt"] = "ref/prompt"
    name: str


class CompletionArgument(Model):
    """What is being typed."""

    name: str
    value: str


class CompletionContext(Model):
    """The arguments that are known already."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams):
    """What to complete."""

    ref: ResourceTemplateReference | PromptReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class CompleteRequest(BaseRequest):
    """Asks for suggestions."""

    method: Literal["completion/complete"] = "completion/complete"
    params: CompleteRequestParams


class Completion(Model):
    """Suggestions, 100 at most."""

    values: list[str]
    total: int | None = None
    hasMore: bool | None = None


class CompleteResult(Result):
    """The suggestions."""

    completion: Completion
