"""`RequestContext`, the HTTP request behind it, and what the `Context` classes of all libraries share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mcpd.compat.types.base import RequestId, RequestParams
from mcpd.protocol.principal import Origin
from mcpd.transports.authentication import RequestHeaders

if TYPE_CHECKING:
    from mcpd.server.context.exchange import Exchange


SessionT = TypeVar("SessionT")
LifespanContextT = TypeVar("LifespanContextT")
RequestT = TypeVar("RequestT")

Close = Callable[[], Awaitable[None]]
Handler = Callable[[Any], Awaitable[Any]]


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[dict[str, Any]]:
    """The lifespan of a server that has none of its own."""
    yield {}


@dataclass
class RequestContext(Generic[SessionT, LifespanContextT, RequestT]):
    """A request: its id, its `_meta`, the client's session, the lifespan's value, and the HTTP request, if any."""

    request_id: RequestId
    meta: RequestParams.Meta | None
    session: SessionT
    lifespan_context: LifespanContextT
    experimental: Any = None
    request: RequestT | None = None
    close_sse_stream: Close | None = None
    close_standalone_sse_stream: Close | None = None


request_ctx: ContextVar[RequestContext[Any, Any, Any]] = ContextVar("request_ctx")

current_exchange: ContextVar[Exchange] = ContextVar("current_exchange")
"""The current request as the rest of mcpd sees it."""


def _log_method(level: str) -> Callable[..., Awaitable[None]]:
    async def log(
        self: SharedContext, message: Any, logger_name: str | None = None, extra: Any = None, **_: Any
    ) -> None:
        await self._log(level, message, logger_name, extra)

    return log


class SharedContext(ABC):
    """The methods that the `Context` classes of all libraries share."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    @abstractmethod
    def _current(self) -> RequestContext[Any, Any, Any] | None:
        """Return the current request, None outside of a request."""

    @property
    @abstractmethod
    def session(self) -> Any:
        """The client's session, a `ServerSession`."""

    @property
    def client_id(self) -> str | None:
        """The member `client_id` of the request's `_meta`, if there is one."""
        request = self._current()
        client_id: str | None = None if request is None else getattr(request.meta, "client_id", None)
        return client_id

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send the progress of the request, if the client asked for it."""
        request = self._current()
        if request is not None and request.meta is not None and request.meta.progressToken is not None:
            await self.session.send_progress_notification(
                progress_token=request.meta.progressToken, progress=progress, total=total, message=message
            )

    @abstractmethod
    async def _log(self, level: Any, message: Any, logger_name: str | None, extra: Any) -> None:
        """Send a log message to the client."""

    debug = _log_method("debug")
    info = _log_method("info")
    warning = _log_method("warning")
    error = _log_method("error")

    async def send_tool_list_changed(self) -> None:
        await self.session.send_tool_list_changed()

    async def send_prompt_list_changed(self) -> None:
        await self.session.send_prompt_list_changed()

    async def send_resource_list_changed(self) -> None:
        await self.session.send_resource_list_changed()

    async def close_sse_stream(self) -> None:
        """Close the connection on which the client waits. It reconnects for the response."""
        request = self._current()
        if request is not None and request.close_sse_stream is not None:
            await request.close_sse_stream()


# -- the HTTP request ------------------------------------------------------------------------


class HttpRequest:
    """The headers of a request, where Starlette is not installed. It has no body, query or address."""

    method = "POST"

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.query_params: Mapping[str, str] = {}


def request_of(origin: Origin) -> Any:
    """Return the HTTP request with all its headers, None for other transports. It is Starlette's if that is installed.

    Credentials are among the headers, since servers of these libraries read them there.
    """
    if origin.transport not in ("http", "websocket"):
        return None
    try:
        from starlette.requests import Request
    except ImportError:
        return HttpRequest(RequestHeaders.of(origin.fields))

    headers = [(name.lower(), value) for name, value in origin.fields]
    return Request(
        {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers, "scheme": "http"}
    )
