"""The requests of a page, a function for each, and the table of them.

What is asked of the server goes there as it is, and comes back so. Errors of the server are the page's to show.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import decode

from mcpd import __version__
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.preview.messages import (
    CallId,
    CallPartial,
    CallResult,
    Cancel,
    ChangeContext,
    Complete,
    Connect,
    GetPrompt,
    HelloResult,
    Nothing,
    OpenView,
    Permission,
    SandboxInfo,
    ServerInfo,
    SetLevel,
    SetProfile,
    SetQuirks,
    ToolsCall,
    TraceGet,
    Uri,
    ViewId,
    ViewInfo,
    ViewLost,
    ViewMessage,
    ViewReason,
    ViewToolsCall,
)
from mcpd.apps.preview.session import PERMISSIONS, Page, PreviewSession
from mcpd.apps.preview.views import PageViews
from mcpd.apps.tool_metadata import is_for_app, is_for_model, resource_uri, tool_problems
from mcpd.client import Client
from mcpd.client.session import OnProgress
from mcpd.errors import InvalidParams, InvalidRequest, ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.types.tools import Tool
from mcpd.protocol.versions import table

MAX_LIST_PAGES = 1000


async def read_all(client: Client, method: str, member: str) -> list[Raw]:
    """All entries of a list. Raises what the client does, ProtocolError for an answer that is none."""
    entries: list[Raw] = []
    cursor: str | None = None
    for _ in range(MAX_LIST_PAGES):
        raw = await client.request(method, None if cursor is None else {"cursor": cursor})
        try:
            page: dict[str, Raw] = decode(raw, type=dict[str, Raw])
            entries += decode(page[member], type=list[Raw])
            after: Any = decode(page["nextCursor"]) if "nextCursor" in page else None
        except (KeyError, *MALFORMED) as error:
            raise ProtocolError(f"The answer to {method} cannot be read: {explain(error)}") from None
        if not isinstance(after, str) or after == cursor:
            break
        cursor = after

    return entries


FRESH_SECONDS = 2.0
"""The server's tools are not listed again so soon."""

MAX_CALLS = 200
"""Of the calls of a page so many are remembered: Views can be opened for them."""


class PageRequestHandler:
    """Handles the requests of one page, each by a function of `METHODS`: has its calls and its Views."""

    def __init__(self, session: PreviewSession, page: Page, views: PageViews, sandbox_origin: str) -> None:
        self.session = session
        self.page = page
        self.views = views
        self.sandbox_origin = sandbox_origin
        self.calls: OrderedDict[str, ToolCall] = OrderedDict()
        self.written: dict[str, str] = {}
        """The characters of the arguments so far, of calls that are written bit by bit."""

    def begin(self, call_id: str, name: str, caller: str) -> ToolCall:
        """A call under the page's own id. Raises InvalidParams for an id that was used, or a tool that is not there."""
        if call_id in self.calls:
            raise InvalidParams(f"the call {call_id!r:.80} was begun already")
        host = self.session.host
        tool = host.find_tool(name)
        if tool is None:
            raise InvalidParams(f"the server has no tool {name!r:.200}")
        if caller == "app" and not is_for_app(tool):
            raise InvalidParams(f"the tool {name!r:.200} is not for apps (_meta.ui.visibility)")
        if caller == "model" and not is_for_model(tool):
            raise InvalidParams(f"the tool {name!r:.200} is not for the model (_meta.ui.visibility)")

        call = self.calls[call_id] = ToolCall(host.client, tool)
        for old in list(self.calls)[: len(self.calls) - MAX_CALLS]:
            del self.calls[old]
            self.written.pop(old, None)

        return call

    def call(self, call_id: str) -> ToolCall:
        """One of its calls. Raises InvalidParams."""
        call = self.calls.get(call_id)
        if call is None:
            raise InvalidParams(f"there is no call {call_id!r:.80}")
        return call


class Method(Struct, frozen=True):
    """One request: what its params are, and what it does."""

    params: type[Struct]
    run: Callable[[PageRequestHandler, Any], Awaitable[Any]]


async def _hello(handler: PageRequestHandler, params: Struct) -> HelloResult:
    session, views = handler.session, handler.views
    return HelloResult(
        mcpd=__version__,
        target=session.options.name,
        profile=views.profile,
        profiles=["opaque"] if views.is_plain else ["strict", "compat", "opaque"],
        quirks=views.quirks,
        versions=list(table.SUPPORTED),
        server=session.info(),
        sandbox=SandboxInfo(origin=handler.sandbox_origin),
        context=session.context,
    )


