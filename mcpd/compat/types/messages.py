"""JSON-RPC messages, and the unions of all requests, notifications and results."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, RootModel

from mcpd.compat.types import asking, lifecycle, notifications, prompts, resources, tools
from mcpd.compat.types.base import Model, RequestId
from mcpd.compat.types.errors import ErrorData

__all__ = [
    "DEFAULT_NEGOTIATED_VERSION",
    "LATEST_PROTOCOL_VERSION",
    "AnyFunction",
    "ClientNotification",
    "ClientNotificationType",
    "ClientRequest",
    "ClientRequestType",
    "ClientResult",
    "ClientResultType",
    "JSONRPCError",
    "JSONRPCMessage",
    "JSONRPCNotification",
    "JSONRPCRequest",
    "JSONRPCResponse",
    "ServerNotification",
    "ServerNotificationType",
    "ServerRequest",
    "ServerRequestType",
    "ServerResult",
    "ServerResultType",
]

AnyFunction: TypeAlias = Callable[..., Any]

# Of the library whose names these are: what its servers say they speak, not what is spoken here.
LATEST_PROTOCOL_VERSION = "2025-11-25"
DEFAULT_NEGOTIATED_VERSION = "2025-03-26"


class JSONRPCRequest(Model):
    """A request as it travels."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    method: str
    params: dict[str, Any] | None = None


class JSONRPCNotification(Model):
    """A notification as it travels."""

    jsonrpc: Literal["2.0"] = "2.0"
    method: str
    params: dict[str, Any] | None = None


class JSONRPCResponse(Model):
    """An answer as it travels."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    result: dict[str, Any]


class JSONRPCError(Model):
    """An error as it travels."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: str | int
    error: ErrorData


class _AnyOf(RootModel[Any]):
    """One of several models. A class of this kind is built when it is used, which `RootModel[A | B]` is not."""

    model_config = ConfigDict(defer_build=True)


class JSONRPCMessage(_AnyOf):
    """Any message."""

    root: JSONRPCRequest | JSONRPCNotification | JSONRPCResponse | JSONRPCError


ClientRequestType: TypeAlias = (
    lifecycle.PingRequest
    | lifecycle.InitializeRequest
    | prompts.CompleteRequest
    | notifications.SetLevelRequest
    | prompts.GetPromptRequest
    | prompts.ListPromptsRequest
    | resources.ListResourcesRequest
    | resources.ListResourceTemplatesRequest
    | resources.ReadResourceRequest
    | resources.SubscribeRequest
    | resources.UnsubscribeRequest
    | tools.CallToolRequest
    | tools.ListToolsRequest
)


class ClientRequest(_AnyOf):
    """Any request of a client."""

    root: ClientRequestType


ClientNotificationType: TypeAlias = (
    notifications.CancelledNotification
    | notifications.ProgressNotification
    | lifecycle.InitializedNotification
    | notifications.RootsListChangedNotification
)


class ClientNotification(_AnyOf):
    """Any notification of a client."""

    root: ClientNotificationType


ClientResultType: TypeAlias = (
    lifecycle.EmptyResult
    | asking.CreateMessageResult
    | asking.CreateMessageResultWithTools
    | asking.ListRootsResult
    | asking.ElicitResult
)


class ClientResult(_AnyOf):
    """Any result of a client."""

    root: ClientResultType


ServerRequestType: TypeAlias = (
    lifecycle.PingRequest | asking.CreateMessageRequest | asking.ListRootsRequest | asking.ElicitRequest
)


class ServerRequest(_AnyOf):
    """Any request of a server."""

    root: ServerRequestType


ServerNotificationType: TypeAlias = (
    notifications.CancelledNotification
    | notifications.ProgressNotification
    | notifications.LoggingMessageNotification
    | resources.ResourceUpdatedNotification
    | resources.ResourceListChangedNotification
    | tools.ToolListChangedNotification
    | prompts.PromptListChangedNotification
    | asking.ElicitCompleteNotification
)


class ServerNotification(_AnyOf):
    """Any notification of a server."""

    root: ServerNotificationType


ServerResultType: TypeAlias = (
    lifecycle.EmptyResult
    | lifecycle.InitializeResult
    | prompts.CompleteResult
    | prompts.GetPromptResult
    | prompts.ListPromptsResult
    | resources.ListResourcesResult
    | resources.ListResourceTemplatesResult
    | resources.ReadResourceResult
    | tools.CallToolResult
    | tools.ListToolsResult
)


class ServerResult(_AnyOf):
    """Any result of a server."""

    root: ServerResultType
