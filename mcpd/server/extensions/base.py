"""`Extension`: everything that an extension can add to a server. `Server` applies it and knows no extension by name.

An extension is active for a request if its client offers it, unless `admits` decides differently. Only then its methods
are answered, its settings are announced, and its part of tools and resources is visible.
Spec: 2026-07-28 basic/versioning, extension negotiation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from mcpd.errors import MissingExtension, RegistrationError, collects
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.types.base import Meta, ObjectResult, Params, Result
from mcpd.protocol.types.features import CallToolResult
from mcpd.protocol.versions.table import Versions
from mcpd.server.context.exchange import Exchange
from mcpd.server.functions.results import to_builtins
from mcpd.server.metadata import is_meta_key
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.entries import ToolMeta

if TYPE_CHECKING:
    from mcpd.protocol.channel import Ending
    from mcpd.protocol.observer import Observer
    from mcpd.server.backplane.base import Backplane
    from mcpd.server.context.context import Context
    from mcpd.server.context.request_state import RequestStateCodec
    from mcpd.server.handlers.methods import HandlerTable
    from mcpd.server.lifespan import Lifespan
    from mcpd.server.observe.report import MountStatus
    from mcpd.server.registry.entries import Problem, ResourceEntry
    from mcpd.transports.routes import Route

F = TypeVar("F", bound=Callable[..., Any])


class Method(Struct, frozen=True, kw_only=True):
    """One method of an extension: the type of its params, and the function that answers it."""

    params: type[Params]
    run: Callable[[Context, Any], Any]
    """(context, params) -> the result of a request: a `Result`, struct, dataclass or dict; None for an empty result."""
    versions: Versions = None
    """The protocol versions with this method; None for all."""
    named: str | None = None
    """The member of the params that the header `Mcp-Name` repeats over HTTP."""


class ToolAddition(ToolMeta, Protocol):
    """The part of an extension in one tool."""

    @property
    def is_required(self) -> bool:
        """Whether the tool exists only for clients with the extension."""


class ResourceAddition(Struct, frozen=True, kw_only=True):
    """Changes of an extension to one resource, which then exists only for clients with the extension."""

    mime_type: str | None
    meta: Meta
    finish: Callable[[Any], Any] | None = None
    """(content of the resource) -> the content as it is sent."""


class ExtensionHost(Protocol):
    """The part of a server that extensions use."""

    catalog: Catalog
    handlers: HandlerTable
    extensions: dict[str, Extension]
    lifespan: Lifespan | None

    @property
    def name(self) -> str:
        """The server's name."""

    @property
    def observers(self) -> Sequence[Observer]:
        """The observers of connections and calls."""

    def announce(self, extension: Extension) -> None:
        """Offer the extension to clients, with its current settings and capabilities."""

    def resource_updated(self, uri: str) -> None:
        """Notify the subscribers of a resource that it has changed."""

    def state_codec(self) -> RequestStateCodec:
        """Return the codec of sealed values."""


