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

from .. import __version__
from ..client.events import OnProgress
from ..errors import InvalidParams, InvalidRequest
from ..host.call import ToolCall
from ..host.visibility import is_for_app, is_for_model, resource_uri
from ..types.tools import Tool
from ..versions import table
from .asks import Page
from .lists import read_all
from .messages import (
    CallResult,
    Complete,
    Connect,
    GetPrompt,
    HelloResult,
    Nothing,
    OpenView,
    SandboxInfo,
    ServerInfo,
    ToolsCall,
    Uri,
    ViewInfo,
    ViewLost,
    ViewMessage,
    ViewReason,
)
from .session import Session
from .views import PageViews

__all__ = ["HEARD", "METHODS", "Desk", "Heard", "Method"]

MOST_CALLS = 200
"""Of the calls of a page so many are remembered: Views can be opened for them."""


class Desk:
    """What one page works on: its calls, its Views."""

    def __init__(self, session: Session, page: Page, views: PageViews, sandbox_origin: str) -> None:
        self.session = session
        self.page = page
        self.views = views
        self.sandbox_origin = sandbox_origin
        self.calls: OrderedDict[str, ToolCall] = OrderedDict()

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
        for old in list(self.calls)[: len(self.calls) - MOST_CALLS]:
            del self.calls[old]
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
    run: Callable[[Desk, Any], Awaitable[Any]]


async def _hello(desk: Desk, params: Struct) -> HelloResult:
    session, views = desk.session, desk.views
    return HelloResult(
        mcpd=__version__,
        target=session.options.name,
        profile=views.profile,
        profiles=["opaque"] if views.is_plain else ["strict", "compat", "opaque"],
        quirks=views.quirks,
        versions=list(table.SUPPORTED),
        server=session.info(),
        sandbox=SandboxInfo(origin=desk.sandbox_origin),
        context=session.context,
    )


async def _connect(desk: Desk, params: Connect) -> ServerInfo:
    if params.version is not None and params.version not in table.SUPPORTED:
        raise InvalidParams(f"protocol version {params.version!r:.40}: there are {', '.join(table.SUPPORTED)}")
    return await desk.session.connect(params.version)


# ---------------------------------------------------------------------------------------- the server


async def _tools(desk: Desk, params: Nothing) -> Any:
    host = desk.session.host
    await host.refresh_tools()
    return {"tools": [_entry(raw) for raw in await read_all(host.client, "tools/list", "tools")]}


def _entry(raw: Raw) -> dict[str, Any]:
    """A tool as listed, with what a host makes of it."""
    tool = decode(raw, type=Tool)
    audience = [who for who, is_for in (("model", is_for_model), ("app", is_for_app)) if is_for(tool)]
    return {**decode(raw), "visibility": audience, "app": resource_uri(tool), "problems": []}


def _list(method: str, member: str) -> Callable[[Desk, Nothing], Awaitable[Any]]:
    async def run(desk: Desk, params: Nothing) -> Any:
        return {member: await read_all(desk.session.host.client, method, member)}

    return run


async def _read(desk: Desk, params: Uri) -> Raw:
    return await desk.session.host.client.request("resources/read", params)


async def _prompt(desk: Desk, params: GetPrompt) -> Raw:
    return await desk.session.host.client.request("prompts/get", params)


async def _complete(desk: Desk, params: Complete) -> Raw:
    return await desk.session.host.client.request("completion/complete", params)


# --------------------------------------------------------------------------------------------- calls


async def _call(desk: Desk, params: ToolsCall) -> CallResult:
    call = desk.calls.get(params.call_id)
    if call is None or call.name != params.name:
        call = desk.begin(params.call_id, params.name, params.caller)

    began = time.perf_counter()
    result = await call.run(params.arguments or {}, on_progress=_progress(desk.page, params.call_id))
    took = round((time.perf_counter() - began) * 1000, 1)
    assert call.raw_result is not None
    return CallResult(result=call.raw_result, milliseconds=took, view=call.view_uri, text=list(result.content))


def _progress(page: Page, call_id: str) -> OnProgress:
    def told(progress: float, total: float | None, message: str | None) -> None:
        page.notify("call/progress", {"callId": call_id, "progress": progress, "total": total, "message": message})

    return told


# --------------------------------------------------------------------------------------------- Views


async def _open_view(desk: Desk, params: OpenView) -> ViewInfo:
    call = desk.call(params.call_id)
    if call.view_uri is None:
        raise InvalidRequest(f"the tool {call.name} has no View")
    return await desk.views.open(call, params.call_id, params.context)


async def _close_view(desk: Desk, params: ViewReason) -> Any:
    return {"clean": await desk.views.close(params.view_id, params.reason)}


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
    "tools/call": Method(ToolsCall, _call),
    "view/open": Method(OpenView, _open_view),
    "view/close": Method(ViewReason, _close_view),
}
"""What a page asks."""


def _message(desk: Desk, params: ViewMessage) -> None:
    desk.views.receive(params.view_id, params.message)


def _lost(desk: Desk, params: ViewLost) -> None:
    desk.views.lost(params.view_id, params.reason)


class Heard(Struct, frozen=True):
    """One notification: what its params are, and what it does."""

    params: type[Struct]
    run: Callable[[Desk, Any], None]


HEARD: dict[str, Heard] = {
    "view/message": Heard(ViewMessage, _message),
    "view/lost": Heard(ViewLost, _lost),
}
"""What a page tells."""
