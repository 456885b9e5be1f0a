"""The server behind a preview: one `Host`, which is made anew when the user wants another version, and its pages.

All pages share the server, the trace and the conversation. The server's questions go to whoever answers first; what a
View asks goes to the page that shows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct, ValidationError, convert, to_builtins

from mcpd.client import Callbacks
from mcpd.client.callbacks import ListKind
from mcpd.client.target import Target
from mcpd.errors import InvalidRequest, McpdError, ProtocolError
from mcpd.host.conversation import Conversation
from mcpd.host.documents.csp import Profile
from mcpd.host.hooks import Hooks
from mcpd.host.host import Host
from mcpd.host.options import HostOptions, default_context
from mcpd.host.shown import ShownView
from mcpd.host.view.context import DisplayMode, HostContext, merge
from mcpd.host.view.events import DownloadItem, Event
from mcpd.preview.asks import Asks, NobodyAnswers, Page
from mcpd.preview.events import told
from mcpd.preview.messages import ServerInfo
from mcpd.preview.reload import Freshness
from mcpd.preview.trace import ServerWatcher, Trace
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import LogMessageParams
from mcpd.protocol.types.content import ContentBlock
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    Root,
)

log = logging.getLogger("mcpd.preview")

PERMISSIONS = ("camera", "microphone", "geolocation", "clipboardWrite")

_TRY_AFTER = (0.3, 0.7, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds between the tries to reach a server again that was lost."""

_CONTEXT = HostContext(available_display_modes=["inline", "fullscreen", "pip"], platform="web")


class SessionOptions(Struct, frozen=True, kw_only=True):
    """`target` is what is connected to, `name` what the user called it; the others are those of `HostOptions`."""

    target: Target
    name: str
    version: str | None = None
    timeout: float | None = 60.0
    profile: Profile = "strict"
    permissions: tuple[str, ...] = ()


