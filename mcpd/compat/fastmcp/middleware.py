"""`Middleware` of `fastmcp`: functions around each request, chosen by its kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

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


class _CallNext(Protocol[T]):
    def __call__(self, context: MiddlewareContext[T]) -> Awaitable[Any]: ...


class CallNext(_CallNext[T]):
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
        hook = _HOOKS.get(context.method or "")
        step: Next = call_next
        if hook is not None:
            step = partial(getattr(self, hook), call_next=step)
        step = partial(self.on_request if context.type == "request" else self.on_notification, call_next=step)
        return await self.on_message(context, step)

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Continue with a message. Subclasses override the hooks of the messages that concern them."""
        return await call_next(context)

    on_request = on_notification = on_initialize = on_discover = on_message
    on_call_tool = on_read_resource = on_get_prompt = on_message
    on_list_tools = on_list_resources = on_list_resource_templates = on_list_prompts = on_message


async def run_through(chain: list[Any], context: MiddlewareContext[Any], last: Next) -> Any:
    """Pass a message through a chain of middleware, the first one outermost."""
    step = last
    for middleware in reversed(chain):
        step = partial(_call, middleware, step)
    return await step(context)


async def _call(middleware: Any, call_next: Next, context: MiddlewareContext[Any]) -> Any:
    return await middleware(context, call_next)
