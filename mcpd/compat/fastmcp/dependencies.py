"""`fastmcp.dependencies`: values that functions receive besides their arguments, as defaults of parameters."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, TypeVar

from mcpd.compat.auth import AccessToken, caller_token
from mcpd.compat.lowlevel.context import current_exchange, http_headers, request_ctx

T = TypeVar("T", covariant=True)

_OMITTED_HEADERS = frozenset(
    ("accept", "authorization", "connection", "content-length", "content-type", "cookie", "expect", "host",
     "keep-alive", "mcp-session-id", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
     "transfer-encoding", "upgrade")
)  # fmt: skip

current_context: ContextVar[Any] = ContextVar("fastmcp_context", default=None)

# -- functions that return them --------------------------------------------------------------


def get_context() -> Any:
    """Return the context of the current request. Raises RuntimeError outside of a request."""
    found = current_context.get()
    if found is None:
        raise RuntimeError("No active context found.")
    return found


def get_server() -> Any:
    """Return the server of the current request. Raises RuntimeError outside of a request."""
    return get_context().fastmcp


def get_http_request() -> Any:
    """Return the current HTTP request, Starlette's if that is installed. Raises RuntimeError for other transports."""
    request = request_ctx.get(None)
    if request is None or request.request is None:
        raise RuntimeError("No active HTTP request found.")
    return request.request


def get_http_headers(include_all: bool = False, include: set[str] | None = None) -> dict[str, str]:
    """Return the headers of the HTTP request by lower-case name, {} for other transports.

    Headers of the connection and credentials are omitted, unless `include` names them.
    """
    omitted = frozenset() if include_all else _OMITTED_HEADERS - {name.lower() for name in include or ()}
    exchange = current_exchange.get(None)
    headers = {} if exchange is None else http_headers(exchange.origin)
    return {name: value for name, value in headers.items() if name not in omitted}


def get_access_token() -> AccessToken | None:
    """Return the caller as the server's authentication identified them, None for an anonymous caller."""
    return caller_token()


# -- parameters that receive them ------------------------------------------------------------


class Dependency(ABC, Generic[T]):
    """The default of a parameter that clients do not see. It is entered before the call and exited after it."""

    single: bool = False

    @abstractmethod
    async def __aenter__(self) -> T:
        """Return the value."""

    async def __aexit__(self, *_: object) -> None:
        """Release the value after the call."""


class _Call:
    # Each factory is called once during a call.
    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.values: dict[Any, Any] = {}


_call: ContextVar[_Call] = ContextVar("fastmcp_call")


class _Depends(Dependency[Any]):
    def __init__(self, factory: Callable[..., Any], given: dict[str, Any]) -> None:
        self.factory = factory
        self._given = given

    async def __aenter__(self) -> Any:
        call = _call.get()
        key = self.factory if not self._given else id(self)
        if key not in call.values:
            arguments = {name: await _enter(value) for name, value in self._given.items()}
            for name, parameter in inspect.signature(self.factory).parameters.items():
                if name not in arguments and isinstance(parameter.default, Dependency):
                    arguments[name] = await _enter(parameter.default)
            call.values[key] = await _open(self.factory(**arguments))
        return call.values[key]


async def _enter(value: Any) -> Any:
    return await _call.get().stack.enter_async_context(value) if isinstance(value, Dependency) else value


async def _open(value: Any) -> Any:
    stack = _call.get().stack
    if isinstance(value, AbstractAsyncContextManager):
        return await stack.enter_async_context(value)
    if isinstance(value, AbstractContextManager):
        return stack.enter_context(value)
    return await value if inspect.isawaitable(value) else value


async def resolve(dependencies: dict[str, Dependency[Any]], stack: AsyncExitStack) -> dict[str, Any]:
    """Return the values of a function's dependencies. `stack` releases them."""
    token = _call.set(_Call(stack))
    try:
        return {name: await _enter(dependency) for name, dependency in dependencies.items()}
    finally:
        _call.reset(token)


class _Returned(Dependency[Any]):
    # The value that a function without parameters returns.
    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    async def __aenter__(self) -> Any:
        return self._function()


# The library's functions are named like classes.


def Depends(dependency: Callable[..., Any], **given: Any) -> Any:  # noqa: N802
    """Inject what `dependency` returns. Awaitables are awaited, and context managers entered for the call."""
    return _Depends(dependency, given)


CurrentContext = partial(_Returned, get_context)
OptionalCurrentContext = partial(_Returned, current_context.get)
"""The `Context`, None outside of a request."""
CurrentFastMCP = partial(_Returned, get_server)
CurrentRequest = partial(_Returned, get_http_request)
CurrentHeaders = partial(_Returned, partial(get_http_headers, include={"authorization"}))


def CurrentAccessToken() -> Any:  # noqa: N802
    """Inject the caller. A call by an anonymous caller fails."""

    def find() -> AccessToken:
        found = caller_token()
        if found is None:
            raise RuntimeError(
                "No access token found. Ensure authentication is configured and the request is authenticated."
            )
        return found

    return _Returned(find)


def TokenClaim(name: str) -> Any:  # noqa: N802
    """Inject a claim of the caller. A call without this claim fails."""

    def find() -> str:
        found = caller_token()
        if found is None:
            raise RuntimeError(f"No access token available. Cannot extract claim '{name}'.")
        if found.claims.get(name) is None:
            raise RuntimeError(f"Claim '{name}' not found in access token. Available claims: {list(found.claims)}")
        return str(found.claims[name])

    return _Returned(find)


class Progress(Dependency["Progress"]):
    """The progress of the call, which is sent to a client that asked for it."""

    def __init__(self) -> None:
        self.current: int | None = None
        self.total = 1
        self.message: str | None = None

    async def __aenter__(self) -> Progress:
        return Progress()

    async def set_total(self, total: int) -> None:
        if total < 1:
            raise ValueError("Total must be at least 1")
        self.total = total

    async def increment(self, amount: int = 1) -> None:
        if amount < 1:
            raise ValueError("Amount must be at least 1")
        self.current = (self.current or 0) + amount
        await self._report()

    async def set_message(self, message: str | None) -> None:
        self.message = message
        await self._report()

    async def _report(self) -> None:
        await get_context().report_progress(self.current or 0, self.total, self.message)
