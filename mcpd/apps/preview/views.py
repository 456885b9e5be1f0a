"""The Views of one page: opened for its calls, in frames on addresses of their own, until they are gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from msgspec import Raw
from msgspec.json import decode

from mcpd.apps.host.document import OUTER_TOKENS, Profile
from mcpd.apps.host.options import Treatment
from mcpd.apps.host.shown_view import ShownView
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.host.view.context import HostContext, merge
from mcpd.apps.host.view.events import Closed
from mcpd.apps.host.view.messages import TOOL_INPUT, TOOL_INPUT_PARTIAL, TOOL_RESULT
from mcpd.apps.preview.messages import Permissions, Quirks, ViewInfo
from mcpd.apps.preview.sandbox import Origins, Place, Sandbox, policy_of
from mcpd.apps.preview.session import Page, PreviewSession
from mcpd.apps.preview.violations import Violation, explain_stopped, explain_violation, read_report
from mcpd.apps.tool_metadata import resource_uri
from mcpd.errors import InvalidParams, LocalProtocolError, RequestCancelled
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.printable import printable
from mcpd.transports.recorder import head_of

FAILED_RESULT = {"content": [{"type": "text", "text": "The tool failed (mcpd preview: errorResult)"}], "isError": True}
"""What a View is told in place of its result."""

OPENAI = {"theme": "light", "locale": "en", "displayMode": "inline", "toolInput": None, "toolOutput": None}
"""What `window.openai` is where it is there: as ChatGPT has it, without functions."""


def treatment(quirks: Quirks, profile: Profile, permissions: tuple[str, ...]) -> Treatment:
    """How a View is treated under these quirks."""
    return Treatment(
        profile="opaque" if quirks.opaque_origin else profile,
        permissions=permissions,
        rewrite=rewriter(quirks),
        sends_early=quirks.input_before_initialized,
    )


def rewriter(quirks: Quirks) -> Callable[[str, Raw], Raw | None] | None:
    """What changes params and results on their way to a View; None if these quirks change nothing."""
    left_out = [
        name
        for name, is_left_out in (("_meta", quirks.drop_meta), ("structuredContent", quirks.drop_structured_content))
        if is_left_out
    ]
    if not (left_out or quirks.no_tool_input or quirks.error_result):
        return None

    def rewrite(method: str, params: Raw) -> Raw | None:
        if method in (TOOL_INPUT, TOOL_INPUT_PARTIAL):
            return None if quirks.no_tool_input else params
        if method == TOOL_RESULT and quirks.error_result:
            return Raw(encode(FAILED_RESULT))
        if method in (TOOL_RESULT, "tools/call") and left_out:
            return _without(params, left_out)
        return params

    return rewrite


def _without(raw: Raw, names: list[str]) -> Raw:
    result: dict[str, Any] = decode(raw)
    return Raw(encode({name: value for name, value in result.items() if name not in names}))


log = logging.getLogger("mcpd.preview")

RESERVED = "ui/notifications/sandbox-"
GUEST_GONE = f"{RESERVED}guest-gone"
"""The proxy says it when something else than the View is in its frame."""
_RESERVED = RESERVED.encode()


class _Open:
    """One View that is shown: the call it is for, its addresses, and what it was opened with."""

    def __init__(self, shown: ShownView, call_id: str, place: Place, context: HostContext | None) -> None:
        self.shown = shown
        self.call_id = call_id
        self.place = place
        self.context = context


class PageViews:
    """The Views that one page shows, and how the next ones will be shown: `quirks`, `profile`, `context`."""

    def __init__(
        self, session: PreviewSession, page: Page, sandbox: Sandbox, origins: Origins, page_origin: str
    ) -> None:
        self.quirks = Quirks()
        self.is_plain = origins.is_plain(page_origin)
        """Whether the sandbox has no names: then all Views are opaque."""
        self.profile: Profile = "opaque" if self.is_plain else session.options.profile
        self.context = HostContext()
        self._session = session
        self._page = page
        self._sandbox = sandbox
        self._origins = origins
        self._page_origin = page_origin

        self._open: dict[str, _Open] = {}
        self._allowed: dict[str, set[str]] = {}
        """The features that the user allowed to the Views of a document, by its URI."""
        self._tasks: set[asyncio.Task[object]] = set()

    # ---------------------------------------------------------------------------------- begin and end

    async def open(self, call: ToolCall, call_id: str, context: HostContext | None) -> ViewInfo:
        """Show a call's View. Raises ConfigurationError if there is nothing to show, LocalProtocolError for too many.

        The page is to load the frame at once: the View's life, with its time limits, has begun.
        """
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
        opened = self._open[shown.id] = _Open(shown, call_id, place, context)
        openai = OPENAI if quirks.openai_global else None
        self._sandbox.put(place, shown.grant, partial(self._reported, shown.id), title=_title(call), openai=openai)
        shown.ended.add_done_callback(lambda _: self._forget(shown.id))

        session.show(shown, self._page)
        shown.begin(partial(self._tell, shown.id))
        return _info(opened)

    async def reload(self, view_id: str) -> ViewInfo:
        """Show the same call again, as its document and its tool are now; the View before is torn down first."""
        opened = self._find(view_id)
        host, call = self._session.host, opened.shown.call
        await host.refresh_tools()
        tool = host.find_tool(call.name)
        if tool is not None and resource_uri(tool) is not None:
            call.follow(tool)

        await host.find_document(call.view_uri or "", fresh=True)
        await opened.shown.close("the app is loaded again")  # its frame stands until it has answered, or had its time
        return await self.open(call, opened.call_id, opened.context)

    async def close(self, view_id: str, reason: str) -> bool:
        """Tear it down; whether it answered."""
        ended = await self._find(view_id).shown.close(reason)
        return isinstance(ended, Closed) and ended.clean

    def end(self) -> None:
        """The page is gone, and its frames with it."""
        for opened in list(self._open.values()):
            opened.shown.lost("the page was closed")

    def _forget(self, view_id: str) -> None:
        opened = self._open.pop(view_id, None)
        if opened is not None:
            self._sandbox.remove(opened.place)

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --------------------------------------------------------------------------------------- messages

    def receive(self, view_id: str, message: Raw) -> None:
        """A message of a View or its proxy; of one that is gone it is nothing."""
        opened = self._open.get(view_id)
        if opened is None:
            return

        data = bytes(message)
        self._session.trace.add(f"view:{view_id}", "host", data)
        # A proxy drops what a View sends under such a name: these are its own.
        head = head_of(data) if _RESERVED in data else None
        method = None if head is None else head.method

        if method == GUEST_GONE:
            opened.shown.lost("it has left its place: an app stays where it is, and opens pages by ui/open-link")
        elif method == f"{RESERVED}dropped":
            text = "the View sent a message under a name that is its proxy's; it was thrown away"
            self._event(view_id, {"kind": "finding", "rule": "reserved", "text": text, "method": "", "refused": True})
        elif method == f"{RESERVED}noted":
            if (stopped := explain_stopped(data)) is not None:
                self._event(view_id, stopped)
        else:
            opened.shown.receive(data)

    def _tell(self, view_id: str, message: bytes) -> None:
        self._session.trace.add("host", f"view:{view_id}", message)
        self._page.notify("view/message", {"viewId": view_id, "message": Raw(message)})

    def _event(self, view_id: str, event: dict[str, Any]) -> None:
        self._page.notify("view/event", {"viewId": view_id, "event": event})

    def lost(self, view_id: str, reason: str) -> None:
        """Its frame is gone."""
        opened = self._open.get(view_id)
        if opened is not None:
            opened.shown.lost(reason)

    # ------------------------------------------------------------------------------------- violations

    def _reported(self, view_id: str, body: bytes, of_proxy: bool) -> None:
        found = read_report(body, of_proxy=of_proxy)
        if found is not None:
            self.violated(view_id, found)

    def violated(self, view_id: str, found: Violation) -> None:
        """A policy blocked something of this View."""
        opened = self._open.get(view_id)
        if opened is None:
            return
        self._event(view_id, explain_violation(found))

    # ---------------------------------------------------------------------------- what the page wants

    async def ping(self, view_id: str) -> float:
        """How long it takes to answer, in seconds. Raises RequestCancelled if it is gone before."""
        answer = self._find(view_id).shown.ping()
        await asyncio.wait([answer])
        if answer.cancelled():
            raise RequestCancelled("the View does not answer, and is gone")
        return answer.result()

    def change_context(self, view_id: str | None, delta: HostContext) -> None:
        """The surroundings of one View, or of all and those to come. Raises LocalProtocolError for one that cannot."""
        if view_id is not None:
            opened = self._find(view_id)
            opened.shown.change_context(delta)
            opened.context = delta if opened.context is None else merge(opened.context, delta)
            return

        self.context = merge(self.context, delta)
        for opened in list(self._open.values()):
            try:
                opened.shown.change_context(delta)
            except LocalProtocolError as error:
                log.info("%s: %s", printable(opened.shown.id), printable(error))

    def allow(self, view_id: str, name: str) -> None:
        """The user allows a feature to all Views of this document that are opened from now on."""
        uri = self._find(view_id).shown.document.uri
        self._allowed.setdefault(uri, set()).add(name)

    def shown(self, view_id: str) -> ShownView:
        """One of its Views. Raises InvalidParams."""
        return self._find(view_id).shown

    def _find(self, view_id: str) -> _Open:
        opened = self._open.get(view_id)
        if opened is None:
            raise InvalidParams(f"there is no View {view_id!r:.80}, or it is gone")
        return opened


def _title(call: ToolCall) -> str:
    return printable(call.tool.title or call.name)  # it stands in the page's own bar: nothing turned around, one line


def _info(opened: _Open) -> ViewInfo:
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
        permissions=Permissions(
            asked=list(document.permissions.names()) if document.permissions else [],
            granted=list(grant.permissions.names()) if grant.permissions else [],
        ),
        domain=document.domain,
        sha256=document.digest,
        bytes=len(document.html.encode("utf-8", "replace")),
        uri=document.uri,
        problems=[*document.problems, *grant.problems],
        profile=grant.profile,
    )
