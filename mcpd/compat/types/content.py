"""Content blocks, icons and annotations."""

from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field

from mcpd.compat.types.base import MetaModel, Model, Named, Role, Uri, tagged

__all__ = [
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "Content",
    "ContentBlock",
    "EmbeddedResource",
    "Icon",
    "ImageContent",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "TextContent",
    "TextResourceContents",
]


class Annotations(Model):
    """For whom content is, and how important: 0 to 1."""

    audience: list[Role] | None = None
    priority: Annotated[float, Field(ge=0.0, le=1.0)] | None = None


class Icon(Model):
    """An icon: an address or data URI, with sizes like 48x48 or any."""

    src: str
    mimeType: str | None = None
    sizes: list[str] | None = None


class TextContent(MetaModel):
    """A text block."""

    model_config = ConfigDict(json_schema_extra=tagged)

    type: Literal["text"] = "text"
    text: str
    annotations: Annotations | None = None


class ImageContent(MetaModel):
    """An image; `data` is base64."""

    model_config = ConfigDict(json_schema_extra=tagged)

    type: Literal["image"] = "image"
    data: str
    mimeType: str
    annotations: Annotations | None = None


class AudioContent(MetaModel):
    """A sound; `data` is base64."""

    model_config = ConfigDict(json_schema_extra=tagged)

    type: Literal["audio"] = "audio"
    data: str
    mimeType: str
    annotations: Annotations | None = None


class ResourceContents(MetaModel):
    """What one resource holds."""

    uri: Uri
    mimeType: str | None = None


class TextResourceContents(ResourceContents):
    """A text."""

    text: str


class BlobResourceContents(ResourceContents):
    """Bytes, as base64."""

    blob: str


class EmbeddedResource(MetaModel):
    """What a resource holds, inside a message."""

    model_config = ConfigDict(json_schema_extra=tagged)

    type: Literal["resource"] = "resource"
    resource: TextResourceContents | BlobResourceContents
    annotations: Annotations | None = None


class Resource(Named, MetaModel):
    """A resource as listed."""

    uri: Uri
    description: str | None = None
    mimeType: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None


class ResourceLink(Resource):
    """A pointer to a resource."""

    model_config = ConfigDict(json_schema_extra=tagged)

    type: Literal["resource_link"] = "resource_link"


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
Content: TypeAlias = ContentBlock
