"""Prompts. Spec: 2026-07-28 server/prompts."""

from typing import Any, Literal

from msgspec import Raw, field

from mcpd.protocol.types.base import NO_JSON, CacheableResult, Icon, Params, Result, Wire
from mcpd.protocol.types.content import ContentBlock


class PromptArgument(Wire, kw_only=True):
    """One argument of a prompt; its value is always a string."""

    name: str
    title: str | None = None
    description: str | None = None
    # A default made by a function is written too: clients that know no default read false as well as true.
    required: bool = field(default_factory=bool)


class Prompt(Wire, kw_only=True):
    """A prompt as listed."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ListPromptsResult(CacheableResult, kw_only=True, weakref=True, eq=False):
    """One page of prompts."""

    prompts: list[Prompt]
    next_cursor: str | None = None


class GetPromptParams(Params, kw_only=True):
    """The params of `prompts/get`. The last two fields answer an earlier `input_required`.

    The specification has strings only; some clients send null for an optional argument that was not given.
    """

    name: str
    arguments: dict[str, str | None] | None = None
    input_responses: Raw = NO_JSON
    request_state: str | None = None


class PromptMessage(Wire):
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    content: ContentBlock


class GetPromptResult(Result, kw_only=True):
    """The prompt, ready to be put to a model."""

    messages: list[PromptMessage]
    description: str | None = None
