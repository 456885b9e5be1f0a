"""`ServerSession`: a client, to which a handler sends notifications and requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, to_builtins

from mcpd.compat.errors import McpError
from mcpd.compat.lowlevel.context import current_exchange
from mcpd.compat.lowlevel.wire import REFUSALS, as_json, question_of, struct_of
from mcpd.compat.types import features
from mcpd.compat.types.base import BaseNotification, BaseRequest, Model, RequestId
from mcpd.errors import McpdError, MissingCapability, RemoteError, ToolError
from mcpd.protocol.types.base import CancelledParams, LogMessageParams, ProgressParams
from mcpd.protocol.types.features import ResourceUpdatedParams
from mcpd.protocol.types.interaction import ElicitationCompleteParams
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange

if TYPE_CHECKING:
    from mcpd.compat.types import client_requests
    from mcpd.server.app import Server


R = TypeVar("R", bound=Model)
ServerSessionT = TypeVar("ServerSessionT", bound="ServerSession")

_PARAMS: dict[str, type[Struct]] = {
    "notifications/message": LogMessageParams,
    "notifications/progress": ProgressParams,
    "notifications/cancelled": CancelledParams,
    "notifications/elicitation/complete": ElicitationCompleteParams,
}


def _types() -> Any:
    from mcpd.compat.types import client_requests  # slow to import, and few servers ask their clients

    return client_requests


class ServerSession:
    """A client of a server. The object stays the same for as long as the connection lasts."""

    def __init__(self, exchange: Exchange, server: Server | None = None) -> None:
        self._latest = exchange
        self._server = server

    @property
    def _exchange(self) -> Exchange:
        """The current request of this client; outside of a request, its latest one."""
        exchange = current_exchange.get(None)
        return exchange if exchange is not None and exchange.peer is self._latest.peer else self._latest

    def renew(self, exchange: Exchange) -> None:
        """Note the latest request of the client."""
        self._latest = exchange

    @property
    def client_params(self) -> features.InitializeRequestParams | None:
        """The params of the client's handshake."""
        client = self._exchange.client
        return features.InitializeRequestParams.model_validate(
            {
                "protocolVersion": self._exchange.call.version.name,
                "capabilities": to_builtins(client.capabilities),
                "clientInfo": {"name": "", "version": ""} if client.info is None else to_builtins(client.info),
            }
        )

    def check_client_capability(self, capability: features.ClientCapabilities) -> bool:
        """Return whether the client has all these capabilities."""
        wanted = capability.model_dump(by_alias=True, exclude_none=True, mode="json")
        return _includes(to_builtins(self._exchange.client.capabilities), wanted)

    # -- requests ----------------------------------------------------------------------------

    async def create_message(
        self,
        messages: list[client_requests.SamplingMessage],
        *,
        max_tokens: int,
        tools: list[Any] | None = None,
        tool_choice: client_requests.ToolChoice | None = None,
        related_request_id: RequestId | None = None,
        **options: Any,
    ) -> Any:
        """Sample from the client's model. Raises McpError if the client has none, or cannot give it `tools`.

        Options are other members of the request: system_prompt, include_context, temperature, stop_sequences, metadata
        and model_preferences.
        """
        types = _types()
        params = types.CreateMessageRequestParams(
            messages=messages, maxTokens=max_tokens, tools=tools, toolChoice=tool_choice, **options
        )
        if tools is not None or tool_choice is not None:
            sampling = self._exchange.client.capabilities.sampling
            if sampling is None or sampling.tools is None:
                raise McpError(-32602, "Client does not support sampling tools capability")

        result = types.CreateMessageResult if tools is None else types.CreateMessageResultWithTools
        return await self.send_request(types.CreateMessageRequest(params=params), result)

    async def list_roots(self) -> client_requests.ListRootsResult:
        types = _types()
        return await self.send_request(types.ListRootsRequest(), types.ListRootsResult)

    async def elicit_form(
        self,
        message: str,
        requestedSchema: dict[str, Any],  # noqa: N803 - the library's name
        related_request_id: RequestId | None = None,
    ) -> client_requests.ElicitResult:
        """Ask the user to fill in a form."""
        types = _types()
        params = types.ElicitRequestFormParams(message=message, requestedSchema=requestedSchema)
        return await self.send_request(types.ElicitRequest(params=params), types.ElicitResult)

    elicit = elicit_form

    async def elicit_url(
        self, message: str, url: str, elicitation_id: str, related_request_id: RequestId | None = None
    ) -> client_requests.ElicitResult:
        types = _types()
        params = types.ElicitRequestURLParams(message=message, url=url, elicitationId=elicitation_id)
        return await self.send_request(types.ElicitRequest(params=params), types.ElicitResult)

    async def send_ping(self) -> features.EmptyResult:
        return await self.send_request(features.PingRequest(), features.EmptyResult)

    async def send_request(
        self,
        request: BaseRequest | client_requests.ServerRequest,
        result_type: type[R],
        request_read_timeout_seconds: Any = None,
        metadata: Any = None,
        progress_callback: Any = None,
    ) -> R:
        """Send a request to the client.

        `request_read_timeout_seconds` is a timedelta. Raises McpError for an error response, and if the client does
        not serve this request.
        """
        message: Any = request if isinstance(request, BaseRequest) else request.root
        seconds = None if request_read_timeout_seconds is None else request_read_timeout_seconds.total_seconds()
        return result_type.model_validate(await self._ask(message, seconds))

    async def _ask(self, request: BaseRequest, seconds: float | None) -> Any:
        exchange = self._exchange
        try:
            if request.method == "ping":
                await exchange.peer.request("ping", None, exchange.call, seconds)
                return {}
            question = question_of(request)
            if not exchange.asking.can_ask(question):
                raise McpError(-32600, REFUSALS[request.method])
            key = exchange.asking.next_key()
            return (await exchange.asking.ask({key: question}, seconds))[key]
        except ToolError as error:
            # mcpd turns an error response into a ToolError. These libraries raise the response itself.
            cause = error.__cause__
            if isinstance(cause, RemoteError):
                raise McpError(cause.code, cause.message, cause.data) from error
            raise McpError(-32600, str(error)) from error
        except MissingCapability:
            raise
        except McpdError as error:
            raise McpError(-32000, str(error)) from error

    # -- notifications -----------------------------------------------------------------------

    async def send_log_message(
        self,
        level: features.LoggingLevel,
        data: Any,
        logger: str | None = None,
        related_request_id: RequestId | None = None,
    ) -> None:
        """Send a log message, if the client wants messages of this level."""
        exchange = self._exchange
        if exchange.call.is_open:
            await Context(exchange).log(level, data, logger)
        else:
            await self._notify("notifications/message", LogMessageParams(level=level, data=data, logger=logger))

    async def send_progress_notification(
        self,
        progress_token: str | int,
        progress: float,
        total: float | None = None,
        message: str | None = None,
        related_request_id: str | None = None,
    ) -> None:
        params = ProgressParams(progress_token=progress_token, progress=progress, total=total, message=message)
        await self._notify("notifications/progress", params)

    async def send_elicit_complete(self, elicitation_id: str, related_request_id: RequestId | None = None) -> None:
        """Notify the client that the user has finished with the page of a URL elicitation."""
        params = ElicitationCompleteParams(elicitation_id=elicitation_id)
        await self._notify("notifications/elicitation/complete", params)

    # The lists are the same for all clients, so a change is announced to all of them.

    async def send_tool_list_changed(self) -> None:
        await self._list_changed("tools")

    async def send_resource_list_changed(self) -> None:
        await self._list_changed("resources")

    async def send_prompt_list_changed(self) -> None:
        await self._list_changed("prompts")

    async def _list_changed(self, kind: Any) -> None:
        changed = None if self._server is None else self._server.catalog.on_change
        if changed is not None:
            changed(kind)
            # The notification is sent two iterations of the loop later. It must precede the current response.
            for _ in range(3):
                await asyncio.sleep(0)

    async def send_resource_updated(self, uri: object) -> None:
        """Notify this client, and all that subscribe to the resource, that its contents have changed."""
        if self._server is not None:
            self._server.resource_updated(str(uri))
        session = self._exchange.call.session
        if session.is_initialized and not session.is_watched(str(uri)):
            await self._notify("notifications/resources/updated", ResourceUpdatedParams(uri=str(uri)))

    async def send_notification(
        self,
        notification: BaseNotification | client_requests.ServerNotification,
        related_request_id: RequestId | None = None,
    ) -> None:
        message: Any = notification if isinstance(notification, BaseNotification) else notification.root
        method: str = message.method
        params = {} if message.params is None else as_json(message.params)
        if method == "notifications/resources/updated":
            await self.send_resource_updated(struct_of(params, ResourceUpdatedParams).uri)
        elif method.endswith("/list_changed"):
            await self._list_changed(method.split("/")[1])
        else:
            kind = _PARAMS.get(method)
            await self._notify(method, None if kind is None else struct_of(params, kind))

    async def _notify(self, method: str, params: Struct | None) -> None:
        exchange = self._exchange
        await exchange.peer.notify(method, params, exchange.call if exchange.call.is_open else None)


def _includes(offered: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether `offered` has each member of `wanted`, at every depth. Flags must be set as wanted."""
    for name, value in wanted.items():
        if offered.get(name) is None:
            return False
        if isinstance(value, Mapping) and not _includes(offered[name], value):
            return False
        if isinstance(value, bool) and value and not offered[name]:
            return False
    return True
