"""Asking the client's model, and its roots. Deprecated since 2026-07-28, and served all the same.

Spec: 2026-07-28 client/{sampling,roots}.
"""

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from mcpd.types.base import Wire
from mcpd.types.content import AudioContent, ContentBlock, ImageContent, TextContent
from mcpd.types.tools import Tool

__all__ = [
    "CreateMessageParams",
    "CreateMessageResult",
    "ListRootsParams",
    "ListRootsResult",
    "ModelHint",
    "ModelPreferences",
    "Root",
    "SamplingContent",
    "SamplingMessage",
    "ToolChoice",
    "ToolResultContent",
    "ToolUseContent",
]


class ToolUseContent(Wire, tag_field="type", tag="tool_use", kw_only=True):
    """The model wants a tool called."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ToolResultContent(Wire, tag_field="type", tag="tool_result", kw_only=True):
    """What that call gave; `tool_use_id` says which."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any | UnsetType = UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = field(name="_meta", default=None)


SamplingContent: TypeAlias = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent


class SamplingMessage(Wire):
    """One message of the conversation put to the model."""

    role: Literal["user", "assistant"]
    content: SamplingContent | list[SamplingContent]
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ModelHint(Wire):
    """Part of a model's name."""

    name: str | None = None


class ModelPreferences(Wire, kw_only=True):
    """What matters in the choice of a model, 0 to 1 each."""

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
    """What the model said."""

    role: Literal["user", "assistant"]
    content: SamplingContent | list[SamplingContent]
    model: str
    stop_reason: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "".join(block.text for block in blocks if isinstance(block, TextContent))


class ListRootsParams(Wire, kw_only=True):
    """`roots/list` has no params of its own."""


class Root(Wire, kw_only=True):
    """A folder or file (`file://…`) that the server may work on."""

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ListRootsResult(Wire, kw_only=True):
    """The client's roots."""

    roots: list[Root]
