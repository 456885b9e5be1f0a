"""`MCPServer` of version 2 of the official SDK: functions as tools, resources and prompts."""

from __future__ import annotations

import inspect
import logging
import sys
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pydantic_core

from mcpd.compat.exceptions import McpError
from mcpd.compat.fastmcp1.server import FastMCP
from mcpd.compat.fastmcp1.signature import context_parameter
from mcpd.compat.lowlevel.options import ReadResourceContents
from mcpd.compat.lowlevel.server import LifespanResultT, Server, lifespan
from mcpd.compat.mcpserver.context import Context
from mcpd.compat.mcpserver.errors import (
    ResourceError,
    ResourceNotFoundError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from mcpd.compat.mcpserver.prompts import Prompt, PromptManager
from mcpd.compat.mcpserver.resources import DEFAULT_RESOURCE_SECURITY, ResourceManager, ResourceSecurity
from mcpd.compat.mcpserver.tools import Tool, ToolManager, failed
from mcpd.compat.missing import refuse, warn_of_unheard
from mcpd.compat.program import Wanted
from mcpd.compat.types import content, prompts, resources
from mcpd.compat.types.errors import INTERNAL_ERROR, INVALID_PARAMS, ErrorData
from mcpd.errors import collects
from mcpd.protocol.printable import printable
from mcpd.server.registry.uri_template import UriTemplate

__all__ = ["MCPServer"]

log = logging.getLogger("mcpd")

F = TypeVar("F", bound=Callable[..., Any])

# What servers would miss.
_UNHEARD = frozenset(("cache_hints", "request_state_security", "subscriptions"))


class MCPServer(FastMCP[LifespanResultT]):
    """A server whose tools, resources and prompts are functions."""

    _prompt_type = Prompt

    def __init__(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: list[content.Icon] | None = None,
        version: str = "",
        auth_server_provider: Any = None,
        token_verifier: Any = None,
        *,
        tools: Sequence[Tool] | None = None,
        resources: Sequence[Any] | None = None,
        extensions: Sequence[Any] | None = None,
        resource_security: ResourceSecurity = DEFAULT_RESOURCE_SECURITY,
        middleware: Sequence[Any] | None = None,
        **settings: Any,
    ) -> None:
        if extensions:
            refuse("MCPServer(extensions=…)", "the official SDK")
        for name in _UNHEARD & settings.keys():
            warn_of_unheard(f"MCPServer({name}=…)", settings[name])
        self.title = title
        self.description = description
        self._version = version
        self._resource_security = resource_security
        super().__init__(
            name or "mcp-server",
            instructions,
            website_url,
            icons,
            auth_server_provider,
            token_verifier,
            **{key: value for key, value in settings.items() if key not in _UNHEARD},
        )
        self._mcp_server.middleware.extend(middleware or ())
        for tool in tools or ():
            self._tool_manager._tools[tool.name] = tool
        for one in resources or ():
            self.add_resource(one)

    def _register(self) -> None:
        settings = self.settings
        life = settings.lifespan
        self._mcp_server = Server(
            self.name,
            version=self._version or None,
            instructions=self.instructions,
            website_url=self.website_url,
            icons=self.icons,
            lifespan=self._lifespan_of(life) if life else lifespan,
            title=self.title,
            description=self.description,
            on_list_tools=self._on_list_tools,
            on_call_tool=self._on_call_tool,
            on_list_resources=self._on_list_resources,
            on_list_resource_templates=self._on_list_templates,
            on_read_resource=self._on_read_resource,
            on_list_prompts=self._on_list_prompts,
            on_get_prompt=self._on_get_prompt,
        )
        self._tool_manager = ToolManager(settings.warn_on_duplicate_tools)
        self._resource_manager = ResourceManager(settings.warn_on_duplicate_resources)
        self._prompt_manager = PromptManager(settings.warn_on_duplicate_prompts)

    @property
    def version(self) -> str:
        """The server's version."""
        return self._version

    @property
    def _lowlevel_server(self) -> Server[LifespanResultT, Any]:
        """What version 2 calls `_mcp_server`; servers change it, for want of a public way."""
        return self._mcp_server

    @property
    def middleware(self) -> list[Any]:
        """What is around each request, the outermost first: `async (ctx, call_next)`."""
        return self._mcp_server.middleware

    def get_context(self) -> Context:
        """The context of the request that runs; of none, where most of it raises ValueError."""
        from mcpd.compat.mcpserver.requests import running

        try:
            request = running()
        except LookupError:
            request = None
        return Context(request_context=request, fastmcp=self)

    # -- tools -------------------------------------------------------------------------------

    async def _on_list_tools(self, ctx: Any, params: Any) -> Any:
        from mcpd.compat.types.tools import ListToolsResult

        return ListToolsResult(tools=await self.list_tools())

    async def _on_call_tool(self, ctx: Any, params: Any) -> Any:
        try:
            return await self.call_tool(params.name, params.arguments or {})
        except McpError:
            raise
        except Exception as error:
            unexpected = not isinstance(error, ToolError) or isinstance(error, UnexpectedToolError)
            log.log(
                logging.ERROR if unexpected else logging.INFO,
                "tool %s failed: %s", printable(params.name), printable(str(error)), exc_info=unexpected,
            )  # fmt: skip
            return failed(error)

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool. Raises ToolError, McpError."""
        given = self.get_context() if context is None else context
        return await self._tool_manager.call_tool(name, arguments, context=given, convert_result=True)

    # -- resources ---------------------------------------------------------------------------

    @collects
    def resource(self, uri: str, *, security: ResourceSecurity | None = None, **options: Any) -> Callable[[F], F]:
        """Register a function as a resource, or with variables in `uri` as a template of resources."""
        if callable(uri):
            raise TypeError(
                "The @resource decorator was used incorrectly. "
                "Did you forget to call it? Use @resource('uri') instead of @resource"
            )
        variables = set(_names(uri))

        def register(function: F) -> F:
            own = context_parameter(function)
            parameters = inspect.signature(function).parameters
            expected = {name for name in parameters if name != own}
            if variables != expected:
                raise ValueError(f"Mismatch between URI parameters {variables} and function parameters {expected}")
            if not variables:
                if own is not None:
                    raise ValueError(
                        f"Resource {uri!r} has no URI template variables, but the handler declares a Context parameter"
                    )
                from mcpd.compat.fastmcp1.resources import FunctionResource

                self.add_resource(FunctionResource.from_function(function, uri, **options))
                return function
            self._resource_manager.add_template(function, uri, security=security or self._resource_security, **options)
            return function

        return register

    async def _on_list_resources(self, ctx: Any, params: Any) -> Any:
        return resources.ListResourcesResult(resources=await self.list_resources())

    async def _on_list_templates(self, ctx: Any, params: Any) -> Any:
        return resources.ListResourceTemplatesResult(resourceTemplates=await self.list_resource_templates())

    async def _on_read_resource(self, ctx: Any, params: Any) -> Any:
        uri = str((ctx.params or {}).get("uri", params.uri))  # as it came: a model of a URI rewrites it
        try:
            found: Any = await self.read_resource(uri)
        except ResourceError as error:
            unexpected = isinstance(error, UnexpectedResourceError)
            log.log(
                logging.ERROR if unexpected else logging.INFO,
                "resource %s failed: %s", printable(uri), printable(str(error)), exc_info=unexpected,
            )  # fmt: skip
            code = INVALID_PARAMS if isinstance(error, ResourceNotFoundError) else INTERNAL_ERROR
            raise McpError(ErrorData(code=code, message=str(error), data={"uri": uri})) from error
        if not isinstance(found, list):
            return found
        return resources.ReadResourceResult(contents=[_contents(uri, one) for one in found])

    async def read_resource(self, uri: Any, context: Any = None) -> Any:
        """Read a resource. Raises ResourceError, McpError."""
        given = self.get_context() if context is None else context
        try:
            found: Any = await self._resource_manager.get_resource(uri, context=given)
            if getattr(found, "resultType", None) == "input_required":
                return found
            return [ReadResourceContents(await found.read(), found.mime_type, found.meta)]
        except (McpError, ResourceError):
            raise
        except Exception as error:
            if isinstance(error.__cause__, (McpError, ResourceError)):
                raise error.__cause__ from None
            raise UnexpectedResourceError(f"Error reading resource {uri}") from error

    # -- prompts -----------------------------------------------------------------------------

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away. Raises ValueError if there is none."""
        manager: Any = self._prompt_manager
        manager.remove_prompt(name)

    async def _on_list_prompts(self, ctx: Any, params: Any) -> Any:
        return prompts.ListPromptsResult(prompts=await self.list_prompts())

    async def _on_get_prompt(self, ctx: Any, params: Any) -> Any:
        return await self.get_prompt(params.name, params.arguments)

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """The messages of a prompt. Raises ValueError, McpError."""
        found = self._prompt_manager.get_prompt(name)
        if found is None:
            raise ValueError(f"Unknown prompt: {name}")
        rendered: Any = await found.render(arguments, context=self.get_context() if context is None else context)
        if not isinstance(rendered, list):
            return rendered
        return prompts.GetPromptResult(
            description=found.description, messages=pydantic_core.to_jsonable_python(rendered)
        )

    def completion(self) -> Any:
        """Register what completes arguments: it takes a reference, an argument and a context."""

        def register(function: F) -> F:
            async def complete(ctx: Any, params: Any) -> Any:
                try:
                    found = await function(params.ref, params.argument, params.context)
                except McpError:
                    raise
                except Exception as error:
                    log.error("completion failed", exc_info=True)
                    text = f"Error completing argument {params.argument.name}"
                    raise McpError(ErrorData(code=INTERNAL_ERROR, message=text)) from error
                return prompts.CompleteResult(completion=found or prompts.Completion(values=[]))

            self._mcp_server.add_request_handler("completion/complete", None, complete)
            return function

        return register

    # -- serving -----------------------------------------------------------------------------

    def run(self, transport: Any = "stdio", **options: Any) -> None:  # type: ignore[override]
        """Serve until stopped; blocks. Under `mcpd serve` its options say how, and not what is given here."""
        from mcpd.compat import program

        program.current().run(self.__mcpd_server__(), self._wanted_with(transport, options))

    async def run_sse_async(self, **options: Any) -> None:  # type: ignore[override]
        """`run("sse")` in the event loop that runs."""
        await self._serve_with("sse", options)

    async def run_streamable_http_async(self, **options: Any) -> None:
        """`run("streamable-http")` in the event loop that runs."""
        await self._serve_with("streamable-http", options)

    async def _serve_with(self, transport: str, options: dict[str, Any]) -> None:
        from mcpd.compat import program

        await program.current().serve(self.__mcpd_server__(), self._wanted_with(transport, options))

    def _wanted_with(self, transport: str, options: dict[str, Any]) -> Wanted:
        self._take(options)
        return self._wanted(transport)

    def _take(self, options: dict[str, Any]) -> None:
        """In version 2 what version 1 has as settings is said when the server is run."""
        for name in ("host", "port", "streamable_http_path", "stateless_http", "json_response", "transport_security"):
            if options.get(name) is not None:
                setattr(self.settings, name, options[name])

    def streamable_http_app(self, **options: Any) -> Any:
        """This server as an ASGI application."""
        self._take(options)
        return super().streamable_http_app()

    def sse_app(self, mount_path: str | None = None, **options: Any) -> Any:
        """`streamable_http_app`: SSE is served as Streamable HTTP."""
        print(  # noqa: T201 - for people
            "mcpd: SSE, the transport of 2024, is served as Streamable HTTP", file=sys.stderr, flush=True
        )
        return self.streamable_http_app(**options)


def _names(template: str) -> list[str]:
    import re

    UriTemplate(template)  # raises for what is no template
    return [name.strip() for inner in re.findall(r"\{[+#./;?&]?([^{}]+)\}", template) for name in inner.split(",")]


def _contents(uri: str, one: ReadResourceContents) -> Any:
    members: dict[str, Any] = {"uri": uri, "_meta": one.meta}
    if isinstance(one.content, bytes):
        blob = b64encode(one.content).decode()
        return content.BlobResourceContents(blob=blob, mimeType=one.mime_type or "application/octet-stream", **members)
    return content.TextResourceContents(text=one.content, mimeType=one.mime_type or "text/plain", **members)
