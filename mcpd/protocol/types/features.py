"""Tools, resources and prompts, and the content blocks that they return.

Spec: 2026-07-28 server/tools, server/resources, server/prompts. Binary data are `bytes` here and base64 on the wire.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, Raw, UnsetType, field

from .base import NO_JSON, NO_META, CacheableResult, Icon, Meta, Params, Result, Wire


class Annotations(Wire, kw_only=True):
    """Hints for the client: who should see it, how important it is (0 to 1), when it changed (ISO 8601)."""

    audience: list[Literal["user", "assistant"]] | None = None
    priority: float | None = None
    last_modified: str | None = None


class TextContent(Wire, tag_field="type", tag="text", gc=False):
    """A text block."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    annotations: Annotations | None = None
    meta: Meta = NO_META


class ImageContent(Wire, tag_field="type", tag="image"):
    """An image, e.g. `image/png`."""

    type: ClassVar[Literal["image"]] = "image"
    data: bytes
    mime_type: str
    annotations: Annotations | None = None
    meta: Meta = NO_META


class AudioContent(Wire, tag_field="type", tag="audio"):
    """A sound, e.g. `audio/wav`."""

    type: ClassVar[Literal["audio"]] = "audio"
    data: bytes
    mime_type: str
    annotations: Annotations | None = None
    meta: Meta = NO_META


class TextResourceContents(Wire):
    """The content of a text resource."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: Meta = NO_META


class BlobResourceContents(Wire):
    """The content of a binary resource."""

    uri: str
    blob: bytes
    mime_type: str | None = None
    meta: Meta = NO_META


if TYPE_CHECKING:
    ResourceContents: TypeAlias = TextResourceContents | BlobResourceContents | dict[str, Any]
else:
    # msgspec takes no union of two structs without a tag.
    ResourceContents = Any


class EmbeddedResource(Wire, tag_field="type", tag="resource"):
    """A resource's content inside a message: a TextResourceContents or BlobResourceContents.

    A decoded one is a dict, since the two have no tag that distinguishes them.
    """

    type: ClassVar[Literal["resource"]] = "resource"
    resource: ResourceContents
    annotations: Annotations | None = None
    meta: Meta = NO_META


class ResourceLink(Wire, tag_field="type", tag="resource_link"):
    """A pointer to a resource that the client may read; it need not be listed. `size` in bytes."""

    type: ClassVar[Literal["resource_link"]] = "resource_link"
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: Meta = NO_META


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink


class ToolAnnotations(Wire, kw_only=True):
    """Hints about a tool's behaviour; a client does not trust them blindly."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Wire, kw_only=True):
    """Whether a tool can run as a task; 2025-11-25 only."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


class Tool(Wire, kw_only=True):
    """A tool as listed. The schemas are JSON Schema 2020-12 objects unless they name another dialect."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    input_schema: dict[str, Any] | Raw
    output_schema: dict[str, Any] | Raw | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None
    meta: Meta = NO_META


class ListToolsResult(CacheableResult, kw_only=True, weakref=True, eq=False):
    """One page of tools; no `next_cursor` means the last page."""

    tools: list[Tool]
    next_cursor: str | None = None


class CallToolParams(Params, kw_only=True, gc=False):
    """The params of `tools/call`. `arguments` is raw JSON; the last two fields answer an earlier `input_required`."""

    name: str
    arguments: Raw = NO_JSON
    task: Raw = NO_JSON
    input_responses: Raw = NO_JSON
    request_state: str | None = None


class AnyValue(Wire):
    """Structured content of a tool whose output schema does not describe an object.

    Versions that allow only objects receive this struct, as the schema is wrapped; newer versions receive `result`.
    """

    result: Any


class CallToolResult(Result, kw_only=True):
    """The result of a tool. `structured_content` may be any JSON value, null included; UNSET means none."""

    content: list[ContentBlock]
    structured_content: Any | UnsetType = UNSET
    is_error: bool = False


class Resource(Wire, kw_only=True):
    """A resource as listed; `size` in bytes, before any encoding."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: Meta = NO_META


class ResourceTemplate(Wire, kw_only=True):
    """A family of resources, named by an RFC 6570 template."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: Meta = NO_META


class ListResourcesResult(CacheableResult, kw_only=True, weakref=True, eq=False):
    """One page of resources."""

    resources: list[Resource]
    next_cursor: str | None = None


class ListResourceTemplatesResult(CacheableResult, kw_only=True, weakref=True, eq=False):
    """One page of templates."""

    resource_templates: list[ResourceTemplate]
    next_cursor: str | None = None


class ReadResourceParams(Params, kw_only=True):
    """The params of `resources/read`. The last two fields answer an earlier `input_required`."""

    uri: str
    input_responses: Raw = NO_JSON
    request_state: str | None = None


class ReadResourceResult(CacheableResult, kw_only=True):
    """The contents of a resource; a folder may return several."""

    contents: list[TextResourceContents | BlobResourceContents | dict[str, Any]]


class SubscribeParams(Params, kw_only=True):
    """The resource to subscribe to or unsubscribe from; legacy versions only."""

    uri: str


class ResourceUpdatedParams(Wire, kw_only=True):
    """The resource that changed."""

    uri: str
    meta: Meta = NO_META


class PromptArgument(Wire, kw_only=True):
    """One argument of a prompt; its value is always a string."""

    name: str
    title: str | None = None
    description: str | None = None
    # A default from a function is written to the wire, so that clients without defaults read false as well as true.
    required: bool = field(default_factory=bool)


class Prompt(Wire, kw_only=True):
    """A prompt as listed."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: Meta = NO_META


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
