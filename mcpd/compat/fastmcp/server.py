"""`FastMCP`: registers functions as components, and serves requests through middleware and mounted servers."""

from __future__ import annotations

import logging
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

from mcpd.compat import serving as all_settings
from mcpd.compat.errors import (
    DisabledError,
    FastMCPError,
    McpError,
    NotFoundError,
    PromptError,
    ResourceError,
    ToolError,
    ValidationError,
)
from mcpd.compat.install import refuse, warn_of_unused
from mcpd.compat.lowlevel.server import LifespanResultT, Server, failed_result
from mcpd.compat.lowlevel.session import run_through
from mcpd.compat.lowlevel.wire import schema_problem
from mcpd.compat.sdk.functions import call
from mcpd.compat.serving import HighLevelServer
from mcpd.compat.types import features
from mcpd.compat.types.features import INTERNAL_ERROR, INVALID_PARAMS, BaseRequest, Icon
from mcpd.errors import collects
from mcpd.protocol.printable import printable
from .base import (
    Lifespan,
    Mount,
    OnDuplicate,
    Store,
    Visibility,
    VisibilityTransform,
    decorated,
    has_lifespan,
    newest,
    open_lifespans,
    options_of,
    version_text,
)
from .components import Prompt, PromptResult, Resource, ResourceResult, ResourceTemplate, Tool
from .context import Context, session_visibility
from .functions import ToolResult
from .middleware import MiddlewareContext, Next

if TYPE_CHECKING:
    from mcpd.server.app import Server as McpdServer

log = logging.getLogger("mcpd")

F = TypeVar("F", bound=Callable[..., Any])

# Options that are read below, or that `mcpd serve` has of its own.
_OTHER_OPTIONS = frozenset(
    ("auth", "debug", "dependencies", "exclude_tags", "host", "include_tags", "json_response", "log_level",
     "message_path", "on_duplicate_prompts", "on_duplicate_resources", "on_duplicate_tools", "port", "sse_path",
     "stateless_http", "streamable_http_path", "tool_serializer")
)  # fmt: skip
# Options whose effect an author would miss, with the value that has none.
_UNUSED: dict[str, Any] = dict.fromkeys(
    ("cache_expiration_seconds", "cache_scope", "cache_ttl", "client_log_level", "experimental_capabilities",
     "request_state_security", "resource_security", "sampling_handler", "session_state_store")
)  # fmt: skip
_UNUSED |= {"dereference_schemas": True, "resource_prefix_format": "path", "tasks": False}
_UNUSED |= {"sampling_handler_behavior": "fallback"}


class _Kind(NamedTuple):
    """A kind of component: how it is called in errors and by methods, and how its list request is answered."""

    noun: str
    plural: str
    request: Callable[[], BaseRequest]
    result: type[Any]
    key: str  # the member that has a component's name or URI
    name_here: Callable[[Mount, str], str]  # returns the name of a mounted component
    own_name: Callable[[Mount, str], str | None]  # returns the name that a component may have in a mounted server


_TOOLS = _Kind(
    "tool", "tools", features.ListToolsRequest, features.ListToolsResult, "name", Mount.tool_name, Mount.own_tool_name
)
_RESOURCES = _Kind(
    "resource", "resources", features.ListResourcesRequest, features.ListResourcesResult, "uri",
    Mount.uri, Mount.own_uri,
)  # fmt: skip
_TEMPLATES = _Kind(
    "resource_template", "resource_templates", features.ListResourceTemplatesRequest,
    features.ListResourceTemplatesResult, "uri_template", Mount.uri, Mount.own_uri,
)  # fmt: skip
_PROMPTS = _Kind(
    "prompt", "prompts", features.ListPromptsRequest, features.ListPromptsResult, "name",
    Mount.prompt_name, Mount.own_prompt_name,
)  # fmt: skip


def _list_method(kind: _Kind) -> Callable[[FastMCP[Any]], Awaitable[list[Any]]]:
    async def list_components(self: FastMCP[Any]) -> list[Any]:
        return await self._list(kind)

    return list_components


def _dict_method(kind: _Kind) -> Callable[[FastMCP[Any]], Awaitable[dict[str, Any]]]:
    async def get_components(self: FastMCP[Any]) -> dict[str, Any]:
        # A subclass may list less.
        components = await getattr(self, f"list_{kind.plural}")()
        return {component.identity: component for component in components}

    return get_components


