"""The requests and notifications of a page, and their tables.

Requests for the server are sent to it unchanged, and so are its answers to the page.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, get_type_hints

from msgspec import Raw, Struct
from msgspec.json import decode

from mcpd import __version__
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.tool_metadata import is_for_app, is_for_model, resource_uri, tool_problems
from mcpd.client import Client
from mcpd.errors import InvalidParams, InvalidRequest, LocalProtocolError, ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.types.features import Tool
from mcpd.protocol.versions import table
from . import messages
from .session import PERMISSIONS, Page, PreviewSession, shown_task
from .views import PageViews

FRESH_SECONDS = 2.0
"""Tools that were listed less than this long ago are not listed again."""

MAX_CALLS = 200
"""How many calls of a page are remembered. Views can be opened for them."""

MAX_LIST_PAGES = 1000


Handle = Callable[["PageRequestHandler", Any], Awaitable[Any]]

REQUESTS: dict[str, tuple[type[Struct], Handle]] = {}
"""The requests of a page: the type of the params and the function. A function without a result is answered with {}."""

NOTIFICATIONS: dict[str, tuple[type[Struct], Callable[[PageRequestHandler, Any], None]]] = {}
"""The notifications of a page: the type of the params and the function."""

F = TypeVar("F", bound=Callable[..., Any])


def _request(method: str, table: dict[str, Any] = REQUESTS) -> Callable[[F], F]:
    # Decorate the function of a request. The annotation of its argument is the type of the params.

    def add(function: F) -> F:
        table[method] = get_type_hints(function)["params"], function
        return function

    return add


def _notification(method: str) -> Callable[[F], F]:
    return _request(method, NOTIFICATIONS)


class PageRequestHandler:
    """Handles the requests of one page, and has its calls and Views."""

    def __init__(self, session: PreviewSession, page: Page, views: PageViews, sandbox_origin: str) -> None:
        self.session = session
        self.page = page
        self.views = views
        self._sandbox_origin = sandbox_origin
        self._calls: OrderedDict[str, ToolCall] = OrderedDict()
        # The characters of streamed arguments so far, by the id of the call.
        self._written: dict[str, str] = {}

    @property
    def _client(self) -> Client:
        return self.session.host.client

    @_request("hello")
    async def hello(self, params: messages.NoParams) -> Any:
        return {
            "mcpd": __version__,
            "target": self.session.options.name,
            "profile": self.views.profile,
            "profiles": ["opaque"] if self.views.is_plain else ["strict", "compat", "opaque"],
            "quirks": self.views.quirks,
            "versions": list(table.SUPPORTED),
            "server": self.session.info(),
            "sandbox": {"origin": self._sandbox_origin},
            "context": self.session.context,
        }

    @_request("server/connect")
    async def connect(self, params: messages.Connect) -> messages.ServerInfo:
        if params.version is not None and params.version not in table.SUPPORTED:
            raise InvalidParams(f"protocol version {params.version!r:.40}: there are {', '.join(table.SUPPORTED)}")
        return await self.session.connect(params.version)

    # ------------------------------------------------------------------------------------- server

    @_request("tools/list")
    async def list_tools(self, params: messages.NoParams) -> Any:
        # The host lists the tools when it connects and when they change, which may have just happened.
        entries = await self.session.host.listed_tools(fresh_seconds=FRESH_SECONDS)
        return {"tools": [_tool_entry(raw) for raw in entries]}

    @_request("resources/subscribe")
    async def subscribe(self, params: messages.Uri) -> None:
        await self._client.subscribe(params.uri)

    @_request("resources/unsubscribe")
    async def unsubscribe(self, params: messages.Uri) -> None:
        await self._client.unsubscribe(params.uri)

    @_request("logging/setLevel")
    async def set_level(self, params: messages.SetLevel) -> None:
        await self._client.set_log_level(params.level)

    # ------------------------------------------------------------------------------------- tasks

    @_request("tasks/list")
    async def list_tasks(self, params: messages.NoParams) -> Any:
        try:
            tasks = await self._client.tasks.list()
        except LocalProtocolError:  # the server has no such list
            tasks = []
        return {"tasks": [shown_task(task) for task in tasks]}

    @_request("tasks/cancel")
    async def cancel_task(self, params: messages.TaskId) -> None:
        await self._client.tasks.cancel(params.task_id)

    # ------------------------------------------------------------------------------------- calls

    @_request("tools/call")
    async def call_tool(self, params: messages.ToolsCall) -> Any:
        call = self._calls.get(params.call_id)
        if call is None or call.name != params.name:
            call = self._begin_call(params)

        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            members = {"progress": progress, "total": total, "message": message}
            self.page.notify("call/progress", {"callId": params.call_id, **members})

        started = time.perf_counter()
        result = await call.run(params.arguments or {}, on_progress=on_progress)
        milliseconds = round((time.perf_counter() - started) * 1000, 1)
        # `text` is what a host without apps shows.
        content = list(result.content)
        return {"result": call.raw_result, "milliseconds": milliseconds, "view": call.view_uri, "text": content}

    @_request("call/begin")
    async def begin_call(self, params: messages.BeginCall) -> None:
        self._begin_call(params)

    def _begin_call(self, params: messages.BeginCall) -> ToolCall:
        name, caller = params.name, params.caller
        if params.call_id in self._calls:
            raise InvalidParams(f"the call {params.call_id!r:.80} was begun already")
        host = self.session.host
        tool = host.find_tool(name)
        if tool is None:
            raise InvalidParams(f"the server has no tool {name!r:.200}")
        if caller == "app" and not is_for_app(tool):
            raise InvalidParams(f"the tool {name!r:.200} is not for apps (_meta.ui.visibility)")
        if caller == "model" and not is_for_model(tool):
            raise InvalidParams(f"the tool {name!r:.200} is not for the model (_meta.ui.visibility)")

        call = self._calls[params.call_id] = ToolCall(host.client, tool)
        if len(self._calls) > MAX_CALLS:
            oldest, _ = self._calls.popitem(last=False)
            self._written.pop(oldest, None)

        return call

    def _call(self, call_id: str) -> ToolCall:
        call = self._calls.get(call_id)
        if call is None:
            raise InvalidParams(f"unknown call {call_id!r:.80}")
        return call

    @_request("call/partial")
    async def partial_call(self, params: messages.PartialCall) -> Any:
        # The page sends all characters each time, a model only the new ones.
        call, before = self._call(params.call_id), self._written.get(params.call_id, "")
        if not params.text.startswith(before):
            raise InvalidParams("the text must continue the one that was sent before")
        self._written[params.call_id] = params.text
        call.stream_arguments(params.text[len(before) :])
        return {"closed": call.partial}

    @_request("call/cancel")
    async def cancel_call(self, params: messages.CancelCall) -> None:
        self._call(params.call_id).cancel(params.reason)

    # ------------------------------------------------------------------------------------- Views

    @_request("view/open")
    async def open_view(self, params: messages.OpenView) -> messages.ViewInfo:
        call = self._call(params.call_id)
        if call.view_uri is None:
            raise InvalidRequest(f"the tool {call.name} has no View")
        return await self.views.open(call, params.call_id, params.context)

    @_request("view/close")
    async def close_view(self, params: messages.CloseView) -> Any:
        return {"clean": await self.views.close(params.view_id, params.reason)}

    @_request("view/reload")
    async def reload_view(self, params: messages.ViewId) -> messages.ViewInfo:
        return await self.views.reload(params.view_id)

    @_request("view/ping")
    async def ping_view(self, params: messages.ViewId) -> Any:
        return {"milliseconds": round(await self.views.ping(params.view_id) * 1000, 2)}

    @_request("view/context")
    async def change_context(self, params: messages.ChangeContext) -> None:
        self.views.change_context(params.view_id, params.context)

    @_request("view/tools")
    async def view_tools(self, params: messages.ViewId) -> Any:
        return {"tools": self.views.shown(params.view_id).app_tools}

    @_request("view/tools/call")
    async def call_view_tool(self, params: messages.CallViewTool) -> Any:
        view = self.views.shown(params.view_id)
        return await view.call_app_tool(params.name, params.arguments, confirmed=params.confirmed)

    @_request("view/permission")
    async def allow_permission(self, params: messages.AllowPermission) -> None:
        if params.name not in PERMISSIONS:
            raise InvalidParams(f"permission {params.name!r:.40}: there are {', '.join(PERMISSIONS)}")
        self.views.allow(params.view_id, params.name)

    @_request("quirks/set")
    async def set_quirks(self, params: messages.SetQuirks) -> None:
        self.views.quirks = params.quirks

    @_request("profile/set")
    async def set_profile(self, params: messages.SetProfile) -> None:
        if self.views.is_plain and params.profile != "opaque":
            raise InvalidParams("this browser does not resolve the names of the sandbox, so Views must be opaque")
        self.views.profile = params.profile

    @_notification("view/message")
    def receive_from_view(self, params: messages.ViewMessage) -> None:
        self.views.receive(params.view_id, params.message)

    @_notification("view/lost")
    def view_lost(self, params: messages.ViewLost) -> None:
        self.views.lost(params.view_id, params.reason)

    # ------------------------------------------------------------------------------------- records

    @_request("conversation/get")
    async def conversation(self, params: messages.NoParams) -> Any:
        conversation = self.session.conversation
        messages = [
            {"viewId": message.view, "tool": message.tool, "role": message.role, "content": message.content}
            for message in conversation.messages
        ]
        context = [
            {"viewId": each.view, "tool": each.tool, "content": each.content,
             "structuredContent": each.structured_content}
            for each in conversation.contexts
        ]  # fmt: skip
        return {"messages": messages, "context": context}

    @_request("trace/get")
    async def trace(self, params: messages.TraceGet) -> Any:
        return self.session.trace.get(params)


def _tool_entry(raw: Raw) -> dict[str, Any]:
    # Return a listed tool with its audience and problems, or the reason why no host can decode it.
    listed = decode(raw)
    try:
        tool = decode(raw, type=Tool)
    except MALFORMED as error:
        members = listed if isinstance(listed, dict) else {"listed": listed}
        name = members.get("name")
        problem = f"no host can read this tool, and each leaves it out: {explain(error)}"
        shown = name if isinstance(name, str) else "(without a name)"
        return {**members, "name": shown, "visibility": [], "app": None, "problems": [problem]}

    audience = [who for who, is_for in (("model", is_for_model), ("app", is_for_app)) if is_for(tool)]
    problems = [f"{problem.text}: {problem.advice}" for problem in tool_problems(tool.meta)]
    return {**listed, "visibility": audience, "app": resource_uri(tool), "problems": problems}


async def _read_list(client: Client, method: str, member: str) -> list[Raw]:
    # Return all entries of a list as the server sent them. Raises ProtocolError for an invalid answer.
    entries: list[Raw] = []
    cursor: str | None = None
    for _ in range(MAX_LIST_PAGES):
        raw = await client.request(method, None if cursor is None else {"cursor": cursor})
        try:
            page: dict[str, Raw] = decode(raw, type=dict[str, Raw])
            entries += decode(page[member], type=list[Raw])
            following: Any = decode(page["nextCursor"]) if "nextCursor" in page else None
        except (KeyError, *MALFORMED) as error:
            raise ProtocolError(f"The answer to {method} cannot be read: {explain(error)}") from None
        if not isinstance(following, str) or following == cursor:
            break
        cursor = following

    return entries


def _list(method: str, member: str) -> Handle:
    async def handle(handler: PageRequestHandler, params: messages.NoParams) -> Any:
        return {member: await _read_list(handler.session.host.client, method, member)}

    return handle


def _forward(method: str) -> Handle:
    async def handle(handler: PageRequestHandler, params: Struct) -> Raw:
        return await handler.session.host.client.request(method, params)

    return handle


REQUESTS |= {
    "resources/list": (messages.NoParams, _list("resources/list", "resources")),
    "resources/templates/list": (messages.NoParams, _list("resources/templates/list", "resourceTemplates")),
    "prompts/list": (messages.NoParams, _list("prompts/list", "prompts")),
    "resources/read": (messages.Uri, _forward("resources/read")),
    "prompts/get": (messages.GetPrompt, _forward("prompts/get")),
    "completion/complete": (messages.Complete, _forward("completion/complete")),
}
