"""Middleware: an author's functions round the handlers of all methods, composed once, when they are registered.

They see requests in the newest vocabulary, whatever version the client speaks: what an older client sent was read into
it before, and what they answer is shaped for that client after. As in Starlette, the first one added is the outermost.
A method that no middleware names has its handler as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from msgspec import Raw, structs
from msgspec.json import Decoder

from mcpd.errors import InvalidParams, RegistrationError, ToolError
from mcpd.protocol.budget import client_of
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.methods import METHODS
from mcpd.protocol.types.base import NO_JSON, Result
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange
from mcpd.server.handlers.table import BoundHandler, HandlerTable
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.content import encode_data
from mcpd.server.registry.tools import failed

_READ = "resources/read"

_OPEN_TO_MANY = ("http", "websocket")

_decode_arguments = Decoder(dict[str, Any] | None).decode


class MiddlewareRequest:
    """A request on its way to its handler; all middleware of a request has the same one.

    `params` is the struct of its method, as `types.tools.CallToolParams`; assign another one, or change it, before
    `call_next`. The `arguments` in it are still the JSON bytes that came.
    """

    __slots__ = ("_context", "_exchange", "method", "params")

    def __init__(self, method: str, params: Any, exchange: Exchange) -> None:
        self.method = method
        self.params = params
        self._exchange = exchange
        self._context: Context | None = None

    @property
    def context(self) -> Context:
        """What a tool would be given: who asks, in which version, and ways to talk back."""
        if self._context is None:
            self._context = Context(self._exchange)
        return self._context

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a tool or prompt, decoded anew each time; {} where there are none. Assign others to change
        them. Raises InvalidParams for what is no object.
        """
        raw = getattr(self.params, "arguments", None)
        if raw is None or raw is NO_JSON:
            return {}
        if not isinstance(raw, Raw):
            return dict(raw)
        try:
            return _decode_arguments(raw) or {}
        except MALFORMED as error:
            raise InvalidParams(f"arguments: {explain(error)}") from None

    @arguments.setter
    def arguments(self, values: dict[str, Any]) -> None:
        given = Raw(encode_data(values)) if self.method == "tools/call" else values
        self.params = structs.replace(self.params, arguments=given)

    @property
    def caller(self) -> str:
        """A text that is the same for all requests of one caller: its principal, else its address, else its
        connection. Of an IPv6 address the first half counts. Over HTTP and WebSocket all whose address is not known,
        as behind a proxy on a unix socket, are one caller: they may open as many connections as they like.
        """
        session = self._exchange.call.session
        known = session.principal or client_of(session.peer)
        if known:
            return known
        return "unknown address" if self.context.transport in _OPEN_TO_MANY else f"connection {id(session)}"


class CallNext(Protocol):
    """What is inside: the next middleware, at last the handler. Gives the result, or raises the error answer."""

    def __call__(self, request: MiddlewareRequest, /) -> Awaitable[Result]:
        """Go on with the request; more than once if it is to be tried again."""


Middleware: TypeAlias = Callable[[MiddlewareRequest, CallNext], Coroutine[Any, Any, Result]]


class Piece(ABC):
    """A middleware of ours: says which methods it is for, and is told what the server offers."""

    methods: ClassVar[tuple[str, ...]] = ()

    catalog: Catalog | None = None

    def attach(self, catalog: Catalog) -> None:
        """Called once, when it is added to a server. Raises RegistrationError if it has one already."""
        if self.catalog is not None:
            raise RegistrationError(f"{type(self).__name__}: it belongs to a server already; make another one")
        self.catalog = catalog

    @abstractmethod
    async def __call__(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """What any middleware does."""


M = TypeVar("M", bound=Middleware)


def check_methods(handlers: HandlerTable, methods: Collection[str]) -> None:
    """Raise RegistrationError for what is no method of the specification, and none of an extension's."""
    for method in methods:
        if method not in METHODS and method not in handlers and "." not in method.partition("/")[0]:
            raise RegistrationError(
                f"middleware: there is no method {method!r}, only {', '.join(METHODS)}; "
                'write @server.middleware("tools/call") above async def f(request, call_next)'
            )


def put_round(handlers: HandlerTable, catalog: Catalog, function: M, methods: Collection[str] = ()) -> M:
    """Put a middleware round the handlers of these methods, or of all, inside of those that were there before.

    Raises RegistrationError.
    """
    name = getattr(function, "__qualname__", repr(function))
    if not (iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)):
        raise RegistrationError(f"middleware {name}: write it as async def {name}(request, call_next)")
    if isinstance(function, Piece):
        if any(method not in function.methods for method in methods):
            known = ", ".join(function.methods)
            raise RegistrationError(f"middleware: {type(function).__name__} is for {known}; add it without a method")
        methods = function.methods
        function.attach(catalog)

    chosen = frozenset(methods)
    handlers.wrap(
        lambda method, handler: _layer(function, name, method, handler) if not chosen or method in chosen else handler
    )
    return function


_Enter: TypeAlias = Callable[[MiddlewareRequest], Coroutine[Any, Any, Result]]


class _Chain:
    """A handler that is called through middleware: the request is made once, and handed on by each."""

    __slots__ = ("enter", "method")

    def __init__(self, method: str, enter: _Enter) -> None:
        self.method = method
        self.enter = enter

    def __call__(self, exchange: Exchange, params: Any) -> Coroutine[Any, Any, Result]:
        return self.enter(MiddlewareRequest(self.method, params, exchange))


def _layer(function: Middleware, name: str, method: str, handler: BoundHandler) -> BoundHandler:
    """A handler that is called through one middleware more. What fails as a tool does becomes the result of a tool."""
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
        # A method has one or two kinds of results, and `isinstance` is dear for structs.
        if result.__class__ is not usual:
            if not isinstance(result, Result):
                raise TypeError(
                    f"middleware {name} answered {method} with {type(result).__qualname__}, not with a Result"
                )
            usual = result.__class__
        return result

    return _Chain(method, _never_public(enter) if method == _READ else enter)


def _innermost(method: str, handler: BoundHandler) -> _Enter:
    async def enter(request: MiddlewareRequest) -> Result:
        result: Any = handler(request._exchange, request.params)
        if result.__class__ is CoroutineType:
            result = await result
        if method == _READ:
            request._exchange.own_result = result
        given: Result = result
        return given

    return enter


def _never_public(enter: _Enter) -> _Enter:
    """What a resource says of itself is not said of what a middleware has made of it, perhaps for this caller only."""

    async def enter_read(request: MiddlewareRequest) -> Result:
        result: Any = await enter(request)
        own = request._exchange.own_result
        if own is not None and result is not own and own.cache_scope == "public":
            from mcpd.server.registry.caching import as_private  # few resources are public

            result = as_private(result)
        private: Result = result
        return private

    return enter_read
