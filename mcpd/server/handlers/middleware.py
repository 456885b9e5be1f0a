"""Middleware: an author's functions around the handlers, composed once when they are registered.

They see requests in the newest vocabulary: older clients' requests were translated before, and results are translated
after. As in Starlette, the first middleware is the outermost. The handler of a method without middleware is not
wrapped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from msgspec import Raw, ValidationError, structs
from msgspec.json import decode

from mcpd.errors import RegistrationError, ToolError
from mcpd.protocol.budget import client_of
from mcpd.protocol.jsonrpc import read_object
from mcpd.protocol.methods import METHODS
from mcpd.protocol.types.base import NO_JSON, RawResult, Result
from mcpd.protocol.types.features import CallToolResult, GetPromptResult
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import OPEN_TO_MANY, Exchange, Handler, finished
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.content import encode_data
from mcpd.server.registry.tools import failed
from .methods import HandlerTable

_READ = "resources/read"


class MiddlewareRequest:
    """A request on its way to its handler, the same object for all middleware.

    `params` is the struct of its method, such as `mcpd.types.CallToolParams`; replace or change it before `call_next`.
    Its `arguments` are still the JSON bytes as received.
    """

    __slots__ = ("_context", "_exchange", "method", "params")

    def __init__(self, method: str, params: Any, exchange: Exchange) -> None:
        self.method = method
        self.params = params
        self._exchange = exchange
        self._context: Context | None = None

    @property
    def context(self) -> Context:
        """The Context that a tool would receive."""
        if self._context is None:
            self._context = Context(self._exchange)
        return self._context

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a tool or prompt, decoded anew each time; {} without any. Assign others to change them.
        Raises InvalidParams if they are not an object.
        """
        raw = getattr(self.params, "arguments", None)
        if raw is None or raw is NO_JSON:
            return {}
        if not isinstance(raw, Raw):
            return dict(raw)
        return read_object(raw, "arguments")

    @arguments.setter
    def arguments(self, values: dict[str, Any]) -> None:
        encoded = Raw(encode_data(values)) if self.method == "tools/call" else values
        self.params = structs.replace(self.params, arguments=encoded)

    @property
    def caller(self) -> str:
        """A text that identifies the caller: its principal, otherwise its address, otherwise its connection.

        Of an IPv6 address the first half counts. Over HTTP and WebSocket all callers with an unknown address, such as
        those behind a proxy on a unix socket, are one caller, since they can open any number of connections.
        """
        session = self._exchange.call.session
        known = session.opening.principal or client_of(session.opening.peer)
        if known:
            return known
        return "unknown address" if self.context.transport in OPEN_TO_MANY else f"connection {id(session)}"


class CallNext(Protocol):
    """The next middleware, and finally the handler. Returns the result, or raises the error response."""

    def __call__(self, request: MiddlewareRequest, /) -> Awaitable[Result]:
        """Continue with the request; call it again to retry."""


Middleware: TypeAlias = Callable[[MiddlewareRequest, CallNext], Coroutine[Any, Any, Result]]


class BuiltInMiddleware(ABC):
    """Middleware that comes with mcpd: it has methods of its own and knows the catalog."""

    methods: ClassVar[tuple[str, ...]] = ()

    catalog: Catalog | None = None

    def attach(self, catalog: Catalog) -> None:
        """Called once, when it is added to a server. Raises RegistrationError if it belongs to one already."""
        if self.catalog is not None:
            raise RegistrationError(f"{type(self).__name__}: it belongs to a server already; create another one")
        self.catalog = catalog

    @abstractmethod
    async def __call__(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Handle a request, as any middleware does."""


M = TypeVar("M", bound=Middleware)


def check_methods(handlers: HandlerTable, methods: Collection[str]) -> None:
    """Raise RegistrationError for a method that neither the specification nor an extension has."""
    for method in methods:
        if method not in METHODS and method not in handlers and "." not in method.partition("/")[0]:
            raise RegistrationError(
                f"middleware: there is no method {method!r}, only {', '.join(METHODS)}; "
                'write @server.middleware("tools/call") above async def f(request, call_next)'
            )


def add_middleware(handlers: HandlerTable, catalog: Catalog, function: M, methods: Collection[str] = ()) -> M:
    """Wrap the handlers of these methods, or all, inside earlier middleware. Raises RegistrationError."""
    name = getattr(function, "__qualname__", repr(function))
    if not (iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)):
        raise RegistrationError(f"middleware {name}: write it as async def {name}(request, call_next)")
    if isinstance(function, BuiltInMiddleware):
        if any(method not in function.methods for method in methods):
            known = ", ".join(function.methods)
            raise RegistrationError(
                f"middleware: {type(function).__name__} is only for {known}; add it without a method"
            )
        methods = function.methods
        function.attach(catalog)

    chosen = frozenset(methods)
    handlers.wrap(
        lambda method, handler: _layer(function, name, method, handler) if not chosen or method in chosen else handler
    )
    return function


_Enter: TypeAlias = Callable[[MiddlewareRequest], Coroutine[Any, Any, Result]]


class _Chain:
    # A handler with middleware: the request object is made once and passed on.
    __slots__ = ("enter", "method")

    def __init__(self, method: str, enter: _Enter) -> None:
        self.method = method
        self.enter = enter

    def __call__(self, exchange: Exchange, params: Any) -> Coroutine[Any, Any, Result]:
        return self.enter(MiddlewareRequest(self.method, params, exchange))


def _layer(function: Middleware, name: str, method: str, handler: Handler) -> Handler:
    # Wrap a handler in one more middleware. A ToolError becomes the result of a tool.
    call_next = handler.enter if isinstance(handler, _Chain) else _innermost(method, handler)
    usual: type[Result] | None = None

    async def enter(request: MiddlewareRequest) -> Result:
        nonlocal usual
        try:
            result: Any = await function(request, call_next)
        except ToolError as error:
            if method != "tools/call":
                raise
            return failed(str(error))
        # A method has one or two kinds of results, and `isinstance` is slow for structs.
        if result.__class__ is not usual:
            if not isinstance(result, Result):
                raise TypeError(f"middleware {name} returned {type(result).__qualname__} for {method}, not a Result")
            usual = result.__class__
        return result

    return _Chain(method, _never_public(enter) if method == _READ else enter)


def _innermost(method: str, handler: Handler) -> _Enter:
    async def enter(request: MiddlewareRequest) -> Result:
        result: Result = await finished(handler(request._exchange, request.params))
        if result.__class__ is RawResult:
            result = _typed(method, result)
        if method == _READ:
            request._exchange.own_result = result
        return result

    return enter


def _typed(method: str, result: RawResult) -> Result:
    # Middleware reads and changes structs. Other results, and those that ask for input, have none.
    known: type[Result] | None = _RESULTS.get(method)
    try:
        return result if known is None else decode(result.raw, type=known)
    except ValidationError:
        return result


_RESULTS: dict[str, type[Result]] = {"tools/call": CallToolResult, "prompts/get": GetPromptResult}


def _never_public(enter: _Enter) -> _Enter:
    # Make a resource's result private if middleware has changed it, perhaps for this caller only.
    async def enter_read(request: MiddlewareRequest) -> Result:
        result: Any = await enter(request)
        own = request._exchange.own_result
        if own is not None and result is not own and own.cache_scope == "public":
            from mcpd.server.registry.caching import as_private  # few resources are public

            result = as_private(result)
        return result  # type: ignore[no-any-return]

    return enter_read
