"""The Views of one page, from the opening of their frames to their end, with the quirks of other hosts.

docs/testing-apps.md describes which host has which quirk. A quirk that leaves something out applies to the
notifications about the call that opened the View, and to the results of calls of the View itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import decode

from mcpd.apps.host.document import OUTER_TOKENS, Profile
from mcpd.apps.host.host import Treatment
from mcpd.apps.host.shown_view import ShownView, change_contexts
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.host.view.context import HostContext, merge
from mcpd.apps.host.view.events import Closed
from mcpd.apps.host.view.messages import TOOL_INPUT, TOOL_INPUT_PARTIAL, TOOL_RESULT
from mcpd.apps.tool_metadata import resource_uri
from mcpd.errors import InvalidParams, RequestCancelled
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.printable import printable
from mcpd.transports.recorder import head_of
from .messages import Quirks, ViewInfo
from .sandbox import Origins, Place, Sandbox, policy_of
from .session import Page, PreviewSession
from .violations import explain_stopped, explain_violation, read_report

log = logging.getLogger("mcpd.preview")

# The proxy drops messages of Views whose methods begin like its own.
RESERVED = "ui/notifications/sandbox-"
GUEST_GONE = f"{RESERVED}guest-gone"
"""Sent by the proxy when its frame contains something else than the View."""

FAILED_RESULT = {"content": [{"type": "text", "text": "The tool failed (mcpd preview: errorResult)"}], "isError": True}

# As in ChatGPT, without functions.
OPENAI = {"theme": "light", "locale": "en", "displayMode": "inline", "toolInput": None, "toolOutput": None}


# ------------------------------------------------------------------------------------------ quirks


def treatment(quirks: Quirks, profile: Profile, permissions: tuple[str, ...]) -> Treatment:
    return Treatment(
        profile="opaque" if quirks.opaque_origin else profile,
        permissions=permissions,
        rewrite=rewriter(quirks),
        sends_early=quirks.input_before_initialized,
    )


def rewriter(quirks: Quirks) -> Callable[[str, Raw], Raw | None] | None:
    """Return the function that changes params and results for a View; None if these quirks change nothing."""
    members = (("_meta", quirks.drop_meta), ("structuredContent", quirks.drop_structured_content))
    dropped = [name for name, is_dropped in members if is_dropped]
    if not (dropped or quirks.no_tool_input or quirks.error_result):
        return None

    def rewrite(method: str, params: Raw) -> Raw | None:
        if method in (TOOL_INPUT, TOOL_INPUT_PARTIAL):
            return None if quirks.no_tool_input else params
        if method == TOOL_RESULT and quirks.error_result:
            return Raw(encode(FAILED_RESULT))
        if method in (TOOL_RESULT, "tools/call") and dropped:
            result: dict[str, Any] = decode(params)
            return Raw(encode({name: value for name, value in result.items() if name not in dropped}))
        return params

    return rewrite


# ------------------------------------------------------------------------------------------ Views


class _OpenView(Struct):
    shown: ShownView
    call_id: str
    place: Place
    context: HostContext | None


class PageViews:
    """The Views that one page shows. `quirks`, `profile` and `context` are for those that it opens from now on."""

    def __init__(
        self, session: PreviewSession, page: Page, sandbox: Sandbox, origins: Origins, page_origin: str
    ) -> None:
        self.quirks = Quirks()
        self.is_plain = origins.is_plain(page_origin)
        """Whether the browser does not resolve the names of the sandbox. All Views are opaque then."""
        self.profile: Profile = "opaque" if self.is_plain else session.options.profile
        self.context = HostContext()
        self._session = session
        self._page = page
        self._sandbox = sandbox
        self._origins = origins
        self._page_origin = page_origin
        self._open: dict[str, _OpenView] = {}
        # The permissions that the user allowed to a document, by its URI.
        self._allowed: dict[str, set[str]] = {}

    async def open(self, call: ToolCall, call_id: str, context: HostContext | None) -> ViewInfo:
        # The page has to load the frame at once, because the time limits have started.
        session, quirks = self._session, self.quirks
        profile: Profile = "opaque" if self.is_plain else self.profile
        permissions = {*session.options.permissions, *self._allowed.get(call.view_uri or "", ())}
        shown = await session.host.prepare_view(
            call,
            proxy=True,
            context=self.context if context is None else merge(self.context, context),
            treatment=treatment(quirks, profile, tuple(sorted(permissions))),
        )

        place = self._origins.new_place(self._page_origin)
        opened = self._open[shown.id] = _OpenView(shown, call_id, place, context)
        openai = OPENAI if quirks.openai_global else None
        self._sandbox.put(place, shown.grant, partial(self._on_report, shown.id), title=_title(call), openai=openai)
        shown.ended.add_done_callback(lambda _: self._on_ended(shown.id))
        session.show(shown, self._page)
        shown.begin(partial(self._send, shown.id))
        return _info(opened)

    async def reload(self, view_id: str) -> ViewInfo:
        opened = self._find(view_id)
        host, call = self._session.host, opened.shown.call
        await host.refresh_tools()
        tool = host.find_tool(call.name)
        if tool is not None and resource_uri(tool) is not None:
            call.follow(tool)
        await host.find_document(call.view_uri or "", fresh=True)
        # The page keeps the frame until the View has answered the teardown, or its time is up.
        await opened.shown.close("the app is loaded again")
        return await self.open(call, opened.call_id, opened.context)

    async def close(self, view_id: str, reason: str) -> bool:
        ended = await self._find(view_id).shown.close(reason)
        return isinstance(ended, Closed) and ended.clean

    def end(self) -> None:
        for opened in list(self._open.values()):
            opened.shown.lost("the page was closed")

    def lost(self, view_id: str, reason: str) -> None:
        if (opened := self._open.get(view_id)) is not None:
            opened.shown.lost(reason)

    def _on_ended(self, view_id: str) -> None:
        opened = self._open.pop(view_id, None)
        if opened is not None:
            self._sandbox.remove(opened.place)

    # --------------------------------------------------------------------------------------- messages

    def receive(self, view_id: str, message: Raw) -> None:
        opened = self._open.get(view_id)
        if opened is None:
            return

        data = bytes(message)
        self._session.trace.add(f"view:{view_id}", "host", data)
        head = head_of(data) if RESERVED.encode() in data else None
        method = None if head is None else head.method
        if method == GUEST_GONE:
            opened.shown.lost("it has left its place: an app stays where it is, and opens pages by ui/open-link")
        elif method == f"{RESERVED}dropped":
            text = "the View sent a message whose method is reserved for its proxy; it was dropped"
            self._event(view_id, {"kind": "finding", "rule": "reserved", "text": text, "method": "", "refused": True})
        elif method == f"{RESERVED}noted":
            if (stopped := explain_stopped(data)) is not None:
                self._event(view_id, stopped)
        else:
            opened.shown.receive(data)

    def _send(self, view_id: str, message: bytes) -> None:
        self._session.trace.add("host", f"view:{view_id}", message)
        self._page.notify("view/message", {"viewId": view_id, "message": Raw(message)})

    def _event(self, view_id: str, event: dict[str, Any]) -> None:
        self._page.notify("view/event", {"viewId": view_id, "event": event})

    def _on_report(self, view_id: str, body: bytes, of_proxy: bool) -> None:
        violation = read_report(body, of_proxy=of_proxy)
        if violation is not None and view_id in self._open:
            self._event(view_id, explain_violation(violation))

    # ------------------------------------------------------------------------- requests of the page

    async def ping(self, view_id: str) -> float:
        """Return how many seconds a View takes to answer a ping. Raises RequestCancelled if it is gone before."""
        answer = self._find(view_id).shown.ping()
        await asyncio.wait([answer])
        if answer.cancelled():
            raise RequestCancelled("the View does not answer, and is gone")
        return answer.result()

    def change_context(self, view_id: str | None, delta: HostContext) -> None:
        """Change the host context of one View, or of all open and future ones. Raises LocalProtocolError."""
        if view_id is not None:
            opened = self._find(view_id)
            opened.shown.change_context(delta)
            opened.context = delta if opened.context is None else merge(opened.context, delta)
            return

        self.context = merge(self.context, delta)
        change_contexts([opened.shown for opened in self._open.values()], delta)

    def allow(self, view_id: str, name: str) -> None:
        uri = self._find(view_id).shown.document.uri
        self._allowed.setdefault(uri, set()).add(name)

    def shown(self, view_id: str) -> ShownView:
        """Return an open View. Raises InvalidParams."""
        return self._find(view_id).shown

    def _find(self, view_id: str) -> _OpenView:
        opened = self._open.get(view_id)
        if opened is None:
            raise InvalidParams(f"there is no View {view_id!r:.80}, or it is gone")
        return opened


def _title(call: ToolCall) -> str:
    # The page shows the title in a bar of its own, where it must fit in one line.
    return printable(call.tool.title or call.name)


def _info(opened: _OpenView) -> ViewInfo:
    shown, place = opened.shown, opened.place
    document, grant = shown.document, shown.grant
    return ViewInfo(
        view_id=shown.id,
        call_id=opened.call_id,
        title=_title(shown.call),
        proxy_url=place.proxy_url,
        proxy_origin=place.proxy_origin,
        outer_sandbox=" ".join(OUTER_TOKENS),
        sandbox=grant.sandbox,
        allow=grant.allow,
        prefers_border=document.prefers_border,
        csp=policy_of(place, grant),
        declared=document.csp,
        permissions={
            "asked": list(document.permissions.names()) if document.permissions else [],
            "granted": list(grant.permissions.names()) if grant.permissions else [],
        },
        domain=document.domain,
        sha256=document.digest,
        bytes=len(document.html.encode("utf-8", "replace")),
        uri=document.uri,
        problems=[*document.problems, *grant.problems],
        profile=grant.profile,
    )
