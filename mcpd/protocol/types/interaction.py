"""Completion, sampling, roots, elicitation, multi round-trip requests and subscriptions.

Most servers never load this module. Sampling and roots are deprecated since 2026-07-28, but still served.

Spec: 2026-07-28 client/{sampling,roots}.
"""

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from .base import NO_META, Meta, Params, Result, Wire
from .features import AudioContent, ContentBlock, ImageContent, TextContent, Tool


class ToolUseContent(Wire, tag_field="type", tag="tool_use", kw_only=True):
    """A tool call that the model requests."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]
    meta: Meta = NO_META


class ToolResultContent(Wire, tag_field="type", tag="tool_result", kw_only=True):
    """The result of a tool call; `tool_use_id` is the id of its `ToolUseContent`."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any | UnsetType = UNSET
    is_error: bool = False
    meta: Meta = NO_META


SamplingContent: TypeAlias = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent


class SamplingMessage(Wire):
    """One message of the conversation that is sent to the model."""

    role: Literal["user", "assistant"]
    content: SamplingContent | list[SamplingContent]
    meta: Meta = NO_META


class ModelHint(Wire):
    """Part of a model's name."""

    name: str | None = None


class ModelPreferences(Wire, kw_only=True):
    """Priorities for the choice of a model, from 0 to 1 each."""

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class ToolChoice(Wire, kw_only=True):
    """Whether the model may, must or must not use tools."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageParams(Wire, kw_only=True):
    """A request to the client's model."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None


class CreateMessageResult(Wire, kw_only=True):
    """The answer of the model."""

    role: Literal["user", "assistant"]
    content: SamplingContent | list[SamplingContent]
    model: str
    stop_reason: str | None = None
    meta: Meta = NO_META

    @property
    def text(self) -> str:
        """The text of all text blocks, joined."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "".join(block.text for block in blocks if isinstance(block, TextContent))


class ListRootsParams(Wire, kw_only=True):
    """The params of `roots/list`."""


class Root(Wire, kw_only=True):
    """A folder or file (`file://…`) that the server may work on."""

    uri: str
    name: str | None = None
    meta: Meta = NO_META


class ListRootsResult(Wire, kw_only=True):
    """The client's roots."""

    roots: list[Root]


class ElicitFormParams(Wire, kw_only=True):
    """A form: `requested_schema` is a flat object schema of primitives and enums."""

    mode: Literal["form"] | None = None
    message: str
    requested_schema: dict[str, Any]


class ElicitUrlParams(Wire, kw_only=True):
    """A web page that the user is asked to visit. Data entered there does not pass through the client."""

    mode: Literal["url"] = field(default_factory=lambda: "url")  # a plain default would not be written
    message: str
    url: str
    elicitation_id: str | None = None


class ElicitResult(Wire, kw_only=True):
    """The user's decision. `content` has the values of the form if it was accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class ElicitationCompleteParams(Wire, kw_only=True):
    """An elicitation by URL is complete; 2025-11-25 only."""

    elicitation_id: str


class PromptReference(Wire, tag_field="type", tag="ref/prompt", kw_only=True):
    """A prompt by name."""

    type: ClassVar[Literal["ref/prompt"]] = "ref/prompt"
    name: str
    title: str | None = None


class ResourceTemplateReference(Wire, tag_field="type", tag="ref/resource", kw_only=True):
    """A resource template, or a resource, by URI."""

    type: ClassVar[Literal["ref/resource"]] = "ref/resource"
    uri: str


class CompletionArgument(Wire, kw_only=True):
    """The argument that is being typed, and its value so far."""

    name: str
    value: str


class CompletionContext(Wire, kw_only=True):
    """The other arguments that are already known; clients send null for the rest."""

    arguments: dict[str, str | None] | None = None


class CompleteParams(Params, kw_only=True):
    """The params of `completion/complete`."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Wire, kw_only=True):
    """At most 100 values, best first; `total` is the number of all matches."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """The result of `completion/complete`."""

    completion: Completion


class InputRequest(Wire, kw_only=True):
    """A request to the client inside a result, without `jsonrpc` and `id`."""

    method: str
    params: Any = None


class InputRequiredResult(Result, kw_only=True):
    """The server needs input before it can answer. The client sends the request again with the answers."""

    input_requests: dict[str, InputRequest] | None = None
    request_state: str | None = None


class SubscriptionFilter(Wire, kw_only=True):
    """The notifications that a subscription receives."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    events_list_changed: bool = False
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


class ListenParams(Params, kw_only=True):
    """Params of `subscriptions/listen`."""

    notifications: SubscriptionFilter


class ListenResult(Result, kw_only=True):
    """The orderly end of a subscription, which `_meta` identifies."""


class AcknowledgedParams(Wire, kw_only=True):
    """The part of the filter that the server accepts."""

    notifications: SubscriptionFilter
    meta: Meta = NO_META
