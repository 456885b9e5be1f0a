"""`TimingMiddleware`, `LoggingMiddleware` and their like: what happens is written to a log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pydantic_core

from mcpd.compat.fastmcp.middleware import Middleware, MiddlewareContext
from mcpd.protocol.printable import printable

__all__ = ["DetailedTimingMiddleware", "LoggingMiddleware", "StructuredLoggingMiddleware", "TimingMiddleware"]


class TimingMiddleware(Middleware):
    """How long each request takes."""

    _name = "fastmcp.timing"

    def __init__(self, logger: logging.Logger | None = None, log_level: int = logging.INFO) -> None:
        self.logger = logger or logging.getLogger(self._name)
        self.log_level = log_level

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Time it."""
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
    """The same by tool, resource and prompt."""

    _name = "fastmcp.timing.detailed"

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Time it, by what it is about."""
        name = getattr(context.message, "name", None) or getattr(context.message, "uri", "unknown")
        kinds = {"tools/call": "Tool", "resources/read": "Resource", "prompts/get": "Prompt"}
        lists = f"List {(context.method or '').removesuffix('/list').replace('/', ' ')}"
        kind = kinds.get(context.method or "")
        return await self._timed(context, call_next, f"{kind} '{name}'" if kind else lists)


class LoggingMiddleware(Middleware):
    """What comes, and how it ends."""

    _name = "fastmcp.middleware.logging"
    _is_json = False

    def __init__(
        self,
        *,
        logger: logging.Logger | None = None,
        log_level: int = logging.INFO,
        include_payloads: bool = False,
        include_payload_length: bool = False,
        estimate_payload_tokens: bool = False,
        max_payload_length: int | None = 1000,
        methods: list[str] | None = None,
        payload_serializer: Callable[[Any], str] | None = None,
    ) -> None:
        self.logger = logger or logging.getLogger(self._name)
        self.log_level = log_level
        self.include_payloads = include_payloads
        self.include_payload_length = include_payload_length
        self.estimate_payload_tokens = estimate_payload_tokens
        self.max_payload_length = None if self._is_json else max_payload_length
        self.methods = methods
        self.payload_serializer = payload_serializer

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
                most = self.max_payload_length
                about["payload"] = payload[:most] + "..." if most and len(payload) > most else payload
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
        """Write what comes and how it ends."""
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
    """The same as JSON."""

    _name = "fastmcp.middleware.structured_logging"
    _is_json = True


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1000
