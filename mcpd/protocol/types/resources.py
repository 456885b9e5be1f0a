"""Resources and templates. Spec: 2026-07-28 server/resources."""

from typing import Any

from msgspec import Raw, field

from mcpd.protocol.types.base import NO_JSON, CacheableResult, Icon, Params, Wire
from mcpd.protocol.types.content import Annotations, BlobResourceContents, TextResourceContents


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
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ResourceTemplate(Wire, kw_only=True):
    """A family of resources, named by an RFC 6570 template."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


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
    meta: dict[str, Any] | None = field(name="_meta", default=None)
