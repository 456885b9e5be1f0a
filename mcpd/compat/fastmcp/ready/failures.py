"""`ErrorHandlingMiddleware` and `RetryMiddleware`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from mcpd.compat.exceptions import McpError
from mcpd.compat.fastmcp.errors import NotFoundError, ValidationError
from mcpd.compat.fastmcp.middleware import Middleware, MiddlewareContext
from mcpd.compat.types.errors import ErrorData
from mcpd.errors import as_told
from mcpd.protocol.printable import printable

__all__ = ["ErrorHandlingMiddleware", "RetryMiddleware"]


class ErrorHandlingMiddleware(Middleware):
    """Errors are logged, counted, and become error answers with a code by their kind."""

    def __init__(
        self,
        logger: logging.Logger | None = None,
        include_traceback: bool = False,
        error_callback: Callable[[Exception, MiddlewareContext[Any]], None] | None = None,
        transform_errors: bool = True,
    ) -> None:
        self.logger = logger or logging.getLogger("fastmcp.errors")
        self.include_traceback = include_traceback
        self.error_callback = error_callback
        self.transform_errors = transform_errors
        self.error_counts: Counter[str] = Counter()

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Go on, and look at what is raised."""
        try:
            return await call_next(context)
        except Exception as error:
            self._note(error, context)
            if isinstance(error, McpError) or not self.transform_errors:
                raise
            raise _answer(error, context.method or "") from error

    def _note(self, error: Exception, context: MiddlewareContext[Any]) -> None:
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
        """How often which error came, by `Kind:method`."""
        return dict(self.error_counts)


def _answer(error: Exception, method: str) -> McpError:
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
    return McpError(ErrorData(code=code, message=f"{text}: {error}"))


class RetryMiddleware(Middleware):
    """Requests that fail by a connection or by time are tried again, later and later."""

    def __init__(
        self,
        max_retries: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 60.0,
        backoff_multiplier: float = 2.0,
        retry_exceptions: tuple[type[Exception], ...] = (ConnectionError, TimeoutError),
        logger: logging.Logger | None = None,
    ) -> None:
        self.max_retries = max_retries
        self.base_delay = base_delay
        self.max_delay = max_delay
        self.backoff_multiplier = backoff_multiplier
        self.retry_exceptions = retry_exceptions
        self.logger = logger or logging.getLogger("fastmcp.retry")

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Go on, and again if that fails so."""
        for attempt in range(self.max_retries):
            try:
                return await call_next(context)
            except Exception as error:
                if not isinstance(error, self.retry_exceptions) and not isinstance(
                    error.__cause__, self.retry_exceptions
                ):
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
