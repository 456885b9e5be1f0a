"""`Server` of `mcp.server.lowlevel`, version 1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from anyio import CancelScope

from mcpd.compat import program
from mcpd.compat.lowlevel.application import lifespan
from mcpd.compat.lowlevel.context import RequestContext, request_ctx
from mcpd.compat.lowlevel.decorators import Decorators
from mcpd.compat.lowlevel.options import InitializationOptions, NotificationOptions
from mcpd.compat.lowlevel.stdio import StandIn
from mcpd.compat.missing import refuse
from mcpd.compat.program import Wanted
from mcpd.compat.types import lifecycle, notifications, prompts, resources, tools
from mcpd.compat.types.content import Icon

if TYPE_CHECKING:
    from mcpd.compat.lowlevel.session import ServerSession
    from mcpd.server import Server as McpdServer
    from mcpd.transports.authentication import Authenticator

__all__ = ["LifespanResultT", "RequestT", "Server", "lifespan"]

LifespanResultT = TypeVar("LifespanResultT")
RequestT = TypeVar("RequestT")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


class Server(Decorators, Generic[LifespanResultT, RequestT]):
    """A server that is a handler for each method, registered with its decorators."""

    authenticate: Authenticator | None = None
    """Who may call over HTTP; None for everybody."""
    keeps_unknown = True
    """Whether clients are sent members that the specification does not have, as version 1 does, but not version 2."""

    def __init__(
        self,
        name: str,
        version: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        lifespan: Lifespan = lifespan,
        *,
        title: str | None = None,
        description: str | None = None,
        cache_hints: Any = None,
        get_tool_input_schema: Any = None,
        **handlers: Callable[..., Awaitable[Any]] | None,
    ) -> None:
        super().__init__()
        self.title = title
        self.description = description
        self.middleware: list[Any] = []
        """What is around the handlers of version 2, the outermost first: `async (ctx, call_next)`."""
        self.name = name
        self.version = version
        self.instructions = instructions
        self.website_url = website_url
        self.icons = icons
        self.lifespan = lifespan
        self.said: InitializationOptions | None = None
        """What the program says of the server when it is run."""
        self._served: McpdServer | None = None
        if handlers:
            from mcpd.compat.mcpserver.handlers import add_all

            add_all(self, handlers)

    def __class_getitem__(cls, parameters: Any) -> Any:
        # Version 2 has one parameter, version 1 two.
        given = parameters if isinstance(parameters, tuple) else (parameters,)
        return super().__class_getitem__((*given, Any)[:2])  # type: ignore[misc]

    def add_request_handler(self, method: str, params_type: Any, handler: Callable[..., Awaitable[Any]]) -> None:
        """Serve a method by a function of a context and params, as version 2 has it. Raises NotImplementedError."""
        from mcpd.compat.mcpserver.handlers import add

        add(self, method, handler)

    def streamable_http_app(self, *, streamable_http_path: str = "/mcp", **options: Any) -> Any:
        """This server as an ASGI application, with its endpoint at that path."""
        from mcpd.server.http import HttpSettings

        return self.__mcpd_server__().asgi_app(
            settings=HttpSettings(path=streamable_http_path, stateless=bool(options.get("stateless_http")))
        )

    @property
    def identity(self) -> InitializationOptions:
        """What `create_initialization_options` gives, without the capabilities, and without a look at the rest."""
        return InitializationOptions.model_construct(
            server_name=self.name,
            server_version=self.version or "",
            instructions=self.instructions,
            website_url=self.website_url,
            icons=self.icons,
        )

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """What the server says of itself."""
        from mcpd import __version__

        return InitializationOptions(
            server_name=self.name,
            server_version=self.version or __version__,
            capabilities=self.get_capabilities(
                notification_options or NotificationOptions(), experimental_capabilities or {}
            ),
            instructions=self.instructions,
            website_url=self.website_url,
            icons=self.icons,
        )

    def get_capabilities(
        self, notification_options: NotificationOptions, experimental_capabilities: dict[str, dict[str, Any]]
    ) -> lifecycle.ServerCapabilities:
        """What there are handlers for."""
        has, told = self.request_handlers, notification_options
        capabilities = lifecycle.ServerCapabilities(experimental=experimental_capabilities)
        if prompts.ListPromptsRequest in has:
            capabilities.prompts = lifecycle.PromptsCapability(listChanged=told.prompts_changed)
        if resources.ListResourcesRequest in has:
            capabilities.resources = lifecycle.ResourcesCapability(
                subscribe=resources.SubscribeRequest in has, listChanged=told.resources_changed
            )
        if tools.ListToolsRequest in has:
            capabilities.tools = lifecycle.ToolsCapability(listChanged=told.tools_changed)
        if notifications.SetLevelRequest in has:
            capabilities.logging = lifecycle.LoggingCapability()
        if prompts.CompleteRequest in has:
            capabilities.completions = lifecycle.CompletionsCapability()
        return capabilities

    @property
    def request_context(self) -> RequestContext[ServerSession, LifespanResultT, RequestT]:
        """The request that runs. Raises LookupError where none does."""
        return request_ctx.get()

    @property
    def experimental(self) -> Any:
        """Tasks, which this does not have."""
        refuse("server.experimental", "the official SDK")

    async def run(
        self,
        read_stream: Any,
        write_stream: Any,
        initialization_options: InitializationOptions | None = None,
        raise_exceptions: bool = False,
        stateless: bool = False,
    ) -> None:
        """Serve until stopped: what `stdio_server()` gave stands for the transport.

        Streams of the program's own are left alone under `mcpd serve`, which has the transports. The end of those
        streams, where the program cancels this, is not the end of the transport.
        """
        is_own = not isinstance(read_stream, StandIn) or not isinstance(write_stream, StandIn)
        if is_own and not program.is_taken_over():
            raise NotImplementedError(
                "Server.run: mcpd has the transports itself; give it what stdio_server() gives, "
                "or serve it with mcpd serve"
            )
        if initialization_options is not None:
            self.said = initialization_options
        with CancelScope(shield=is_own):
            await program.current().serve(self.__mcpd_server__(), Wanted(stateless=stateless))

    def __mcpd_server__(self) -> McpdServer:
        """The server of ours that serves this one."""
        if self._served is None:
            from mcpd.compat.lowlevel.bridge import served

            self._served = served(self)
        return self._served