def _missing(name: str) -> Any:
    def refused(*_: Any, **__: Any) -> NoReturn:
        refuse(name, "fastmcp")

    return staticmethod(refused)


class FastMCP(HighLevelServer, Generic[LifespanResultT]):
    """A server whose tools, resources and prompts are functions."""

    library = "fastmcp"

    def __init__(
        self,
        name: str | None = None,
        instructions: str | None = None,
        *,
        version: Any = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        middleware: Sequence[Any] | None = None,
        lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
        tools: Sequence[Any] | None = None,
        on_duplicate: OnDuplicate | None = None,
        mask_error_details: bool | None = None,
        strict_input_validation: bool | None = None,
        list_page_size: int | None = None,
        providers: Sequence[Any] | None = None,
        transforms: Sequence[Any] | None = None,
        **others: Any,
    ) -> None:
        _check_options(others, providers)
        if list_page_size is not None and list_page_size <= 0:
            raise ValueError("list_page_size must be a positive integer")

        self.own_lifespan = None if lifespan is None else Lifespan(lifespan)
        self.middleware: list[Any] = list(middleware or ())
        options = {"mask_error_details": mask_error_details, "strict_input_validation": strict_input_validation}
        self._mask_error_details: bool = self._option(options, "mask_error_details")
        self.strict_input_validation: bool = self._option(options, "strict_input_validation")
        self.list_page_size = list_page_size
        self._stores = {
            kind: Store(on_duplicate or others.get(f"on_duplicate_{kind.plural.removeprefix('resource_')}") or "warn")
            for kind in (_TOOLS, _RESOURCES, _TEMPLATES, _PROMPTS)
        }
        self._tool_serializer = others.get("tool_serializer")
        self._visibility = Visibility()
        if others.get("include_tags"):
            self.enable(tags=others["include_tags"], only=True)
        if others.get("exclude_tags"):
            self.disable(tags=others["exclude_tags"])
        for transform in transforms or ():
            self.add_transform(transform)
        self.mounts: list[Mount] = []
        self._routes = []
        self._mcp_server: Server[Any, Any] = Server(
            name or f"{type(self).__name__}-{secrets.token_hex(2)}",
            version=version_text(version),
            instructions=instructions,
            website_url=website_url,
            icons=list(icons or ()),
        )
        # The library's models drop members that the specification does not have.
        self._mcp_server.keeps_unknown = False
        self._register_handlers()
        for tool in tools or ():
            self.add_tool(tool)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __mcpd_server__(self) -> McpdServer:
        if has_lifespan(self):
            self._mcp_server.lifespan = lambda _: open_lifespans(self)
        return super().__mcpd_server__()

    def _add_routes(self, server: McpdServer) -> None:
        super()._add_routes(server)
        for mount in self.mounts:
            mount.server._add_routes(server)

    @property
    def settings(self) -> Any:
        return all_settings.settings

    async def run_async(self, transport: str | None = None, show_banner: bool | None = None, **options: Any) -> None:
        await self._run_async(transport, options)

    async def run_http_async(self, show_banner: bool = True, transport: str = "http", **options: Any) -> None:
        await self._run_async(transport, options)

    def http_app(self, path: str | None = None, middleware: Any = None, **options: Any) -> Any:
        """Return this server as an ASGI application with its endpoint at `path`. `middleware` is Starlette's."""
        app = self.streamable_http_app(path, **options)
        for layer in reversed(middleware or []):
            app = layer.cls(app, *getattr(layer, "args", ()), **getattr(layer, "kwargs", {}))
        return app

    # -- registration ------------------------------------------------------------------------

    def add_tool(self, tool: Any) -> Tool:
        made: Tool = self._stores[_TOOLS].add(tool if isinstance(tool, Tool) else Tool.from_function(tool))
        if made.serializer is None:
            made.serializer = self._tool_serializer
        return made

    def add_prompt(self, prompt: Any) -> Any:
        return self._stores[_PROMPTS].add(prompt if isinstance(prompt, Prompt) else Prompt.from_function(prompt))

    @collects
    def tool(self, name_or_fn: Any = None, *, name: str | None = None, app: Any = None, **options: Any) -> Any:
        """Register a function as a tool: `@mcp.tool`, `@mcp.tool("name")`, `@mcp.tool(name=…)`, `mcp.tool(fn)`."""
        if app:
            refuse("@tool(app=…)", "fastmcp")
        function, name = decorated("tool", name_or_fn, name, callable)
        return _registered(function, lambda fn: self.add_tool(Tool.from_function(fn, name=name, **options)))

    @collects
    def prompt(self, name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
        """Register a function as a prompt, in the same ways as `tool`."""
        function, name = decorated("prompt", name_or_fn, name, callable)
        return _registered(function, lambda fn: self.add_prompt(Prompt.from_function(fn, name=name, **options)))

    @collects
    def resource(self, uri: str, *, app: Any = None, **options: Any) -> Any:
        """Register a function as a resource, or with variables in `uri` as a template."""
        if not isinstance(uri, str):
            raise TypeError(
                "The @resource decorator was used incorrectly. It requires a URI as the first argument. "
                "Use @resource('uri') instead of @resource"
            )
        if app:
            refuse("@resource(app=…)", "fastmcp")
        return _registered(None, lambda fn: self.add_resource_fn(fn, uri, **options))

    def add_resource_fn(self, fn: Any, uri: str, **options: Any) -> Any:
        if "{" in uri and "}" in uri:
            return self.add_template(ResourceTemplate.from_function(fn, uri, **options))

        options.pop("security", None)
        return self._stores[_RESOURCES].add(Resource.from_function(fn, uri, **options))

    def add_resource(self, resource: Any) -> Any:
        """Add a resource, a template, or a marked function."""
        if isinstance(resource, ResourceTemplate):
            return self.add_template(resource)
        if isinstance(resource, Resource):
            return self._stores[_RESOURCES].add(resource)

        options = options_of(resource, "resource")
        if options is None:
            raise TypeError(f"Expected Resource, got {type(resource).__name__}. Use @resource('uri') decorator.")
        return self.add_resource_fn(resource, **options)

    def add_template(self, template: ResourceTemplate) -> Any:
        return self._stores[_TEMPLATES].add(template)

    def remove_tool(self, name: str, version: str | None = None) -> None:
        """Remove a tool. Raises NotFoundError for an unknown one."""
        if not self._stores[_TOOLS].remove(name, version):
            raise NotFoundError(f"Unknown tool: {name!r}")

    def completion(self, handler: Any = None) -> Any:
        """Register a function that completes arguments: of a reference, an argument and a context."""

        def register(function: F) -> F:
            async def complete(request: Any) -> features.CompleteResult:
                params = request.params
                result = await call(partial(function, params.ref, params.argument, params.context), in_thread=True)
                if not isinstance(result, features.Completion):
                    values = [result] if isinstance(result, str) else list(result or ())
                    # One result has 100 values at most (2025-11-25 server/utilities/completion).
                    result = features.Completion(values=values[:100], total=len(values), hasMore=len(values) > 100)
                return features.CompleteResult(completion=result)

            self._mcp_server.request_handlers[features.CompleteRequest] = complete
            return function

        return register if handler is None else register(handler)

    def enable(self, *, only: bool = False, **filters: Any) -> None:
        """Enable components by `names`, `keys`, `tags`, `version` and `components`. With `only`, disable all others."""
        self._visibility.add(True, only=only, **filters)

    def disable(self, **filters: Any) -> None:
        """Disable components, by the same filters."""
        self._visibility.add(False, **filters)

    def add_middleware(self, middleware: Any) -> None:
        """Add a middleware inside of the present ones."""
        self.middleware.append(middleware)

    def add_transform(self, transform: Any) -> None:
        """Add a `Visibility` rule. Raises NotHere for other transforms."""
        if not isinstance(transform, VisibilityTransform):
            refuse("add_transform, for other transforms than Visibility,", "fastmcp")
        self._visibility.add(transform.enabled, **transform.filters)

    def mount(
        self,
        server: Any,
        namespace: Any = None,
        as_proxy: bool | None = None,
        tool_names: dict[str, str] | None = None,
        prefix: str | None = None,
    ) -> None:
        """Offer the components of another server, under names that begin with `namespace`."""
        if isinstance(server, str) or server is None:  # an earlier version takes the prefix first
            server, namespace = namespace, server
        if server is self:
            raise ValueError("Cannot mount a server onto itself")
        if not isinstance(server, FastMCP):
            refuse(f"mount({type(server).__name__})", "fastmcp")
        self.mounts.append(Mount(server, namespace or prefix, tool_names))

    async def import_server(self, server: Any, prefix: Any = None) -> None:
        self.mount(server, prefix)

    # -- lists -------------------------------------------------------------------------------

    async def _through(self, method: str, message: Any, last: Next) -> Any:
        async with Context(self) as context:
            whole = MiddlewareContext(message=message, method=method, fastmcp_context=context)
            return await run_through(self.middleware, whole, last)

    def _enabled(self, components: list[Any]) -> list[Any]:
        return self._visibility.enabled(components, session_visibility())

    async def _list(self, kind: _Kind) -> list[Any]:
        async def last(_: MiddlewareContext[Any]) -> list[Any]:
            components = self._stores[kind].all()
            for mount in self.mounts:
                for component in await getattr(mount.server, f"list_{kind.plural}")():
                    name = kind.name_here(mount, str(getattr(component, kind.key)))
                    components.append(component.model_copy(update={kind.key: name}))
            return self._enabled(components)

        request: Any = kind.request()
        components: list[Any] = await self._through(request.method, request, last)
        return components

    list_tools = _list_method(_TOOLS)
    list_resources = _list_method(_RESOURCES)
    list_resource_templates = _list_method(_TEMPLATES)
    list_prompts = _list_method(_PROMPTS)

    # Version 2 returns the lists as dicts.
    get_tools = _dict_method(_TOOLS)
    get_resources = _dict_method(_RESOURCES)
    get_resource_templates = _dict_method(_TEMPLATES)
    get_prompts = _dict_method(_PROMPTS)

    # -- single components -------------------------------------------------------------------

    def _own(self, kind: _Kind, identity: str, version: Any = None) -> Any:
        # A component is not called while it is disabled, even if a client knows its name.
        enabled = [component for component in self._enabled(self._stores[kind].all()) if component.identity == identity]
        if version is not None:
            exact = str(getattr(version, "eq", version))
            return next((component for component in enabled if component.version == exact), None)
        return next(iter(newest(enabled)), None)

    async def _mounted(self, kind: _Kind, identity: str) -> tuple[Any, str, Any]:
        # Returns the mounted server that has a component, its name there, and the component; or (None, "", None).
        for mount in self.mounts:
            name = kind.own_name(mount, identity)
            component = None if name is None else await getattr(mount.server, f"get_{kind.noun}")(name)
            if component is not None:
                return mount.server, name or "", component
        return None, "", None

    async def _get(self, kind: _Kind, identity: str, version: Any) -> Any:
        return self._own(kind, identity, version) or (await self._mounted(kind, identity))[2]

    async def get_tool(self, name: str, version: Any = None) -> Any:
        return await self._get(_TOOLS, name, version)

    async def get_resource(self, uri: Any, version: Any = None) -> Any:
        return await self._get(_RESOURCES, str(uri), version)

    async def get_prompt(self, name: str, version: Any = None) -> Any:
        return await self._get(_PROMPTS, name, version)

    async def get_resource_template(self, uri: Any, version: Any = None) -> Any:
        """Return the template that a URI matches, or None."""
        for template in self._enabled(self._stores[_TEMPLATES].all()):
            if template.matches(str(uri)) is not None or template.uri_template == str(uri):
                return template
        return (await self._mounted(_TEMPLATES, str(uri)))[2]

    # -- calls -------------------------------------------------------------------------------

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None, *, version: Any = None) -> ToolResult:
        """Call a tool. Raises NotFoundError, ValidationError, and ToolError with a message for the model."""

        async def last(context: MiddlewareContext[Any]) -> Any:
            called, values = context.message.name, context.message.arguments or {}
            tool = self._own(_TOOLS, called, version)
            if tool is not None:
                return await self._guarded(partial(tool.run, values), ToolError, f"calling tool {called!r}")
            server, own_name = await self._mounted_or_raise(called, _TOOLS)
            return await server.call_tool(own_name, values)

        message = features.CallToolRequestParams(name=name, arguments=arguments or {})
        result: ToolResult = await self._through("tools/call", message, last)
        return result

    async def read_resource(self, uri: Any, *, version: Any = None) -> ResourceResult:
        """Read a resource. Raises NotFoundError, ResourceError."""

        async def last(context: MiddlewareContext[Any]) -> Any:
            target = str(context.message.uri)
            action = f"reading resource {target!r}"
            resource = self._own(_RESOURCES, target, version)
            if resource is not None:
                return await self._guarded(resource.result, ResourceError, action)
            for template in self._enabled(self._stores[_TEMPLATES].all()):
                variables = template.matches(target)
                if variables is not None:
                    return await self._guarded(partial(template.result, target, variables), ResourceError, action)
            # A resource of any mounted server comes before the templates of all mounted servers.
            server, own_uri = await self._mounted_or_raise(target, _RESOURCES, _TEMPLATES)
            return await server.read_resource(own_uri)

        message = features.ReadResourceRequestParams(uri=str(uri))  # type: ignore[arg-type]
        result: ResourceResult = await self._through("resources/read", message, last)
        return result

    async def render_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, *, version: Any = None
    ) -> PromptResult:
        """Return the messages of a prompt. Raises NotFoundError, ValidationError, PromptError."""

        async def last(context: MiddlewareContext[Any]) -> Any:
            called, values = context.message.name, context.message.arguments
            prompt = self._own(_PROMPTS, called, version)
            if prompt is not None:
                return await self._guarded(partial(prompt.result, values), PromptError, f"rendering prompt {called!r}")
            server, own_name = await self._mounted_or_raise(called, _PROMPTS)
            return await server.render_prompt(own_name, values)

        message = features.GetPromptRequestParams(name=name, arguments=arguments)
        result: PromptResult = await self._through("prompts/get", message, last)
        return result

    async def _mounted_or_raise(self, identity: str, *kinds: _Kind) -> tuple[Any, str]:
        # Returns the mounted server that has a component of one of these kinds, and its name there.
        for kind in kinds:
            server, name, _ = await self._mounted(kind, identity)
            if server is not None:
                return server, name
        raise NotFoundError(f"Unknown {kinds[0].noun}: {identity!r}")

    async def _guarded(self, call: Callable[[], Any], kind: type[FastMCPError], action: str) -> Any:
        # Calls a component. An exception becomes an error of this kind, which has its message unless that is masked.
        try:
            return await call()
        except FastMCPError as error:
            log.log(error.log_level, "error %s", printable(action))
            raise
        except Exception as error:
            log.error("error %s", printable(action), exc_info=True)
            # The text of a TimeoutError is empty, which would help nobody.
            if isinstance(error, TimeoutError):
                raise kind("Upstream request timed out, please retry") from error
            raise kind(f"Error {action}" if self._mask_error_details else f"Error {action}: {error}") from error

    # -- requests of the protocol ------------------------------------------------------------

    def _register_handlers(self) -> None:
        self._mcp_server.request_handlers |= {
            features.ListToolsRequest: self._handle_list_tools,
            features.CallToolRequest: self._handle_call_tool,
            features.ListResourcesRequest: partial(self._handle_list, _RESOURCES),
            features.ListResourceTemplatesRequest: partial(self._handle_list, _TEMPLATES),
            features.ReadResourceRequest: self._handle_read_resource,
            features.ListPromptsRequest: partial(self._handle_list, _PROMPTS),
            features.GetPromptRequest: self._handle_get_prompt,
        }

    # Version 3 calls these two, and servers override them to hide tools.

    async def _list_tools_mcp(self, *_: Any) -> Any:
        return [tool.to_mcp_tool() for tool in newest(await self.list_tools())]

    async def _call_tool_mcp(self, key: str, arguments: dict[str, Any]) -> Any:
        return (await self.call_tool(key, arguments)).to_mcp_result()

    async def _handle_list_tools(self, request: Any) -> features.ListToolsResult:
        # An override may return a result instead of a list, as in some versions of the library.
        listed = await self._list_tools_mcp()
        page, cursor = self._page(listed if isinstance(listed, list) else listed.tools, request)
        return features.ListToolsResult(tools=page, nextCursor=cursor)

    async def _handle_list(self, kind: _Kind, request: Any) -> Any:
        components = newest(await getattr(self, f"list_{kind.plural}")())
        method = f"to_mcp_{kind.noun.removeprefix('resource_')}"
        page, cursor = self._page([getattr(component, method)() for component in components], request)
        member = "resourceTemplates" if kind is _TEMPLATES else kind.plural
        return kind.result(**{member: page}, nextCursor=cursor)

    async def _handle_call_tool(self, request: Any) -> Any:
        name, arguments, version = request.params.name, request.params.arguments or {}, _requested_version(request)
        try:
            if self.strict_input_validation:
                tool = await self.get_tool(name, version=version)
                problem = None if tool is None else schema_problem(arguments, tool.parameters)
                if problem is not None:
                    raise ValidationError(f"Input validation error: {problem}")
            if version is None:
                return await self._call_tool_mcp(name, arguments)
            return (await self.call_tool(name, arguments, version=version)).to_mcp_result()
        except (NotFoundError, DisabledError):
            return failed_result(f"Unknown tool: {name!r}")
        except FastMCPError as error:
            return failed_result(str(error))

    async def _handle_read_resource(self, request: Any) -> features.ReadResourceResult:
        uri = str(request.params.uri)
        with _as_responses(f"Resource not found: {uri!r}", {"uri": uri}):
            return (await self.read_resource(uri, version=_requested_version(request))).to_mcp_result(uri)

    async def _handle_get_prompt(self, request: Any) -> features.GetPromptResult:
        name, arguments = request.params.name, request.params.arguments
        with _as_responses(f"Unknown prompt: {name!r}"):
            return (
                await self.render_prompt(name, arguments, version=_requested_version(request))
            ).to_mcp_prompt_result()

    def _page(self, items: list[Any], request: Any) -> tuple[list[Any], str | None]:
        # Returns a page of a list, and the cursor of the next one.
        if self.list_page_size is None:
            return items, None

        cursor = None if request.params is None else request.params.cursor
        try:
            start = 0 if cursor is None else int(urlsafe_b64decode(cursor.encode()))
        except ValueError as error:
            raise McpError(INVALID_PARAMS, f"Invalid cursor: {cursor!r}") from error
        end = start + self.list_page_size
        return items[start:end], urlsafe_b64encode(b"%d" % end).decode() if end < len(items) else None

    from_openapi = _missing("FastMCP.from_openapi")
    from_fastapi = _missing("FastMCP.from_fastapi")
    as_proxy = _missing("FastMCP.as_proxy")
    add_provider = _missing("add_provider")