async def _connect(handler: PageRequestHandler, params: Connect) -> ServerInfo:
    if params.version is not None and params.version not in table.SUPPORTED:
        raise InvalidParams(f"protocol version {params.version!r:.40}: there are {', '.join(table.SUPPORTED)}")
    return await handler.session.connect(params.version)


# ---------------------------------------------------------------------------------------- the server


async def _tools(handler: PageRequestHandler, params: Nothing) -> Any:
    # What the host has just read, because it has connected or the list has changed, is not asked for again.
    entries = await handler.session.host.listed_tools(fresh_seconds=FRESH_SECONDS)
    return {"tools": [_entry(raw) for raw in entries]}


def _entry(raw: Raw) -> dict[str, Any]:
    """A tool as listed, with what a host makes of it; one that no host can read with why."""
    listed = decode(raw)
    try:
        tool = decode(raw, type=Tool)
    except MALFORMED as error:
        members = listed if isinstance(listed, dict) else {"listed": listed}
        name = members.get("name")
        why = f"no host can read this, and it is left out: {explain(error)}"
        named = name if isinstance(name, str) else "(without a name)"
        return {**members, "name": named, "visibility": [], "app": None, "problems": [why]}

    audience = [who for who, is_for in (("model", is_for_model), ("app", is_for_app)) if is_for(tool)]
    return {**listed, "visibility": audience, "app": resource_uri(tool), "problems": tool_problems(listed)}


def _list(method: str, member: str) -> Callable[[PageRequestHandler, Nothing], Awaitable[Any]]:
    async def run(handler: PageRequestHandler, params: Nothing) -> Any:
        return {member: await read_all(handler.session.host.client, method, member)}

    return run


async def _subscribe(handler: PageRequestHandler, params: Uri) -> Nothing:
    await handler.session.host.client.subscribe(params.uri)
    return Nothing()


async def _unsubscribe(handler: PageRequestHandler, params: Uri) -> Nothing:
    await handler.session.host.client.unsubscribe(params.uri)
    return Nothing()


async def _set_level(handler: PageRequestHandler, params: SetLevel) -> Nothing:
    await handler.session.host.client.set_log_level(params.level)
    return Nothing()


async def _read(handler: PageRequestHandler, params: Uri) -> Raw:
    return await handler.session.host.client.request("resources/read", params)


async def _prompt(handler: PageRequestHandler, params: GetPrompt) -> Raw:
    return await handler.session.host.client.request("prompts/get", params)


async def _complete(handler: PageRequestHandler, params: Complete) -> Raw:
    return await handler.session.host.client.request("completion/complete", params)


# --------------------------------------------------------------------------------------------- calls


async def _call(handler: PageRequestHandler, params: ToolsCall) -> CallResult:
    call = handler.calls.get(params.call_id)
    if call is None or call.name != params.name:
        call = handler.begin(params.call_id, params.name, params.caller)

    began = time.perf_counter()
    result = await call.run(params.arguments or {}, on_progress=_progress(handler.page, params.call_id))
    took = round((time.perf_counter() - began) * 1000, 1)
    assert call.raw_result is not None
    return CallResult(result=call.raw_result, milliseconds=took, view=call.view_uri, text=list(result.content))


async def _begin_call(handler: PageRequestHandler, params: CallId) -> Nothing:
    handler.begin(params.call_id, params.name, params.caller)
    return Nothing()


async def _partial_call(handler: PageRequestHandler, params: CallPartial) -> Any:
    """The page sends all characters each time; a model would send those that are new."""
    call, before = handler.call(params.call_id), handler.written.get(params.call_id, "")
    if not params.text.startswith(before):
        raise InvalidParams("the text goes on from what was sent before")
    handler.written[params.call_id] = params.text
    call.stream_arguments(params.text[len(before) :])
    return {"closed": call.partial}


async def _cancel_call(handler: PageRequestHandler, params: Cancel) -> Nothing:
    handler.call(params.call_id).cancel(params.reason)
    return Nothing()


def _progress(page: Page, call_id: str) -> OnProgress:
    def told(progress: float, total: float | None, message: str | None) -> None:
        page.notify("call/progress", {"callId": call_id, "progress": progress, "total": total, "message": message})

    return told


# --------------------------------------------------------------------------------------------- Views


async def _open_view(handler: PageRequestHandler, params: OpenView) -> ViewInfo:
    call = handler.call(params.call_id)
    if call.view_uri is None:
        raise InvalidRequest(f"the tool {call.name} has no View")
    return await handler.views.open(call, params.call_id, params.context)


async def _close_view(handler: PageRequestHandler, params: ViewReason) -> Any:
    return {"clean": await handler.views.close(params.view_id, params.reason)}


