"""Which function serves which method, and which capability has to be offered for it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import isawaitable
from types import MethodType
from typing import Any, TypeAlias

from msgspec import structs

from mcpd.errors import InternalError
from mcpd.server.context.exchange import Exchange
from mcpd.server.handlers import methods
from mcpd.server.registry.catalog import Catalog

BoundHandler: TypeAlias = Callable[[Exchange, Any], Any]
"""(exchange, params) -> a result, or a coroutine of one."""

Wrapper: TypeAlias = Callable[[str, BoundHandler], BoundHandler]
"""(method, its handler) -> what is called instead."""


class HandlerTable(dict[str, BoundHandler]):
    """Method -> what a connection calls for it. Wrappers are put round the handlers here, once, not at each call.

    Without any the table holds the handlers themselves.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bare: dict[str, BoundHandler] = {}
        self._wrappers: list[Wrapper] = []
        self._same: HandlerTable | None = None
        """Another table that serves what this one does."""

    def put(self, method: str, handler: BoundHandler) -> None:
        """Serve a method."""
        self._bare[method] = handler
        self[method] = self._wrapped(method, handler)
        self._tell()

    def bare(self, method: str) -> BoundHandler:
        """The handler of a method, with nothing round it. Raises KeyError for one that is not served."""
        return self._bare[method]

    def wrap(self, wrapper: Wrapper, *, is_outermost: bool = False) -> None:
        """Put something round all handlers, those of now and of later; what came before it is outside of it, unless it
        is to be the outermost.
        """
        self._wrappers.insert(0 if is_outermost else len(self._wrappers), wrapper)
        for method, handler in self._bare.items():
            self[method] = self._wrapped(method, handler)
        self._tell()

    def surround(self, wrapper: Wrapper) -> None:
        """Put something round all handlers, outside of all that is there and of all that comes."""
        self._wrappers.insert(0, wrapper)
        for method, handler in self._bare.items():
            self[method] = self._wrapped(method, handler)
        self._tell()

    def become(self, other: HandlerTable) -> None:
        """Serve what another table serves, from now on. Any thread; no method is missing meanwhile that both have."""
        other._same = self
        self._bare, self._wrappers = other._bare, other._wrappers
        other._tell()

    def _tell(self) -> None:
        if self._same is not None:
            self._same.update(self)
            for method in [method for method in self._same if method not in self]:
                del self._same[method]

    def _wrapped(self, method: str, handler: BoundHandler) -> BoundHandler:
        for wrapper in reversed(self._wrappers):
            handler = wrapper(method, handler)
        return handler


HANDLERS: dict[str, Callable[[Catalog, Exchange, Any], Any]] = {
    "initialize": methods.initialize,
    "server/discover": methods.discover,
    "ping": methods.ping,
    "tools/list": methods.list_tools,
    "tools/call": methods.call_tool,
    "resources/list": methods.list_resources,
    "resources/read": methods.read_resource,
    "resources/templates/list": methods.list_resource_templates,
    "resources/subscribe": methods.subscribe,
    "resources/unsubscribe": methods.unsubscribe,
    "prompts/list": methods.list_prompts,
    "prompts/get": methods.get_prompt,
    "completion/complete": methods.complete,
    "logging/setLevel": methods.set_level,
    "subscriptions/listen": methods.listen,
}

# Clients ask for lists without looking at capabilities, and some show an error as a broken server. No version
# forbids an answer: one that has none of a kind has an empty list. All else keeps to what is offered, as completion's
# pages say ("Method not found: capability not supported").
_LISTS = frozenset(("tools/list", "resources/list", "resources/templates/list", "prompts/list"))

_NEEDS = {"tools": "tools", "resources": "resources", "prompts": "prompts", "completion": "completions"}


# What runs an author's functions, beside tools, whose errors are results.
_OF_AUTHORS = ("resources/read", "prompts/get")


def bind(catalog: Catalog) -> HandlerTable:
    """The handlers of one server. A method whose capability is not offered is not there; lists always are.

    The table grows by itself when the first tool, resource or prompt is registered.
    """
    handlers = HandlerTable()
    ours: dict[str, BoundHandler] = {}

    def refresh() -> None:
        for method in HANDLERS:
            capability = _NEEDS.get(method.partition("/")[0])
            is_served = method in _LISTS or capability is None or capability in catalog.offers
            if method not in handlers and is_served:
                ours[method] = _bound(catalog, method)
                handlers.put(method, ours[method])

    def bind_again() -> None:
        for method, handler in ours.items():
            if handlers.bare(method) is handler:
                ours[method] = _bound(catalog, method)
                handlers.put(method, ours[method])

    def guard() -> None:
        from mcpd.server.handlers.access import guarding  # few servers ask who sends a request

        handlers.surround(guarding(catalog))

    catalog.on_guard = guard
    catalog.on_offer = refresh
    catalog.on_rules = bind_again
    refresh()
    return handlers


def _bound(catalog: Catalog, method: str) -> BoundHandler:
    handler = HANDLERS[method]
    bound: BoundHandler = MethodType(handler, catalog)
    if catalog.rules is not None and method in METHODS:
        bound = seeing(catalog, method, handler)
    return _telling(bound) if catalog.shows_errors and method in _OF_AUTHORS else bound


def _telling(handler: BoundHandler) -> BoundHandler:
    """The handler with errors that say what failed in the author's function."""

    async def handle(exchange: Exchange, params: Any) -> Any:
        try:
            result = handler(exchange, params)
            return await result if isawaitable(result) else result
        except InternalError as error:
            cause = error.__cause__
            if cause is None:
                raise
            what = error.message.partition(";")[0]
            raise InternalError(f"{what}: {type(cause).__name__}: {cause}") from cause

    return handle


METHODS = frozenset((
    "tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read", "resources/subscribe",
    "prompts/list", "prompts/get", "completion/complete", "subscriptions/listen",
))  # fmt: skip


def seeing(
    catalog: Catalog, method: str, handler: Callable[[Catalog, Exchange, Any], Any]
) -> Callable[[Exchange, Any], Coroutine[Any, Any, Any]]:
    """The handler of a method, on what the rules let a request see."""
    from mcpd.server.registry.visibility import view  # few servers have rules

    async def handle(exchange: Exchange, params: Any) -> Any:
        seen = await view(catalog, exchange, method, params)
        if method == "subscriptions/listen":
            params = _watchable(seen, exchange, params)
        result = handler(seen, exchange, params)
        if isawaitable(result):
            result = await result
        if method == "resources/read" and result.cache_scope == "public":
            from mcpd.server.registry.caching import as_private  # few resources are public

            result = as_private(result)
        return result

    return handle


def _watchable(seen: Catalog, exchange: Exchange, params: Any) -> Any:
    """The params with only those resources that can be read: what is hidden, and what is not there, look the same."""
    wanted = params.notifications
    if not wanted.resource_subscriptions:
        return params
    active = seen.active_extensions(exchange)
    uris = [uri for uri in wanted.resource_subscriptions if seen.has_resource(uri, active)]
    return structs.replace(params, notifications=structs.replace(wanted, resource_subscriptions=uris))
