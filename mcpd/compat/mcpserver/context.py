"""`Context` of `mcp.server.mcpserver`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcpd.compat.fastmcp1.context import Context as FirstContext
from mcpd.compat.lowlevel.context import current_exchange
from mcpd.compat.mcpserver.rounds import current_round
from mcpd.compat.types import lifecycle

__all__ = ["Context"]


class Context(FirstContext[Any, Any, Any]):
    """What a function is given of the request that it serves."""

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls

    @property
    def mcp_server(self) -> Any:
        """The server."""
        return self.fastmcp

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The headers of the HTTP request, None if none brought it."""
        found: Mapping[str, str] | None = getattr(self.request_context.request, "headers", None)
        return found

    @property
    def protocol_version(self) -> str | None:
        """The version of this request; None where none runs."""
        exchange = current_exchange.get(None)
        return None if exchange is None else exchange.protocol_version

    @property
    def client_capabilities(self) -> lifecycle.ClientCapabilities | None:
        """What the client offers."""
        params = self.session.client_params
        return None if params is None else params.capabilities

    @property
    def input_responses(self) -> Any:
        """What the client answered to the questions of an `InputRequiredResult`."""
        this = current_round.get()
        return None if this is None else this.answers

    @property
    def request_state(self) -> str | None:
        """The state that went with those questions."""
        this = current_round.get()
        return None if this is None else this.state

    async def log(  # type: ignore[override]  # version 2 sends any data
        self, level: Any, data: Any, *, logger_name: str | None = None, **extra: Any
    ) -> None:
        """Send a log message to the client."""
        await self.session.send_log_message(
            level=level, data=data, logger=logger_name, related_request_id=self.request_id
        )

    # -- changes -----------------------------------------------------------------------------

    async def notify_tools_changed(self) -> None:
        """Tell the clients that the list of tools is another one now."""
        await self.session.send_tool_list_changed()

    async def notify_prompts_changed(self) -> None:
        """Tell the clients that the list of prompts is another one now."""
        await self.session.send_prompt_list_changed()

    async def notify_resources_changed(self) -> None:
        """Tell the clients that the list of resources is another one now."""
        await self.session.send_resource_list_changed()

    async def notify_resource_updated(self, uri: Any) -> None:
        """Tell the clients that watch it that a resource holds something else now."""
        await self.session.send_resource_updated(uri)
