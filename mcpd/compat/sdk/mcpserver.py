"""`MCPServer` and `Context` of version 2 of the official SDK."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from mcpd.compat.errors import (
    McpError,
    ResourceError,
    ResourceNotFoundError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from mcpd.compat.lowlevel.context import current_exchange
from mcpd.compat.lowlevel.handlers import current_inputs, is_input_required, running
from mcpd.compat.lowlevel.server import LifespanResultT, ReadResourceContents, Server, failed_result, resource_contents
from mcpd.compat.missing import refuse, warn_of_unused
from mcpd.compat.sdk.functions import context_parameter
from mcpd.compat.sdk.prompts import Prompt2, PromptManager
from mcpd.compat.sdk.resources import DEFAULT_RESOURCE_SECURITY, FunctionResource, ResourceManager2, ResourceSecurity
from mcpd.compat.sdk.server import Context as Context1, FastMCP, _check_called
from mcpd.compat.sdk.tools import Tool, ToolManager2
from mcpd.compat.types import features
from mcpd.compat.types.base import INTERNAL_ERROR, INVALID_PARAMS, Icon
from mcpd.errors import collects
from mcpd.protocol.printable import printable
from mcpd.server.registry.uri_template import UriTemplate

log = logging.getLogger("mcpd")

F = TypeVar("F", bound=Callable[..., Any])

# Options whose effect an author would miss.
_UNUSED = frozenset(("cache_hints", "request_state_security", "subscriptions"))


class Context(Context1[Any, Any, Any]):
    """Gives a function access to the request that it serves: `ctx: Context`."""

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls

    @property
    def mcp_server(self) -> Any:
        return self.fastmcp

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The headers of the HTTP request, None for other transports."""
        found: Mapping[str, str] | None = getattr(self.request_context.request, "headers", None)
        return found

    @property
    def protocol_version(self) -> str | None:
        """The protocol version of the request, None outside of a request."""
        exchange = current_exchange.get(None)
        return None if exchange is None else exchange.protocol_version

    @property
    def client_capabilities(self) -> features.ClientCapabilities | None:
        params = self.session.client_params
        return None if params is None else params.capabilities

    @property
    def input_responses(self) -> Any:
        """The client's responses to an `InputRequiredResult`, by name."""
        inputs = current_inputs.get()
        return None if inputs is None else inputs.responses

    @property
    def request_state(self) -> str | None:
        """The state of that `InputRequiredResult`."""
        inputs = current_inputs.get()
        return None if inputs is None else inputs.state

    notify_tools_changed = Context1.send_tool_list_changed
    notify_prompts_changed = Context1.send_prompt_list_changed
    notify_resources_changed = Context1.send_resource_list_changed

    async def notify_resource_updated(self, uri: Any) -> None:
        """Notify clients that subscribe to a resource of its change."""
        await self.session.send_resource_updated(uri)


