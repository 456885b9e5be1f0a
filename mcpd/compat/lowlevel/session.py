"""`ServerSession`: one client, to whom a handler can send notifications and put questions."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct, to_builtins

from mcpd.compat import types
from mcpd.compat.exceptions import McpError
from mcpd.compat.lowlevel.context import current_exchange
from mcpd.compat.lowlevel.notices import Notices, has_all
from mcpd.compat.types import lifecycle, notifications
from mcpd.compat.types.base import BaseNotification, BaseRequest, Model, RequestId
from mcpd.compat.types.errors import ErrorData
from mcpd.compat.wire import as_json
from mcpd.errors import LocalProtocolError, McpdError, MissingCapability, RemoteError, ToolError
from mcpd.protocol.types.base import LogMessageParams, ProgressParams
from mcpd.protocol.types.resources import ResourceUpdatedParams
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange

__all__ = ["ServerSession", "ServerSessionT"]

R = TypeVar("R", bound=Model)
ServerSessionT = TypeVar("ServerSessionT", bound="ServerSession")


class ServerSession(Notices):
    """One client of a server. It is the same object for as long as its connection lasts."""

    def __init__(self, exchange: Exchange) -> None:
        self._latest = exchange

    @property
    def _exchange(self) -> Exchange:
        """The request that runs now; where none does, the last one of this client."""
        found = current_exchange.get(None)
        return found if found is not None and found.peer is self._latest.peer else self._latest

    def renew(self, exchange: Exchange) -> None:
        """The client has sent another request."""
        self._latest = exchange

    @property
    def client_params(self) -> lifecycle.InitializeRequestParams | None:
        """What the client said of itself."""
        client = self._exchange.client
        return lifecycle.InitializeRequestParams.model_validate(
            {
                "protocolVersion": self._exchange.protocol_version,
                "capabilities": to_builtins(client.capabilities),
                "clientInfo": {"name": "", "version": ""} if client.info is None else to_builtins(client.info),
            }
        )

    def check_client_capability(self, capability: lifecycle.ClientCapabilities) -> bool:
        """Whether the client offers all of this."""
        wanted = capability.model_dump(by_alias=True, exclude_none=True, mode="json")
        return has_all(to_builtins(self._exchange.client.capabilities), wanted)

    # -- questions ---------------------------------------------------------------------------

    async def create_message(
        self,
        messages: list[types.asking.SamplingMessage],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        include_context: types.asking.IncludeContext | None = None,
        temperature: float | None = None,
        stop_sequences: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        model_preferences: types.asking.ModelPreferences | None = None,
        tools: list[Any] | None = None,
        tool_choice: types.asking.ToolChoice | None = None,
        related_request_id: RequestId | None = None,
    ) -> Any:
        """Ask the client's model. Raises McpError if it has none, or takes no `tools`."""
        params = types.asking.CreateMessageRequestParams(
            messages=messages,
            systemPrompt=system_prompt,
            includeContext=include_context,
            temperature=temperature,
            maxTokens=max_tokens,
            stopSequences=stop_sequences,
            metadata=metadata,
            modelPreferences=model_preferences,
            tools=tools,
            toolChoice=tool_choice,
        )
        if tools is not None or tool_choice is not None:
            sampling = self._exchange.client.capabilities.sampling
            if sampling is None or sampling.tools is None:
                text = "Client does not support sampling tools capability"
                raise McpError(_error(code=-32602, message=text))
        kind = types.asking.CreateMessageResult if tools is None else types.asking.CreateMessageResultWithTools
        return await self.send_request(types.asking.CreateMessageRequest(params=params), kind)

    async def list_roots(self) -> types.asking.ListRootsResult:
        """The client's roots."""
        return await self.send_request(types.asking.ListRootsRequest(), types.asking.ListRootsResult)

    async def elicit(
        self,
        message: str,
        requestedSchema: dict[str, Any],  # noqa: N803 - theirs
        related_request_id: RequestId | None = None,
    ) -> types.asking.ElicitResult:
        """`elicit_form`."""
        return await self.elicit_form(message, requestedSchema, related_request_id)

    async def elicit_form(
        self,
        message: str,
        requestedSchema: dict[str, Any],  # noqa: N803 - theirs
        related_request_id: RequestId | None = None,
    ) -> types.asking.ElicitResult:
        """Ask the user by a form."""
        params = types.asking.ElicitRequestFormParams(message=message, requestedSchema=requestedSchema)
        return await self.send_request(types.asking.ElicitRequest(params=params), types.asking.ElicitResult)

    async def elicit_url(
        self, message: str, url: str, elicitation_id: str, related_request_id: RequestId | None = None
    ) -> types.asking.ElicitResult:
        """Ask the user to visit a page."""
        params = types.asking.ElicitRequestURLParams(message=message, url=url, elicitationId=elicitation_id)
        return await self.send_request(types.asking.ElicitRequest(params=params), types.asking.ElicitResult)

    async def send_ping(self) -> lifecycle.EmptyResult:
        """Ask whether the client is there."""
        return await self.send_request(lifecycle.PingRequest(), lifecycle.EmptyResult)

    async def send_request(
        self,
        request: BaseRequest | types.messages.ServerRequest,
        result_type: type[R],
        request_read_timeout_seconds: Any = None,
        metadata: Any = None,
        progress_callback: Any = None,
    ) -> R:
        """Ask the client. Raises McpError for an error answer, and where the client takes no such question."""
        if not isinstance(request, BaseRequest):
            request = request.root
        seconds = None if request_read_timeout_seconds is None else request_read_timeout_seconds.total_seconds()
        return result_type.model_validate(await self._ask(request, seconds))

    async def _ask(self, request: BaseRequest, seconds: float | None) -> Any:
        from mcpd.compat.lowlevel.questions import METHODS, question_of  # few servers ask anything

        exchange = self._exchange
        method = METHODS.get(request.method)
        try:
            if method is None:
                if request.method != "ping":
                    raise LocalProtocolError(f"{request.method} cannot be asked of a client")
                await exchange.peer.request("ping", None, exchange.call, seconds)
                return {}
            question, refusal = question_of(request), method[3]
            if not exchange.asking.can_ask(question):
                raise McpError(_error(code=-32600, message=refusal))
            key = exchange.asking.next_key()
            return (await exchange.asking.ask({key: question}, seconds))[key]
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, RemoteError):
                raise McpError(_error(code=cause.code, message=cause.message, data=cause.data)) from error
            raise McpError(_error(code=-32600, message=str(error))) from error
        except MissingCapability:
            raise
        except McpdError as error:
            raise McpError(_error(code=-32000, message=str(error))) from error

    # -- notifications -----------------------------------------------------------------------

    async def send_log_message(
        self,
        level: notifications.LoggingLevel,
        data: Any,
        logger: str | None = None,
        related_request_id: RequestId | None = None,
    ) -> None:
        """Send a log message, if the client wants such."""
        exchange = self._exchange
        if exchange.call.is_open:
            await Context(exchange).log(level, data, logger)
        else:
            await self._tell("notifications/message", LogMessageParams(level=level, data=data, logger=logger))

    async def send_progress_notification(
        self,
        progress_token: str | int,
        progress: float,
        total: float | None = None,
        message: str | None = None,
        related_request_id: str | None = None,
    ) -> None:
        """Say how far a request has come."""
        params = ProgressParams(progress_token=progress_token, progress=progress, total=total, message=message)
        await self._tell("notifications/progress", params)

    async def send_elicit_complete(self, elicitation_id: str, related_request_id: RequestId | None = None) -> None:
        """Say that what was asked by URL has happened."""
        from mcpd.protocol.types.interaction import ElicitationCompleteParams

        await self._tell("notifications/elicitation/complete", ElicitationCompleteParams(elicitation_id=elicitation_id))

    async def send_notification(
        self,
        notification: BaseNotification | types.messages.ServerNotification,
        related_request_id: RequestId | None = None,
    ) -> None:
        """Send any notification of a server."""
        if not isinstance(notification, BaseNotification):
            notification = notification.root
        params = {} if notification.params is None else as_json(notification.params)
        await self._send(notification.method, params)

    async def send_resource_updated(self, uri: object) -> None:
        """Tell the clients that watch it, and this one, that a resource holds something else now."""
        await super().send_resource_updated(uri)
        session = self._exchange.call.session
        if session.is_initialized and not session.is_watched(str(uri)):
            await self._tell("notifications/resources/updated", ResourceUpdatedParams(uri=str(uri)))

    async def _tell(self, method: str, params: Struct | None) -> None:
        exchange = self._exchange
        await exchange.peer.notify(method, params, exchange.call if exchange.call.is_open else None)


def _error(**members: Any) -> ErrorData:
    return ErrorData(**members)
