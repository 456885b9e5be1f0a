"""The notifications of a session that are about the whole server: lists and resources that have changed."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mcpd.compat.wire import struct_of
from mcpd.protocol.types.base import CancelledParams, LogMessageParams, ProgressParams
from mcpd.protocol.types.interaction import ElicitationCompleteParams
from mcpd.protocol.types.resources import ResourceUpdatedParams

if TYPE_CHECKING:
    from msgspec import Struct

    from mcpd.server import Server

__all__ = ["Notices", "has_all"]

_PARAMS: dict[str, type[Struct]] = {
    "notifications/message": LogMessageParams,
    "notifications/progress": ProgressParams,
    "notifications/cancelled": CancelledParams,
    "notifications/elicitation/complete": ElicitationCompleteParams,
}


class Notices(ABC):
    """What a session can say of the server. What one client is told here, all are: the lists are the same for all."""

    server: Server | None = None
    """The server of this session."""

    async def send_resource_updated(self, uri: object) -> None:
        """Tell the clients that watch it that a resource holds something else now."""
        if self.server is not None:
            self.server.resource_updated(str(uri))

    async def send_tool_list_changed(self) -> None:
        """Tell the clients that the list of tools is another one now."""
        await self._changed("tools")

    async def send_resource_list_changed(self) -> None:
        """Tell the clients that the list of resources is another one now."""
        await self._changed("resources")

    async def send_prompt_list_changed(self) -> None:
        """Tell the clients that the list of prompts is another one now."""
        await self._changed("prompts")

    async def _changed(self, kind: Any) -> None:
        changed: Callable[[Any], None] | None = None if self.server is None else self.server.catalog.on_change
        if changed is not None:
            changed(kind)
            # It is said two turns from now: before the answer to the request that says so.
            for _ in range(3):
                await asyncio.sleep(0)

    async def _send(self, method: str, params: dict[str, Any]) -> None:
        """Any of these, or one about the request that runs, by its method."""
        if method == "notifications/resources/updated":
            await self.send_resource_updated(struct_of(params, ResourceUpdatedParams).uri)
        elif method.endswith("/list_changed"):
            await self._changed(method.split("/")[1])
        else:
            kind = _PARAMS.get(method)
            await self._tell(method, None if kind is None else struct_of(params, kind))

    @abstractmethod
    async def _tell(self, method: str, params: Struct | None) -> None:
        """Send one to the client of this session."""


def has_all(offered: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether each member of `wanted`, and each of these, is in `offered`; flags have to be as wanted."""
    for name, value in wanted.items():
        if offered.get(name) is None:
            return False
        if isinstance(value, Mapping) and not has_all(offered[name], value):
            return False
        if isinstance(value, bool) and value and not offered[name]:
            return False
    return True
