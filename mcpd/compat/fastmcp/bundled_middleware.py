"""The middleware that comes with `fastmcp`: timing, logging, error handling, retries, limits and caching."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pydantic_core

from mcpd.compat.auth import caller_token
from mcpd.compat.errors import McpError, NotFoundError, ValidationError
from mcpd.compat.fastmcp.middleware import Middleware, MiddlewareContext
from mcpd.compat.fastmcp.results import ToolResult
from mcpd.compat.missing import refuse
from mcpd.compat.types.base import TextContent
from mcpd.errors import as_told
from mcpd.protocol.printable import printable

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

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        return await self._timed(context, call_next, f"Request {context.method or 'unknown'}")

    async def _timed(self, context: MiddlewareContext[Any], call_next: Any, what: str) -> Any:
        start = time.perf_counter()
        try:
            result = await call_next(context)
        except Exception as error:
            self.logger.log(
                self.log_level, "%s failed after %.2fms: %s", printable(what), _since(start), printable(str(error))
            )
            raise
        self.logger.log(self.log_level, "%s completed in %.2fms", printable(what), _since(start))
        return result


class DetailedTimingMiddleware(TimingMiddleware):
    """The same, with the name of the tool, resource or prompt."""

    _logger_name = "fastmcp.timing.detailed"

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        name = getattr(context.message, "name", None) or getattr(context.message, "uri", "unknown")
        kinds = {"tools/call": "Tool", "resources/read": "Resource", "prompts/get": "Prompt"}
        lists = f"List {(context.method or '').removesuffix('/list').replace('/', ' ')}"
        kind = kinds.get(context.method or "")
        return await self._timed(context, call_next, f"{kind} '{name}'" if kind else lists)


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
        about: dict[str, Any] = {}
        if self.include_payloads or self.include_payload_length or self.estimate_payload_tokens:
            payload = self._payload(context.message)
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
        whole = {
            "event": f"{context.type}_{event}",
            "method": context.method or "unknown",
            "source": context.source,
            **about,
        }
        text = json.dumps(whole) if self._is_json else " ".join(f"{name}={value}" for name, value in whole.items())
        self.logger.log(level or self.log_level, "%s", printable(text))

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        if self.methods and context.method not in self.methods:
            return await call_next(context)
        self._write(context, "start", **self._about(context))
        start = time.perf_counter()
        try:
            result = await call_next(context)
        except Exception as error:
            self._write(context, "error", logging.ERROR, duration_ms=round(_since(start), 2), error=str(error))
            raise
        self._write(context, "success", duration_ms=round(_since(start), 2))
        return result


class StructuredLoggingMiddleware(LoggingMiddleware):
    """The same, as JSON."""

    _logger_name = "fastmcp.middleware.structured_logging"
    _is_json = True


def _since(start: float) -> float:
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


def _error_response(error: Exception, method: str) -> McpError:
    kind = type(error.__cause__ or error)
    code, text = -32603, "Internal error"
    if kind in (ValueError, TypeError, ValidationError):
        code, text = -32602, "Invalid params"
    elif kind in (FileNotFoundError, KeyError, NotFoundError):
        is_resource = method.startswith("resources/")
        code, text = (-32002, "Resource not found") if is_resource else (-32001, "Not found")
    elif kind is PermissionError:
        code, text = -32000, "Permission denied"
    elif kind is TimeoutError:
        code, text = -32000, "Request timeout"
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
                if not any(isinstance(each, self.retry_exceptions) for each in (error, error.__cause__)):
                    raise
                delay = min(self.base_delay * self.backoff_multiplier**attempt, self.max_delay)
                self.logger.warning(
                    "Request %s failed: %s. Retrying in %.1fs...",
                    printable(context.method or ""),
                    printable(str(error)),
                    delay,
                )
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
    def __init__(self, make: Callable[[], Any], get_client_id: Callable[[Any], Any] | None) -> None:
        self._make = make
        self.get_client_id = get_client_id
        self._limiters: OrderedDict[str, Any] = OrderedDict()

    async def _client(self, context: MiddlewareContext[Any]) -> str:
        if self.get_client_id is None:
            return "global"
        found = self.get_client_id(context)
        return str(await found if inspect.isawaitable(found) else found)

    def _admits(self, client: str) -> bool:
        limiter = self._limiters.get(client)
        if limiter is None:
            limiter = self._limiters[client] = self._make()
            if len(self._limiters) > _MAX_CLIENTS:
                self._limiters.popitem(last=False)
        self._limiters.move_to_end(client)
        taken: bool = limiter.take()
        return taken


class RateLimitingMiddleware(_Limiting):
    """Limits the requests per second, and in a burst: of all clients, or of each one."""

    def __init__(
        self,
        max_requests_per_second: float = 10.0,
        burst_capacity: int | None = None,
        get_client_id: Callable[[Any], Any] | None = None,
        global_limit: bool = False,
    ) -> None:
        usual = int(max_requests_per_second * 2)
        self.burst_capacity = burst_capacity or (max(1, usual) if max_requests_per_second > 0 else usual)
        self.max_requests_per_second = max_requests_per_second
        self.global_limit = global_limit
        super().__init__(lambda: _Bucket(self.burst_capacity, max_requests_per_second), get_client_id)

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        client = "" if self.global_limit else await self._client(context)
        if not self._admits(client):
            what = "Global rate limit exceeded" if self.global_limit else f"Rate limit exceeded for client: {client}"
            raise RateLimitError(what)
        return await call_next(context)


class SlidingWindowRateLimitingMiddleware(_Limiting):
    """Limits the requests of a client in a number of minutes."""

    def __init__(
        self, max_requests: int, window_minutes: int = 1, get_client_id: Callable[[Any], Any] | None = None
    ) -> None:
        self.max_requests = max_requests
        self.window_minutes = window_minutes
        super().__init__(lambda: _Window(max_requests, window_minutes * 60), get_client_id)

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        client = await self._client(context)
        if not self._admits(client):
            raise RateLimitError(
                f"Rate limit exceeded: {self.max_requests} requests per {self.window_minutes} minutes "
                f"for client: {client}"
            )
        return await call_next(context)


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
        texts = [one.text for one in result.content if isinstance(one, TextContent)]
        whole = "\n\n".join(texts) if texts else result.model_dump_json()
        room = max(0, self.max_size - len(self.truncation_suffix.encode()) - 50)
        return ToolResult([TextContent(text=whole.encode()[:room].decode(errors="ignore") + self.truncation_suffix)])


# -- caching ---------------------------------------------------------------------------------

_SECONDS = {"tools/call": 3600, "resources/read": 3600, "prompts/get": 3600}
_SETTINGS = {
    "tools/list": "list_tools_settings",
    "resources/list": "list_resources_settings",
    "resources/templates/list": "list_resource_templates_settings",
    "prompts/list": "list_prompts_settings",
    "tools/call": "call_tool_settings",
    "resources/read": "read_resource_settings",
    "prompts/get": "get_prompt_settings",
}
_MAX_CACHED = 10_000


class ResponseCachingMiddleware(Middleware):
    """Caches lists for five minutes, and other results for an hour, in memory and for the same caller only.

    The options named `…_settings` are dicts with `ttl` (seconds), `enabled`, and for tools `included_tools` and
    `excluded_tools`.
    """

    def __init__(self, cache_storage: Any = None, max_item_size: int = 1024 * 1024, **settings: Any) -> None:
        if cache_storage is not None:
            refuse("ResponseCachingMiddleware(cache_storage=…)", "fastmcp")
        unknown = settings.keys() - set(_SETTINGS.values())
        if unknown:
            raise TypeError(f"ResponseCachingMiddleware() got an unexpected keyword argument {min(unknown)!r}")
        self._settings = settings
        self._max_size = max_item_size
        self._cached: OrderedDict[Any, tuple[float, Any]] = OrderedDict()

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        method = context.method or ""
        settings = self._settings.get(_SETTINGS.get(method, ""), {}) if method in _SETTINGS else None
        if settings is None or settings.get("enabled") is False or not _applies(settings, context.message):
            return await call_next(context)
        # A result may depend on the caller, so it is cached for the same caller only.
        user = caller_token()
        asked = pydantic_core.to_json(context.message, fallback=str)
        key = method, asked, None if user is None else (user.client_id, user.subject, tuple(user.scopes))
        found = self._cached.get(key)
        if found is not None and found[0] > time.monotonic():
            return found[1]
        result = await call_next(context)
        if len(pydantic_core.to_json(result, fallback=str)) <= self._max_size and not getattr(
            result, "is_error", False
        ):
            seconds = settings.get("ttl") or _SECONDS.get(method, 300)
            self._cached[key] = time.monotonic() + seconds, result
            if len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)
        return result


def _applies(settings: Any, message: Any) -> bool:
    name = getattr(message, "name", None)
    included, excluded = settings.get("included_tools"), settings.get("excluded_tools")
    return (included is None or name in included) and (excluded is None or name not in excluded)
