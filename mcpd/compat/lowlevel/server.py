"""`Server` of `mcp.server.lowlevel`: a handler for each method, registered with decorators or by the constructor."""

from __future__ import annotations

import inspect
import json
import os
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, get_type_hints

from anyio import CancelScope

from mcpd import __version__
from mcpd.compat.errors import UrlElicitationRequiredError
from mcpd.compat.install import current_program, is_taken_over, refuse
from mcpd.compat.types import features
from .session import Handler, RequestContext, RequestT, add_handler, add_handlers, lifespan, request_ctx
from .wire import REQUESTS, RESULTS, schema_problem

if TYPE_CHECKING:
    from mcpd.server.app import Server as McpdServer
    from mcpd.transports.authentication import Authenticator
    from .session import ServerSession

F = TypeVar("F", bound=Callable[..., Any])
LifespanResultT = TypeVar("LifespanResultT")

Decorator = Callable[[Any], Any]
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


@dataclass
class NotificationOptions:
    """Lists whose changes a server announces. mcpd may announce all of them, whatever this says."""

    prompts_changed: bool = False
    resources_changed: bool = False
    tools_changed: bool = False


class InitializationOptions(features.Model):
    """The members that a server sends in the handshake."""

    server_name: str
    server_version: str
    capabilities: features.ServerCapabilities
    instructions: str | None = None
    website_url: str | None = None
    icons: list[features.Icon] | None = None


@dataclass
class ReadResourceContents:
    content: str | bytes
    mime_type: str | None = None
    meta: dict[str, Any] | None = None