def _check_options(options: dict[str, Any], providers: Any) -> None:
    for name in options:
        if name in _UNUSED:
            warn_of_unused(f"FastMCP({name}=…)", options[name], _UNUSED[name])
        elif name not in _OTHER_OPTIONS:
            raise TypeError(f"FastMCP.__init__() got an unexpected keyword argument {name!r}")
    for name, value in (("providers", providers), ("auth", options.get("auth"))):
        if value:
            refuse(f"FastMCP({name}=…)", "fastmcp")


def _registered(function: Any, add: Callable[[Any], object]) -> Any:
    def register(function: F) -> F:
        add(function)
        try:
            # In version 2 a decorator returns an object whose `fn` is the function.
            function.fn = function  # type: ignore[attr-defined]
        except AttributeError:  # a bound method
            pass
        return function

    return register if function is None else register(function)


def _requested_version(request: Any) -> str | None:
    # Returns the version of a component that the client asks for in `_meta.fastmcp.version`.
    own = getattr(request.params.meta, "fastmcp", None) if request.params.meta is not None else None
    return str(own["version"]) if isinstance(own, dict) and own.get("version") else None


@contextmanager
def _as_responses(not_found: str, data: Any = None) -> Iterator[None]:
    # Turns the library's errors into error responses.
    try:
        yield
    except (NotFoundError, DisabledError) as error:
        raise McpError(INVALID_PARAMS, not_found, data) from error
    except FastMCPError as error:
        raise McpError(INVALID_PARAMS if isinstance(error, ValidationError) else INTERNAL_ERROR, str(error)) from error
