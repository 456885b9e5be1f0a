"""The decorators of the low-level server: each makes a handler of a function, by the request that it serves."""

from __future__ import annotations

import inspect
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar, get_type_hints

from mcpd.compat import types
from mcpd.compat.exceptions import UrlElicitationRequiredError
from mcpd.compat.lowlevel.schemas import problem_of
from mcpd.compat.types import content, lifecycle, notifications, prompts, resources, tools
from mcpd.compat.types.base import BaseRequest, Model, PaginatedResult

__all__ = ["Decorator", "Decorators", "Handler"]

F = TypeVar("F", bound=Callable[..., Any])
Handler = Callable[[Any], Awaitable[Any]]


class Decorator(Protocol):
    """What registers a function, and gives it back."""

    def __call__(self, function: F, /) -> F:
        """Register it."""


class Decorators:
    """What registers handlers. Each decorator is called: `@server.list_tools()`."""

    request_handlers: dict[type[Any], Handler]
    notification_handlers: dict[type[Any], Handler]

    def __init__(self) -> None:
        self.request_handlers = {lifecycle.PingRequest: _ping}
        self.notification_handlers = {}
        self._tool_cache: dict[str, tools.Tool] = {}

    # -- lists -------------------------------------------------------------------------------

    def list_tools(self) -> Decorator:
        """The function gives the tools, or with a parameter for the request a page of them."""

        def note(listed: Any) -> None:
            if not isinstance(listed, tools.ListToolsResult):
                self._tool_cache.clear()
            for tool in listed.tools if isinstance(listed, tools.ListToolsResult) else listed:
                self._tool_cache[tool.name] = tool

        return self._lists(tools.ListToolsRequest, tools.ListToolsResult, "tools", note)

    def list_prompts(self) -> Decorator:
        """The function gives the prompts, or a page of them."""
        return self._lists(prompts.ListPromptsRequest, prompts.ListPromptsResult, "prompts")

    def list_resources(self) -> Decorator:
        """The function gives the resources, or a page of them."""
        return self._lists(resources.ListResourcesRequest, resources.ListResourcesResult, "resources")

    def list_resource_templates(self) -> Decorator:
        """The function gives the templates."""
        request, result = resources.ListResourceTemplatesRequest, resources.ListResourceTemplatesResult
        return self._lists(request, result, "resourceTemplates")

    def _lists(
        self,
        request: type[BaseRequest],
        result: type[PaginatedResult],
        member: str,
        note: Callable[[Any], None] | None = None,
    ) -> Decorator:
        def register(function: F) -> F:
            wants_request = _takes(function, request)

            async def handle(asked: Any) -> types.messages.ServerResult:
                listed = await (function(asked) if wants_request else function())
                if note is not None:
                    note(listed)
                page: Any = listed if isinstance(listed, result) else result(**{member: listed})
                return _result(page)

            self.request_handlers[request] = handle
            return function

        return register

    # -- tools -------------------------------------------------------------------------------

    def call_tool(self, *, validate_input: bool = True) -> Decorator:
        """The function takes a name and arguments, and gives content blocks, a dict, both as a pair, or a result.

        Arguments are held to the tool's schema first, unless `validate_input` is false.
        """

        def register(function: F) -> F:
            async def handle(asked: tools.CallToolRequest) -> types.messages.ServerResult:
                name, arguments = asked.params.name, asked.params.arguments or {}
                try:
                    tool = await self._listed_tool(name)
                    if validate_input and tool is not None:
                        problem = problem_of(arguments, tool.inputSchema)
                        if problem is not None:
                            return _failed(f"Input validation error: {problem}")
                    return _tool_result(await function(name, arguments), tool)
                except UrlElicitationRequiredError:
                    raise
                except Exception as error:
                    return _failed(str(error))

            self.request_handlers[tools.CallToolRequest] = handle
            return function

        return register

    async def _listed_tool(self, name: str) -> tools.Tool | None:
        lists = self.request_handlers.get(tools.ListToolsRequest)
        if name not in self._tool_cache and lists is not None:
            await lists(tools.ListToolsRequest())
        return self._tool_cache.get(name)

    # -- resources ---------------------------------------------------------------------------

    def read_resource(self) -> Decorator:
        """The function takes a URI, and gives text, bytes, or several `ReadResourceContents`."""

        def register(function: F) -> F:
            async def handle(asked: resources.ReadResourceRequest) -> types.messages.ServerResult:
                uri = asked.params.uri
                found = await function(uri)
                if isinstance(found, (str, bytes)):
                    return _result(resources.ReadResourceResult(contents=[_contents(uri, found)]))
                if not isinstance(found, Iterable):
                    raise ValueError(f"Unexpected return type from read_resource: {type(found)}")
                parts = [_contents(uri, one.content, one.mime_type, getattr(one, "meta", None)) for one in found]
                return _result(resources.ReadResourceResult(contents=parts))

            self.request_handlers[resources.ReadResourceRequest] = handle
            return function

        return register

    def subscribe_resource(self) -> Decorator:
        """The function is told the URI of a resource that a client watches from now on."""
        return self._told(resources.SubscribeRequest, lambda asked: (asked.params.uri,))

    def unsubscribe_resource(self) -> Decorator:
        """The function is told the URI of a resource that a client watches no longer."""
        return self._told(resources.UnsubscribeRequest, lambda asked: (asked.params.uri,))

    def set_logging_level(self) -> Decorator:
        """The function is told the least severe level that a client wants."""
        return self._told(notifications.SetLevelRequest, lambda asked: (asked.params.level,))

    def _told(self, request: type[BaseRequest], arguments: Callable[[Any], tuple[Any, ...]]) -> Decorator:
        def register(function: F) -> F:
            async def handle(asked: Any) -> types.messages.ServerResult:
                await function(*arguments(asked))
                return _result(lifecycle.EmptyResult())

            self.request_handlers[request] = handle
            return function

        return register

    # -- prompts -----------------------------------------------------------------------------

    def get_prompt(self) -> Decorator:
        """The function takes a name and arguments, and gives a `GetPromptResult`."""

        def register(function: F) -> F:
            async def handle(asked: prompts.GetPromptRequest) -> types.messages.ServerResult:
                return _result(await function(asked.params.name, asked.params.arguments))

            self.request_handlers[prompts.GetPromptRequest] = handle
            return function

        return register

    def completion(self) -> Decorator:
        """The function takes a reference, an argument and a context, and gives a `Completion` or None."""

        def register(function: F) -> F:
            async def handle(asked: prompts.CompleteRequest) -> types.messages.ServerResult:
                params = asked.params
                found = await function(params.ref, params.argument, params.context)
                return _result(prompts.CompleteResult(completion=found or prompts.Completion(values=[])))

            self.request_handlers[prompts.CompleteRequest] = handle
            return function

        return register

    def progress_notification(self) -> Decorator:
        """The function is told of the client's progress: token, progress, total, message."""

        def register(function: F) -> F:
            async def handle(told: notifications.ProgressNotification) -> None:
                params = told.params
                await function(params.progressToken, params.progress, params.total, params.message)

            self.notification_handlers[notifications.ProgressNotification] = handle
            return function

        return register


