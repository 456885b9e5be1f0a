"""Content blocks: what tools, prompts and samples are made of. Spec: 2026-07-28 server/tools, server/resources.

Binary data are `bytes` here and base64 on the wire.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from msgspec import field

from mcpd.protocol.types.base import Icon, Wire


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
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ImageContent(Wire, tag_field="type", tag="image"):
    """An image, e.g. `image/png`."""

    type: ClassVar[Literal["image"]] = "image"
    data: bytes
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class AudioContent(Wire, tag_field="type", tag="audio"):
    """A sound, e.g. `audio/wav`."""

    type: ClassVar[Literal["audio"]] = "audio"
    data: bytes
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class TextResourceContents(Wire):
    """The content of a text resource."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class BlobResourceContents(Wire):
    """The content of a binary resource."""

    uri: str
    blob: bytes
    mime_type: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


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
    meta: dict[str, Any] | None = field(name="_meta", default=None)


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
    meta: dict[str, Any] | None = field(name="_meta", default=None)


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink
