"""The requests of the protocol, each by what the server does for it."""

from __future__ import annotations

import inspect
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

from mcpd.compat.exceptions import McpError
from mcpd.compat.fastmcp.components import newest
from mcpd.compat.fastmcp.errors import DisabledError, FastMCPError, NotFoundError, ValidationError
from mcpd.compat.lowlevel.decorators import Handler
from mcpd.compat.lowlevel.schemas import problem_of
from mcpd.compat.types import prompts, resources, tools
from mcpd.compat.types.content import TextContent
from mcpd.compat.types.errors import INTERNAL_ERROR, INVALID_PARAMS, ErrorData
from mcpd.server.functions.threads import run_in_thread

__all__ = ["completes", "handlers"]


def handlers(server: Any) -> dict[type[Any], Handler]:
    """The handlers of a server, by the request's model."""
    serve = _Handlers(server)
    return {
        tools.ListToolsRequest: serve.list_tools,
        tools.CallToolRequest: serve.call_tool,
        resources.ListResourcesRequest: serve.list_resources,
        resources.ListResourceTemplatesRequest: serve.list_templates,
        resources.ReadResourceRequest: serve.read_resource,
        prompts.ListPromptsRequest: serve.list_prompts,
        prompts.GetPromptRequest: serve.get_prompt,
    }


class _Handlers:
    def __init__(self, server: Any) -> None:
        self._server = server

    async def list_tools(self, asked: Any) -> Any:
        listed = await self._server._list_tools_mcp()
        found, cursor = self._page(listed if isinstance(listed, list) else listed.tools, asked)
        return tools.ListToolsResult(tools=found, nextCursor=cursor)

    async def list_resources(self, asked: Any) -> Any:
        listed = [one.to_mcp_resource() for one in newest(await self._server.list_resources())]
        found, cursor = self._page(listed, asked)
        return resources.ListResourcesResult(resources=found, nextCursor=cursor)

    async def list_templates(self, asked: Any) -> Any:
        listed = [one.to_mcp_template() for one in newest(await self._server.list_resource_templates())]
        found, cursor = self._page(listed, asked)
        return resources.ListResourceTemplatesResult(resourceTemplates=found, nextCursor=cursor)

    async def list_prompts(self, asked: Any) -> Any:
        found, cursor = self._page([one.to_mcp_prompt() for one in newest(await self._server.list_prompts())], asked)
        return prompts.ListPromptsResult(prompts=found, nextCursor=cursor)

    async def call_tool(self, asked: Any) -> Any:
        name = asked.params.name
        try:
            if self._server.strict_input_validation:
                await self._check(name, asked)
            if _version(asked) is None:
                return await self._server._call_tool_mcp(name, asked.params.arguments or {})
            result = await self._server.call_tool(name, asked.params.arguments, version=_version(asked))
        except (NotFoundError, DisabledError):
            return _failed(f"Unknown tool: {name!r}")
        except FastMCPError as error:
            return _failed(str(error))
        return result.to_mcp_result()

    async def _check(self, name: str, asked: Any) -> None:
        """Hold arguments to the schema as they are: "1" is no number. Raises ValidationError, NotFoundError."""
        tool = await self._server.get_tool(name, version=_version(asked))
        if tool is not None and (problem := problem_of(asked.params.arguments or {}, tool.parameters)) is not None:
            raise ValidationError(f"Input validation error: {problem}")

    async def read_resource(self, asked: Any) -> Any:
        uri = str(asked.params.uri)
        try:
            result = await self._server.read_resource(uri, version=_version(asked))
        except (NotFoundError, DisabledError) as error:
            data = ErrorData(code=INVALID_PARAMS, message=f"Resource not found: {uri!r}", data={"uri": uri})
            raise McpError(data) from error
        except FastMCPError as error:
            raise _said(error) from error
        return result.to_mcp_result(uri)

    async def get_prompt(self, asked: Any) -> Any:
        name = asked.params.name
        try:
            result = await self._server.render_prompt(name, asked.params.arguments, version=_version(asked))
        except (NotFoundError, DisabledError) as error:
            raise McpError(ErrorData(code=INVALID_PARAMS, message=f"Unknown prompt: {name!r}")) from error
        except FastMCPError as error:
            raise _said(error) from error
        return result.to_mcp_prompt_result()

    def _page(self, items: list[Any], asked: Any) -> tuple[list[Any], str | None]:
        size: int | None = self._server.list_page_size
        if size is None:
            return items, None
        cursor = None if asked.params is None else asked.params.cursor
        try:
            start = 0 if cursor is None else int(urlsafe_b64decode(cursor.encode()))
        except ValueError as error:
            raise McpError(ErrorData(code=INVALID_PARAMS, message=f"Invalid cursor: {cursor!r}")) from error
        end = start + size
        return items[start:end], urlsafe_b64encode(b"%d" % end).decode() if end < len(items) else None


def _version(asked: Any) -> str | None:
    """The version of a component that the client asks for, in `_meta.fastmcp.version`."""
    wanted = getattr(asked.params.meta, "fastmcp", None) if asked.params.meta is not None else None
    return str(wanted["version"]) if isinstance(wanted, dict) and wanted.get("version") else None


def _failed(text: str) -> tools.CallToolResult:
    return tools.CallToolResult(content=[TextContent(text=text)], isError=True)


def _said(error: FastMCPError) -> McpError:
    code = INVALID_PARAMS if isinstance(error, ValidationError) else INTERNAL_ERROR
    return McpError(ErrorData(code=code, message=str(error)))


def completes(function: Any) -> Handler:
    """A handler for `completion/complete` of a function of a reference, an argument and a context."""

    async def complete(asked: Any) -> Any:
        params = asked.params
        given = params.ref, params.argument, params.context
        found = function(*given) if inspect.iscoroutinefunction(function) else await run_in_thread(function, *given)
        found = await found if inspect.isawaitable(found) else found
        if not isinstance(found, prompts.Completion):
            values: Sequence[str] = [found] if isinstance(found, str) else list(found or ())
            found = prompts.Completion(values=list(values)[:100], total=len(values), hasMore=len(values) > 100)
        return prompts.CompleteResult(completion=found)

    return complete
