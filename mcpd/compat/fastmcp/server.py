"""`FastMCP` of the library `fastmcp`: functions as tools, resources and prompts."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mcpd.compat.fastmcp.components import newest, version_of
from mcpd.compat.fastmcp.handlers import completes, handlers
from mcpd.compat.fastmcp.lifespans import has_lifespan, opened
from mcpd.compat.fastmcp.marks import Marked
from mcpd.compat.fastmcp.mounts import Mount
from mcpd.compat.fastmcp.operations import Operations
from mcpd.compat.fastmcp.prompts import Prompt
from mcpd.compat.fastmcp.resources import Resource
from mcpd.compat.fastmcp.serving import Serving
from mcpd.compat.fastmcp.settings import settings
from mcpd.compat.fastmcp.store import OnDuplicate, Store, Visibility, VisibilityTransform
from mcpd.compat.fastmcp.templates import ResourceTemplate
from mcpd.compat.fastmcp.tools import Tool
from mcpd.compat.lowlevel.server import Server
from mcpd.compat.missing import refuse, refuse_overrides, warn_of_unheard
from mcpd.compat.types import prompts as prompt_types
from mcpd.compat.types.content import Icon

if TYPE_CHECKING:
    from mcpd.server import Server as McpdServer
from mcpd.errors import collects

__all__ = ["FastMCP"]

F = TypeVar("F", bound=Callable[..., Any])
LifespanResultT = TypeVar("LifespanResultT")

# What `mcpd serve` decides, and what is read below.
_TAKEN = frozenset(
    ("auth", "debug", "dependencies", "exclude_tags", "host", "include_tags", "json_response", "log_level",
     "message_path", "on_duplicate_prompts", "on_duplicate_resources", "on_duplicate_tools", "port", "sse_path",
     "stateless_http", "streamable_http_path", "tool_serializer")
)  # fmt: skip
# What servers would miss, with what changes nothing.
_UNHEARD: dict[str, Any] = {
    "cache_expiration_seconds": None,
    "cache_scope": None,
    "cache_ttl": None,
    "client_log_level": None,
    "dereference_schemas": True,
    "experimental_capabilities": None,
    "request_state_security": None,
    "resource_prefix_format": "path",
    "resource_security": None,
    "sampling_handler": None,
    "sampling_handler_behavior": "fallback",
    "session_state_store": None,
    "tasks": False,
}


class FastMCP(Operations, Serving, Generic[LifespanResultT]):
    """A server whose tools, resources and prompts are functions."""

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
        self._refuse(others, providers)
        if lifespan is not None and (inspect.isasyncgenfunction(lifespan)):
            from contextlib import asynccontextmanager

            lifespan = asynccontextmanager(lifespan)
        self.own_lifespan = lifespan
        self.middleware: list[Any] = list(middleware or ())
        self._mask_error_details = settings.mask_error_details if mask_error_details is None else mask_error_details
        self.strict_input_validation = (
            settings.strict_input_validation if strict_input_validation is None else strict_input_validation
        )
        if list_page_size is not None and list_page_size <= 0:
            raise ValueError("list_page_size must be a positive integer")
        self.list_page_size = list_page_size
        self._tools = Store(on_duplicate or others.get("on_duplicate_tools") or "warn")
        self._resources = Store(on_duplicate or others.get("on_duplicate_resources") or "warn")
        self._templates = Store(self._resources.on_duplicate)
        self._prompts = Store(on_duplicate or others.get("on_duplicate_prompts") or "warn")
        self._tool_serializer = others.get("tool_serializer")
        self._visibility = Visibility()
        if others.get("include_tags"):
            self.enable(tags=others["include_tags"], only=True)
        if others.get("exclude_tags"):
            self.disable(tags=others["exclude_tags"])
        for transform in transforms or ():
            self.add_transform(transform)
        self._mounts: list[Mount] = []
        self._routes = []
        self._mcp_server: Server[Any, Any] = Server(
            name or f"{type(self).__name__}-{secrets.token_hex(2)}",
            version=version_of(version),
            instructions=instructions,
            website_url=website_url,
            icons=icons,
        )
        self._mcp_server.request_handlers.update(handlers(self))
        self._mcp_server.keeps_unknown = False
        for tool in tools or ():
            self.add_tool(tool)

    def _refuse(self, others: dict[str, Any], providers: Any) -> None:
        for name in others:
            if name in _UNHEARD:
                warn_of_unheard(f"FastMCP({name}=…)", others[name], _UNHEARD[name])
            elif name not in _TAKEN:
                raise TypeError(f"FastMCP.__init__() got an unexpected keyword argument {name!r}")
        for name, given in (("providers", providers), ("auth", others.get("auth"))):
            if given:
                refuse(f"FastMCP({name}=…)", "fastmcp")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __mcpd_server__(self) -> McpdServer:
        """The server of ours that serves this one."""
        refuse_overrides(self, FastMCP, "fastmcp")
        if has_lifespan(self):
            self._mcp_server.lifespan = lambda _: opened(self, self.own_lifespan)
        server = self._mcp_server.__mcpd_server__()
        self._put_routes(server)
        return server

    def _put_routes(self, server: McpdServer) -> None:
        if self._routes:
            from mcpd.compat.routes import add

            add(server, self._routes)
            self._routes = []
        for mount in self._mounts:
            mount.server._put_routes(server)

    # -- what it says of itself --------------------------------------------------------------

    @property
    def name(self) -> str:  # type: ignore[override]
        """The server's name."""
        return self._mcp_server.name

    @property
    def version(self) -> str | None:
        """The server's version."""
        return self._mcp_server.version

    @property
    def instructions(self) -> str | None:
        """What clients tell their models of the server."""
        return self._mcp_server.instructions

    @instructions.setter
    def instructions(self, text: str | None) -> None:
        self._mcp_server.instructions = text

    @property
    def website_url(self) -> str | None:
        """The server's page."""
        return self._mcp_server.website_url

    @property
    def icons(self) -> list[Icon]:
        """The server's icons."""
        return list(self._mcp_server.icons or ())

    @property
    def settings(self) -> Any:
        """`fastmcp.settings`."""
        return settings

    @property
    def mounts(self) -> list[Mount]:
        """The servers that are mounted on it."""
        return self._mounts

    # -- tools -------------------------------------------------------------------------------

    def add_tool(self, tool: Any) -> Tool:
        """Add a tool, or a function as one."""
        made: Tool = self._tools.add(tool if isinstance(tool, Tool) else Tool.from_function(tool))
        if made.serializer is None:
            made.serializer = self._tool_serializer
        return made

    @collects
    def tool(self, name_or_fn: Any = None, *, name: str | None = None, app: Any = None, **options: Any) -> Any:
        """Register a function as a tool: `@mcp.tool`, `@mcp.tool("name")`, `@mcp.tool(name=…)`, `mcp.tool(fn)`."""
        if app:
            refuse("@tool(app=…)", "fastmcp")
        return self._decorator("tool", name_or_fn, name, options)

    def _decorator(self, kind: str, name_or_fn: Any, name: str | None, options: dict[str, Any]) -> Any:
        if isinstance(name_or_fn, classmethod):
            raise TypeError(f"To decorate a classmethod, use @classmethod above @{kind}.")
        if isinstance(name_or_fn, str):
            if name is not None:
                raise TypeError("Cannot specify name both as first argument and keyword")
            name_or_fn, name = None, name_or_fn

        def register(function: F) -> F:
            if kind == "tool":
                self.add_tool(Tool.from_function(function, name=name, **options))
            else:
                self.add_prompt(Prompt.from_function(function, name=name, **options))
            return _with_fn(function)

        if name_or_fn is None:
            return register
        if not callable(name_or_fn):
            raise TypeError(f"Invalid first argument: {type(name_or_fn)}")
        return register(name_or_fn)

    def remove_tool(self, name: str, version: str | None = None) -> None:
        """Take a tool away. Raises NotFoundError if there is none."""
        self._remove(self._tools, "tool", name, version)

    def _remove(self, store: Store, kind: str, identity: str, version: str | None) -> None:
        from mcpd.compat.fastmcp.errors import NotFoundError

        if not store.remove(identity, version):
            raise NotFoundError(f"Unknown {kind}: {identity!r}")

    # -- resources ---------------------------------------------------------------------------

    @collects
    def resource(self, uri: str, *, app: Any = None, **options: Any) -> Callable[[F], F]:
        """Register a function as a resource, or with variables in `uri` as a template of resources."""
        if not isinstance(uri, str):
            raise TypeError(
                "The @resource decorator was used incorrectly. It requires a URI as the first argument. "
                "Use @resource('uri') instead of @resource"
            )
        if app:
            refuse("@resource(app=…)", "fastmcp")

        def register(function: F) -> F:
            self._add_function(function, uri, options)
            return _with_fn(function)

        return register

    def _add_function(self, function: Any, uri: str, options: dict[str, Any]) -> Any:
        security = options.pop("security", None)
        if "{" in uri and "}" in uri:
            return self.add_template(ResourceTemplate.from_function(function, uri, security=security, **options))
        from mcpd.compat.fastmcp.functions import Function

        if Function(function, "resources", takes_keywords=True).given:
            raise ValueError(
                f"Resource {uri!r} has no URI template variables, but its function has parameters; "
                "add them to the URI as {name}, or remove them"
            )
        return self._resources.add(Resource.from_function(function, uri, **options))

    def add_resource(self, resource: Any) -> Any:
        """Add a resource, or a function that is marked as one."""
        if isinstance(resource, ResourceTemplate):
            return self.add_template(resource)
        if isinstance(resource, Resource):
            return self._resources.add(resource)
        marked = getattr(resource, "__fastmcp__", None)
        if not isinstance(marked, Marked) or marked.kind != "resource":
            raise TypeError(f"Expected Resource, got {type(resource).__name__}. Use @resource('uri') decorator.")
        options = {name: value for name, value in marked.options.items() if name not in ("uri", "name")}
        return self._add_function(marked.bare(resource), marked.options["uri"], options)

    def add_resource_fn(self, fn: Any, uri: str, **options: Any) -> None:
        """Add a function as a resource."""
        self._add_function(fn, uri, options)

    def add_template(self, template: ResourceTemplate) -> ResourceTemplate:
        """Add a template."""
        made: ResourceTemplate = self._templates.add(template)
        return made

    # -- prompts -----------------------------------------------------------------------------

    def add_prompt(self, prompt: Any) -> Prompt:
        """Add a prompt, or a function as one."""
        made: Prompt = self._prompts.add(prompt if isinstance(prompt, Prompt) else Prompt.from_function(prompt))
        return made

    @collects
    def prompt(self, name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
        """Register a function as a prompt: `@mcp.prompt`, and as `tool`."""
        return self._decorator("prompt", name_or_fn, name, options)

    def completion(self, handler: Any = None) -> Any:
        """Register what completes arguments: it takes a reference, an argument and a context."""

        def register(function: F) -> F:
            self._mcp_server.request_handlers[prompt_types.CompleteRequest] = completes(function)
            return function

        return register if handler is None else register(handler)

    # -- all of it ---------------------------------------------------------------------------

    # Version 3 calls these two, and servers that show fewer tools replace them.

    async def _list_tools_mcp(self, *_: Any) -> Any:
        return [one.to_mcp_tool() for one in newest(await self.list_tools())]

    async def _call_tool_mcp(self, key: str, arguments: dict[str, Any]) -> Any:
        return (await self.call_tool(key, arguments)).to_mcp_result()

    def enable(self, *, only: bool = False, **about: Any) -> None:
        """Offer what has these `names`, `keys` or `tags`, of these `components`; with `only` nothing else."""
        self._visibility.add(True, only=only, **about)

    def disable(self, **about: Any) -> None:
        """Do not offer what has these."""
        self._visibility.add(False, **about)

    def add_middleware(self, middleware: Any) -> None:
        """Put a middleware inside of those that there are."""
        self.middleware.append(middleware)

    def mount(
        self,
        server: Any,
        namespace: Any = None,
        as_proxy: bool | None = None,
        tool_names: dict[str, str] | None = None,
        prefix: str | None = None,
    ) -> None:
        """Offer what another server offers, under names that begin with `namespace`, for as long as it changes."""
        if isinstance(server, str) or server is None:  # as it was: the prefix, then the server
            server, namespace = namespace, server
        if server is self:
            raise ValueError("Cannot mount a server onto itself")
        if not isinstance(server, FastMCP):
            refuse(f"mount({type(server).__name__})", "fastmcp")
        self._mounts.append(Mount(server, namespace or prefix, tool_names))

    async def import_server(self, server: Any, prefix: Any = None) -> None:
        """`mount`."""
        self.mount(server, prefix)

    async def get_tools(self) -> dict[str, Any]:
        """The tools by name."""
        return {one.name: one for one in await self.list_tools()}

    async def get_resources(self) -> dict[str, Any]:
        """The resources by URI."""
        return {str(one.uri): one for one in await self.list_resources()}

    async def get_resource_templates(self) -> dict[str, Any]:
        """The templates by what they are of."""
        return {one.uri_template: one for one in await self.list_resource_templates()}

    async def get_prompts(self) -> dict[str, Any]:
        """The prompts by name."""
        return {one.name: one for one in await self.list_prompts()}

    # -- what there is not -------------------------------------------------------------------

    @classmethod
    def from_openapi(cls, *_: Any, **__: Any) -> Any:
        """There is no OpenAPI."""
        refuse("FastMCP.from_openapi", "fastmcp")

    @classmethod
    def from_fastapi(cls, *_: Any, **__: Any) -> Any:
        """There is no FastAPI."""
        refuse("FastMCP.from_fastapi", "fastmcp")

    @classmethod
    def as_proxy(cls, *_: Any, **__: Any) -> Any:
        """There are no proxies."""
        refuse("FastMCP.as_proxy", "fastmcp")

    def add_provider(self, *_: Any, **__: Any) -> None:
        """There are no providers."""
        refuse("add_provider", "fastmcp")

    def add_transform(self, transform: Any) -> None:
        """Offer or hide components, by `Visibility`. There are no other transforms."""
        if not isinstance(transform, VisibilityTransform):
            refuse("add_transform, for other transforms than Visibility,", "fastmcp")
        self._visibility.add(transform.enabled, **transform.about)


def _with_fn(function: F) -> F:
    """The function; `function.fn` is what version 2 has in the place of it."""
    try:
        function.fn = function  # type: ignore[attr-defined]
    except AttributeError:  # a bound method
        pass
    return function
