"""`RateLimitingMiddleware` and its like, and `ResponseLimitingMiddleware`."""

from __future__ import annotations

import inspect
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from mcpd.compat.exceptions import McpError
from mcpd.compat.fastmcp.middleware import Middleware, MiddlewareContext
from mcpd.compat.fastmcp.results import ToolResult
from mcpd.compat.types.content import TextContent
from mcpd.compat.types.errors import ErrorData

__all__ = [
    "RateLimitError",
    "RateLimitingMiddleware",
    "ResponseLimitingMiddleware",
    "SlidingWindowRateLimitingMiddleware",
]

_MOST = 10_000
"""So many clients are told apart; who asked longest ago is forgotten, and begins anew."""


class RateLimitError(McpError):
    """Too many requests."""

    def __init__(self, message: str = "Rate limit exceeded") -> None:
        super().__init__(ErrorData(code=-32000, message=message))


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
    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._times: deque[float] = deque()

    def take(self) -> bool:
        now = time.monotonic()
        while self._times and self._times[0] < now - self._seconds:
            self._times.popleft()
        if len(self._times) >= self._most:
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

    def _takes(self, client: str) -> bool:
        limiter = self._limiters.get(client)
        if limiter is None:
            limiter = self._limiters[client] = self._make()
            if len(self._limiters) > _MOST:
                self._limiters.popitem(last=False)
        self._limiters.move_to_end(client)
        taken: bool = limiter.take()
        return taken


class RateLimitingMiddleware(_Limiting):
    """So many requests per second, and so many at once, of all or of each client."""

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
        """Go on, or refuse. Raises RateLimitError."""
        client = "" if self.global_limit else await self._client(context)
        if not self._takes(client):
            what = "Global rate limit exceeded" if self.global_limit else f"Rate limit exceeded for client: {client}"
            raise RateLimitError(what)
        return await call_next(context)


class SlidingWindowRateLimitingMiddleware(_Limiting):
    """So many requests in so many minutes."""

    def __init__(
        self, max_requests: int, window_minutes: int = 1, get_client_id: Callable[[Any], Any] | None = None
    ) -> None:
        self.max_requests = max_requests
        self.window_minutes = window_minutes
        super().__init__(lambda: _Window(max_requests, window_minutes * 60), get_client_id)

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Go on, or refuse. Raises RateLimitError."""
        client = await self._client(context)
        if not self._takes(client):
            raise RateLimitError(
                f"Rate limit exceeded: {self.max_requests} requests per {self.window_minutes} minutes "
                f"for client: {client}"
            )
        return await call_next(context)


class ResponseLimitingMiddleware(Middleware):
    """Results of tools that are too large are cut to a text."""

    def __init__(
        self,
        *,
        max_size: int = 1_000_000,
        truncation_suffix: str = "\n\n[Response truncated due to size limit]",
        tools: list[str] | None = None,
    ) -> None:
        if max_size <= 0:
            raise ValueError(f"max_size must be positive, got {max_size}")
        self.max_size = max_size
        self.truncation_suffix = truncation_suffix
        self.tools = None if tools is None else set(tools)

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Go on, and cut."""
        result = await call_next(context)
        if self.tools is not None and context.message.name not in self.tools:
            return result
        if len(result.model_dump_json().encode()) <= self.max_size:
            return result
        texts = [one.text for one in result.content if isinstance(one, TextContent)]
        whole = "\n\n".join(texts) if texts else result.model_dump_json()
        room = max(0, self.max_size - len(self.truncation_suffix.encode()) - 50)
        return ToolResult([TextContent(text=whole.encode()[:room].decode(errors="ignore") + self.truncation_suffix)])
