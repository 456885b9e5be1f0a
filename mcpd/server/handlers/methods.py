"""The handler of each method of the specification: (catalog, exchange, params) -> a result or a coroutine of one.

`HANDLERS` has them by method, `mcpd/protocol/methods.py` what is special about each method. `HandlerTable` is the table
of one server, with the wrappers around its handlers: middleware, lifespans, rules and guards.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import structs

from mcpd.errors import InternalError, InvalidParams, MethodNotFound, ResourceNotFound
from mcpd.protocol.methods import METHODS
from mcpd.protocol.session import WATCH_BYTES
from mcpd.protocol.types.base import (
    LOG_LEVELS,
    DiscoverResult,
    EmptyResult,
    InitializeParams,
    InitializeResult,
    ListChanged,
    PageParams,
    Params,
    ResourcesCapability,
    ServerCapabilities,
    SetLevelParams,
)
from mcpd.protocol.types.features import (
    CallToolParams,
    CallToolResult,
    GetPromptParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceParams,
    SubscribeParams,
)
from mcpd.protocol.versions.table import SUPPORTED, is_known_method
from mcpd.server.context.exchange import Exchange, Handler, finished
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.entries import ActiveExtensions

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import CompleteParams, CompleteResult, ListenParams, ListenResult
    from mcpd.server.registry.entries import Later, PromptEntry, TemplateEntry


def initialize(catalog: Catalog, exchange: Exchange, params: InitializeParams) -> InitializeResult:
    """Return the server's identity and capabilities. The session has agreed on the version already.

    Spec: 2025-11-25 basic/lifecycle.
    """
    return InitializeResult(
        protocol_version=exchange.call.version.name,
        capabilities=_capabilities(catalog, exchange),
        server_info=catalog.identity,
        instructions=catalog.instructions,
    )


def discover(catalog: Catalog, exchange: Exchange, params: Params) -> DiscoverResult:
    """Return the server's versions and capabilities. Its identity is in `_meta`, as in every result.

    Spec: 2026-07-28 server/discover.
    """
    return DiscoverResult(
        supported_versions=list(SUPPORTED),
        capabilities=_capabilities(catalog, exchange),
        instructions=catalog.instructions,
    )


def ping(catalog: Catalog, exchange: Exchange, params: Params) -> EmptyResult:
    """Return an empty result. Spec: 2025-11-25 basic/utilities/ping."""
    return EmptyResult()


def _capabilities(catalog: Catalog, exchange: Exchange) -> ServerCapabilities:
    active = catalog.active_extensions(exchange)
    extensions = {name: catalog.extensions.get(name, {}) for name in sorted(active)}
    offers = catalog.offers
    # A session without state keeps no level or subscription, and no notifications follow later.
    keeps = not exchange.call.session.opening.is_stateless
    changes = ListChanged(list_changed=keeps)
    tasks = None if catalog.tasks is None else catalog.tasks.capabilities_for(exchange, extensions)
    events = None if catalog.events is None else catalog.events.capabilities_for(exchange, extensions)
    return ServerCapabilities(
        tasks=tasks,
        events=events,
        experimental=None if catalog.events is None else catalog.events.experimental,
        logging={} if keeps else None,
        completions={} if "completions" in offers else None,
        prompts=changes if "prompts" in offers else None,
        resources=ResourcesCapability(subscribe=keeps, list_changed=keeps) if "resources" in offers else None,
        tools=changes if "tools" in offers else None,
        extensions=extensions or None,
    )


def check_session(exchange: Exchange) -> None:
    """Raise MethodNotFound for a request without a session, for which nothing can be kept."""
    if exchange.call.session.opening.is_stateless:
        raise MethodNotFound(f"Method not found: {exchange.call.method} needs a session, and this request has none")


def list_tools(catalog: Catalog, exchange: Exchange, params: PageParams) -> Later[ListToolsResult]:
    """Return one page of the tools that this client may see. Spec: 2026-07-28 server/tools."""
    active = catalog.active_extensions(exchange)
    if active and catalog.conditions:
        return _list_under_conditions(catalog, exchange, params, active)
    return catalog.tools.page(active, params.cursor)  # type: ignore[no-any-return]


async def _list_under_conditions(
    catalog: Catalog, exchange: Exchange, params: PageParams, active: ActiveExtensions
) -> ListToolsResult:
    from mcpd.server.registry.rules import with_conditions  # few servers have any

    active = await with_conditions(catalog.conditions, active, exchange)
    page: ListToolsResult = catalog.tools.page(active, params.cursor)
    return page


def call_tool(catalog: Catalog, exchange: Exchange, params: CallToolParams) -> Coroutine[Any, Any, CallToolResult]:
    """Run a tool. Raises InvalidParams for a tool that this client cannot see."""
    entry = catalog.tools.get(params.name)
    if entry is None:
        # The client's extensions are only looked up for a tool that requires one.
        entry = catalog.tools.get(params.name, catalog.active_extensions(exchange))
    if entry is None:
        raise InvalidParams(f"Unknown tool: {params.name}")
    return entry.run(params.arguments, exchange)


def list_resources(catalog: Catalog, exchange: Exchange, params: PageParams) -> ListResourcesResult:
    """Return one page of the resources that this client may see. Spec: 2026-07-28 server/resources."""
    return catalog.resources.page(catalog.active_extensions(exchange), params.cursor)  # type: ignore[no-any-return]


def list_resource_templates(catalog: Catalog, exchange: Exchange, params: PageParams) -> ListResourceTemplatesResult:
    """Return one page of the resource templates."""
    return catalog.templates.page(catalog.active_extensions(exchange), params.cursor)  # type: ignore[no-any-return]


def read_resource(catalog: Catalog, exchange: Exchange, params: ReadResourceParams) -> Any:
    """Read a resource. Raises ResourceNotFound; an empty result would be wrong (S26-117)."""
    read = catalog.reader(params.uri, catalog.active_extensions(exchange))
    if read is None:
        raise ResourceNotFound(params.uri)
    return read(exchange)


def list_prompts(catalog: Catalog, exchange: Exchange, params: PageParams) -> ListPromptsResult:
    """Return one page of prompts. Spec: 2026-07-28 server/prompts."""
    return catalog.prompts.page(catalog.active_extensions(exchange), params.cursor)  # type: ignore[no-any-return]


def get_prompt(catalog: Catalog, exchange: Exchange, params: GetPromptParams) -> Later[GetPromptResult]:
    """Return the messages of a prompt. Raises InvalidParams for an unknown prompt or a missing argument."""
    entry = catalog.prompts.get(params.name, catalog.active_extensions(exchange))
    if entry is None:
        raise InvalidParams(f"Unknown prompt: {params.name}")
    return entry.run(params.arguments or {}, exchange)


async def complete(catalog: Catalog, exchange: Exchange, params: CompleteParams) -> CompleteResult:
    """Return suggestions for one argument of a prompt or one variable of a template.

    Raises InvalidParams for an unknown prompt, template or argument. Spec: 2026-07-28 server/utilities/completion.
    """
    from mcpd.protocol.types.interaction import CompleteResult, Completion, PromptReference  # few clients ask

    active = catalog.active_extensions(exchange)
    entry: PromptEntry | TemplateEntry | None
    if isinstance(params.ref, PromptReference):
        entry = catalog.prompts.get(params.ref.name, active)
        if entry is None:
            raise InvalidParams(f"ref.name: unknown prompt {params.ref.name}")
    else:
        entry = catalog.templates.get(params.ref.uri, active)
        if entry is None:
            if not catalog.has_resource(params.ref.uri, active):
                raise InvalidParams(f"ref.uri: unknown resource template {params.ref.uri}")
            return CompleteResult(completion=Completion(values=[]))

    name = params.argument.name
    if name not in entry.arguments:
        raise InvalidParams(f"argument.name: there is no argument {name}")

    known = (params.context.arguments if params.context else None) or {}
    others = {name: value for name, value in known.items() if value is not None}
    completer = catalog.completers.get((entry.key, name))
    if completer is not None:
        return CompleteResult(completion=await completer.complete(params.argument.value, others, exchange))

    return CompleteResult(completion=await entry.complete(name, params.argument.value, others, exchange))


def set_level(catalog: Catalog, exchange: Exchange, params: SetLevelParams) -> EmptyResult:
    """Send the session's client log messages of this level and above. Raises MethodNotFound without a session.

    Spec: 2025-11-25 server/utilities/logging.
    """
    check_session(exchange)
    if params.level not in LOG_LEVELS:
        raise InvalidParams(f"level: expected one of {', '.join(LOG_LEVELS)}", {"requested": params.level})
    exchange.call.session.log_level = params.level
    return EmptyResult()


# The maximum number of resources that one subscription, or one legacy session, may watch.
MAX_WATCHED = 10_000


def listen(catalog: Catalog, exchange: Exchange, params: ListenParams) -> Coroutine[Any, Any, ListenResult]:
    """Open a subscription for the part of its filter that this server supports.

    Spec: 2026-07-28 basic/patterns/subscriptions.
    """
    from mcpd.protocol.types.interaction import SubscriptionFilter  # few clients listen

    wanted = params.notifications
    uris = wanted.resource_subscriptions
    if uris is not None and len(uris) > MAX_WATCHED:
        raise InvalidParams(f"notifications.resourceSubscriptions: at most {MAX_WATCHED} resources in one subscription")

    if uris:
        exchange.call.hold(sum(map(len, uris)) + WATCH_BYTES * len(uris))
    honoured = SubscriptionFilter(
        tools_list_changed=wanted.tools_list_changed and "tools" in catalog.offers,
        prompts_list_changed=wanted.prompts_list_changed and "prompts" in catalog.offers,
        resources_list_changed=wanted.resources_list_changed and "resources" in catalog.offers,
        events_list_changed=wanted.events_list_changed and "events" in catalog.offers,
        resource_subscriptions=uris if "resources" in catalog.offers else None,
    )
    if wanted.task_ids is not None and catalog.tasks is not None:
        return catalog.tasks.listen(exchange, honoured, wanted.task_ids)
    return exchange.peer.listen(exchange.call, honoured)


def subscribe(catalog: Catalog, exchange: Exchange, params: SubscribeParams) -> EmptyResult:
    """Watch a resource for this session. Raises ResourceNotFound, or MethodNotFound without a session.

    Spec: 2025-11-25 server/resources.
    """
    check_session(exchange)
    if not catalog.has_resource(params.uri, catalog.active_extensions(exchange)):
        raise ResourceNotFound(params.uri)
    if exchange.call.session.watch(params.uri) > MAX_WATCHED:
        exchange.call.session.unwatch(params.uri)
        raise InvalidParams(f"uri: at most {MAX_WATCHED} resources are watched for one client")
    return EmptyResult()


def unsubscribe(catalog: Catalog, exchange: Exchange, params: SubscribeParams) -> EmptyResult:
    """Stop watching a resource. Unknown resources are not an error. Raises MethodNotFound without a session."""
    check_session(exchange)
    exchange.call.session.unwatch(params.uri)
    return EmptyResult()


HANDLERS: dict[str, Callable[[Catalog, Exchange, Any], Any]] = {
    "initialize": initialize,
    "server/discover": discover,
    "ping": ping,
    "tools/list": list_tools,
    "tools/call": call_tool,
    "resources/list": list_resources,
    "resources/read": read_resource,
    "resources/templates/list": list_resource_templates,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "completion/complete": complete,
    "logging/setLevel": set_level,
    "subscriptions/listen": listen,
}

# A function (method, handler) that returns the handler to call instead.
Wrapper: TypeAlias = Callable[[str, Handler], Handler]


class HandlerTable(dict[str, Handler]):
    """Handlers by method, as connections call them. Wrappers are applied when they are added, not at each call."""

    def __init__(self) -> None:
        super().__init__()
        self._bare: dict[str, Handler] = {}
        # With their ranks, the highest first: the wrapper of a higher rank is outside.
        self._wrappers: list[tuple[int, Wrapper]] = []
        # A table that is kept equal to this one.
        self._copy: HandlerTable | None = None

    def put(self, method: str, handler: Handler) -> None:
        """Add or replace the handler of a method."""
        self._bare[method] = handler
        self[method] = self._wrapped(method, handler)
        self._update_copy()

    def bare(self, method: str) -> Handler:
        """Return the handler of a method without wrappers. Raises KeyError for a method without a handler."""
        return self._bare[method]

    def wrap(self, wrapper: Wrapper, *, rank: int = 0) -> None:
        """Wrap all handlers, present and future. Outside are wrappers of higher rank, and earlier ones of the same."""
        self._wrappers.insert(sum(other >= rank for other, _ in self._wrappers), (rank, wrapper))
        for method, handler in self._bare.items():
            self[method] = self._wrapped(method, handler)
        self._update_copy()

    def adopt(self, other: HandlerTable) -> None:
        """Have the handlers of another table from now on. Safe from any thread.

        Methods that both tables have are available all the time.
        """
        other._copy = self
        self._bare, self._wrappers = other._bare, other._wrappers
        other._update_copy()

    def _update_copy(self) -> None:
        if self._copy is not None:
            self._copy.update(self)
            for method in [method for method in self._copy if method not in self]:
                del self._copy[method]

    def _wrapped(self, method: str, handler: Handler) -> Handler:
        for _, wrapper in reversed(self._wrappers):
            handler = wrapper(method, handler)
        return handler


class OpenTable(HandlerTable):
    """Handlers that also answer methods which nobody has declared, with `others(method)`."""

    def __init__(self, others: Callable[[str], Handler]) -> None:
        super().__init__()
        self._others = others

    def get(self, method: str, default: Any = None) -> Any:
        """Return the handler of a method."""
        found = super().get(method)
        if found is None and not is_known_method(method):
            return self._wrapped(method, self._others(method))
        return default if found is None else found


def bind(catalog: Catalog) -> HandlerTable:
    """Return the handlers of one server. The table grows when the first tool, resource or prompt is registered."""
    handlers = HandlerTable()
    ours: dict[str, Handler] = {}

    def add_offered() -> None:
        for method, row in METHODS.items():
            # Clients ask for lists without looking at capabilities, and some show an error as a broken server. No
            # version forbids an empty list. All other methods need their capability, as the page of completion says.
            is_served = row.is_list or not row.capability or row.capability in catalog.offers
            if method not in handlers and is_served:
                ours[method] = _bound(catalog, method)
                handlers.put(method, ours[method])

    def bind_again() -> None:
        for method, handler in ours.items():
            if handlers.bare(method) is handler:
                ours[method] = _bound(catalog, method)
                handlers.put(method, ours[method])

    def guard() -> None:
        from .access import guarding  # few servers check scopes

        handlers.wrap(guarding(catalog), rank=1)

    catalog.on_guard = guard
    catalog.on_offer = add_offered
    catalog.on_rules = bind_again
    add_offered()
    return handlers


def _bound(catalog: Catalog, method: str) -> Handler:
    handler = HANDLERS[method]
    row = METHODS[method]
    bound: Handler = MethodType(handler, catalog)
    if catalog.part_for is not None and (row.is_list or not row.is_open):
        return _in_part(catalog, method, catalog.part_for)
    if catalog.rules is not None and (row.is_list or not row.is_open):
        bound = _with_rules(catalog, method, handler)
    if catalog.shows_errors and row.subject and method != "tools/call":  # errors of tools are results
        return _with_causes(bound)
    return bound


def _in_part(catalog: Catalog, method: str, part_for: Callable[[Exchange], Catalog | None]) -> Handler:
    # Call a handler with the part of the catalog that each request is limited to.
    def bound_to(part: Catalog) -> Handler:
        part.part_for, kept = None, part.part_for
        try:
            return _bound(part, method)
        finally:
            part.part_for = kept

    whole = bound_to(catalog)

    def handle(exchange: Exchange, params: Any) -> Any:
        part = part_for(exchange)
        return (whole if part is None else bound_to(part))(exchange, params)

    return handle


def _with_causes(handler: Handler) -> Handler:
    # Wrap a handler that runs an author's function: internal errors include the text of their cause.
    async def handle(exchange: Exchange, params: Any) -> Any:
        try:
            return await finished(handler(exchange, params))
        except InternalError as error:
            cause = error.__cause__
            if cause is None:
                raise
            what = error.message.partition(";")[0]
            raise InternalError(f"{what}: {type(cause).__name__}: {cause}") from cause

    return handle


# -- visibility rules --------------------------------------------------------------------------


def _with_rules(
    catalog: Catalog, method: str, handler: Callable[[Catalog, Exchange, Any], Any]
) -> Callable[[Exchange, Any], Coroutine[Any, Any, Any]]:
    # Call a handler with the part of the catalog that the rules let each request see.
    from mcpd.server.registry.visibility import view  # few servers have rules

    async def handle(exchange: Exchange, params: Any) -> Any:
        seen = await view(catalog, exchange, method, params)
        if method == "subscriptions/listen":
            params = _readable_only(seen, exchange, params)
        result = await finished(handler(seen, exchange, params))
        if method == "resources/read" and result.cache_scope == "public":
            from mcpd.server.registry.caching import as_private  # few resources are public

            result = as_private(result)
        return result

    return handle


def _readable_only(seen: Catalog, exchange: Exchange, params: Any) -> Any:
    # Drop resources that cannot be read, so that hidden resources look the same as missing ones.
    wanted = params.notifications
    if not wanted.resource_subscriptions:
        return params
    active = seen.active_extensions(exchange)
    uris = [uri for uri in wanted.resource_subscriptions if seen.has_resource(uri, active)]
    return structs.replace(params, notifications=structs.replace(wanted, resource_subscriptions=uris))