class Server(Generic[LifespanResultT, RequestT]):
    """A server that has a handler for each method.

    The decorators are those of version 1, and are called: `@server.list_tools()`. Version 2 gives the constructor
    functions such as `on_list_tools`.
    """

    authenticate: Authenticator | None = None
    """Returns the caller of an HTTP request. None admits everybody."""
    keeps_unknown = True
    """Send members that the specification does not have. Version 1 does that, version 2 does not."""

    def __init__(
        self,
        name: str,
        version: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: list[features.Icon] | None = None,
        lifespan: Lifespan = lifespan,
        *,
        title: str | None = None,
        description: str | None = None,
        **handlers: Callable[..., Awaitable[Any]] | None,
    ) -> None:
        self.request_handlers: dict[type[Any], Handler] = {features.PingRequest: _ping}
        self.notification_handlers: dict[type[Any], Handler] = {}
        self._tool_cache: dict[str, features.Tool] = {}
        self.title = title
        self.description = description
        self.middleware: list[Any] = []
        """Functions around the handlers of version 2, the outermost first: `async (ctx, call_next)`."""
        self.name = name
        self.version = version
        self.instructions = instructions
        self.website_url = website_url
        self.icons = icons
        self.lifespan = lifespan
        self.initialization_options: InitializationOptions | None = None
        """The options that the program passed to `run`."""
        self.served: McpdServer | None = None
        """mcpd's server for this one, which is made once."""
        add_handlers(self, handlers)

    def __class_getitem__(cls, parameters: Any) -> Any:
        # Version 2 has one parameter, version 1 two.
        arguments = parameters if isinstance(parameters, tuple) else (parameters,)
        return super().__class_getitem__((*arguments, Any)[:2])  # type: ignore[misc]

    # -- lists -------------------------------------------------------------------------------

    def list_tools(self) -> Decorator:
        """Register a function that returns the tools. With a parameter for the request, it returns one page."""
        return self._lists("tools/list", "tools")

    def list_prompts(self) -> Decorator:
        return self._lists("prompts/list", "prompts")

    def list_resources(self) -> Decorator:
        return self._lists("resources/list", "resources")

    def list_resource_templates(self) -> Decorator:
        return self._lists("resources/templates/list", "resourceTemplates")

    def _lists(self, method: str, member: str) -> Decorator:
        request, result = REQUESTS[method], getattr(features, RESULTS[method].__name__)

        async def answer(function: Any, message: Any) -> Any:
            listed = await (function(message) if _takes(function, request) else function())
            page: Any = listed if isinstance(listed, result) else result(**{member: listed})
            if member == "tools":
                if page is not listed:
                    self._tool_cache.clear()
                self._tool_cache.update({tool.name: tool for tool in page.tools})
            return page

        return self._handles(request, answer)

    # -- other requests ----------------------------------------------------------------------

    def _handles(self, request: type[features.BaseRequest], answer: Callable[[Any, Any], Awaitable[Any]]) -> Decorator:
        # Returns a decorator whose function serves a request: `answer(function, message)` returns the result.
        def register(function: F) -> F:
            async def handle(message: Any) -> features.ServerResult:
                return features.ServerResult(await answer(function, message))

            self.request_handlers[request] = handle
            return function

        return register

    def call_tool(self, *, validate_input: bool = True) -> Decorator:
        """Register a function of a name and arguments.

        It returns content blocks, a dict, both as a pair, or a `CallToolResult`. Unless `validate_input` is false,
        arguments are checked against the tool's schema first.
        """

        async def answer(function: Any, message: Any) -> features.CallToolResult:
            name, arguments = message.params.name, message.params.arguments or {}
            try:
                # The list function is called once for the schemas if the client has not listed the tools.
                tool = await self._listed_tool(name)
                if validate_input and tool is not None:
                    problem = schema_problem(arguments, tool.inputSchema)
                    if problem is not None:
                        return failed_result(f"Input validation error: {problem}")
                return _tool_result(await function(name, arguments), tool)
            # Clients handle this error by its code, so it must not become a result.
            except UrlElicitationRequiredError:
                raise
            except Exception as error:
                return failed_result(str(error))

        return self._handles(features.CallToolRequest, answer)

    async def _listed_tool(self, name: str) -> features.Tool | None:
        lists = self.request_handlers.get(features.ListToolsRequest)
        if name not in self._tool_cache and lists is not None:
            await lists(features.ListToolsRequest())
        return self._tool_cache.get(name)

    def read_resource(self) -> Decorator:
        """Register a function of a URI. It returns text, bytes, or several `ReadResourceContents`."""

        async def answer(function: Any, message: Any) -> features.ReadResourceResult:
            uri = message.params.uri
            contents = await function(uri)
            if isinstance(contents, (str, bytes)):
                contents = [ReadResourceContents(contents)]
            if not isinstance(contents, Iterable):
                raise ValueError(f"Unexpected return type from read_resource: {type(contents)}")
            return read_result(uri, contents)

        return self._handles(features.ReadResourceRequest, answer)

    def get_prompt(self) -> Decorator:
        """Register a function of a name and arguments. It returns a `GetPromptResult`."""

        async def answer(function: Any, message: Any) -> Any:
            return await function(message.params.name, message.params.arguments)

        return self._handles(features.GetPromptRequest, answer)

    def completion(self) -> Decorator:
        """Register a function of a reference, an argument and a context. It returns a `Completion` or None."""

        async def answer(function: Any, message: Any) -> features.CompleteResult:
            params = message.params
            completion = await function(params.ref, params.argument, params.context)
            return features.CompleteResult(completion=completion or features.Completion(values=[]))

        return self._handles(features.CompleteRequest, answer)

    def subscribe_resource(self) -> Decorator:
        """Register a function that is called with the URI of a resource to which a client subscribes."""
        return self._notes(features.SubscribeRequest, "uri")

    def unsubscribe_resource(self) -> Decorator:
        """Register a function that is called with the URI of a resource from which a client unsubscribes."""
        return self._notes(features.UnsubscribeRequest, "uri")

    def set_logging_level(self) -> Decorator:
        """Register a function that is called with the lowest level of log messages that a client wants."""
        return self._notes(features.SetLevelRequest, "level")

    def _notes(self, request: type[features.BaseRequest], member: str) -> Decorator:
        async def answer(function: Any, message: Any) -> features.EmptyResult:
            await function(getattr(message.params, member))
            return features.EmptyResult()

        return self._handles(request, answer)

    def progress_notification(self) -> Decorator:
        """Register a function of the client's progress notifications: token, progress, total, message."""

        def register(function: F) -> F:
            async def handle(notification: Any) -> None:
                params = notification.params
                await function(params.progressToken, params.progress, params.total, params.message)

            self.notification_handlers[features.ProgressNotification] = handle
            return function

        return register

    def add_request_handler(self, method: str, params_type: Any, handler: Callable[..., Awaitable[Any]]) -> None:
        """Serve a method with a function of a context and params, like version 2. Raises NotHere."""
        add_handler(self, method, handler)

    # -- the handshake -----------------------------------------------------------------------

    @property
    def identity(self) -> InitializationOptions:
        """`create_initialization_options()` without the capabilities, and without validation."""
        return InitializationOptions.model_construct(
            server_name=self.name,
            server_version=self.version or __version__,
            instructions=self.instructions,
            website_url=self.website_url,
            icons=self.icons,
        )

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        options = self.identity
        options.capabilities = self.get_capabilities(
            notification_options or NotificationOptions(), experimental_capabilities or {}
        )
        return options

    def get_capabilities(
        self, notification_options: NotificationOptions, experimental_capabilities: dict[str, dict[str, Any]]
    ) -> features.ServerCapabilities:
        has, options = self.request_handlers, notification_options
        changes = features.ListChangedCapability
        capabilities = features.ServerCapabilities(experimental=experimental_capabilities)
        if features.ListPromptsRequest in has:
            capabilities.prompts = changes(listChanged=options.prompts_changed)
        if features.ListResourcesRequest in has:
            capabilities.resources = features.ResourcesCapability(
                subscribe=features.SubscribeRequest in has, listChanged=options.resources_changed
            )
        if features.ListToolsRequest in has:
            capabilities.tools = changes(listChanged=options.tools_changed)
        if features.SetLevelRequest in has:
            capabilities.logging = features.EmptyCapability()
        if features.CompleteRequest in has:
            capabilities.completions = features.EmptyCapability()
        return capabilities

    # -- serving -----------------------------------------------------------------------------

    @property
    def request_context(self) -> RequestContext[ServerSession, LifespanResultT, RequestT]:
        """The current request. Raises LookupError outside of a request."""
        return request_ctx.get()

    @property
    def experimental(self) -> Any:
        """Experimental tasks. Raises NotHere."""
        refuse("server.experimental", "the official SDK")

    async def run(
        self,
        read_stream: Any,
        write_stream: Any,
        initialization_options: InitializationOptions | None = None,
        raise_exceptions: bool = False,
        stateless: bool = False,
    ) -> None:
        """Serve until stopped. The streams are those of `stdio_server()`, which mcpd replaces by its transport.

        Under `mcpd serve` other streams are ignored. A program that cancels this call then ends its own streams, and
        not the transport. Raises NotImplementedError for other streams when the program serves itself.
        """
        from mcpd.server.settings import Settings

        is_own = not isinstance(read_stream, StandIn) or not isinstance(write_stream, StandIn)
        if is_own and not is_taken_over():
            raise NotImplementedError(
                "Server.run: mcpd has the transports itself. Pass the streams of stdio_server(), or use mcpd serve."
            )
        if initialization_options is not None:
            self.initialization_options = initialization_options

        # A program with streams of its own cancels this call when its stdin ends, before our answers are written.
        with CancelScope(shield=is_own):
            await current_program().serve(self.__mcpd_server__(), Settings(stdio=True))

    def streamable_http_app(self, *, streamable_http_path: str = "/mcp", **options: Any) -> Any:
        """Return this server as an ASGI application with its endpoint at that path."""
        from mcpd.server.http.core import HttpSettings

        return self.__mcpd_server__().asgi_app(
            settings=HttpSettings(path=streamable_http_path, stateless=bool(options.get("stateless_http")))
        )

    def __mcpd_server__(self) -> McpdServer:
        if self.served is None:
            from .bridge import mcpd_server

            self.served = mcpd_server(self)
        return self.served


