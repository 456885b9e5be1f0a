"""Clients of a server in the same process, which tests of such servers use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from msgspec.json import decode
from pydantic import BaseModel

from mcpd.client.client import Client as McpdClient
from mcpd.compat.errors import McpError, ToolError
from mcpd.compat.missing import refuse
from mcpd.compat.types import features
from mcpd.compat.types.base import Resource, TextContent
from mcpd.errors import RemoteError

M = TypeVar("M", bound=BaseModel)


# -- the official SDK ------------------------------------------------------------------------


class ClientSession:
    """`ClientSession` of the official SDK. It does not answer requests of the server."""

    def __init__(self, client: McpdClient) -> None:
        self._client = client

    async def _send(self, method: str, params: dict[str, Any], result: type[M]) -> M:
        try:
            return result.model_validate(decode(bytes(await self._client.request(method, params))))
        except RemoteError as error:
            raise McpError(error.code, error.message, error.data) from error

    async def initialize(self) -> None:
        """The client is connected already."""

    async def send_ping(self) -> features.EmptyResult:
        return await self._send("ping", {}, features.EmptyResult)

    async def list_tools(self, cursor: str | None = None, *, params: Any = None) -> features.ListToolsResult:
        return await self._send("tools/list", _page(cursor, params), features.ListToolsResult)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        read_timeout_seconds: Any = None,
        progress_callback: Callable[..., Any] | None = None,
        *,
        meta: dict[str, Any] | None = None,
    ) -> features.CallToolResult:
        params = {"name": name, "arguments": arguments or {}, **({} if meta is None else {"_meta": meta})}
        return await self._send("tools/call", params, features.CallToolResult)

    async def list_resources(self, cursor: str | None = None, *, params: Any = None) -> features.ListResourcesResult:
        return await self._send("resources/list", _page(cursor, params), features.ListResourcesResult)

    async def list_resource_templates(
        self, cursor: str | None = None, *, params: Any = None
    ) -> features.ListResourceTemplatesResult:
        result = features.ListResourceTemplatesResult
        return await self._send("resources/templates/list", _page(cursor, params), result)

    async def read_resource(self, uri: object) -> features.ReadResourceResult:
        return await self._send("resources/read", {"uri": str(uri)}, features.ReadResourceResult)

    async def list_prompts(self, cursor: str | None = None, *, params: Any = None) -> features.ListPromptsResult:
        return await self._send("prompts/list", _page(cursor, params), features.ListPromptsResult)

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> features.GetPromptResult:
        params = {"name": name, "arguments": arguments or {}}
        return await self._send("prompts/get", params, features.GetPromptResult)

    async def complete(
        self, ref: BaseModel, argument: dict[str, str], context_arguments: dict[str, str] | None = None
    ) -> features.CompleteResult:
        params: dict[str, Any] = {"ref": ref.model_dump(by_alias=True, exclude_none=True), "argument": argument}
        if context_arguments is not None:
            params["context"] = {"arguments": context_arguments}
        return await self._send("completion/complete", params, features.CompleteResult)


def _page(cursor: str | None, params: Any) -> dict[str, Any]:
    found = cursor if params is None else params.cursor
    return {} if found is None else {"cursor": found}


@asynccontextmanager
async def create_connected_server_and_client_session(server: Any, **_: Any) -> AsyncIterator[ClientSession]:
    """Connect a client to a server for the length of the block. Options such as callbacks have no effect."""
    async with McpdClient(server.__mcpd_server__()) as client:
        yield ClientSession(client)


# -- fastmcp ---------------------------------------------------------------------------------


@dataclass
class CallToolResult:
    """A tool's result. `data` is the structured content, unwrapped if the library wrapped it into an object."""

    content: list[Any]
    structured_content: dict[str, Any] | None
    meta: dict[str, Any] | None
    data: Any = None
    is_error: bool = False


class Client:
    """`fastmcp.Client` for a server in this process, or at an address. Raises NotHere for other transports."""

    def __init__(self, transport: Any, **options: Any) -> None:
        if hasattr(type(transport), "__mcpd_server__"):
            transport = transport.__mcpd_server__()
        elif not isinstance(transport, str) or "://" not in transport:
            refuse(f"Client({type(transport).__name__})", "fastmcp")
        self._client = McpdClient(transport)
        self._session = ClientSession(self._client)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._client.__aexit__(*error)

    async def ping(self) -> bool:
        await self._client.ping()
        return True

    async def _all(self, list_page: Callable[..., Any], member: str) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        while True:
            page = await list_page(cursor)
            found += getattr(page, member)
            cursor = page.nextCursor
            if cursor is None:
                return found

    async def list_tools(self) -> list[features.Tool]:
        return await self._all(self._session.list_tools, "tools")

    async def list_resources(self) -> list[Resource]:
        return await self._all(self._session.list_resources, "resources")

    async def list_resource_templates(self) -> list[features.ResourceTemplate]:
        return await self._all(self._session.list_resource_templates, "resourceTemplates")

    async def list_prompts(self) -> list[features.Prompt]:
        return await self._all(self._session.list_prompts, "prompts")

    async def call_tool_mcp(self, name: str, arguments: dict[str, Any] | None = None) -> features.CallToolResult:
        return await self._session.call_tool(name, arguments)

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, raise_on_error: bool = True, **_: Any
    ) -> CallToolResult:
        """Call a tool. Raises ToolError with the text of a failed result."""
        found = await self.call_tool_mcp(name, arguments)
        if found.isError and raise_on_error:
            raise ToolError(next((block.text for block in found.content if isinstance(block, TextContent)), ""))

        structured, meta = found.structuredContent, found.meta or {}
        is_wrapped = bool((meta.get("fastmcp") or {}).get("wrap_result"))
        data = structured.get("result") if is_wrapped and structured is not None else structured
        return CallToolResult(found.content, structured, found.meta, data, found.isError)

    async def read_resource(self, uri: Any) -> list[Any]:
        return (await self._session.read_resource(uri)).contents

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> features.GetPromptResult:
        return await self._session.get_prompt(name, {key: str(value) for key, value in (arguments or {}).items()})
