"""`mcp.shared.memory`: a client of a server in the same process, which tests of such servers use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec.json import decode
from pydantic import BaseModel

from mcpd.client import Client
from mcpd.compat.exceptions import McpError
from mcpd.compat.program import Served
from mcpd.compat.types import lifecycle, prompts, resources, tools
from mcpd.compat.types.errors import ErrorData
from mcpd.errors import RemoteError

__all__ = ["ClientSession", "create_connected_server_and_client_session"]

M = TypeVar("M", bound=BaseModel)


class ClientSession:
    """The client's side of a session, with what tests ask of it; questions of the server are not answered."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def initialize(self) -> None:
        """It is done already."""

    async def send_ping(self) -> lifecycle.EmptyResult:
        """Ask whether the server is there."""
        return await self._ask("ping", {}, lifecycle.EmptyResult)

    async def list_tools(self, cursor: str | None = None, *, params: Any = None) -> tools.ListToolsResult:
        """One page of tools."""
        return await self._ask("tools/list", _page(cursor, params), tools.ListToolsResult)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        read_timeout_seconds: Any = None,
        progress_callback: Callable[..., Any] | None = None,
        *,
        meta: dict[str, Any] | None = None,
    ) -> tools.CallToolResult:
        """Call a tool."""
        params = {"name": name, "arguments": arguments or {}, **({} if meta is None else {"_meta": meta})}
        return await self._ask("tools/call", params, tools.CallToolResult)

    async def list_resources(self, cursor: str | None = None, *, params: Any = None) -> resources.ListResourcesResult:
        """One page of resources."""
        return await self._ask("resources/list", _page(cursor, params), resources.ListResourcesResult)

    async def list_resource_templates(
        self, cursor: str | None = None, *, params: Any = None
    ) -> resources.ListResourceTemplatesResult:
        """One page of templates."""
        return await self._ask("resources/templates/list", _page(cursor, params), resources.ListResourceTemplatesResult)

    async def read_resource(self, uri: object) -> resources.ReadResourceResult:
        """What a resource holds."""
        return await self._ask("resources/read", {"uri": str(uri)}, resources.ReadResourceResult)

    async def list_prompts(self, cursor: str | None = None, *, params: Any = None) -> prompts.ListPromptsResult:
        """One page of prompts."""
        return await self._ask("prompts/list", _page(cursor, params), prompts.ListPromptsResult)

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> prompts.GetPromptResult:
        """The messages of a prompt."""
        return await self._ask("prompts/get", {"name": name, "arguments": arguments or {}}, prompts.GetPromptResult)

    async def complete(
        self, ref: BaseModel, argument: dict[str, str], context_arguments: dict[str, str] | None = None
    ) -> prompts.CompleteResult:
        """Suggestions for an argument."""
        params: dict[str, Any] = {"ref": ref.model_dump(by_alias=True, exclude_none=True), "argument": argument}
        if context_arguments is not None:
            params["context"] = {"arguments": context_arguments}
        return await self._ask("completion/complete", params, prompts.CompleteResult)

    async def _ask(self, method: str, params: dict[str, Any], kind: type[M]) -> M:
        try:
            return kind.model_validate(decode(bytes(await self._client.request(method, params))))
        except RemoteError as error:
            raise McpError(ErrorData(code=error.code, message=error.message, data=error.data)) from error


def _page(cursor: str | None, params: Any) -> dict[str, Any]:
    found = cursor if params is None else params.cursor
    return {} if found is None else {"cursor": found}


@asynccontextmanager
async def create_connected_server_and_client_session(server: Served, **_: Any) -> AsyncIterator[ClientSession]:
    """A client of a server, connected for the length of the block. Options for other callbacks have no effect."""
    async with Client(server.__mcpd_server__()) as client:
        yield ClientSession(client)
