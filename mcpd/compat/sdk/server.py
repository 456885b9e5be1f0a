"""`FastMCP` and `Context` of version 1 of the official SDK."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pydantic_core

from mcpd.compat.errors import ResourceError
from mcpd.compat.lowlevel.server import Decorator, LifespanResultT, ReadResourceContents, Server
from mcpd.compat.lowlevel.session import (
    LifespanContextT,
    RequestContext,
    RequestT,
    SessionT,
    SharedContext,
    lifespan,
    request_ctx,
)
from mcpd.compat.serving import HighLevelServer, SdkSettings
from mcpd.compat.types import features
from mcpd.compat.types.features import Icon, Resource as ListedResource
from mcpd.errors import collects
from .components import FunctionResource, Prompt, PromptManager, Resource, ResourceManager, Tool, ToolManager
from .functions import context_parameter

if TYPE_CHECKING:
    from mcpd.server.app import Server as McpdServer

F = TypeVar("F", bound=Callable[..., Any])
ModelT = TypeVar("ModelT")

_NO_REQUEST = "Context is not available outside of a request"


class Context(SharedContext, Generic[SessionT, LifespanContextT, RequestT]):
    """Gives a function access to the request that it serves: `ctx: Context`."""

    def __init__(
        self,
        *,
        request_context: RequestContext[SessionT, LifespanContextT, RequestT] | None = None,
        fastmcp: Any = None,
    ) -> None:
        self._request_context = request_context
        self._fastmcp = fastmcp

    def __class_getitem__(cls, parameters: Any) -> Any:
        # Two parameters are enough: the third has a default.
        arguments = parameters if isinstance(parameters, tuple) else (parameters,)
        return super().__class_getitem__((*arguments, Any, Any, Any)[:3])  # type: ignore[misc]

    def _current(self) -> RequestContext[Any, Any, Any] | None:
        return self._request_context

    @property
    def fastmcp(self) -> Any:
        if self._fastmcp is None:
            raise ValueError(_NO_REQUEST)
        return self._fastmcp

    @property
    def request_context(self) -> RequestContext[SessionT, LifespanContextT, RequestT]:
        """The request. Raises ValueError outside of a request."""
        if self._request_context is None:
            raise ValueError(_NO_REQUEST)
        return self._request_context

    @property
    def session(self) -> Any:
        return self.request_context.session

    @property
    def request_id(self) -> str:
        return str(self.request_context.request_id)

    async def read_resource(self, uri: Any) -> Iterable[ReadResourceContents]:
        contents: Iterable[ReadResourceContents] = await self.fastmcp.read_resource(uri)
        return contents

    async def elicit(self, message: str, schema: type[Any]) -> Any:
        """Ask the user with a form for the fields of a model."""
        from mcpd.compat.elicitation import elicit_with_validation

        return await elicit_with_validation(self.session, message, schema, self.request_context.request_id)

    async def elicit_url(self, message: str, url: str, elicitation_id: str) -> Any:
        from mcpd.compat.elicitation import elicit_url

        return await elicit_url(self.session, message, url, elicitation_id, self.request_context.request_id)

    async def _log(self, level: Any, message: Any, logger_name: str | None, extra: Any) -> None:
        await self.log(level, message, logger_name=logger_name)

    async def log(
        self, level: Any, message: Any = None, *, data: Any = None, logger_name: str | None = None, **extra: Any
    ) -> None:
        # Version 2 calls the second parameter `data`.
        data = message if data is None else data
        await self.session.send_log_message(level=level, data=data, logger=logger_name)

    async def close_standalone_sse_stream(self) -> None:
        """Has no effect: servers cannot close that stream here."""


class FastMCP(HighLevelServer, Generic[LifespanResultT]):
    """A server whose tools, resources and prompts are functions."""

    library = "the official SDK"
    _prompt_type: ClassVar[type[Prompt]] = Prompt
    _managers: ClassVar[tuple[type[Any], ...]] = (ToolManager, ResourceManager)

    def __init__(
        self,
        name: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        auth_server_provider: Any = None,
        token_verifier: Any = None,
        event_store: Any = None,
        retry_interval: int | None = None,
        *,
        tools: Iterable[Tool] | None = None,
        **settings: Any,
    ) -> None:
        self._set_up(settings, auth_server_provider, token_verifier, tools)
        self._mcp_server: Server[LifespanResultT, Any] = Server(
            name or "FastMCP",
            instructions=instructions,
            website_url=website_url,
            icons=icons,
            lifespan=self._lifespan(),
        )
        self._register_handlers()
        self._set_authenticator()

    def _set_up(self, settings: dict[str, Any], provider: Any, verifier: Any, tools: Iterable[Tool] | None) -> None:
        # Servers pass tuples, too.
        if "dependencies" in settings:
            settings["dependencies"] = list(settings["dependencies"])
        self.settings: SdkSettings = SdkSettings.load(settings)
        self.dependencies = self.settings.dependencies
        self._routes = []
        tool_manager, resource_manager = self._managers
        self._tool_manager = tool_manager(self.settings.warn_on_duplicate_tools, tools=tools)
        self._resource_manager = resource_manager(self.settings.warn_on_duplicate_resources)
        self._prompt_manager = PromptManager(self.settings.warn_on_duplicate_prompts)
        self._token_verifier = verifier

        if self.settings.auth is None and (provider or verifier):
            raise ValueError("Cannot specify auth_server_provider or token_verifier without auth settings")
        if self.settings.auth is not None and bool(provider) == bool(verifier):
            problem = "Cannot specify both" if provider else "Must specify either"
            raise ValueError(f"{problem} auth_server_provider or token_verifier")
        if provider:
            raise NotImplementedError(
                "auth_server_provider: mcpd.compat does not run an authorization server. Run it as a server of its "
                "own, and pass a token_verifier."
            )

    def _set_authenticator(self) -> None:
        if self._token_verifier:
            from mcpd.compat.auth import authenticator

            self._mcp_server.authenticate = authenticator(self._token_verifier, self.settings.auth)

    def _lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
        own = self.settings.lifespan
        return (lambda _: own(self)) if own else lifespan

    def _register_handlers(self) -> None:
        server = self._mcp_server
        server.list_tools()(self.list_tools)
        server.call_tool(validate_input=False)(self._call)
        server.list_resources()(self.list_resources)
        server.read_resource()(self.read_resource)
        server.list_prompts()(self.list_prompts)
        server.get_prompt()(self.get_prompt)
        server.list_resource_templates()(self.list_resource_templates)

    def __mcpd_server__(self) -> McpdServer:
        is_first = self._mcp_server.served is None
        server = super().__mcpd_server__()
        if self._token_verifier and is_first:
            from mcpd.compat.auth import add_metadata

            add_metadata(server, self.settings.auth)
        return server

    def get_context(self) -> Any:
        """Return the context of the current request. Outside of a request, most of it raises ValueError."""
        return Context(request_context=request_ctx.get(None), fastmcp=self)

    # -- tools -------------------------------------------------------------------------------

    @collects
    def tool(self, name: str | None = None, *positional: Any, **options: Any) -> Callable[[F], F]:
        """Register a function as a tool, with the options of `add_tool`: `@mcp.tool()`."""
        _check_called(name, "tool", "@tool()")

        def register(function: F) -> F:
            self.add_tool(function, name, *positional, **options)
            return function

        return register

    def add_tool(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: features.ToolAnnotations | None = None,
        **options: Any,
    ) -> None:
        """Register a function as a tool. Without `description`, its docstring describes it.

        Other options are icons, meta, and structured_output.
        """
        options |= {"title": title, "description": description, "annotations": annotations}
        self._tool_manager.add_tool(fn, name, **options)

    def remove_tool(self, name: str) -> None:
        """Remove a tool. Raises ToolError for an unknown one."""
        self._tool_manager.remove_tool(name)

    async def list_tools(self) -> list[features.Tool]:
        return [
            features.Tool(name=tool.name, inputSchema=tool.parameters, outputSchema=tool.output_schema, **_shown(tool))
            for tool in self._tool_manager.list_tools()
        ]

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        result = await self.call_tool(name, arguments)
        structured = result[1] if isinstance(result, tuple) else {}
        # For a single value, the model is as strict as the schema and has validated it already. Checking the schema,
        # too, would load a validator of schemas.
        if structured.keys() == {"result"} and isinstance(structured["result"], (str, int, float, bool)):
            return features.CallToolResult(content=list(result[0]), structuredContent=structured)
        return result

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool. Returns content blocks, or a pair of them and the structured content. Raises ToolError."""
        context = self.get_context() if context is None else context
        return await self._tool_manager.call_tool(name, arguments, context=context, convert_result=True)

    # -- resources ---------------------------------------------------------------------------

    @collects
    def resource(self, uri: str, **options: Any) -> Callable[[F], F]:
        """Register a function as a resource, or with parameters as a template.

        Options are name, title, description, mime_type, icons, annotations and meta.
        """
        _check_called(uri, "resource", "@resource('uri')")

        def register(function: F) -> F:
            parameters = inspect.signature(function).parameters
            if not parameters and not ("{" in uri and "}" in uri):
                self.add_resource(FunctionResource.from_function(function, uri, **options))
                return function

            variables = set(re.findall(r"{(\w+)}", uri))
            expected = set(parameters) - {context_parameter(function)}
            if variables != expected:
                raise ValueError(f"Mismatch between URI parameters {variables} and function parameters {expected}")
            self._resource_manager.add_template(function, uri, **options)
            return function

        return register

    def add_resource(self, resource: Resource) -> None:
        self._resource_manager.add_resource(resource)

    async def list_resources(self) -> list[ListedResource]:
        return [
            ListedResource(uri=resource.uri, name=resource.name or "", mimeType=resource.mime_type, **_shown(resource))
            for resource in self._resource_manager.list_resources()
        ]

    async def list_resource_templates(self) -> list[features.ResourceTemplate]:
        return [
            features.ResourceTemplate(
                uriTemplate=template.uri_template, name=template.name, mimeType=template.mime_type, **_shown(template)
            )
            for template in self._resource_manager.list_templates()
        ]

    async def read_resource(self, uri: Any) -> Iterable[ReadResourceContents]:
        """Read a resource. Raises ResourceError, and ValueError for an unknown one."""
        resource = await self._resource_manager.get_resource(uri, context=self.get_context())
        try:
            return [ReadResourceContents(await resource.read(), resource.mime_type, resource.meta)]
        except Exception as error:
            raise ResourceError(str(error)) from error

    # -- prompts -----------------------------------------------------------------------------

    @collects
    def prompt(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Register a function as a prompt: `@mcp.prompt()`. Options are title, description and icons."""
        _check_called(name, "prompt", "@prompt()")

        def register(function: F) -> F:
            self.add_prompt(self._prompt_type.from_function(function, name, **options))
            return function

        return register

    def add_prompt(self, prompt: Prompt) -> None:
        self._prompt_manager.add_prompt(prompt)

    async def list_prompts(self) -> list[features.Prompt]:
        return [
            features.Prompt(
                name=prompt.name, arguments=prompt.arguments or [], **_shown(prompt, "title", "description", "icons")
            )
            for prompt in self._prompt_manager.list_prompts()
        ]

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> features.GetPromptResult:
        """Return the messages of a prompt. Raises ValueError."""
        messages = await self._prompt_manager.render_prompt(name, arguments, self.get_context())
        return self._prompt_result(name, messages)

    def _prompt_result(self, name: str, messages: Any) -> features.GetPromptResult:
        description = self._prompt_manager.get_prompt(name).description
        return features.GetPromptResult(description=description, messages=pydantic_core.to_jsonable_python(messages))

    def completion(self) -> Decorator:
        """Register a function that completes arguments: of a reference, an argument and a context."""
        return self._mcp_server.completion()


def _check_called(argument: Any, decorator: str, usage: str) -> None:
    if callable(argument):
        raise TypeError(
            f"The @{decorator} decorator was used incorrectly. "
            f"Did you forget to call it? Use {usage} instead of @{decorator}"
        )


def _shown(component: Any, *names: str) -> dict[str, Any]:
    names = names or ("title", "description", "annotations", "icons", "meta")
    return {name: getattr(component, name) for name in names}
