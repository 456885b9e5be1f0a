"""`ResponseCachingMiddleware`: answers that are kept for a while, in memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

import pydantic_core

from mcpd.compat.fastmcp.middleware import Middleware, MiddlewareContext
from mcpd.compat.fastmcp.tokens import access_token
from mcpd.compat.missing import refuse

__all__ = ["ResponseCachingMiddleware"]

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
_MOST = 10_000


class ResponseCachingMiddleware(Middleware):
    """Lists for five minutes, all else for an hour. `…_settings` are dicts with `ttl`, `enabled`, and for tools
    `included_tools` and `excluded_tools`. What is kept is for the caller that asked."""

    def __init__(self, cache_storage: Any = None, max_item_size: int = 1024 * 1024, **settings: Any) -> None:
        if cache_storage is not None:
            refuse("ResponseCachingMiddleware(cache_storage=…)", "fastmcp")
        unknown = settings.keys() - set(_SETTINGS.values())
        if unknown:
            raise TypeError(f"ResponseCachingMiddleware() got an unexpected keyword argument {min(unknown)!r}")
        self._settings = settings
        self._most = max_item_size
        self._kept: OrderedDict[Any, tuple[float, Any]] = OrderedDict()

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Give what is kept, or go on and keep it."""
        method = context.method or ""
        settings = self._settings.get(_SETTINGS.get(method, ""), {}) if method in _SETTINGS else None
        if settings is None or settings.get("enabled") is False or not _is_about(settings, context.message):
            return await call_next(context)
        user = access_token()
        asked = pydantic_core.to_json(context.message, fallback=str)
        key = method, asked, None if user is None else (user.client_id, user.subject, tuple(user.scopes))
        found = self._kept.get(key)
        if found is not None and found[0] > time.monotonic():
            return found[1]
        result = await call_next(context)
        if len(pydantic_core.to_json(result, fallback=str)) <= self._most and not getattr(result, "is_error", False):
            seconds = settings.get("ttl") or _SECONDS.get(method, 300)
            self._kept[key] = time.monotonic() + seconds, result
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return result


def _is_about(settings: Any, message: Any) -> bool:
    name = getattr(message, "name", None)
    included, excluded = settings.get("included_tools"), settings.get("excluded_tools")
    return (included is None or name in included) and (excluded is None or name not in excluded)
