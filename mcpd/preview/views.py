"""The Views of one page: opened for its calls, in frames on addresses of their own, until they are gone."""

from __future__ import annotations

import logging

from msgspec import Raw

from ..errors import InvalidParams
from ..host.call import ToolCall
from ..host.documents.csp import OUTER_TOKENS, Profile
from ..host.shown import ShownView
from ..host.view.context import HostContext, merge
from ..host.view.events import Closed
from ..printable import printable
from .asks import Page
from .messages import Permissions, Quirks, ViewInfo
from .origins import Origins, Place
from .quirks import OPENAI, treatment
from .sandbox import Sandbox, policy_of
from .session import Session

__all__ = ["PageViews"]

log = logging.getLogger("mcpd.preview")


class _Open:
    """One View that is shown: the call it is for, its addresses, and what it was opened with."""

    def __init__(self, shown: ShownView, call_id: str, place: Place, context: HostContext | None) -> None:
        self.shown = shown
        self.call_id = call_id
        self.place = place
        self.context = context


class PageViews:
    """The Views that one page shows, and how the next ones will be shown: `quirks`, `profile`, `context`."""

    def __init__(self, session: Session, page: Page, sandbox: Sandbox, origins: Origins, page_origin: str) -> None:
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
        session.showing[shown.id] = self._page
        openai = OPENAI if quirks.openai_global else None
        self._sandbox.put(place, shown.grant, lambda body, of_proxy: None, title=_title(call), openai=openai)
        shown.ended.add_done_callback(lambda _: self._forget(shown.id))

        shown.begin(lambda message: self._tell(shown.id, message))
        return _info(opened)

    def receive(self, view_id: str, message: Raw) -> None:
        """A message of a View or its proxy; of one that is gone it is nothing."""
        opened = self._open.get(view_id)
        if opened is not None:
            opened.shown.receive(bytes(message))

    def lost(self, view_id: str, reason: str) -> None:
        """Its frame is gone."""
        opened = self._open.get(view_id)
        if opened is not None:
            opened.shown.lost(reason)

    async def close(self, view_id: str, reason: str) -> bool:
        """Tear it down; whether it answered."""
        ended = await self._find(view_id).shown.close(reason)
        return isinstance(ended, Closed) and ended.clean

    def end(self) -> None:
        """The page is gone, and its frames with it."""
        for opened in list(self._open.values()):
            opened.shown.lost("the page was closed")

    def _find(self, view_id: str) -> _Open:
        opened = self._open.get(view_id)
        if opened is None:
            raise InvalidParams(f"there is no View {view_id!r:.80}, or it is gone")
        return opened

    def _tell(self, view_id: str, message: bytes) -> None:
        self._page.notify("view/message", {"viewId": view_id, "message": Raw(message)})

    def _forget(self, view_id: str) -> None:
        opened = self._open.pop(view_id, None)
        self._session.showing.pop(view_id, None)
        if opened is not None:
            self._sandbox.remove(opened.place)


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
