"""Middleware: an author's functions round the handlers of all methods, composed once, when they are registered.

They see requests in the newest vocabulary, whatever version the client speaks: what an older client sent was read into
it before, and what they answer is shaped for that client after. As in Starlette, the first one added is the outermost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Protocol, TypeAlias, TypeVar

from ..context import Context
from ..context.exchange import Exchange
from ..errors import RegistrationError, ToolError
from ..registry.tools import failed
from ..types.base import Result
from .table import BoundHandler, HandlerTable

__all__ = ["CallNext", "Middleware", "MiddlewareRequest", "put_round"]


class MiddlewareRequest:
    """A request on its way to its handler.

    `params` is the struct of its method, as `types.tools.CallToolParams`; assign another one, or change it, before
    `call_next`. The `arguments` of a tool are still the JSON bytes that came.
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


class CallNext(Protocol):
    """What is inside: the next middleware, at last the handler. Gives the result, or raises the error answer."""

    def __call__(self, request: MiddlewareRequest, /) -> Awaitable[Result]:
        """Go on with the request."""


Middleware: TypeAlias = Callable[[MiddlewareRequest, CallNext], Coroutine[Any, Any, Result]]

M = TypeVar("M", bound=Middleware)


def put_round(handlers: HandlerTable, function: M) -> M:
    """Put a middleware round all handlers, inside of those that were there before. Raises RegistrationError."""
    if not (iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)):
        name = getattr(function, "__qualname__", repr(function))
        raise RegistrationError(f"middleware {name}: write it as async def {name}(request, call_next)")
    handlers.wrap(lambda method, handler: _layer(function, method, handler))
    return function


def _layer(function: Middleware, method: str, handler: BoundHandler) -> BoundHandler:
    """A handler that is called through one middleware. What fails as a tool does becomes the result of a tool."""

    async def call_next(request: MiddlewareRequest) -> Result:
        result = handler(request._exchange, request.params)
        given: Result = await result if isawaitable(result) else result
        return given

    async def handle(exchange: Exchange, params: Any) -> Result:
        try:
            result: Any = await function(MiddlewareRequest(method, params, exchange), call_next)
        except ToolError as error:
            if method != "tools/call":
                raise
            return failed(str(error))
        if not isinstance(result, Result):
            name = getattr(function, "__qualname__", repr(function))
            raise TypeError(f"middleware {name} answered {method} with {type(result).__qualname__}, not with a Result")
        given: Result = result
        return given

    return handle
