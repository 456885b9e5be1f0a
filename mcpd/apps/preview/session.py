"""The server behind a preview: one `Host`, which is made anew when the user wants another version, and its pages.

All pages share the server, the trace and the conversation. The server's questions go to whoever answers first; what a
View asks goes to the page that shows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct, ValidationError, convert, to_builtins

from mcpd.apps.host.conversation import Conversation
from mcpd.apps.host.document import Profile
from mcpd.apps.host.host import Host
from mcpd.apps.host.options import HostOptions, default_context
from mcpd.apps.host.shown_view import Hooks, ShownView
from mcpd.apps.host.view.context import DisplayMode, HostContext, merge
from mcpd.apps.host.view.events import (
    AppToolsListed,
    Closed,
    Connected,
    DownloadItem,
    Event,
    Failed,
    Finding,
    Live,
    Logged,
    SizeChanged,
    TeardownRequested,
)
from mcpd.apps.preview.messages import ServerInfo
from mcpd.apps.preview.trace import ServerWatcher, Trace
from mcpd.client import Callbacks
from mcpd.client.callbacks import ListKind
from mcpd.client.target import Target
from mcpd.errors import ConnectionLost, InvalidRequest, McpdError, ProtocolError
from mcpd.protocol.channel import Channel
from mcpd.protocol.jsonrpc import MALFORMED, Failure, Response, call, read_object
from mcpd.protocol.printable import printable
from mcpd.protocol.requests import PendingRequest, PendingRequests
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


class Page:
    """A connected page: sends it notifications and requests, and matches its answers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._asked: PendingRequests[PendingRequest] = PendingRequests("b")
        self._is_gone = False

    def notify(self, method: str, params: object) -> None:
        """Send a notification."""
        self._channel.send(call(method, params))

    async def request(self, method: str, params: object) -> Any:
        """Send a request and return the raw result. Raises RemoteError, ConnectionLost."""
        if self._is_gone:
            raise ConnectionLost("the page is gone")

        waiter: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        request_id = self._asked.add(PendingRequest(method, waiter))
        self._channel.send(call(method, params, request_id))
        try:
            return await waiter
        finally:
            self._asked.take(request_id)

    def receive(self, answer: Response | Failure) -> None:
        """Take an answer of the page."""
        self._asked.receive(answer)

    def closed(self) -> None:
        """Fail all requests, because the page is gone."""
        self._is_gone = True
        self._asked.fail_all("the page is gone")
        self._asked.take_all()


class NobodyAnswers(McpdError):
    """No page is open, or none that was asked gave an answer."""


class Asks:
    """The questions of one preview. `pages` are those that are connected, as they come and go."""

    def __init__(self, pages: Iterable[Page]) -> None:
        self._pages = pages
        self._last = 0

    async def ask(self, kind: str, members: Mapping[str, Any], page: Page | None = None) -> dict[str, Any]:
        """Ask one page, or all that are open. Raises NobodyAnswers."""
        asked = [page] if page is not None else list(self._pages)
        self._last += 1
        ask_id = f"ask-{self._last}"
        params = {"askId": ask_id, "kind": kind, **members}

        waiting = {asyncio.ensure_future(each.request("ask", params)): each for each in asked}

        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del waiting[task]
                    answer = _answer(task)
                    if answer is not None:
                        return answer
            raise NobodyAnswers("no page of the preview is open, or none answered")
        finally:
            # Answered elsewhere, or not wanted any more.
            for task, each in waiting.items():
                task.cancel()
                each.notify("ask/cancelled", {"askId": ask_id})

    async def allows(self, kind: str, members: Mapping[str, Any], page: Page | None = None) -> bool:
        """Whether the user allows it."""
        try:
            return (await self.ask(kind, members, page)).get("allow") is True
        except NobodyAnswers:
            return False


def _answer(task: asyncio.Future[Any]) -> dict[str, Any] | None:
    """What a page answered; None if it has no answer."""
    if task.cancelled() or task.exception() is not None:
        return None
    try:
        return read_object(task.result(), "the answer")
    except (McpdError, *MALFORMED):
        return None


def told(event: Event) -> dict[str, Any] | None:
    """An event in JSON; None for what the page asks for or is asked in another way."""
    if isinstance(event, Connected):
        return {
            "kind": "connected",
            "app": event.app_info,
            "capabilities": event.capabilities,
            "version": event.requested_version,
            "again": event.again,
        }
    if isinstance(event, Live):
        return {"kind": "live", "again": event.again}
    if isinstance(event, SizeChanged):
        return {"kind": "size", "width": event.width, "height": event.height}
    if isinstance(event, Logged):
        return {"kind": "logged", "level": event.level, "data": event.data, "logger": event.logger}
    if isinstance(event, Finding):
        return {
            "kind": "finding",
            "rule": event.rule,
            "text": event.text,
            "method": event.method,
            "refused": event.refused,
        }
    if isinstance(event, Failed):
        return {"kind": "failed", "reason": event.reason}
    if isinstance(event, Closed):
        return {"kind": "closed", "reason": event.reason, "clean": event.clean}
    if isinstance(event, TeardownRequested):
        return {"kind": "teardownRequested"}

    if isinstance(event, AppToolsListed):
        return {"kind": "appTools", "tools": event.tools}

    return None


log = logging.getLogger("mcpd.preview")


class Freshness:
    """Looks after the Views of one host. `stale` is told of each that is out of date, with why, once."""

    def __init__(self, host: Host, stale: Callable[[ShownView, str], None]) -> None:
        self._host = host
        self._stale = stale
        self._told: set[str] = set()
        self._uris: set[str] = set()
        self._looking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._again = False

    def look(self) -> None:
        """Something has changed: look at all Views soon. What changes meanwhile is looked at afterwards."""
        self._again = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
            self._tasks.add(self._looking)
            self._looking.add_done_callback(self._tasks.discard)

    async def _look(self) -> None:
        while self._again:
            self._again = False
            for view in self._host.views:
                why = await self._why(view)
                if why and view.id not in self._told and not view.is_over:
                    self._told.add(view.id)
                    self._stale(view, why)

    async def _why(self, view: ShownView) -> str:
        """Why it is out of date; "" if it is not."""
        tool = self._host.find_tool(view.call.name)
        if tool is None:
            return ""  # it has gone: what is shown is all there is

        try:
            uri = view.document.uri
            if tool != view.call.tool:
                view.call.follow(tool)
                if view.call.view_uri is None:
                    return ""
                uri = view.call.view_uri
            document = await self._host.find_document(uri)
        except McpdError as error:
            log.warning("%s: %s", view.id, printable(error, 1000))
            return ""
        if document.digest != view.document.digest:
            return "its document has changed"

        return "" if document == view.document else "what is declared for its document has changed"

    def watch(self, view: ShownView) -> None:
        """Hear of changes of its resource, where the server tells of them, as long as this server is connected."""
        uri = view.document.uri
        resources = self._host.client.server_capabilities.resources
        if resources is None or not resources.subscribe or uri in self._uris:
            return

        self._uris.add(uri)
        task = asyncio.get_running_loop().create_task(self._subscribe(uri))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _subscribe(self, uri: str) -> None:
        try:
            await self._host.client.subscribe(uri)
        except McpdError as error:
            log.info("%s: changes are not told: %s", printable(uri), printable(error))

    async def aclose(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


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
