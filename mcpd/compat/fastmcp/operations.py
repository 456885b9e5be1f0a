"""What a FastMCP server does: lists, calls, reads and renders, through its middleware, and what is mounted on it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from mcpd.compat.fastmcp.components import newest
from mcpd.compat.fastmcp.context import Context
from mcpd.compat.fastmcp.errors import FastMCPError, NotFoundError, PromptError, ResourceError, ToolError
from mcpd.compat.fastmcp.middleware import MiddlewareContext, Next, run_through
from mcpd.compat.fastmcp.mounts import Mount
from mcpd.compat.fastmcp.prompts import PromptResult
from mcpd.compat.fastmcp.resources import ResourceResult
from mcpd.compat.fastmcp.results import ToolResult
from mcpd.compat.fastmcp.state import has_rules, session_rules
from mcpd.compat.fastmcp.store import Store, Visibility
from mcpd.compat.types import prompts, resources, tools
from mcpd.protocol.printable import printable

__all__ = ["Operations"]

log = logging.getLogger("mcpd")


class Operations:
    """The part of `FastMCP` that serves requests."""

    name: str
    middleware: list[Any]
    _tools: Store
    _resources: Store
    _templates: Store
    _prompts: Store
    _visibility: Visibility
    _mounts: list[Mount]
    _mask_error_details: bool

    async def _through(self, method: str, message: Any, last: Next, run_middleware: bool) -> Any:
        async with Context(self) as context:
            whole = MiddlewareContext(message=message, method=method, fastmcp_context=context)
            return await (run_through(self.middleware, whole, last) if run_middleware else last(whole))

    def _offered(self, components: list[Any]) -> list[Any]:
        return self._visibility.offered(components, session_rules() if has_rules() else None)

    # -- lists -------------------------------------------------------------------------------

    async def list_tools(self, *, run_middleware: bool = True) -> list[Any]:
        """The tools that are offered, its own and those of mounted servers."""

        async def last(_: MiddlewareContext[Any]) -> list[Any]:
            found = self._tools.all()
            for mount in self._mounts:
                for one in await mount.server.list_tools():
                    found.append(one.model_copy(update={"name": mount.tool_name(one.name)}))
            return self._offered(found)

        found: list[Any] = await self._through("tools/list", tools.ListToolsRequest(), last, run_middleware)
        return found

    async def list_resources(self, *, run_middleware: bool = True) -> list[Any]:
        """The resources that are offered."""

        async def last(_: MiddlewareContext[Any]) -> list[Any]:
            found = self._resources.all()
            for mount in self._mounts:
                for one in await mount.server.list_resources():
                    found.append(one.model_copy(update={"uri": mount.uri(str(one.uri))}))
            return self._offered(found)

        message = resources.ListResourcesRequest()
        found: list[Any] = await self._through("resources/list", message, last, run_middleware)
        return found

    async def list_resource_templates(self, *, run_middleware: bool = True) -> list[Any]:
        """The templates that are offered."""

        async def last(_: MiddlewareContext[Any]) -> list[Any]:
            found = self._templates.all()
            for mount in self._mounts:
                for one in await mount.server.list_resource_templates():
                    found.append(one.model_copy(update={"uri_template": mount.uri(one.uri_template)}))
            return self._offered(found)

        message = resources.ListResourceTemplatesRequest()
        found: list[Any] = await self._through("resources/templates/list", message, last, run_middleware)
        return found

    async def list_prompts(self, *, run_middleware: bool = True) -> list[Any]:
        """The prompts that are offered."""

        async def last(_: MiddlewareContext[Any]) -> list[Any]:
            found = self._prompts.all()
            for mount in self._mounts:
                for one in await mount.server.list_prompts():
                    found.append(one.model_copy(update={"name": mount.name(one.name)}))
            return self._offered(found)

        found: list[Any] = await self._through("prompts/list", prompts.ListPromptsRequest(), last, run_middleware)
        return found

    # -- one of them -------------------------------------------------------------------------

    def _own(self, store: Store, identity: str, version: Any = None) -> Any:
        offered = [one for one in self._offered(store.all()) if one.identity == identity]
        if version is not None:
            return next((one for one in offered if one.version == str(getattr(version, "eq", version))), None)
        return next(iter(newest(offered)), None)

    async def get_tool(self, name: str, version: Any = None) -> Any:
        """The tool of that name, None if there is none."""
        found = self._own(self._tools, name, version)
        return found or await self._mounted(name, "own_tool_name", "get_tool")

    async def get_resource(self, uri: Any, version: Any = None) -> Any:
        """The resource of that URI, None if there is none."""
        found = self._own(self._resources, str(uri), version)
        return found or await self._mounted(str(uri), "own_uri", "get_resource")

    async def get_resource_template(self, uri: Any, version: Any = None) -> Any:
        """The template that a URI fits, None if there is none."""
        for one in self._offered(self._templates.all()):
            if one.matches(str(uri)) is not None or one.uri_template == str(uri):
                return one
        return await self._mounted(str(uri), "own_uri", "get_resource_template")

    async def get_prompt(self, name: str, version: Any = None) -> Any:
        """The prompt of that name, None if there is none."""
        found = self._own(self._prompts, name, version)
        return found or await self._mounted(name, "own_name", "get_prompt")

    async def _mounted(self, name: str, own: str, get: str) -> Any:
        for mount in self._mounts:
            there: str | None = getattr(mount, own)(name)
            found = None if there is None else await getattr(mount.server, get)(there)
            if found is not None:
                return found
        return None

    async def _where(self, name: str, own: str, get: str) -> tuple[Any, str] | None:
        """The mounted server that has what is called so here, and what it is called there."""
        for mount in self._mounts:
            there: str | None = getattr(mount, own)(name)
            if there is not None and await getattr(mount.server, get)(there) is not None:
                return mount.server, there
        return None

    # -- calls -------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        version: Any = None,
        run_middleware: bool = True,
    ) -> ToolResult:
        """Call a tool. Raises NotFoundError, ValidationError, and ToolError with a text for the model."""

        async def last(context: MiddlewareContext[Any]) -> Any:
            called, given = context.message.name, context.message.arguments or {}
            tool = self._own(self._tools, called, version)
            if tool is not None:
                return await self._guarded(lambda: tool.run(given), ToolError, f"calling tool {called!r}")
            there = await self._where(called, "own_tool_name", "get_tool")
            if there is None:
                raise NotFoundError(f"Unknown tool: {called!r}")
            return await there[0].call_tool(there[1], given)

        message = tools.CallToolRequestParams(name=name, arguments=arguments or {})
        found: ToolResult = await self._through("tools/call", message, last, run_middleware)
        return found

    async def read_resource(self, uri: Any, *, version: Any = None, run_middleware: bool = True) -> ResourceResult:
        """Read a resource. Raises NotFoundError, and ResourceError."""

        async def last(context: MiddlewareContext[Any]) -> Any:
            asked = str(context.message.uri)
            what = f"reading resource {asked!r}"
            resource = self._own(self._resources, asked, version)
            if resource is not None:
                return await self._guarded(resource.result, ResourceError, what)
            for template in self._offered(self._templates.all()):
                variables = template.matches(asked)
                if variables is not None:
                    return await self._guarded(partial(template.result, asked, variables), ResourceError, what)
            there = await self._where(asked, "own_uri", "get_resource") or await self._where(
                asked, "own_uri", "get_resource_template"
            )
            if there is None:
                raise NotFoundError(f"Unknown resource: {asked!r}")
            return await there[0].read_resource(there[1])

        message = resources.ReadResourceRequestParams(uri=str(uri))  # type: ignore[arg-type]
        found: ResourceResult = await self._through("resources/read", message, last, run_middleware)
        return found

    async def render_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        version: Any = None,
        run_middleware: bool = True,
    ) -> PromptResult:
        """The messages of a prompt. Raises NotFoundError, ValidationError, PromptError."""

        async def last(context: MiddlewareContext[Any]) -> Any:
            asked, given = context.message.name, context.message.arguments
            prompt = self._own(self._prompts, asked, version)
            if prompt is not None:
                return await self._guarded(lambda: prompt.result(given), PromptError, f"rendering prompt {asked!r}")
            there = await self._where(asked, "own_name", "get_prompt")
            if there is None:
                raise NotFoundError(f"Unknown prompt: {asked!r}")
            return await there[0].render_prompt(there[1], given)

        message = prompts.GetPromptRequestParams(name=name, arguments=arguments)
        found: PromptResult = await self._through("prompts/get", message, last, run_middleware)
        return found

    async def _guarded(self, call: Callable[[], Any], kind: type[FastMCPError], what: str) -> Any:
        """What a call gives; all that its function raises becomes an error of that kind, with its text or without."""
        try:
            return await call()
        except FastMCPError as error:
            log.log(error.log_level, "error %s", printable(what))
            raise
        except Exception as error:
            log.error("error %s", printable(what), exc_info=True)
            if isinstance(error, TimeoutError):
                raise kind("Upstream request timed out, please retry") from error
            raise kind(f"Error {what}" if self._mask_error_details else f"Error {what}: {error}") from error