# -- the library's transports ----------------------------------------------------------------

# These are placeholders, since mcpd has the transports itself.


class StandIn:
    """Replaces a stream of messages. `Server.run` serves mcpd's transport when it receives one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}, served by mcpd>"

    async def __aenter__(self) -> Self:
        return self

    async def aclose(self, *_: object) -> None:
        """Nothing needs closing."""

    __aexit__ = aclose


@asynccontextmanager
async def stdio_server(stdin: Any = None, stdout: Any = None) -> AsyncIterator[tuple[StandIn, StandIn]]:
    """Yield the two streams that `Server.run` takes.

    Programs wrap stdin and stdout in files of their own, which mcpd does not need. Raises NotImplementedError for
    files that are not stdin, stdout or stderr of the process.
    """
    if not (_is_of_process(stdin) and _is_of_process(stdout)):
        raise NotImplementedError("stdio_server(stdin, stdout): mcpd serves the stdin and stdout of the process only")

    yield StandIn("stdin"), StandIn("stdout")


def _is_of_process(stream: Any) -> bool:
    # anyio may have wrapped the file. A stream without a file descriptor reads stdin in its own way.
    fileno = getattr(getattr(stream, "wrapped", stream), "fileno", None)
    try:
        status = None if fileno is None else os.fstat(fileno())
    except OSError:  # a file in memory
        return False
    return status is None or any(os.path.samestat(status, os.fstat(descriptor)) for descriptor in (0, 1, 2))


def create_mcp_http_client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> Any:
    """Return an `httpx.AsyncClient` that follows redirects, with a timeout of 30 seconds (300 to read)."""
    import httpx

    limit = httpx.Timeout(30.0, read=300.0) if timeout is None else timeout
    return httpx.AsyncClient(follow_redirects=True, headers=headers, timeout=limit, auth=auth)


class EventStore:
    """The base class of a server's own store of events. It is not used: mcpd resumes streams from its own memory."""