class MCPServer(FastMCP[LifespanResultT]):
    """A server whose tools, resources and prompts are functions."""

    _prompt_type = Prompt2
    _managers = (ToolManager2, ResourceManager2, PromptManager)

    def __init__(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
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
        for option in _UNUSED & settings.keys():
            warn_of_unused(f"MCPServer({option}=…)", settings.pop(option))

        self._set_up(settings, auth_server_provider, token_verifier)
        self._version = version
        self._resource_security = resource_security
        self._mcp_server: Server[LifespanResultT, Any] = Server(
            name or "mcp-server",
            version=version or None,
            instructions=instructions,
            website_url=website_url,
            icons=icons,
            lifespan=self._lifespan(),
            title=title,
            description=description,
            on_list_tools=self._lists(features.ListToolsResult, "tools", "list_tools"),
            on_call_tool=self._on_call_tool,
            on_list_resources=self._lists(features.ListResourcesResult, "resources", "list_resources"),
            on_list_resource_templates=self._lists(
                features.ListResourceTemplatesResult, "resourceTemplates", "list_resource_templates"
            ),
            on_read_resource=self._on_read_resource,
            on_list_prompts=self._lists(features.ListPromptsResult, "prompts", "list_prompts"),
            on_get_prompt=self._on_get_prompt,
        )
        self._mcp_server.middleware.extend(middleware or ())
        for tool in tools or ():
            self._tool_manager._tools[tool.name] = tool
        for one in resources or ():
            self.add_resource(one)
        self._set_authenticator()

    @property
    def title(self) -> str | None:
        return self._mcp_server.title

    @property
    def description(self) -> str | None:
        return self._mcp_server.description

    @property
    def version(self) -> str:
        return self._version

    @property
    def _lowlevel_server(self) -> Server[LifespanResultT, Any]:
        # The name in version 2. Servers change this object, since the library has no public attribute for it.
        return self._mcp_server

    @property
    def middleware(self) -> list[Any]:
        """Functions around each request, the outermost first: `async (ctx, call_next)`."""
        return self._mcp_server.middleware

    def get_context(self) -> Context:
        try:
            request = running()
        except LookupError:
            request = None
        return Context(request_context=request, fastmcp=self)

    def _lists(self, result: type[Any], member: str, method: str) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return a handler of a list request. It calls a method that a subclass may override."""

        async def handle(ctx: Any, params: Any) -> Any:
            return result(**{member: await getattr(self, method)()})

        return handle

    # -- tools -------------------------------------------------------------------------------

    async def _on_call_tool(self, ctx: Any, params: Any) -> Any:
        try:
            return await self.call_tool(params.name, params.arguments or {})
        except McpError:
            raise
        except Exception as error:
            is_expected = isinstance(error, ToolError) and not isinstance(error, UnexpectedToolError)
            _log_failure("tool", params.name, error, is_expected)
            return failed_result(str(error))

    # -- resources ---------------------------------------------------------------------------

    @collects
    def resource(self, uri: str, *, security: ResourceSecurity | None = None, **options: Any) -> Callable[[F], F]:
        """Register a function as a resource, or with variables in `uri` as a template."""
        _check_called(uri, "resource", "@resource('uri')")
        variables = set(_variables(uri))

        def register(function: F) -> F:
            context = context_parameter(function)
            expected = set(inspect.signature(function).parameters) - {context}
            if variables != expected:
                raise ValueError(f"Mismatch between URI parameters {variables} and function parameters {expected}")
            if variables:
                self._resource_manager.add_template(
                    function, uri, security=security or self._resource_security, **options
                )
            elif context is not None:
                raise ValueError(
                    f"Resource {uri!r} has no URI template variables, but the handler declares a Context parameter"
                )
            else:
                self.add_resource(FunctionResource.from_function(function, uri, **options))
            return function

        return register

    async def _on_read_resource(self, ctx: Any, params: Any) -> Any:
        uri = str((ctx.params or {}).get("uri", params.uri))  # as the client sent it: a model normalizes URIs
        try:
            found: Any = await self.read_resource(uri)
        except ResourceError as error:
            _log_failure("resource", uri, error, not isinstance(error, UnexpectedResourceError))
            code = INVALID_PARAMS if isinstance(error, ResourceNotFoundError) else INTERNAL_ERROR
            raise McpError(code, str(error), {"uri": uri}) from error
        if not isinstance(found, list):
            return found

        contents = [resource_contents(uri, one.content, one.mime_type, one.meta) for one in found]
        return features.ReadResourceResult(contents=contents)

    async def read_resource(self, uri: Any, context: Any = None) -> Any:
        """Read a resource. Raises ResourceError, McpError."""
        context = self.get_context() if context is None else context
        try:
            found: Any = await self._resource_manager.get_resource(uri, context=context)
            if is_input_required(found):
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
        """Remove a prompt. Raises ValueError for an unknown one."""
        self._prompt_manager.remove_prompt(name)

    async def _on_get_prompt(self, ctx: Any, params: Any) -> Any:
        return await self.get_prompt(params.name, params.arguments)

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Return the messages of a prompt. Raises ValueError, McpError."""
        return await self._rendered(name, arguments, self.get_context() if context is None else context)

    def completion(self) -> Any:
        """Register a function that completes arguments: of a reference, an argument and a context."""

        def register(function: F) -> F:
            async def complete(ctx: Any, params: Any) -> features.CompleteResult:
                try:
                    found = await function(params.ref, params.argument, params.context)
                except McpError:
                    raise
                except Exception as error:
                    log.error("completion failed", exc_info=True)
                    raise McpError(INTERNAL_ERROR, f"Error completing argument {params.argument.name}") from error
                return features.CompleteResult(completion=found or features.Completion(values=[]))

            self._mcp_server.add_request_handler("completion/complete", None, complete)
            return function

        return register


def _log_failure(kind: str, name: str, error: Exception, is_expected: bool) -> None:
    level = logging.INFO if is_expected else logging.ERROR
    log.log(level, "%s %s failed: %s", kind, printable(name), printable(str(error)), exc_info=not is_expected)


def _variables(template: str) -> list[str]:
    UriTemplate(template)  # raises an error for an invalid template
    return [name.strip() for inner in re.findall(r"\{[+#./;?&]?([^{}]+)\}", template) for name in inner.split(",")]
