"""The connection of a preview to the server, which is opened anew for another version, and the pages that share it.

All pages share the server, the trace and the conversation. Questions of the server go to all pages, and the first
answer counts. Questions of a View go to the page that shows it. If no page is open, the answer is no.

A View is stale when its document or tool has changed. Its page then shows it again, with input and result. Changes are
reported by the server (changed lists and resources), or follow from a lost connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct, ValidationError, convert, structs, to_builtins

from mcpd.apps.host.document import Profile
from mcpd.apps.host.host import Host, HostOptions, default_context
from mcpd.apps.host.shown_view import Conversation, Hooks, ShownView
from mcpd.apps.host.view import events
from mcpd.apps.host.view.context import DisplayMode, HostContext, merge
from mcpd.client import Callbacks
from mcpd.client.callbacks import ListKind
from mcpd.client.target import Target
from mcpd.errors import ConnectionLost, InvalidRequest, McpdError, ProtocolError
from mcpd.protocol.channel import Channel
from mcpd.protocol.jsonrpc import MALFORMED, Failure, Response, encode_message, read_object
from mcpd.protocol.printable import printable
from mcpd.protocol.requests import PendingRequest, PendingRequests
from mcpd.protocol.types.features import ContentBlock
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    Root,
)
from mcpd.protocol.types.tasks import DetailedTask
from .messages import ServerInfo
from .trace import ServerWatcher, Trace

log = logging.getLogger("mcpd.preview")

PERMISSIONS = ("camera", "microphone", "geolocation", "clipboardWrite")

# The pauses between attempts to reach a server whose connection was lost.
_RECONNECT_SECONDS = (0.3, 0.7, 1.0, 2.0, 4.0, 8.0, 15.0)

_CONTEXT = HostContext(available_display_modes=["inline", "fullscreen", "pip"], platform="web")

# The events of a View that its page receives, with their kind.
_EVENTS: dict[type[events.Event], str] = {
    events.AppToolsListed: "appTools",
    events.Closed: "closed",
    events.Connected: "connected",
    events.Failed: "failed",
    events.Finding: "finding",
    events.Live: "live",
    events.Logged: "logged",
    events.SizeChanged: "size",
    events.TeardownRequested: "teardownRequested",
}

# The members of events that have another name for the page.
_MEMBERS = {"app_info": "app", "requested_version": "version"}


class SessionOptions(Struct, frozen=True, kw_only=True):
    """The target to connect to and its `name` for the user. The other options are those of `HostOptions`."""

    target: Target
    name: str
    version: str | None = None
    timeout: float | None = 60.0
    profile: Profile = "strict"
    permissions: tuple[str, ...] = ()


class Page:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._requests: PendingRequests[PendingRequest] = PendingRequests("b")
        self._is_gone = False

    def notify(self, method: str, params: object) -> None:
        self._channel.send(encode_message(method, params))

    async def request(self, method: str, params: object) -> Any:
        """Send a request and return the raw result. Raises RemoteError, ConnectionLost."""
        if self._is_gone:
            raise ConnectionLost("the page is gone")

        waiter: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        request_id = self._requests.add(PendingRequest(method, waiter))
        self._channel.send(encode_message(method, params, request_id))
        try:
            return await waiter
        finally:
            self._requests.take(request_id)

    def receive(self, answer: Response | Failure) -> None:
        self._requests.receive(answer)

    def closed(self) -> None:
        self._is_gone = True
        self._requests.fail_all("the page is gone")
        self._requests.take_all()


class NoAnswer(McpdError):
    """No page is open, or no page answered."""


class Questions:
    def __init__(self, pages: Iterable[Page]) -> None:
        self._pages = pages
        self._count = 0

    async def ask(self, kind: str, members: Mapping[str, Any], page: Page | None = None) -> dict[str, Any]:
        """Return the answer of one page, or the first answer of all pages. Raises NoAnswer."""
        pages = [page] if page is not None else list(self._pages)
        self._count += 1
        ask_id = f"ask-{self._count}"
        params = {"askId": ask_id, "kind": kind, **members}
        waiting = {asyncio.ensure_future(each.request("ask", params)): each for each in pages}

        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del waiting[task]
                    if (answer := _answer(task)) is not None:
                        return answer
            raise NoAnswer("no page of the preview is open, or none answered")
        finally:
            # The other pages stop asking.
            for task, each in waiting.items():
                task.cancel()
                each.notify("ask/cancelled", {"askId": ask_id})


def _answer(task: asyncio.Future[Any]) -> dict[str, Any] | None:
    if task.cancelled() or task.exception() is not None:
        return None
    try:
        return read_object(task.result(), "the answer")
    except (McpdError, *MALFORMED):
        return None


class StaleViews:
    def __init__(self, host: Host, on_stale: Callable[[ShownView, str], None]) -> None:
        self._host = host
        self._on_stale = on_stale
        self._reported: set[str] = set()
        self._subscribed: set[str] = set()
        self._checking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._again = False

    def check_soon(self) -> None:
        """Check all Views, because something has changed. A change during the check causes another one."""
        self._again = True
        if self._checking is None or self._checking.done():
            self._checking = self._start(self._check())

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _check(self) -> None:
        while self._again:
            self._again = False
            for view in self._host.views:
                reason = await self._reason(view)
                if reason and view.id not in self._reported and not view.is_over:
                    self._reported.add(view.id)
                    self._on_stale(view, reason)

    async def _reason(self, view: ShownView) -> str:
        # Return why a View is stale, or an empty string.
        tool = self._host.find_tool(view.call.name)
        # A View whose tool is gone cannot be shown again.
        if tool is None:
            return ""

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
        return "" if document == view.document else "the declarations of its document have changed"

    def watch(self, view: ShownView) -> None:
        uri = view.document.uri
        resources = self._host.client.server_capabilities.resources
        if resources is not None and resources.subscribe and uri not in self._subscribed:
            self._subscribed.add(uri)
            self._start(self._subscribe(uri))

    async def _subscribe(self, uri: str) -> None:
        try:
            await self._host.client.subscribe(uri)
        except McpdError as error:
            log.info("cannot subscribe to %s: %s", printable(uri), printable(error))

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def shown_task(task: DetailedTask) -> dict[str, Any]:
    """Return what a page shows of a task."""
    members = {"taskId": task.task_id, "status": task.status, "message": task.status_message}
    return {**members, "created": task.created_at, "changed": task.last_updated_at}


class PreviewSession:
    """The server of a preview, opened by `connect`. `pages` are the connected ones."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        self.pages: list[Page] = []
        self.showing: dict[str, Page] = {}
        """The page that shows a View, by the id of the View."""
        self.questions = Questions(self.pages)
        self.conversation = Conversation()
        self.trace = Trace(lambda total: self.broadcast("trace/added", {"total": total}))
        self._host: Host | None = None
        self._stale_views: StaleViews | None = None
        self._changing = asyncio.Lock()
        self._reconnecting: asyncio.Task[None] | None = None

    def broadcast(self, method: str, params: object) -> None:
        for page in list(self.pages):
            page.notify(method, params)

    # ----------------------------------------------------------------------------------- connection

    @property
    def host(self) -> Host:
        """The connected host. Raises InvalidRequest if the server is not connected."""
        if self._host is None:
            raise InvalidRequest("the server is not connected; connect anew")
        return self._host

    @property
    def context(self) -> HostContext:
        return merge(default_context(), _CONTEXT) if self._host is None else self._host.context

    async def connect(self, version: str | None) -> ServerInfo:
        """Close all Views and connect anew, with this version or the newest common. Raises what `Host.open` raises."""
        async with self._changing:
            await self._disconnect()
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
            host.client.tasks.on_change = lambda task: self.broadcast("task/changed", shown_task(task))
            try:
                await host.open()
            except McpdError as error:
                self._report_lost(error)
                raise
            self._host, self._stale_views = host, StaleViews(host, self._on_stale)
            info = self.info()

        self.broadcast("server/status", {"state": "connected", "message": ""})
        return info

    def info(self) -> ServerInfo:
        if self._host is None:
            return ServerInfo()

        client = self._host.client
        server, capabilities = client.server_info, client.server_capabilities
        return ServerInfo(
            name=server.name if server else None,
            title=server.title if server else None,
            version=server.version if server else None,
            protocol_version=client.version,
            era="modern" if client.is_modern else "legacy",
            instructions=client.instructions,
            capabilities=capabilities,
            extensions=capabilities.extensions,
            state="connected",
        )

    async def aclose(self) -> None:
        async with self._changing:
            await self._disconnect()
        self.trace.close()

    async def _disconnect(self) -> None:
        host, self._host = self._host, None
        stale_views, self._stale_views = self._stale_views, None
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        if stale_views is not None:
            await stale_views.aclose()
        if host is not None:
            await host.aclose()

    def _on_lost(self, host: Host, error: McpdError) -> None:
        # Try a few times to reach the server again, because the connection was lost.
        # A host that never connected is not in use.
        if host is not self._host:
            return
        self._report_lost(error)
        if self._reconnecting is None or self._reconnecting.done():
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect(host))

    def _report_lost(self, error: McpdError) -> None:
        self.broadcast("server/status", {"state": "lost", "message": printable(error, 2000)})

    async def _reconnect(self, host: Host) -> None:
        for seconds in _RECONNECT_SECONDS:
            await asyncio.sleep(seconds)
            try:
                await host.refresh_tools()
            except McpdError as error:
                log.info("the server is not back yet: %s", printable(error))
                continue

            self.broadcast("server/status", {"state": "restarted", "message": "", "server": self.info()})
            for kind in ("tools", "resources", "prompts"):
                self.broadcast("list/changed", {"kind": kind})
            self._check_views()
            return

    # --------------------------------------------------------------------------------------- Views

    def show(self, view: ShownView, page: Page) -> None:
        self.showing[view.id] = page
        view.ended.add_done_callback(lambda _: self.showing.pop(view.id, None))
        if self._stale_views is not None:
            self._stale_views.watch(view)

    def _on_stale(self, view: ShownView, reason: str) -> None:
        page = self.showing.get(view.id)
        if page is not None:
            page.notify("view/stale", {"viewId": view.id, "why": reason})

    def _check_views(self) -> None:
        if self._stale_views is not None:
            self._stale_views.check_soon()

    # ------------------------------------------------------------------------- callbacks of the server

    def _callbacks(self) -> Callbacks:
        return Callbacks(
            elicit_form=self._elicit_form,
            elicit_url=self._elicit_url,
            sample=self._sample_for_server,
            sample_tools=True,
            roots=self._roots,
            log=lambda params: self.broadcast("server/log", params),
            list_changed=self._on_list_changed,
            resource_updated=self._on_resource_updated,
            elicitation_complete=lambda name: self.broadcast("elicitation/complete", {"elicitationId": name}),
        )

    async def _elicit_form(self, params: ElicitFormParams) -> ElicitResult:
        return await self._elicit("elicitForm", {"message": params.message, "schema": params.requested_schema})

    async def _elicit_url(self, params: ElicitUrlParams) -> ElicitResult:
        members = {"message": params.message, "url": params.url, "elicitationId": params.elicitation_id}
        return await self._elicit("elicitUrl", members)

    async def _elicit(self, kind: str, members: dict[str, Any]) -> ElicitResult:
        try:
            return convert(await self.questions.ask(kind, members), ElicitResult)
        except (NoAnswer, ValidationError):
            return ElicitResult(action="cancel")

    async def _sample_for_server(self, params: CreateMessageParams) -> CreateMessageResult:
        return convert(await self._sample({"params": params}, None), CreateMessageResult)

    async def _sample(self, members: dict[str, Any], page: Page | None) -> dict[str, Any]:
        # Return the message that the user wrote instead of a model. Raises ProtocolError if the user denied it.
        try:
            result = (await self.questions.ask("sampling", members, page)).get("result")
            if result:
                message: dict[str, Any] = to_builtins(convert(result, CreateMessageResult))
                return message
        except (NoAnswer, ValidationError) as error:
            raise ProtocolError(f"sampling: {error}") from None
        raise ProtocolError("sampling: denied by the user")

    async def _roots(self) -> Sequence[Root]:
        try:
            return convert((await self.questions.ask("roots", {})).get("roots", []), list[Root])
        except (NoAnswer, ValidationError):
            return []

    def _on_list_changed(self, kind: ListKind) -> None:
        self.broadcast("list/changed", {"kind": kind})
        if kind != "prompts":
            self._check_views()

    def _on_resource_updated(self, uri: str) -> None:
        self.broadcast("resource/updated", {"uri": uri})
        self._check_views()

    # -------------------------------------------------------------------------------- hooks of Views

    def _hooks(self) -> Hooks:
        return Hooks(
            open_link=lambda view, url: self._allows(view, "openLink", {"url": url}),
            download=self._download,
            sample=lambda view, params: self._sample({"viewId": view.id, "params": params}, self.showing.get(view.id)),
            sample_tools=True,
            display_mode=self._display_mode,
            message=self._message,
            model_context=self._model_context,
            event=self._on_event,
        )

    async def _allows(self, view: ShownView, kind: str, members: dict[str, Any]) -> bool:
        page = self.showing.get(view.id)
        if page is None:
            return False
        try:
            return (await self.questions.ask(kind, {"viewId": view.id, **members}, page)).get("allow") is True
        except NoAnswer:
            return False

    async def _download(self, view: ShownView, items: Sequence[events.DownloadItem]) -> bool:
        files = [{"name": item.name, "mimeType": item.mime_type, "data": item.data, "url": item.url} for item in items]
        return await self._allows(view, "download", {"items": files})

    async def _display_mode(self, view: ShownView, mode: DisplayMode) -> DisplayMode | None:
        return mode if await self._allows(view, "displayMode", {"mode": mode}) else None

    async def _message(self, view: ShownView, content: Sequence[ContentBlock]) -> bool:
        is_allowed = await self._allows(view, "message", {"content": content})
        if is_allowed:
            self._announce_conversation()
        return is_allowed

    def _model_context(self, view: ShownView, update: object) -> bool:
        self._announce_conversation()
        return True

    def _announce_conversation(self) -> None:
        # Notify the pages after the host has changed the conversation.
        asyncio.get_running_loop().call_soon(self.broadcast, "conversation/changed", {})

    def _on_event(self, view: ShownView, event: events.Event) -> None:
        page = self.showing.get(view.id)
        if page is not None and type(event) in _EVENTS:
            members = {_MEMBERS.get(name, name): value for name, value in structs.asdict(event).items()}
            page.notify("view/event", {"viewId": view.id, "event": {"kind": _EVENTS[type(event)], **members}})
