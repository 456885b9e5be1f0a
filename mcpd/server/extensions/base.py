"""`Extension`: all that an extension can add to a server. `Server` applies it and knows no extension by name.

An extension is active for a request if its client offers it, or as `admits` says otherwise; only then its methods
are answered, its settings announced, and its part of tools and resources shown.
Spec: 2026-07-28 basic/versioning, extension negotiation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from mcpd.errors import MissingExtension, RegistrationError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.types.base import ObjectResult, Params, Result
from mcpd.protocol.types.tools import CallToolResult
from mcpd.server.context.exchange import Exchange
from mcpd.server.functions.results import to_builtins
from mcpd.server.metadata import is_meta_key
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.entries import ToolMeta

if TYPE_CHECKING:
    from mcpd.server.context.context import Context
    from mcpd.server.registry.entries import Problem, ResourceEntry
from mcpd.errors import collects

F = TypeVar("F", bound=Callable[..., Any])


class Method(Struct, frozen=True, kw_only=True):
    """One method that an extension adds: what decodes its params, and the function that serves it."""

    params: type[Params]
    run: Callable[[Context, Any], Any]
    """(context, params) -> the result of a request: a `Result`, struct, dataclass or dict; None for an empty one."""
    versions: Collection[str] | None = None
    """The protocol versions that have it; None for all."""
    named: str | None = None
    """The member of the params that the header `Mcp-Name` repeats over HTTP."""


class ToolAddition(ToolMeta, Protocol):
    """What an extension adds to one tool."""

    @property
    def is_required(self) -> bool:
        """Whether the tool exists only for clients with the extension."""


class ResourceAddition(Struct, frozen=True, kw_only=True):
    """What an extension makes of one resource, which then exists only for clients with the extension."""

    mime_type: str | None
    meta: dict[str, Any] | None
    finish: Callable[[Any], Any] | None = None
    """One part of what is read -> that part as it is sent."""


class ExtensionHost(Protocol):
    """The server, as far as an extension sees it."""

    catalog: Catalog

    @property
    def name(self) -> str:
        """The server's name."""

    def announce(self, extension: Extension) -> None:
        """From now on the extension is offered to clients, with its settings and capabilities as they are now."""

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch a resource that it holds something else now."""


class Extension:
    """One extension as a server offers it: give it to `Server(extensions=[…])`, or make one by `server.extension`.

    `id` is a prefixed name such as `com.example/notes`, `settings` the object that clients see under
    `capabilities.extensions[id]`. Methods come by the decorators `method` and `notification`; to do more, derive
    a class from this one. Raises RegistrationError for an id without a prefix.
    """

    capabilities: tuple[str, ...] = ()
    """Capabilities of the server that are offered even while nothing of their kind is registered, e.g. resources."""

    tool_options: Collection[str] = ()
    """The keywords that `server.tool` takes for this extension."""

    wraps_values = False
    """Whether clients with this extension get structured content as objects in every version: values that are not
    objects are then wrapped under `result`, as versions before 2026-07-28 want it."""

    has_results = False
    """Whether `finish` has to see the results of tools."""

    def __init__(self, id: str, *, settings: Mapping[str, Any] | None = None) -> None:
        prefix, slash, name = id.partition("/")
        if not slash or not prefix or not name or not is_meta_key(id):
            raise RegistrationError(f"extension {id!r}: its id is prefix/name, such as com.example/notes")
        self.id = id
        self.settings: dict[str, Any] = dict(settings or {})
        self.requests: dict[str, Method] = {}
        self.notifications: dict[str, Method] = {}
        self.server_notifications: dict[str, Collection[str] | None] = {}
        """What the server may say unasked, with `ctx.notify`: method -> the versions that have it, None for all."""
        self.server: ExtensionHost | None = None

    # -- what authors declare ----------------------------------------------------------------

    @collects
    def method(
        self, name: str, params: type[Params] = Params, *, versions: Collection[str] | None = None
    ) -> Callable[[F], F]:
        """Register what answers a request, as `@extension.method("com.example/notes/search", SearchParams)`.

        The function takes the context and the params, a subclass of `mcpd.Params`; it gives a struct, dataclass, dict
        or None. A plain function runs in a thread. Clients without the extension get -32021 (-32601 before
        2026-07-28). Raises RegistrationError if the method is there already, or the params are no such class.
        """

        def register(function: F) -> F:
            self._add(self.requests, name, params, function, versions)
            return function

        return register

    @collects
    def notification(
        self, name: str, params: type[Params] = Params, *, versions: Collection[str] | None = None
    ) -> Callable[[F], F]:
        """Register what runs when a client sends a notification. What the function returns is ignored."""

        def register(function: F) -> F:
            self._add(self.notifications, name, params, function, versions)
            return function

        return register

    def may_notify(self, name: str, *, versions: Collection[str] | None = None) -> None:
        """Declare a notification that tools send with `ctx.notify(name, params)`."""
        self.server_notifications[name] = versions
        if self.server is not None:
            self.server.announce(self)

    def _add(
        self,
        methods: dict[str, Method],
        name: str,
        params: type[Params],
        function: Callable[..., Any],
        versions: Collection[str] | None,
    ) -> None:
        where = f"extension {self.id}, method {name!r}"
        if name in self.requests or name in self.notifications:
            raise RegistrationError(f"{where}: is there already")
        given: Any = params
        if not (isinstance(given, type) and issubclass(given, Params)):
            raise RegistrationError(f"{where}: its params are a class derived from mcpd.Params, not {params!r}")
        methods[name] = Method(params=params, run=function, versions=versions)
        if self.server is not None:
            self.server.announce(self)

    # -- what a server asks ------------------------------------------------------------------

    def is_active(self, ctx: Context) -> bool:
        """Whether the client of this request has the extension."""
        return self.server is not None and self.id in self.server.catalog.active_extensions(ctx)

    def bind(self, server: ExtensionHost) -> None:
        """The extension was added to a server. Announces it; a class that has reasons to wait does that later."""
        self.server = server
        server.announce(self)

    def admits(self, client: ClientIdentity) -> bool:
        """Whether the extension is active for that client: by default, if it offers it with an object.

        All clients that say the same have one `client`: read it, and change nothing of it.
        """
        return isinstance((client.capabilities.extensions or {}).get(self.id), dict)

    def tool(self, name: str, options: Mapping[str, Any], meta: dict[str, Any] | None) -> ToolAddition | None:
        """What is added to a tool that is being registered, None for nothing.

        `options` are those of `tool_options` that were given; what of `meta` belongs to the extension is taken out.
        Raises RegistrationError.
        """
        return None

    def finish(self, result: CallToolResult, *, tool: str, is_active: bool, has_schema: bool) -> CallToolResult:
        """A tool's result as a client gets it; `is_active` says whether the extension is active for that client.

        Asked if `has_results`, for tools with an addition and for results of a class of their own.
        """
        return result

    def resource(
        self, uri: str, mime_type: str | None, meta: dict[str, Any] | None, *, is_fixed: bool
    ) -> ResourceAddition | None:
        """What is made of a resource that is being registered, None for nothing. Raises RegistrationError.

        `is_fixed` says that its content was given with it.
        """
        return None

    def resource_changed(self, uri: str, *, is_removed: bool) -> None:
        """A resource or template of that URI has come or gone."""

    def joined(self, other: Extension) -> None:
        """What another server offers, which has this extension as `other`, is offered by this one's server too."""

    def joined_resource(self, entry: ResourceEntry, name_of: Callable[[str], str]) -> ResourceEntry:
        """A resource that needs this extension, as a server offers it that was joined with others.

        `name_of` gives the names under which tools of its own server are called there.
        """
        return entry

    def problems(self) -> list[Problem]:
        """What would not work for clients, for `mcpd check`."""
        return []

    # -- what is said when the server is served ----------------------------------------------

    def serve_options(self) -> type | None:
        """A TypedDict of options. Those of its members that are `Annotated` with a `serve_options.Option` can be said
        when the server is served: to `mcpd serve` behind the target, in the environment, and to `Server.run`.

        None for no such options.
        """
        return None

    def configure(self, options: Mapping[str, Any]) -> None:
        """Options that were said when the server was served, by their names; before any client is taken in.

        By default attributes of these names are set. Raises ValueError for a value that cannot be.
        """
        for name, value in options.items():
            setattr(self, name, value)

    # -- serving -----------------------------------------------------------------------------

    def handler(self, name: str, method: Method) -> Callable[[Exchange, Any], Coroutine[Any, Any, Result]]:
        """What serves a request of this extension: refuses clients that do not offer it, and finishes the result."""

        async def handle(exchange: Exchange, params: Any) -> Result:
            if not self.admits(exchange.client):
                needed = f"{name} needs a client that offers the extension {self.id}"
                raise MissingExtension(self.id, needed)
            return _as_result(await _run(method, exchange, params))

        return handle

    def listener(self, method: Method) -> Callable[[Exchange, Any], Coroutine[Any, Any, None]]:
        """What hears a notification of this extension; those of clients that do not offer it are ignored."""

        async def hear(exchange: Exchange, params: Any) -> None:
            if self.admits(exchange.client):
                await _run(method, exchange, params)

        return hear


async def _run(method: Method, exchange: Exchange, params: Any) -> Any:
    from mcpd.server.context.context import Context
    from mcpd.server.functions.threads import run_in_thread

    if iscoroutinefunction(method.run):
        return await method.run(Context(exchange), params)
    return await run_in_thread(method.run, Context(exchange), params, exchange=exchange)


def _as_result(value: Any) -> Result:
    if isinstance(value, Result):
        return value
    members = {} if value is None else to_builtins(value)
    if not isinstance(members, dict):
        raise TypeError(f"a method's result is a JSON object, not {type(value).__qualname__}")
    return ObjectResult(members)
