"""`FastMCP` of version 1 of the official SDK: functions as tools, resources and prompts, over the low-level server."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pydantic_core

from mcpd.compat.fastmcp1.context import Context
from mcpd.compat.fastmcp1.errors import ResourceError
from mcpd.compat.fastmcp1.prompts import Prompt, PromptManager
from mcpd.compat.fastmcp1.resources import FunctionResource, Resource
from mcpd.compat.fastmcp1.serving import Serving
from mcpd.compat.fastmcp1.settings import Settings
from mcpd.compat.fastmcp1.signature import context_parameter
from mcpd.compat.fastmcp1.templates import ResourceManager
from mcpd.compat.fastmcp1.tools import Tool, ToolManager
from mcpd.compat.lowlevel.decorators import Decorator
from mcpd.compat.lowlevel.options import ReadResourceContents
from mcpd.compat.lowlevel.server import Server, lifespan
from mcpd.compat.missing import refuse_overrides
from mcpd.compat.types import content, prompts, resources, tools

if TYPE_CHECKING:
    from mcpd.server import Server as McpdServer
from mcpd.errors import collects

__all__ = ["Context", "FastMCP", "Settings"]

log = logging.getLogger("mcpd")

F = TypeVar("F", bound=Callable[..., Any])
LifespanResultT = TypeVar("LifespanResultT")


class FastMCP(Serving, Generic[LifespanResultT]):
    """A server whose tools, resources and prompts are functions."""

    _prompt_type: Any = Prompt

    def __init__(
        self,
        name: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: list[content.Icon] | None = None,
        auth_server_provider: Any = None,
        token_verifier: Any = None,
        event_store: Any = None,
        retry_interval: int | None = None,
        *,
        tools: Iterable[Tool] | None = None,
        **settings: Any,
    ) -> None:
        if "dependencies" in settings:
            settings["dependencies"] = list(settings["dependencies"])
        self.settings = Settings.of(settings)
        self.dependencies = self.settings.dependencies
        life = self.settings.lifespan
        self._mcp_server: Server[LifespanResultT, Any] = Server(
            name or "FastMCP",
            instructions=instructions,
            website_url=website_url,
            icons=icons,
            lifespan=self._lifespan_of(life) if life else lifespan,
        )
        self._tool_manager = ToolManager(self.settings.warn_on_duplicate_tools, tools=tools)
        self._resource_manager = ResourceManager(self.settings.warn_on_duplicate_resources)
        self._prompt_manager = PromptManager(self.settings.warn_on_duplicate_prompts)
        self._take_authentication(auth_server_provider, token_verifier)
        self._register()

    def _lifespan_of(self, life: Callable[[Any], AbstractAsyncContextManager[Any]]) -> Callable[[Any], Any]:
        return lambda _: life(self)

    def _register(self) -> None:
        server = self._mcp_server
        server.list_tools()(self.list_tools)
        server.call_tool(validate_input=False)(self._call)
        server.list_resources()(self.list_resources)
        server.read_resource()(self.read_resource)
        server.list_prompts()(self.list_prompts)
        server.get_prompt()(self.get_prompt)
        server.list_resource_templates()(self.list_resource_templates)

    def __mcpd_server__(self) -> McpdServer:
        """The server of ours that serves this one."""
        refuse_overrides(self, FastMCP, "the official SDK")
        server = self._mcp_server.__mcpd_server__()
        self._announce_authorization(server)
        return server

    @property
    def name(self) -> str:
        """The server's name."""
        return self._mcp_server.name

    @property
    def instructions(self) -> str | None:
        """What clients tell their models of the server."""
        return self._mcp_server.instructions

    @property
    def website_url(self) -> str | None:
        """The server's page."""
        return self._mcp_server.website_url

    @property
    def icons(self) -> list[content.Icon] | None:
        """The server's icons."""
        return self._mcp_server.icons

    def get_context(self) -> Context[Any, Any, Any]:
        """The context of the request that runs; of none, where most of it raises ValueError."""
        try:
            request = self._mcp_server.request_context
        except LookupError:
            request = None
        return Context(request_context=request, fastmcp=self)

    # -- tools -------------------------------------------------------------------------------

    @collects
    def tool(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: tools.ToolAnnotations | None = None,
        icons: list[content.Icon] | None = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
    ) -> Callable[[F], F]:
        """Register a function as a tool: `@mcp.tool()`."""
        if callable(name):
            raise TypeError(
                "The @tool decorator was used incorrectly. Did you forget to call it? Use @tool() instead of @tool"
            )

        def register(function: F) -> F:
            self.add_tool(function, name, title, description, annotations, icons, meta, structured_output)
            return function

        return register

    def add_tool(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: tools.ToolAnnotations | None = None,
        icons: list[content.Icon] | None = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
    ) -> None:
        """`tool` without the decorator."""
        self._tool_manager.add_tool(
            fn,
            name,
            title=title,
            description=description,
            annotations=annotations,
            icons=icons,
            meta=meta,
            structured_output=structured_output,
        )

    def remove_tool(self, name: str) -> None:
        """Take a tool away. Raises ToolError if there is none."""
        self._tool_manager.remove_tool(name)

    async def list_tools(self) -> list[tools.Tool]:
        """The tools as clients see them."""
        return [
            tools.Tool(name=one.name, inputSchema=one.parameters, outputSchema=one.output_schema, **_shown(one))
            for one in self._tool_manager.list_tools()
        ]

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        found = await self.call_tool(name, arguments)
        if isinstance(found, tuple) and _is_plain(found[1]):
            # Held to its model already: to hold it to the model's schema too would load a validator of schemas.
            return tools.CallToolResult(content=list(found[0]), structuredContent=found[1])
        return found

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool: gives content blocks, or these and the structured content. Raises ToolError."""
        return await self._tool_manager.call_tool(name, arguments, context=self.get_context(), convert_result=True)

    # -- resources ---------------------------------------------------------------------------

    @collects
    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        icons: list[content.Icon] | None = None,
        annotations: content.Annotations | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Callable[[F], F]:
        """Register a function as a resource, or with parameters as a template of resources."""
        if callable(uri):
            raise TypeError(
                "The @resource decorator was used incorrectly. "
                "Did you forget to call it? Use @resource('uri') instead of @resource"
            )
        options: dict[str, Any] = {
            "name": name,
            "title": title,
            "description": description,
            "mime_type": mime_type,
            "icons": icons,
            "annotations": annotations,
            "meta": meta,
        }

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
        """Add a resource."""
        self._resource_manager.add_resource(resource)

    async def list_resources(self) -> list[content.Resource]:
        """The resources as clients see them."""
        return [
            content.Resource(uri=one.uri, name=one.name or "", mimeType=one.mime_type, **_shown(one))
            for one in self._resource_manager.list_resources()
        ]

    async def list_resource_templates(self) -> list[resources.ResourceTemplate]:
        """The templates as clients see them."""
        return [
            resources.ResourceTemplate(
                uriTemplate=one.uri_template, name=one.name, mimeType=one.mime_type, **_shown(one)
            )
            for one in self._resource_manager.list_templates()
        ]

    async def read_resource(self, uri: Any) -> Iterable[ReadResourceContents]:
        """Read a resource. Raises ResourceError, and ValueError for one that there is not."""
        found = await self._resource_manager.get_resource(uri, context=self.get_context())
        if found is None:
            raise ResourceError(f"Unknown resource: {uri}")
        try:
            return [ReadResourceContents(await found.read(), found.mime_type, found.meta)]
        except Exception as error:
            raise ResourceError(str(error)) from error

    # -- prompts -----------------------------------------------------------------------------

    @collects
    def prompt(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[content.Icon] | None = None,
    ) -> Callable[[F], F]:
        """Register a function as a prompt: `@mcp.prompt()`."""
        if callable(name):
            raise TypeError(
                "The @prompt decorator was used incorrectly. "
                "Did you forget to call it? Use @prompt() instead of @prompt"
            )

        def register(function: F) -> F:
            self.add_prompt(self._prompt_type.from_function(function, name, title, description, icons))
            return function

        return register

    def add_prompt(self, prompt: Prompt) -> None:
        """Add a prompt."""
        self._prompt_manager.add_prompt(prompt)

    async def list_prompts(self) -> list[prompts.Prompt]:
        """The prompts as clients see them."""
        return [
            prompts.Prompt(
                name=one.name,
                title=one.title,
                description=one.description,
                arguments=[
                    prompts.PromptArgument(name=each.name, description=each.description, required=each.required)
                    for each in one.arguments or ()
                ],
                icons=one.icons,
            )
            for one in self._prompt_manager.list_prompts()
        ]

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> prompts.GetPromptResult:
        """The messages of a prompt. Raises ValueError."""
        try:
            found = self._prompt_manager.get_prompt(name)
            if found is None:
                raise ValueError(f"Unknown prompt: {name}")
            messages: Sequence[Any] = await found.render(arguments, context=self.get_context())
            return prompts.GetPromptResult(
                description=found.description, messages=pydantic_core.to_jsonable_python(messages)
            )
        except Exception as error:
            raise ValueError(str(error)) from error

    def completion(self) -> Decorator:
        """Register what completes arguments: it takes a reference, an argument and a context."""
        return self._mcp_server.completion()


def _shown(one: Any) -> dict[str, Any]:
    """What clients see of tools, resources and templates alike."""
    return {
        "title": one.title,
        "description": one.description,
        "annotations": one.annotations,
        "icons": one.icons,
        "meta": one.meta,
    }


def _is_plain(structured: dict[str, Any]) -> bool:
    """Whether it is a value without parts, of which its model and its schema say the same."""
    return structured.keys() == {"result"} and isinstance(structured["result"], (str, int, float, bool))
