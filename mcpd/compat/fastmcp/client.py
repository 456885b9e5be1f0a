"""`fastmcp.Client`, as far as examples and tests of servers need it: a server in this process, or at an address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from msgspec import to_builtins

from mcpd.client import Client as McpdClient
from mcpd.compat.fastmcp.errors import ToolError
from mcpd.compat.missing import refuse
from mcpd.compat.types import content, prompts, resources, tools

__all__ = ["CallToolResult", "Client"]


@dataclass
class CallToolResult:
    """What a tool gave; `data` is its structured content, without the object that is put around other values."""

    content: list[Any]
    structured_content: dict[str, Any] | None
    meta: dict[str, Any] | None
    data: Any = None
    is_error: bool = field(default=False)


class Client:
    """`async with Client(mcp) as client:`. Raises NotHere for anything but a server or an address."""

    def __init__(self, transport: Any, **options: Any) -> None:
        if hasattr(type(transport), "__mcpd_server__"):
            transport = transport.__mcpd_server__()
        elif not isinstance(transport, str) or "://" not in transport:
            refuse(f"Client({type(transport).__name__})", "fastmcp")
        self._client: McpdClient = McpdClient(transport)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._client.__aexit__(*error)

    async def ping(self) -> bool:
        """Whether the server answers."""
        await self._client.ping()
        return True

    async def list_tools(self) -> list[tools.Tool]:
        """The tools."""
        return [tools.Tool.model_validate(to_builtins(one)) for one in await self._client.list_tools()]

    async def list_resources(self) -> list[content.Resource]:
        """The resources."""
        return [content.Resource.model_validate(to_builtins(one)) for one in await self._client.list_resources()]

    async def list_resource_templates(self) -> list[resources.ResourceTemplate]:
        """The templates."""
        listed = await self._client.list_resource_templates()
        return [resources.ResourceTemplate.model_validate(to_builtins(one)) for one in listed]

    async def list_prompts(self) -> list[prompts.Prompt]:
        """The prompts."""
        return [prompts.Prompt.model_validate(to_builtins(one)) for one in await self._client.list_prompts()]

    async def call_tool_mcp(self, name: str, arguments: dict[str, Any] | None = None) -> tools.CallToolResult:
        """Call a tool: gives the protocol's result."""
        found = await self._client.call_tool(name, arguments or {})
        return tools.CallToolResult.model_validate(to_builtins(found))

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, raise_on_error: bool = True, **_: Any
    ) -> CallToolResult:
        """Call a tool. Raises ToolError with its text if it fails."""
        found = await self.call_tool_mcp(name, arguments)
        if found.isError and raise_on_error:
            raise ToolError(next((one.text for one in found.content if isinstance(one, content.TextContent)), ""))
        whole, meta = found.structuredContent, found.meta or {}
        wraps = bool((meta.get("fastmcp") or {}).get("wrap_result"))
        data = whole.get("result") if wraps and whole is not None else whole
        return CallToolResult(found.content, whole, found.meta, data, found.isError)

    async def read_resource(self, uri: Any) -> list[Any]:
        """The contents of a resource."""
        found = await self._client.read_resource(str(uri))
        return resources.ReadResourceResult.model_validate(to_builtins(found)).contents

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> prompts.GetPromptResult:
        """The messages of a prompt."""
        given = {key: str(value) for key, value in (arguments or {}).items()}
        return prompts.GetPromptResult.model_validate(to_builtins(await self._client.get_prompt(name, given)))
