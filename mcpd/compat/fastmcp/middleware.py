"""`Middleware` of `fastmcp`: functions around each request, chosen by its kind.

Below the base class is the middleware that comes with the library: timing, logging, error handling, retries, limits
and caching.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import pydantic_core

from mcpd.compat.errors import McpError, NotFoundError, ValidationError
from mcpd.compat.install import refuse
from mcpd.compat.lowlevel.session import current_exchange
from mcpd.compat.types.features import TextContent
from mcpd.errors import as_told
from mcpd.protocol.printable import printable
from .functions import ToolResult

T = TypeVar("T")

_HOOKS = {
    "tools/call": "on_call_tool",
    "resources/read": "on_read_resource",
    "prompts/get": "on_get_prompt",
    "tools/list": "on_list_tools",
    "resources/list": "on_list_resources",
    "resources/templates/list": "on_list_resource_templates",
    "prompts/list": "on_list_prompts",
    "initialize": "on_initialize",
    "server/discover": "on_discover",
}


@dataclass(kw_only=True, frozen=True)
class MiddlewareContext(Generic[T]):
    """A message: its params, its method, and the `Context` of the request."""

    message: T
    fastmcp_context: Any = None
    source: Literal["client", "server"] = "client"
    type: Literal["request", "notification"] = "request"
    method: str | None = None
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))

    def copy(self, **changed: Any) -> MiddlewareContext[T]:
        return replace(self, **changed)


class CallNext:
    """The function that continues with a message: `CallNext[Params, Result]`. For annotations."""

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls


Next: TypeAlias = Callable[[MiddlewareContext[Any]], Awaitable[Any]]


class Middleware:
    """The base class. A hook does its work before or after `call_next(context)`, whose result it returns.

    Results are a `ToolResult`, a `ResourceResult`, a `PromptResult`, or a list of components.
    """

    async def __call__(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Call the hooks for a message, the most general first."""
        # The hook of the method is innermost, since it is the most special one.
        step: Next = call_next
        if context.method in _HOOKS:
            step = partial(getattr(self, _HOOKS[context.method]), call_next=step)
        step = partial(self.on_request if context.type == "request" else self.on_notification, call_next=step)
        return await self.on_message(context, step)

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Continue with a message. Subclasses override the hooks of the messages that concern them."""
        return await call_next(context)

    on_request = on_notification = on_initialize = on_discover = on_message
    on_call_tool = on_read_resource = on_get_prompt = on_message
    on_list_tools = on_list_resources = on_list_resource_templates = on_list_prompts = on_message


# -- timing and logging ----------------------------------------------------------------------


class _Logs(Middleware):
    logger: Any = None
    _logger_name: ClassVar[str]

    def __post_init__(self) -> None:
        self.logger = self.logger or logging.getLogger(self._logger_name)


@dataclass(eq=False)
class TimingMiddleware(_Logs):
    """Logs how long each request takes."""

    logger: Any = None
    log_level: int = logging.INFO

    _logger_name = "fastmcp.timing"

    def _subject(self, context: MiddlewareContext[Any]) -> str:
        return f"Request {context.method or 'unknown'}"

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        subject = printable(self._subject(context))
        start = time.perf_counter()
        try:
            result = await call_next(context)
        except Exception as error:
            self.logger.log(
                self.log_level, "%s failed after %.2fms: %s", subject, _milliseconds(start), printable(str(error))
            )
            raise
        self.logger.log(self.log_level, "%s completed in %.2fms", subject, _milliseconds(start))
        return result


class DetailedTimingMiddleware(TimingMiddleware):
    """The same, with the name of the tool, resource or prompt."""

    _logger_name = "fastmcp.timing.detailed"

    def _subject(self, context: MiddlewareContext[Any]) -> str:
        method = context.method or ""
        kind = {"tools/call": "Tool", "resources/read": "Resource", "prompts/get": "Prompt"}.get(method)
        if kind is None:
            return f"List {method.removesuffix('/list').replace('/', ' ')}"
        return f"{kind} '{getattr(context.message, 'name', None) or context.message.uri}'"


@dataclass(eq=False, kw_only=True)
class LoggingMiddleware(_Logs):
    """Logs each message, and how its handling ends."""

    logger: Any = None
    log_level: int = logging.INFO
    include_payloads: bool = False
    include_payload_length: bool = False
    estimate_payload_tokens: bool = False
    max_payload_length: int | None = 1000
    methods: list[str] | None = None
    payload_serializer: Callable[[Any], str] | None = None

    _logger_name = "fastmcp.middleware.logging"
    _is_json: ClassVar[bool] = False

    def _payload(self, message: Any) -> str:
        if self.payload_serializer is not None:
            try:
                return self.payload_serializer(message)
            except Exception as error:
                self.logger.warning("Failed to serialize payload due to %s", printable(str(error)))
        return pydantic_core.to_json(message, fallback=str).decode()

    def _about(self, context: MiddlewareContext[Any]) -> dict[str, Any]:
        if not (self.include_payloads or self.include_payload_length or self.estimate_payload_tokens):
            return {}

        payload = self._payload(context.message)
        about: dict[str, Any] = {}
        if self.estimate_payload_tokens:
            about["payload_tokens"] = len(payload) // 4
        if self.include_payload_length:
            about["payload_length"] = len(payload)
        if self.include_payloads:
            limit = None if self._is_json else self.max_payload_length
            about["payload"] = payload[:limit] + "..." if limit and len(payload) > limit else payload
            about["payload_type"] = type(context.message).__name__
        return about

    def _write(self, context: MiddlewareContext[Any], event: str, level: int | None = None, **about: Any) -> None:
        subject = {"event": f"{context.type}_{event}", "method": context.method or "unknown", "source": context.source}
        members = {**subject, **about}
        text = json.dumps(members) if self._is_json else " ".join(f"{name}={value}" for name, value in members.items())
        self.logger.log(level or self.log_level, "%s", printable(text))

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        if self.methods and context.method not in self.methods:
            return await call_next(context)

        self._write(context, "start", **self._about(context))
        start = time.perf_counter()
        try:
            result = await call_next(context)
        except Exception as error:
            self._write(context, "error", logging.ERROR, duration_ms=round(_milliseconds(start), 2), error=str(error))
            raise
        self._write(context, "success", duration_ms=round(_milliseconds(start), 2))
        return result


class StructuredLoggingMiddleware(LoggingMiddleware):
    """The same, as JSON."""

    _logger_name = "fastmcp.middleware.structured_logging"
    _is_json = True


def _milliseconds(start: float) -> float:
    return (time.perf_counter() - start) * 1000


# -- errors and retries ----------------------------------------------------------------------


@dataclass(eq=False)
class ErrorHandlingMiddleware(_Logs):
    """Logs and counts errors, and turns them into error responses. The code depends on the exception."""

    logger: Any = None
    include_traceback: bool = False
    error_callback: Callable[[Exception, MiddlewareContext[Any]], None] | None = None
    transform_errors: bool = True
    error_counts: Counter[str] = field(default_factory=Counter, init=False)

    _logger_name = "fastmcp.errors"

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        try:
            return await call_next(context)
        except Exception as error:
            self._record(error, context)
            if isinstance(error, McpError) or not self.transform_errors:
                raise
            raise _error_response(error, context.method or "") from error

    def _record(self, error: Exception, context: MiddlewareContext[Any]) -> None:
        kind, method = type(error).__name__, context.method or "unknown"
        self.error_counts[f"{kind}:{method}"] += 1
        text = f"Error in {method}: {kind}: {error}"
        self.logger.error("%s", printable(text), exc_info=as_told(error) if self.include_traceback else None)
        if self.error_callback is not None:
            try:
                self.error_callback(error, context)
            except Exception as second:
                self.logger.error("Error in error callback: %s", printable(str(second)))

    def get_error_stats(self) -> dict[str, int]:
        """Return how often each error occurred, by `Kind:method`."""
        return dict(self.error_counts)


_ERRORS: dict[type[BaseException], tuple[int, str]] = {
    **dict.fromkeys((ValueError, TypeError, ValidationError), (-32602, "Invalid params")),
    **dict.fromkeys((FileNotFoundError, KeyError, NotFoundError), (-32001, "Not found")),
    PermissionError: (-32000, "Permission denied"),
    TimeoutError: (-32000, "Request timeout"),
}


def _error_response(error: Exception, method: str) -> McpError:
    code, text = _ERRORS.get(type(error.__cause__ or error), (-32603, "Internal error"))
    if text == "Not found" and method.startswith("resources/"):
        code, text = -32002, "Resource not found"
    return McpError(code, f"{text}: {error}")


@dataclass(eq=False)
class RetryMiddleware(_Logs):
    """Retries requests that fail because of a connection or a timeout. Delays are in seconds."""

    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 60.0
    backoff_multiplier: float = 2.0
    retry_exceptions: tuple[type[Exception], ...] = (ConnectionError, TimeoutError)
    logger: Any = None

    _logger_name = "fastmcp.retry"

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        for attempt in range(self.max_retries):
            try:
                return await call_next(context)
            except Exception as error:
                # The server wraps exceptions of functions, so the cause counts, too.
                if not any(isinstance(cause, self.retry_exceptions) for cause in (error, error.__cause__)):
                    raise
                delay = min(self.base_delay * self.backoff_multiplier**attempt, self.max_delay)
                self.logger.warning(
                    "Request %s failed: %s. Retrying in %.1fs...",
                    printable(context.method or ""), printable(str(error)), delay,
                )  # fmt: skip
            # This is outside of the handler, so that the exception and its frames are freed first.
            await asyncio.sleep(delay)
        return await call_next(context)


# -- limits ----------------------------------------------------------------------------------

_MAX_CLIENTS = 10_000
"""Clients that are remembered. The client whose last request is the oldest is forgotten first."""


class RateLimitError(McpError):
    """A client sent too many requests."""

    def __init__(self, message: str = "Rate limit exceeded") -> None:
        super().__init__(-32000, message)


class _Bucket:
    def __init__(self, capacity: int, rate: float) -> None:
        self._capacity, self._rate = capacity, rate
        self._tokens, self._filled = float(capacity), time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._tokens = min(self._capacity, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class _Window:
    def __init__(self, limit: int, seconds: float) -> None:
        self._limit, self._seconds = limit, seconds
        self._times: deque[float] = deque()

    def take(self) -> bool:
        now = time.monotonic()
        while self._times and self._times[0] < now - self._seconds:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True


class _Limiting(Middleware):
    get_client_id: Callable[[Any], Any] | None
    global_limit = False

    def __init__(self, make: Callable[[], Any], text: str) -> None:
        self._make = make
        self._text = text
        self._limiters: OrderedDict[str, Any] = OrderedDict()

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        client = "global"
        if self.get_client_id is not None and not self.global_limit:
            client = self.get_client_id(context)
            client = str(await client if inspect.isawaitable(client) else client)
        if client not in self._limiters:
            self._limiters[client] = self._make()
            # A client can send any id, so the number of ids is limited.
            if len(self._limiters) > _MAX_CLIENTS:
                self._limiters.popitem(last=False)
        self._limiters.move_to_end(client)

        if not self._limiters[client].take():
            raise RateLimitError(self._text.format(client))
        return await call_next(context)


class RateLimitingMiddleware(_Limiting):
    """Limits the requests per second, and in a burst: of all clients, or of each one."""

    def __init__(
        self,
        max_requests_per_second: float = 10.0,
        burst_capacity: int | None = None,
        get_client_id: Callable[[Any], Any] | None = None,
        global_limit: bool = False,
    ) -> None:
        self.max_requests_per_second = max_requests_per_second
        self.burst_capacity = burst_capacity or max(1, int(max_requests_per_second * 2))
        self.get_client_id = get_client_id
        self.global_limit = global_limit
        text = "Global rate limit exceeded" if global_limit else "Rate limit exceeded for client: {}"
        super().__init__(lambda: _Bucket(self.burst_capacity, max_requests_per_second), text)


class SlidingWindowRateLimitingMiddleware(_Limiting):
    """Limits the requests of a client in a number of minutes."""

    def __init__(
        self, max_requests: int, window_minutes: int = 1, get_client_id: Callable[[Any], Any] | None = None
    ) -> None:
        self.max_requests = max_requests
        self.window_minutes = window_minutes
        self.get_client_id = get_client_id
        text = f"Rate limit exceeded: {max_requests} requests per {window_minutes} minutes for client: {{}}"
        super().__init__(lambda: _Window(max_requests, window_minutes * 60), text)


@dataclass(eq=False, kw_only=True)
class ResponseLimitingMiddleware(Middleware):
    """Truncates the results of tools that are larger than `max_size` bytes to a text."""

    max_size: int = 1_000_000
    truncation_suffix: str = "\n\n[Response truncated due to size limit]"
    tools: list[str] | None = None

    def __post_init__(self) -> None:
        if self.max_size <= 0:
            raise ValueError(f"max_size must be positive, got {self.max_size}")

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        result = await call_next(context)
        if self.tools is not None and context.message.name not in self.tools:
            return result
        if len(result.model_dump_json().encode()) <= self.max_size:
            return result

        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        text = "\n\n".join(texts) if texts else result.model_dump_json()
        # The rest of the result, such as braces and names of members, takes some bytes, too.
        room = max(0, self.max_size - len(self.truncation_suffix.encode()) - 50)
        return ToolResult([TextContent(text=text.encode()[:room].decode(errors="ignore") + self.truncation_suffix)])


# -- caching ---------------------------------------------------------------------------------

_SETTINGS = {
    method: (f"{hook.removeprefix('on_')}_settings", 300 if "_list_" in hook else 3600)
    for method, hook in _HOOKS.items()
    if hook not in ("on_initialize", "on_discover")
}
"""The option for each method, and how long its results are kept by default, in seconds."""
_MAX_CACHED = 10_000


class ResponseCachingMiddleware(Middleware):
    """Caches lists for five minutes, and other results for an hour, in memory and for the same caller only.

    The options named `…_settings` are dicts with `ttl` (seconds), `enabled`, and for tools `included_tools` and
    `excluded_tools`.
    """

    def __init__(self, cache_storage: Any = None, max_item_size: int = 1024 * 1024, **settings: Any) -> None:
        if cache_storage is not None:
            refuse("ResponseCachingMiddleware(cache_storage=…)", "fastmcp")
        unknown = settings.keys() - {name for name, _ in _SETTINGS.values()}
        if unknown:
            raise TypeError(f"ResponseCachingMiddleware() got an unexpected keyword argument {min(unknown)!r}")
        self._settings = settings
        self._max_size = max_item_size
        self._cached: OrderedDict[Any, tuple[float, Any]] = OrderedDict()

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        name, seconds = _SETTINGS.get(context.method or "", ("", 0))
        settings = self._settings.get(name) or {}
        tool, included = getattr(context.message, "name", None), settings.get("included_tools")
        is_included = (included is None or tool in included) and tool not in (settings.get("excluded_tools") or ())
        if not seconds or settings.get("enabled") is False or not is_included:
            return await call_next(context)

        # A result may depend on the caller, so it is cached for the same caller only. A session knows callers apart
        # whose credentials are checked by a proxy or by a tool.
        exchange = current_exchange.get(None)
        caller = None if exchange is None else (exchange.call.session.opening.principal, exchange.origin.user.scopes)
        key = context.method, pydantic_core.to_json(context.message, fallback=str), caller
        cached = self._cached.get(key)
        if cached is not None and cached[0] > time.monotonic():
            return cached[1]

        result = await call_next(context)
        # Failures are not cached, since the next call may succeed.
        size = len(pydantic_core.to_json(result, fallback=str))
        if size <= self._max_size and not getattr(result, "is_error", False):
            self._cached[key] = time.monotonic() + (settings.get("ttl") or seconds), result
            if len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)
        return result