async def _ping(asked: Any) -> types.messages.ServerResult:
    return _result(lifecycle.EmptyResult())


def _takes(function: Callable[..., Any], request: type[BaseRequest]) -> bool:
    """Whether a function that lists takes the request: it has a parameter of that type, or one without a default."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if not parameters:
        return False
    first = parameters[0]
    try:
        hint = get_type_hints(function).get(first.name)
    except Exception:  # a name that cannot be found
        hint = None
    return hint is request or (hint is None and first.default is first.empty and first.kind is not first.VAR_KEYWORD)


def _tool_result(given: Any, tool: tools.Tool | None) -> types.messages.ServerResult:
    if isinstance(given, tools.CallToolResult):
        return _result(given)
    structured: dict[str, Any] | None
    if isinstance(given, tuple) and len(given) == 2:
        blocks, structured = given
    elif isinstance(given, dict):
        blocks, structured = [content.TextContent(text=json.dumps(given, indent=2))], given
    elif isinstance(given, Iterable):
        blocks, structured = given, None
    else:
        return _failed(f"Unexpected return type from tool: {type(given).__name__}")
    if tool is not None and tool.outputSchema is not None:
        if structured is None:
            return _failed("Output validation error: outputSchema defined but no structured output returned")
        problem = problem_of(structured, tool.outputSchema)
        if problem is not None:
            return _failed(f"Output validation error: {problem}")
    return _result(tools.CallToolResult(content=list(blocks), structuredContent=structured, isError=False))


def _result(result: Any) -> types.messages.ServerResult:
    return types.messages.ServerResult(result)


def _failed(text: str) -> types.messages.ServerResult:
    return _result(tools.CallToolResult(content=[content.TextContent(text=text)], isError=True))


def _contents(uri: Any, data: str | bytes, mime_type: str | None = None, meta: Any = None) -> Any:
    kind: type[Model]
    if isinstance(data, bytes):
        kind, member, text, usual = (
            content.BlobResourceContents, "blob", b64encode(data).decode(), "application/octet-stream",
        )  # fmt: skip
    else:
        kind, member, text, usual = content.TextResourceContents, "text", data, "text/plain"
    return kind(uri=uri, mimeType=mime_type or usual, meta=meta, **{member: text})
