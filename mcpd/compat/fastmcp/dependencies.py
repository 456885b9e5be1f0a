"""`fastmcp.dependencies` and `fastmcp.server.dependencies`: what functions are given besides their arguments."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from mcpd.compat.fastmcp.current import active, current_context, http_request, origin
from mcpd.compat.fastmcp.tokens import AccessToken, access_token

__all__ = [
    "CurrentAccessToken",
    "CurrentContext",
    "CurrentFastMCP",
    "CurrentHeaders",
    "CurrentRequest",
    "Dependency",
    "Depends",
    "OptionalCurrentContext",
    "Progress",
    "TokenClaim",
    "get_access_token",
    "get_context",
    "get_http_headers",
    "get_http_request",
    "get_server",
    "resolved",
]

T = TypeVar("T", covariant=True)

_HOP_BY_HOP = frozenset(
    ("accept", "authorization", "connection", "content-length", "content-type", "cookie", "expect", "host",
     "keep-alive", "mcp-session-id", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
     "transfer-encoding", "upgrade")
)  # fmt: skip


# -- what functions ask ----------------------------------------------------------------------


def get_context() -> Any:
    """The context of the request that runs. Raises RuntimeError where none does."""
    return active()


def get_server() -> Any:
    """The server that serves it. Raises RuntimeError where none does."""
    return active().fastmcp


def get_http_request() -> Any:
    """The HTTP request that brought it, Starlette's where that is installed. Raises RuntimeError if none did."""
    return http_request()


def get_http_headers(include_all: bool = False, include: set[str] | None = None) -> dict[str, str]:
    """Its headers by lower-case name, without those of the connection and the credentials; {} if none brought it."""
    left_out = frozenset() if include_all else _HOP_BY_HOP - {name.lower() for name in include or ()}
    came = origin()
    if came is None:
        return {}
    pairs = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in came.fields)
    return {name: value for name, value in pairs if name not in left_out}


def get_access_token() -> AccessToken | None:
    """Who asks, as the server's authenticator knows them; None for anybody."""
    return access_token()


# -- what they are given ---------------------------------------------------------------------


class Dependency(ABC, Generic[T]):
    """The default of a parameter that clients do not see. Entered before the call, and left after it."""

    single: bool = False

    @abstractmethod
    async def __aenter__(self) -> T:
        """The value."""

    async def __aexit__(self, *_: object) -> None:
        """The call has ended."""


class _Call:
    """What was given during one call: a factory is called once."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.made: dict[Any, Any] = {}


_call: ContextVar[_Call] = ContextVar("fastmcp_call")


class _Depends(Dependency[Any]):
    def __init__(self, factory: Callable[..., Any], given: dict[str, Any]) -> None:
        self.factory = factory
        self._given = given

    async def __aenter__(self) -> Any:
        call = _call.get()
        key = self.factory if not self._given else id(self)
        if key not in call.made:
            arguments = {name: await _entered(value) for name, value in self._given.items()}
            for name, parameter in inspect.signature(self.factory).parameters.items():
                if name not in arguments and isinstance(parameter.default, Dependency):
                    arguments[name] = await _entered(parameter.default)
            call.made[key] = await _opened(self.factory(**arguments))
        return call.made[key]


async def _entered(value: Any) -> Any:
    return await _call.get().stack.enter_async_context(value) if isinstance(value, Dependency) else value


async def _opened(value: Any) -> Any:
    stack = _call.get().stack
    if isinstance(value, AbstractAsyncContextManager):
        return await stack.enter_async_context(value)
    if isinstance(value, AbstractContextManager):
        return stack.enter_context(value)
    return await value if inspect.isawaitable(value) else value


async def resolved(wanted: dict[str, Dependency[Any]], stack: AsyncExitStack) -> dict[str, Any]:
    """The values of a function's dependencies; what they opened is left with `stack`."""
    token = _call.set(_Call(stack))
    try:
        return {name: await _entered(one) for name, one in wanted.items()}
    finally:
        _call.reset(token)


class _Given(Dependency[Any]):
    """What a function gives without arguments."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    async def __aenter__(self) -> Any:
        return self._function()


def Depends(dependency: Callable[..., Any], **given: Any) -> Any:  # noqa: N802 - theirs
    """What `dependency` gives: a value, or one that is awaited or entered for the length of the call."""
    return _Depends(dependency, given)


def CurrentContext() -> Any:  # noqa: N802 - theirs
    """The `Context`."""
    return _Given(get_context)


def OptionalCurrentContext() -> Any:  # noqa: N802 - theirs
    """The `Context`, None where no request runs."""
    return _Given(current_context.get)


def CurrentFastMCP() -> Any:  # noqa: N802 - theirs
    """The server."""
    return _Given(get_server)


def CurrentRequest() -> Any:  # noqa: N802 - theirs
    """The HTTP request."""
    return _Given(get_http_request)


def CurrentHeaders() -> Any:  # noqa: N802 - theirs
    """The headers of the HTTP request."""
    return _Given(lambda: get_http_headers(include={"authorization"}))


def CurrentAccessToken() -> Any:  # noqa: N802 - theirs
    """Who asks. Fails for anybody."""

    def given() -> AccessToken:
        found = access_token()
        if found is None:
            raise RuntimeError(
                "No access token found. Ensure authentication is configured and the request is authenticated."
            )
        return found

    return _Given(given)


def TokenClaim(name: str) -> Any:  # noqa: N802 - theirs
    """A claim of who asks. Fails for anybody, and without the claim."""

    def given() -> str:
        found = access_token()
        if found is None:
            raise RuntimeError(f"No access token available. Cannot extract claim '{name}'.")
        if found.claims.get(name) is None:
            raise RuntimeError(f"Claim '{name}' not found in access token. Available claims: {list(found.claims)}")
        return str(found.claims[name])

    return _Given(given)


class Progress(Dependency["Progress"]):
    """How far the call has come, told to clients that asked for it."""

    def __init__(self) -> None:
        self.current: int | None = None
        self.total = 1
        self.message: str | None = None

    async def __aenter__(self) -> Progress:
        return Progress()

    async def set_total(self, total: int) -> None:
        """How far it will come."""
        if total < 1:
            raise ValueError("Total must be at least 1")
        self.total = total

    async def increment(self, amount: int = 1) -> None:
        """It has come further."""
        if amount < 1:
            raise ValueError("Amount must be at least 1")
        self.current = (self.current or 0) + amount
        await self._tell()

    async def set_message(self, message: str | None) -> None:
        """What it does now."""
        self.message = message
        await self._tell()

    async def _tell(self) -> None:
        await active().report_progress(self.current or 0, self.total, self.message)
