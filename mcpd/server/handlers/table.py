"""The table of handlers of one server, and the wrappers around them: middleware, lifespans, rules and guards."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import MethodType
from typing import Any, TypeAlias

from msgspec import structs

from mcpd.errors import InternalError
from mcpd.protocol.methods import METHODS
from mcpd.server.context.exchange import Exchange, Handler, finished
from mcpd.server.handlers.methods import HANDLERS
from mcpd.server.registry.catalog import Catalog

# A function (method, handler) that returns the handler to call instead.
Wrapper: TypeAlias = Callable[[str, Handler], Handler]


class HandlerTable(dict[str, Handler]):
    """Handlers by method, as connections call them. Wrappers are applied when they are added, not at each call."""

    def __init__(self) -> None:
        super().__init__()
        self._bare: dict[str, Handler] = {}
        self._wrappers: list[Wrapper] = []
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

    def wrap(self, wrapper: Wrapper, *, is_outermost: bool = False) -> None:
        """Wrap all handlers, present and future. A later wrapper is inside earlier ones, unless it is the outermost."""
        self._wrappers.insert(0 if is_outermost else len(self._wrappers), wrapper)
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
        for wrapper in reversed(self._wrappers):
            handler = wrapper(method, handler)
        return handler


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
        from mcpd.server.handlers.access import guarding  # few servers check scopes

        handlers.wrap(guarding(catalog), is_outermost=True)

    catalog.on_guard = guard
    catalog.on_offer = add_offered
    catalog.on_rules = bind_again
    add_offered()
    return handlers


def _bound(catalog: Catalog, method: str) -> Handler:
    handler = HANDLERS[method]
    row = METHODS[method]
    bound: Handler = MethodType(handler, catalog)
    if catalog.rules is not None and (row.is_list or not row.is_open):
        bound = _with_rules(catalog, method, handler)
    if catalog.shows_errors and row.subject and method != "tools/call":  # errors of tools are results
        return _with_causes(bound)
    return bound


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
