"""`Middleware` of `fastmcp.server.middleware`: around each request, by its kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

__all__ = ["CallNext", "Middleware", "MiddlewareContext", "run_through"]

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
    """One message: its params, its method, and the `Context` of the request."""

    message: T
    fastmcp_context: Any = None
    source: Literal["client", "server"] = "client"
    type: Literal["request", "notification"] = "request"
    method: str | None = None
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))

    def copy(self, **changed: Any) -> MiddlewareContext[T]:
        """Another one, with a few things changed."""
        return replace(self, **changed)


class _CallNext(Protocol[T]):
    def __call__(self, context: MiddlewareContext[T]) -> Awaitable[Any]: ...


class CallNext(_CallNext[T]):
    """What goes on with a message: `CallNext[Params, Result]`. For annotations."""

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls


Next: TypeAlias = Callable[[MiddlewareContext[Any]], Awaitable[Any]]


class Middleware:
    """The base class: each hook goes on with `call_next`, before or after what it does itself."""

    async def __call__(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Call the hooks for a message, the most general first."""
        hook = _HOOKS.get(context.method or "")
        step: Next = call_next
        if hook is not None:
            step = partial(getattr(self, hook), call_next=step)
        step = partial(self.on_request if context.type == "request" else self.on_notification, call_next=step)
        return await self.on_message(context, step)

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Any message."""
        return await call_next(context)

    async def on_request(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Any request."""
        return await call_next(context)

    async def on_notification(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Any notification."""
        return await call_next(context)

    async def on_initialize(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """A client says hello."""
        return await call_next(context)

    async def on_discover(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """A client asks what the server is."""
        return await call_next(context)

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """A tool is called: gives a `ToolResult`."""
        return await call_next(context)

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """A resource is read: gives a `ResourceResult`."""
        return await call_next(context)

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """A prompt is rendered: gives a `PromptResult`."""
        return await call_next(context)

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """The tools are listed: gives `Tool`s."""
        return await call_next(context)

    async def on_list_resources(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """The resources are listed: gives `Resource`s."""
        return await call_next(context)

    async def on_list_resource_templates(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """The templates are listed: gives `ResourceTemplate`s."""
        return await call_next(context)

    async def on_list_prompts(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """The prompts are listed: gives `Prompt`s."""
        return await call_next(context)


async def run_through(chain: list[Any], context: MiddlewareContext[Any], last: Next) -> Any:
    """A message through all of them, the first one outermost."""
    step = last
    for one in reversed(chain):
        step = partial(_step, one, step)
    return await step(context)


async def _step(one: Any, call_next: Next, context: MiddlewareContext[Any]) -> Any:
    return await one(context, call_next)