class PreviewSession:
    """Opened by `connect`. `pages` are those that are connected, `showing` which of them shows a View."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        self.pages: list[Page] = []
        self.showing: dict[str, Page] = {}
        self.asks = Asks(self.pages)
        self.conversation = Conversation()
        self.trace = Trace(lambda total: self.broadcast("trace/added", {"total": total}))
        self._host: Host | None = None

        self._changing = asyncio.Lock()
        self._freshness: Freshness | None = None
        self._following: asyncio.Task[None] | None = None

    # ----------------------------------------------------------------------------------- the server

    @property
    def host(self) -> Host:
        """What is connected now. Raises InvalidRequest if nothing is."""
        if self._host is None:
            raise InvalidRequest("the server is not connected; connect anew")
        return self._host

    @property
    def context(self) -> HostContext:
        """The surroundings of a View of which nothing else was said."""
        return merge(default_context(), _CONTEXT) if self._host is None else self._host.context

    async def connect(self, version: str | None) -> ServerInfo:
        """Connect anew, in this protocol version or in the newest in common. All Views are closed before.

        Raises what `Host.open` raises; then nothing is connected.
        """
        async with self._changing:
            await self._leave()
            host = Host(
                self.options.target,
                hooks=self._hooks(),
                callbacks=self._callbacks(),
                conversation=self.conversation,
                options=HostOptions(
                    context=_CONTEXT,
                    profile=self.options.profile,
                    permissions=self.options.permissions,
                    version=version,
                    timeout=self.options.timeout,
                    watcher=ServerWatcher(self.trace),
                ),
            )
            host.client.on_lost = lambda error: self._on_lost(host, error)
            try:
                await host.open()
            except McpdError as error:
                self._say_lost(error)
                raise
            self._host, self._freshness = host, Freshness(host, self._stale)
            info = self.info()

        self.broadcast("server/status", {"state": "connected", "message": ""})
        return info

    def info(self) -> ServerInfo:
        """Who the server is; only the state if it is not connected."""
        if self._host is None:
            return ServerInfo()

        client = self._host.client
        who, offers = client.server_info, client.server_capabilities

        return ServerInfo(
            name=who.name if who else None,
            title=who.title if who else None,
            version=who.version if who else None,
            protocol_version=client.version,
            era="modern" if client.is_modern else "legacy",
            instructions=client.instructions,
            capabilities=offers,
            extensions=offers.extensions,
            state="connected",
        )

    async def aclose(self) -> None:
        """Close all Views and leave the server."""
        async with self._changing:
            await self._leave()
        self.trace.close()

    async def _leave(self) -> None:
        host, self._host = self._host, None
        freshness, self._freshness = self._freshness, None
        if self._following is not None:
            self._following.cancel()

        if freshness is not None:
            await freshness.aclose()
        if host is not None:
            await host.aclose()

    def _on_lost(self, host: Host, error: McpdError) -> None:
        """The connection has ended by itself: try whether the server is there again, a few times."""
        if host is not self._host:
            return  # it was never in use
        self._say_lost(error)
        if self._following is None or self._following.done():
            self._following = asyncio.get_running_loop().create_task(self._follow(host))

    def _say_lost(self, error: McpdError) -> None:
        self.broadcast("server/status", {"state": "lost", "message": printable(error, 2000)})

    async def _follow(self, host: Host) -> None:
        for seconds in _TRY_AFTER:
            await asyncio.sleep(seconds)
            try:
                await host.refresh_tools()
            except McpdError as error:
                log.info("the server is not there yet: %s", printable(error))
                continue

            self.broadcast("server/status", {"state": "restarted", "message": "", "server": self.info()})
            for kind in ("tools", "resources", "prompts"):
                self.broadcast("list/changed", {"kind": kind})
            self._look()
            return

    # --------------------------------------------------------------------------------------- Views

    def show(self, view: ShownView, page: Page) -> None:
        """This page shows a View from now on, until that is gone."""
        self.showing[view.id] = page
        view.ended.add_done_callback(lambda _: self.showing.pop(view.id, None))
        if self._freshness is not None:
            self._freshness.watch(view)

    def _stale(self, view: ShownView, why: str) -> None:
        page = self.showing.get(view.id)
        if page is not None:
            page.notify("view/stale", {"viewId": view.id, "why": why})

    def _look(self) -> None:
        if self._freshness is not None:
            self._freshness.look()

    # ------------------------------------------------------------------------------------ the pages

    def broadcast(self, method: str, params: object) -> None:
        """Tell all pages."""
        for page in list(self.pages):
            page.notify(method, params)

    # ------------------------------------------------------------------------- what the server asks

    def _callbacks(self) -> Callbacks:
        return Callbacks(
            elicit_form=self._elicit_form,
            elicit_url=self._elicit_url,
            sample=self._sample_for_server,
            sample_tools=True,
            roots=self._roots,
            log=self._log,
            list_changed=self._list_changed,
            resource_updated=self._updated,
            elicitation_complete=lambda name: self.broadcast("elicitation/complete", {"elicitationId": name}),
        )

    async def _elicit_form(self, params: ElicitFormParams) -> ElicitResult:
        return await self._elicit("elicitForm", {"message": params.message, "schema": params.requested_schema})

    async def _elicit_url(self, params: ElicitUrlParams) -> ElicitResult:
        members = {"message": params.message, "url": params.url, "elicitationId": params.elicitation_id}
        return await self._elicit("elicitUrl", members)

    async def _elicit(self, kind: str, members: dict[str, Any]) -> ElicitResult:
        try:
            return convert(await self.asks.ask(kind, members), ElicitResult)
        except (NobodyAnswers, ValidationError):
            return ElicitResult(action="cancel")

    async def _sample_for_server(self, params: CreateMessageParams) -> CreateMessageResult:
        return convert(await self._sampled({"params": params}, None), CreateMessageResult)

    async def _sampled(self, members: dict[str, Any], page: Page | None) -> dict[str, Any]:
        """What the user answered in the model's place. Raises ProtocolError if that was no."""
        try:
            result = (await self.asks.ask("sampling", members, page)).get("result")
            return to_builtins(convert(result, CreateMessageResult)) if result else _refuse("denied by the user")
        except (NobodyAnswers, ValidationError) as error:
            return _refuse(str(error))

    async def _roots(self) -> Sequence[Root]:
        try:
            return convert((await self.asks.ask("roots", {})).get("roots", []), list[Root])
        except (NobodyAnswers, ValidationError):
            return []

    def _log(self, params: LogMessageParams) -> None:
        self.broadcast("server/log", params)

    def _list_changed(self, kind: ListKind) -> None:
        self.broadcast("list/changed", {"kind": kind})
        if kind != "prompts":
            self._look()

    def _updated(self, uri: str) -> None:
        self.broadcast("resource/updated", {"uri": uri})
        self._look()

    # -------------------------------------------------------------------------------- what Views ask

    def _hooks(self) -> Hooks:
        return Hooks(
            open_link=lambda view, url: self._allows(view, "openLink", {"url": url}),
            download=self._download,
            sample=self._sample_for_view,
            sample_tools=True,
            display_mode=self._display_mode,
            message=self._message,
            model_context=self._model_context,
            event=self._event,
        )

    async def _allows(self, view: ShownView, kind: str, members: dict[str, Any]) -> bool:
        page = self.showing.get(view.id)
        return page is not None and await self.asks.allows(kind, {"viewId": view.id, **members}, page)

    async def _download(self, view: ShownView, items: Sequence[DownloadItem]) -> bool:
        files = [{"name": item.name, "mimeType": item.mime_type, "data": item.data, "url": item.url} for item in items]
        return await self._allows(view, "download", {"items": files})

    async def _sample_for_view(self, view: ShownView, params: Raw) -> dict[str, Any]:
        return await self._sampled({"viewId": view.id, "params": params}, self.showing.get(view.id))

    async def _display_mode(self, view: ShownView, mode: DisplayMode) -> DisplayMode | None:
        return mode if await self._allows(view, "displayMode", {"mode": mode}) else None

    async def _message(self, view: ShownView, content: Sequence[ContentBlock]) -> bool:
        allowed = await self._allows(view, "message", {"content": content})
        if allowed:
            asyncio.get_running_loop().call_soon(self.broadcast, "conversation/changed", {})
        return allowed

    def _model_context(self, view: ShownView, update: object) -> bool:
        asyncio.get_running_loop().call_soon(self.broadcast, "conversation/changed", {})
        return True

    def _event(self, view: ShownView, event: Event) -> None:
        page, members = self.showing.get(view.id), told(event)
        if page is not None and members is not None:
            page.notify("view/event", {"viewId": view.id, "event": members})


def _refuse(reason: str) -> dict[str, Any]:
    # Spec: client/sampling, error handling: the user's no is -1; what a View is told is its host's.
    raise ProtocolError(f"sampling: {reason}")