async def _reload_view(handler: PageRequestHandler, params: ViewId) -> ViewInfo:
    return await handler.views.reload(params.view_id)


async def _ping_view(handler: PageRequestHandler, params: ViewId) -> Any:
    return {"milliseconds": round(await handler.views.ping(params.view_id) * 1000, 2)}


async def _change_context(handler: PageRequestHandler, params: ChangeContext) -> Nothing:
    handler.views.change_context(params.view_id, params.context)
    return Nothing()


async def _view_tools(handler: PageRequestHandler, params: ViewId) -> Any:
    return {"tools": handler.views.shown(params.view_id).app_tools}


async def _call_view_tool(handler: PageRequestHandler, params: ViewToolsCall) -> Any:
    view = handler.views.shown(params.view_id)
    return await view.call_app_tool(params.name, params.arguments, confirmed=params.confirmed)


async def _allow(handler: PageRequestHandler, params: Permission) -> Nothing:
    if params.name not in PERMISSIONS:
        raise InvalidParams(f"permission {params.name!r:.40}: there are {', '.join(PERMISSIONS)}")
    handler.views.allow(params.view_id, params.name)
    return Nothing()


async def _set_quirks(handler: PageRequestHandler, params: SetQuirks) -> Nothing:
    handler.views.quirks = params.quirks
    return Nothing()


async def _set_profile(handler: PageRequestHandler, params: SetProfile) -> Nothing:
    if handler.views.is_plain and params.profile != "opaque":
        raise InvalidParams("where the names of the sandbox are not found, Views are opaque")
    handler.views.profile = params.profile
    return Nothing()


# ------------------------------------------------------------------------------------------- records


async def _conversation(handler: PageRequestHandler, params: Nothing) -> Any:
    told = handler.session.conversation
    messages = [
        {"viewId": one.view, "tool": one.tool, "role": one.role, "content": one.content} for one in told.messages
    ]
    context = [
        {"viewId": one.view, "tool": one.tool, "content": one.content, "structuredContent": one.structured_content}
        for one in told.contexts
    ]

    return {"messages": messages, "context": context}


async def _trace(handler: PageRequestHandler, params: TraceGet) -> Any:
    return handler.session.trace.get(params)


METHODS: dict[str, Method] = {
    "hello": Method(Nothing, _hello),
    "server/connect": Method(Connect, _connect),
    "tools/list": Method(Nothing, _tools),
    "resources/list": Method(Nothing, _list("resources/list", "resources")),
    "resources/templates/list": Method(Nothing, _list("resources/templates/list", "resourceTemplates")),
    "prompts/list": Method(Nothing, _list("prompts/list", "prompts")),
    "resources/read": Method(Uri, _read),
    "prompts/get": Method(GetPrompt, _prompt),
    "completion/complete": Method(Complete, _complete),
    "resources/subscribe": Method(Uri, _subscribe),
    "resources/unsubscribe": Method(Uri, _unsubscribe),
    "logging/setLevel": Method(SetLevel, _set_level),
    "tools/call": Method(ToolsCall, _call),
    "call/begin": Method(CallId, _begin_call),
    "call/partial": Method(CallPartial, _partial_call),
    "call/cancel": Method(Cancel, _cancel_call),
    "view/open": Method(OpenView, _open_view),
    "view/close": Method(ViewReason, _close_view),
    "view/reload": Method(ViewId, _reload_view),
    "view/ping": Method(ViewId, _ping_view),
    "view/context": Method(ChangeContext, _change_context),
    "view/tools": Method(ViewId, _view_tools),
    "view/tools/call": Method(ViewToolsCall, _call_view_tool),
    "view/permission": Method(Permission, _allow),
    "quirks/set": Method(SetQuirks, _set_quirks),
    "profile/set": Method(SetProfile, _set_profile),
    "conversation/get": Method(Nothing, _conversation),
    "trace/get": Method(TraceGet, _trace),
}
"""What a page asks."""


def _message(handler: PageRequestHandler, params: ViewMessage) -> None:
    handler.views.receive(params.view_id, params.message)


def _lost(handler: PageRequestHandler, params: ViewLost) -> None:
    handler.views.lost(params.view_id, params.reason)


class Heard(Struct, frozen=True):
    """One notification: what its params are, and what it does."""

    params: type[Struct]
    run: Callable[[PageRequestHandler, Any], None]


HEARD: dict[str, Heard] = {
    "view/message": Heard(ViewMessage, _message),
    "view/lost": Heard(ViewLost, _lost),
}
"""What a page tells."""
