"""Resources and templates."""

from typing import Literal

from mcpd.compat.types.base import (
    BareNotification,
    BaseNotification,
    BaseRequest,
    MetaModel,
    Named,
    NotificationParams,
    PaginatedRequest,
    PaginatedResult,
    RequestParams,
    Result,
    Uri,
)
from mcpd.compat.types.content import Annotations, BlobResourceContents, Icon, Resource, TextResourceContents

__all__ = [
    "ListResourceTemplatesRequest",
    "ListResourceTemplatesResult",
    "ListResourcesRequest",
    "ListResourcesResult",
    "ReadResourceRequest",
    "ReadResourceRequestParams",
    "ReadResourceResult",
    "ResourceListChangedNotification",
    "ResourceTemplate",
    "ResourceUpdatedNotification",
    "ResourceUpdatedNotificationParams",
    "SubscribeRequest",
    "SubscribeRequestParams",
    "UnsubscribeRequest",
    "UnsubscribeRequestParams",
]


class ResourceTemplate(Named, MetaModel):
    """A family of resources."""

    uriTemplate: str
    description: str | None = None
    mimeType: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None


class ListResourcesRequest(PaginatedRequest):
    """Asks for the resources."""

    method: Literal["resources/list"] = "resources/list"


class ListResourcesResult(PaginatedResult):
    """One page of resources."""

    resources: list[Resource]


class ListResourceTemplatesRequest(PaginatedRequest):
    """Asks for the templates."""

    method: Literal["resources/templates/list"] = "resources/templates/list"


class ListResourceTemplatesResult(PaginatedResult):
    """One page of templates."""

    resourceTemplates: list[ResourceTemplate]


class ReadResourceRequestParams(RequestParams):
    """Which resource."""

    uri: Uri


class ReadResourceRequest(BaseRequest):
    """Reads a resource."""

    method: Literal["resources/read"] = "resources/read"
    params: ReadResourceRequestParams


class ReadResourceResult(Result):
    """What a resource holds."""

    contents: list[TextResourceContents | BlobResourceContents]


class SubscribeRequestParams(RequestParams):
    """Which resource to watch."""

    uri: Uri


class SubscribeRequest(BaseRequest):
    """Watches a resource."""

    method: Literal["resources/subscribe"] = "resources/subscribe"
    params: SubscribeRequestParams


class UnsubscribeRequestParams(RequestParams):
    """Which resource to watch no longer."""

    uri: Uri


class UnsubscribeRequest(BaseRequest):
    """Watches a resource no longer."""

    method: Literal["resources/unsubscribe"] = "resources/unsubscribe"
    params: UnsubscribeRequestParams


class ResourceListChangedNotification(BareNotification):
    """The list of resources is another one now."""

    method: Literal["notifications/resources/list_changed"] = "notifications/resources/list_changed"


class ResourceUpdatedNotificationParams(NotificationParams):
    """Which resource has changed."""

    uri: Uri


class ResourceUpdatedNotification(BaseNotification):
    """A resource holds something else now."""

    method: Literal["notifications/resources/updated"] = "notifications/resources/updated"
    params: ResourceUpdatedNotificationParams
