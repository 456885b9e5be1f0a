"""Clients of a server in the same process, which tests of such servers use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from msgspec.json import decode
from pydantic import BaseModel

from mcpd.client.client import Client as McpdClient
from mcpd.compat.types.features import TextContent
from mcpd.errors import RemoteError
from .errors import McpError, ToolError
from .install import refuse
from .types import features

M = TypeVar("M", bound=BaseModel)


# -- the official SDK ------------------------------------------------------------------------


def _list_method(method: str, result: type[M]) -> Callable[..., Awaitable[M]]:
    async def list_page(self: ClientSession, cursor: str | None = None, *, params: Any = None) -> M:
        cursor = cursor if params is None else params.cursor
        return await self._send(method, {} if cursor is None else {"cursor": cursor}, result)

    return list_page


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

    list_tools = _list_method("tools/list", features.ListToolsResult)
    list_resources = _list_method("resources/list", features.ListResourcesResult)
    list_resource_templates = _list_method("resources/templates/list", features.ListResourceTemplatesResult)
    list_prompts = _list_method("prompts/list", features.ListPromptsResult)

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

    async def read_resource(self, uri: object) -> features.ReadResourceResult:
        return await self._send("resources/read", {"uri": str(uri)}, features.ReadResourceResult)

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> features.GetPromptResult:
        params = {"name": name, "arguments": arguments or {}}
        return await self._send("prompts/get", params, features.GetPromptResult)

    async def complete(
        self, ref: BaseModel, argument: dict[str, str], context_arguments: dict[str, str] | None = None
    ) -> features.CompleteResult:
        params = {
            "ref": ref.model_dump(by_alias=True, exclude_none=True),
            "argument": argument,
            "context": {"arguments": context_arguments or {}},
        }
        return await self._send("completion/complete", params, features.CompleteResult)


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


def _whole_list(name: str, member: str) -> Callable[[Client], Awaitable[list[Any]]]:
    async def list_all(self: Client) -> list[Any]:
        page = await getattr(self._session, name)()
        items: list[Any] = getattr(page, member)
        while page.nextCursor is not None:
            page = await getattr(self._session, name)(page.nextCursor)
            items += getattr(page, member)
        return items

    return list_all


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

    list_tools = _whole_list("list_tools", "tools")
    list_resources = _whole_list("list_resources", "resources")
    list_resource_templates = _whole_list("list_resource_templates", "resourceTemplates")
    list_prompts = _whole_list("list_prompts", "prompts")

    async def call_tool_mcp(self, name: str, arguments: dict[str, Any] | None = None) -> features.CallToolResult:
        return await self._session.call_tool(name, arguments)

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, raise_on_error: bool = True, **_: Any
    ) -> CallToolResult:
        """Call a tool. Raises ToolError with the text of a failed result."""
        result = await self.call_tool_mcp(name, arguments)
        if result.isError and raise_on_error:
            raise ToolError(next((block.text for block in result.content if isinstance(block, TextContent)), ""))

        # Structured content is an object in the versions that the library knows, so it wraps other results into one.
        data = structured = result.structuredContent
        if structured is not None and ((result.meta or {}).get("fastmcp") or {}).get("wrap_result"):
            data = structured.get("result")
        return CallToolResult(result.content, structured, result.meta, data, result.isError)

    async def read_resource(self, uri: Any) -> list[Any]:
        return (await self._session.read_resource(uri)).contents

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> features.GetPromptResult:
        return await self._session.get_prompt(name, {key: str(value) for key, value in (arguments or {}).items()})