class Extension:
    """One extension of a server, for `Server(extensions=[…])`, or created by `server.extension`.

    `id` is a name with a prefix, such as `com.example/notes`. `settings` is the object that clients find under
    `capabilities.extensions[id]`. The decorators `method` and `notification` register functions; derive a class to do
    more. Raises RegistrationError for an id without a prefix.
    """

    capabilities: tuple[str, ...] = ()
    """Capabilities that the server offers even without an entry of that kind, for example resources."""

    tool_options: Collection[str] = ()
    """Keyword arguments of `server.tool` for this extension."""

    parts: Collection[str] = ()
    """Names of parts of the server, which `/mcp/NAME` and `?mounts=NAME,NAME` select over HTTP."""

    wraps_values = False
    """Whether structured content is an object in every version for clients with this extension. Other values are then
    wrapped under `result`, as in versions before 2026-07-28."""

    is_operators = False
    """Whether the operator added it, and not the author: it stays when the server's code is reloaded."""

    has_results = False
    """Whether `finish` processes the results of tools."""

    def __init__(self, id: str, *, settings: Mapping[str, Any] | None = None) -> None:
        prefix, slash, name = id.partition("/")
        if not slash or not prefix or not name or not is_meta_key(id):
            raise RegistrationError(f"extension {id!r}: the id must be prefix/name, such as com.example/notes")
        self.id = id
        self.settings: dict[str, Any] = dict(settings or {})
        self.requests: dict[str, Method] = {}
        self.notifications: dict[str, Method] = {}
        self.server_notifications: dict[str, Versions] = {}
        """The notifications that tools may send with `ctx.notify`: method -> its versions, None for all."""
        self.server: ExtensionHost | None = None

    # -- for authors -------------------------------------------------------------------------

    @collects
    def method(self, name: str, params: type[Params] = Params, *, versions: Versions = None) -> Callable[[F], F]:
        """Register the function for a method, as `@extension.method("com.example/notes/search", SearchParams)`.

        The function takes the context and the params, a subclass of `mcpd.Params`, and returns a struct, dataclass,
        dict or None. A plain function runs in a thread. `versions` are the protocol versions with the method, None for
        all. Clients without the extension get the error -32021 (-32601 before 2026-07-28). Raises RegistrationError if
        the method exists already, or `params` is another class.
        """
        return self._register(self.requests, name, params, versions)

    @collects
    def notification(self, name: str, params: type[Params] = Params, *, versions: Versions = None) -> Callable[[F], F]:
        """Register the function for a notification of clients. Its return value is ignored."""
        return self._register(self.notifications, name, params, versions)

    def may_notify(self, name: str, *, versions: Versions = None) -> None:
        """Declare a notification that tools send with `ctx.notify(name, params)`."""
        self.server_notifications[name] = versions
        if self.server is not None:
            self.server.announce(self)

    def _register(
        self, methods: dict[str, Method], name: str, params: type[Params], versions: Versions
    ) -> Callable[[F], F]:
        def register(function: F) -> F:
            where = f"extension {self.id}, method {name!r}"
            if name in self.requests or name in self.notifications:
                raise RegistrationError(f"{where}: is registered already")
            given: Any = params
            if not (isinstance(given, type) and issubclass(given, Params)):
                raise RegistrationError(f"{where}: params must be a class derived from mcpd.Params, not {params!r}")
            methods[name] = Method(params=params, run=function, versions=versions)
            if self.server is not None:
                self.server.announce(self)
            return function

        return register

    # -- for the server ----------------------------------------------------------------------

    def is_active(self, ctx: Context) -> bool:
        """Whether the client of this request has the extension."""
        return self.server is not None and self.id in self.server.catalog.active_extensions(ctx)

    def bind(self, server: ExtensionHost) -> None:
        """Add the extension to a server, and announce it. A subclass may announce it later."""
        self.server = server
        server.announce(self)

    def admits(self, client: ClientIdentity) -> bool:
        """Whether the extension is active for a client: by default, if the client offers it with an object.

        `client` may be shared by clients with the same description: do not modify it.
        """
        return isinstance((client.capabilities.extensions or {}).get(self.id), dict)

    def tool(self, name: str, options: Mapping[str, Any], meta: Meta) -> ToolAddition | None:
        """Return the part of the extension in a tool that is being registered, or None.

        `options` are the arguments for `tool_options`. Members of `meta` that belong to the extension are removed.
        Raises RegistrationError.
        """
        return None

    def finish(self, result: CallToolResult, *, tool: str, is_active: bool, has_schema: bool) -> CallToolResult:
        """Return a tool's result as a client receives it; `is_active` is whether the extension is active for it.

        Called if `has_results` is set, for tools with a `ToolAddition` and for results of a subclass.
        """
        return result

    def resource(self, uri: str, mime_type: str | None, meta: Meta, *, is_fixed: bool) -> ResourceAddition | None:
        """Return the changes to a resource that is being registered, or None. Raises RegistrationError.

        `is_fixed` is True if the content was registered, instead of a function.
        """
        return None

    def resource_changed(self, uri: str, *, is_removed: bool) -> None:
        """A resource or template with this URI was added or removed."""

    def joined(self, other: Extension) -> None:
        """Another server, with its extension `other`, was joined with this one's server."""

    def joined_resource(self, entry: ResourceEntry, name_of: Callable[[str], str]) -> ResourceEntry:
        """Return a resource that needs this extension, for a server that was joined with others.

        `name_of` returns the names of its tools on the joined server.
        """
        return entry

    def problems(self) -> list[Problem]:
        """Return problems that clients would have, for `mcpd check`."""
        return []

    def mounts(self) -> Sequence[MountStatus]:
        """Return the status of the servers that it has mounted, for `mcpd status`."""
        return ()

    def leave(self, server: ExtensionHost) -> None:
        """The server is replaced by `server`, which has no such extension (`--reload`)."""

    def succeed(self, other: Extension) -> None:
        """This server replaces a running one, which had `other` (`--reload`)."""

    # -- options for serving -----------------------------------------------------------------

    def serve_options(self) -> type | None:
        """Return a TypedDict of options for serving, or None.

        Members that are `Annotated` with a `settings.Option` become options of `mcpd serve` after the target,
        environment variables, and arguments of `Server.run`.
        """
        return None

    def configure(self, options: Mapping[str, Any]) -> None:
        """Apply options for serving, by name, before the first client connects.

        By default attributes with these names are set. Raises ValueError for an invalid value.
        """
        for name, value in options.items():
            setattr(self, name, value)

    # -- serving -----------------------------------------------------------------------------

    def routes(self, endpoint: str, public_url: str) -> Sequence[Route]:
        """Return the HTTP routes beside the endpoint's path; `public_url` is its whole URL, "" if unknown."""
        return ()

    def share(self, backplane: Backplane) -> None:
        """Several processes serve together, on this backplane. Called before `start`."""

    async def start(self) -> None:
        """Serving begins, in the running event loop."""

    @property
    def work(self) -> Ending | None:
        """The work that goes on without a call, and has to end when serving does; None without any."""
        return None

    @property
    def is_busy(self) -> bool:
        """Whether such work goes on now; a daemon without clients waits for its end."""
        return False

    async def aclose(self) -> None:
        """Serving has ended. Safe to call twice."""

    def handler(self, name: str, method: Method) -> Callable[[Exchange, Any], Any]:
        """Return the handler of a method. It refuses clients without the extension, and converts the result."""

        async def handle(exchange: Exchange, params: Any) -> Result:
            if not self.admits(exchange.client):
                needed = f"{name} needs a client that offers the extension {self.id}"
                raise MissingExtension(self.id, needed)
            return _as_result(await _run(method, exchange, params))

        return handle

    def listener(self, method: Method) -> Callable[[Exchange, Any], Coroutine[Any, Any, None]]:
        """Return the listener of a notification. It ignores clients without the extension."""

        async def listen(exchange: Exchange, params: Any) -> None:
            if self.admits(exchange.client):
                await _run(method, exchange, params)

        return listen


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
        raise TypeError(f"the result of a method must be a JSON object, not {type(value).__qualname__}")
    return ObjectResult(members)
