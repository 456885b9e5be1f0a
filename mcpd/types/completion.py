"""Completion of prompt arguments and template variables. Spec: 2026-07-28 server/utilities/completion."""

from typing import ClassVar, Literal

from mcpd.types.base import Params, Result, Wire

__all__ = [
    "CompleteParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "PromptReference",
    "ResourceTemplateReference",
]


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
    """What is being typed: `value` so far."""

    name: str
    value: str


class CompletionContext(Wire, kw_only=True):
    """The other arguments, as far as they are known; clients write null for those that are not."""

    arguments: dict[str, str | None] | None = None


class CompleteParams(Params, kw_only=True):
    """What to complete."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Wire, kw_only=True):
    """At most 100 values, best first; `total` counts all there are."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """The suggestions."""

    completion: Completion