# -- requests and results --------------------------------------------------------------------


async def _ping(message: Any) -> features.ServerResult:
    return features.ServerResult(features.EmptyResult())


def _takes(function: Callable[..., Any], request: type[features.BaseRequest]) -> bool:
    # Returns whether a list function takes the request: by its annotation, or without one by a missing default.
    first = None
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
        hint = None if first is None else get_type_hints(function).get(first.name)
    except Exception:  # a name that cannot be found
        hint = None
    if first is None:
        return False
    return hint is request or (hint is None and first.default is first.empty and first.kind is not first.VAR_KEYWORD)


def _tool_result(returned: Any, tool: features.Tool | None) -> features.CallToolResult:
    if isinstance(returned, features.CallToolResult):
        return returned

    blocks, structured = returned, None
    if isinstance(returned, tuple) and len(returned) == 2:
        blocks, structured = returned
    elif isinstance(returned, dict):
        blocks, structured = [features.TextContent(text=json.dumps(returned, indent=2))], returned
    elif not isinstance(returned, Iterable):
        return failed_result(f"Unexpected return type from tool: {type(returned).__name__}")

    if tool is not None and tool.outputSchema is not None:
        if structured is None:
            return failed_result("Output validation error: outputSchema defined but no structured output returned")
        problem = schema_problem(structured, tool.outputSchema)
        if problem is not None:
            return failed_result(f"Output validation error: {problem}")
    return features.CallToolResult(content=list(blocks), structuredContent=structured, isError=False)


def failed_result(text: str) -> features.CallToolResult:
    """Return the result of a tool that failed with this message for the model."""
    return features.CallToolResult(content=[features.TextContent(text=text)], isError=True)


def read_result(uri: Any, parts: Iterable[Any]) -> features.ReadResourceResult:
    contents = [resource_contents(uri, part.content, part.mime_type, getattr(part, "meta", None)) for part in parts]
    return features.ReadResourceResult(contents=contents)


def resource_contents(uri: Any, data: str | bytes, mime_type: str | None, meta: Any) -> Any:
    if isinstance(data, bytes):
        blob = b64encode(data).decode()
        return features.BlobResourceContents(
            uri=uri, mimeType=mime_type or "application/octet-stream", blob=blob, meta=meta
        )

    return features.TextResourceContents(uri=uri, mimeType=mime_type or "text/plain", text=data, meta=meta)
