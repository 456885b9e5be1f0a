"""`Host` connects a program to a server with MCP Apps.

It offers apps to the server, gives the model the tools that are visible to it, calls them for the model, and shows
their Views on any message channel. It combines the other modules of this package, which have the rules.

Spec: MCP Apps 2026-01-26; rules APP-H-01 to -26 of docs/rules.toml.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from msgspec import Raw, Struct, field, structs
from msgspec.json import decode

from mcpd import __version__
from mcpd.apps.host.view.context import HostContext, HostStyles, ToolInfo, merge
from mcpd.apps.host.view.outgoing import model_names
from mcpd.apps.host.view.policy import ViewSettings
from mcpd.apps.tool_metadata import OFFER, is_for_model, model_tools, resource_uri
from mcpd.client import Callbacks, Client, ClientLimits
from mcpd.client.callbacks import ListKind, detached
from mcpd.client.channels import ChannelWatcher
from mcpd.client.session import OnProgress
from mcpd.client.target import Target
from mcpd.errors import ConfigurationError, LocalProtocolError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Implementation
from mcpd.protocol.types.features import Tool
from mcpd.transports.files import bundled_folder
from mcpd.transports.websocket.server import WebSocketLimits
from .channels import Pump, Relay, ViewChannel, attach
from .document import Profile, ViewDocument, grant
from .document_cache import DocumentCache
from .shown_view import (
    Conversation,
    Hooks,
    ShownView,
    ViewRequestHandler,
    change_contexts,
    host_capabilities,
    settle,
)
from .tool_call import ToolCall
from .view import View, ViewLimits


@cache
def style_variables() -> dict[str, str]:
    """Return a value for each of the 76 style variables of the specification.

    Text colours have a contrast of at least 4.5:1 on the primary background. The values use `light-dark()`, so that a
    change of the theme needs no new variables. Set all variables or none: for a missing one a View uses a value of its
    own, and the mixture may be unreadable.
    """
    with open(os.path.join(bundled_folder(), "theme.json"), "rb") as file:
        return decode(file.read(), type=dict[str, str])


def default_context() -> HostContext:
    """Return the default host context: our theme, inline only."""
    return HostContext(
        styles=HostStyles(variables=style_variables()),
        display_mode="inline",
        available_display_modes=["inline"],
        user_agent=f"mcpd/{__version__}",
    )


class HostOptions(Struct, frozen=True, kw_only=True):
    """Settings of a `Host`.

    `context` is merged over `default_context`. `permissions` are the browser features that a View may use if it asks
    for them (camera, microphone, geolocation, clipboardWrite). `profile` selects the policy (`document.Profile`).
    `fresh_seconds` is how long a document is used without reading it again. `version` fixes the protocol version
    towards the server. `timeout` is how many seconds the server may be silent. `limits` are for Views, `client_limits`
    for the server. `watcher` receives each frame between host and server.
    """

    info: Implementation = field(default_factory=lambda: Implementation(name="mcpd", version=__version__))
    context: HostContext = field(default_factory=HostContext)
    permissions: tuple[str, ...] = ()
    profile: Profile = "strict"
    limits: ViewLimits = ViewLimits()
    max_views: int = 16
    fresh_seconds: float = 60.0
    version: str | None = None
    timeout: float | None = 60.0
    client_limits: ClientLimits = ClientLimits()
    watcher: ChannelWatcher | None = None


class Treatment(Struct, frozen=True, kw_only=True):
    """Settings of one View that imitate other hosts, for previews and tests. None means the setting of the host.

    `profile` and `permissions` are those of `HostOptions`. `rewrite` receives the method and params of each
    notification about the call that opened the View, and the results of `tools/call` of the View. It returns what is
    sent instead; for a notification None sends nothing. `sends_early` sends the notifications directly after the answer
    to `ui/initialize`, which the specification forbids.
    """

    profile: Profile | None = None
    permissions: tuple[str, ...] | None = None
    rewrite: Callable[[str, Raw], Raw | None] | None = None
    sends_early: bool = False


class ToolList:
    """All tools of one server by name. `was_read` is called with each list that was read."""

    def __init__(self, client: Client, was_read: Callable[[Iterable[Tool]], None]) -> None:
        self.tools: dict[str, Tool] = {}
        self.entries: Sequence[Raw] = ()
        """The tools as the server sent them, including those that cannot be decoded."""
        self._read_at = 0.0
        self._client = client
        self._was_read = was_read
        self._listing = asyncio.Lock()
        self._times_asked = self._times_read = 0

    async def refresh(self) -> None:
        """List the tools again. Raises what the client raises."""
        self._times_asked += 1
        asked = self._times_asked
        # Concurrent lists could arrive in the wrong order. Tasks that wait here share the next list.
        async with self._listing:
            if self._times_read >= asked:
                return
            begun = self._times_asked
            tools, self.entries = await self._client.list_tools_as_sent()
            self.tools = {tool.name: tool for tool in tools}
            self._times_read, self._read_at = begun, asyncio.get_running_loop().time()
            self._was_read(self.tools.values())

    async def refresh_after(self, seconds: float) -> None:
        """List the tools again, unless they were listed less than this many seconds ago."""
        async with self._listing:
            is_fresh = self._times_read > 0 and asyncio.get_running_loop().time() - self._read_at < seconds
        if not is_fresh:
            await self.refresh()


log = logging.getLogger("mcpd.host")

_NO_HOOKS = Hooks()
_NO_CALLBACKS = Callbacks()


_DEFAULT_OPTIONS = HostOptions()
_DEFAULT_TREATMENT = Treatment()


class OfferedTool(NamedTuple):
    view: ShownView
    tool: Tool


class Host:
    """A host for the apps of one server: `async with Host(target) as host:`.

    `target` is a `Server` of this process, the command of a child process as a list, or an open channel. `denials` is
    the answer to a denied link, message or download: "error" (-32000, as the specification says) or "result"
    (`isError`, as most hosts answer). `hooks` decide for the user; `callbacks` answer requests of the server.
    """

    def __init__(
        self,
        target: Target,
        *,
        hooks: Hooks = _NO_HOOKS,
        denials: Literal["error", "result"] = "error",
        options: HostOptions = _DEFAULT_OPTIONS,
        callbacks: Callbacks = _NO_CALLBACKS,
        conversation: Conversation | None = None,
    ) -> None:
        self.options = options
        self.context = merge(default_context(), options.context)
        """The host context of Views that are opened from now on; see `change_context`."""
        self.conversation = conversation if conversation is not None else Conversation()
        self._hooks = hooks
        self._denials: Literal["error", "result"] = denials
        self._callbacks = callbacks

        self.client = Client(
            target,
            structs.replace(callbacks, list_changed=self._on_list_changed, resource_updated=self._on_updated),
            info=options.info,
            extensions=OFFER,
            version=options.version,
            timeout=options.timeout,
            limits=options.client_limits,
            # Views receive the result as the tool sent it.
            check_results=False,
            watcher=options.watcher,
        )

        self._documents = DocumentCache(self.client, hooks.review, options.fresh_seconds)
        self._handler = ViewRequestHandler(self.client, hooks, self.conversation, self.find_tool, self._on_leave)
        self._tools = ToolList(self.client, self._on_tools_read)

        self._views: dict[str, ShownView] = {}
        self._pumps: dict[str, Pump] = {}
        self._closers: list[Any] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._have_tools_changed = False
        self._is_closed = False

    # ------------------------------------------------------------------------------------------- life

    async def __aenter__(self) -> Host:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect to the server and list its tools."""
        await self.client.open()
        try:
            await self.refresh_tools()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close all Views within their time limit, and disconnect from the server. May be called twice."""
        self._is_closed = True
        # A callback for a changed list may close the host.
        ourselves = asyncio.current_task()
        if self._following is not None and self._following is not ourselves:
            self._following.cancel()

        try:
            await asyncio.gather(*(view.close("the host is closing") for view in self.views))
            while tasks := self._tasks - {ourselves}:
                await asyncio.wait(tasks)
        finally:
            # Even if this task is cancelled, no View and no connection remains.
            for view in self.views:
                view.lost("the host is closed")
            try:
                while self._closers:
                    await self._closers.pop()()
            finally:
                await self.client.aclose()

    # ------------------------------------------------------------------------------------------ tools

    async def model_tools(self) -> list[Tool]:
        """Return the tools that the model may see (APP-H-02), for any list or text with names of tools."""
        offer = self.client.server_capabilities.tools
        if offer is None or not offer.list_changed:
            # The server does not notify clients of changes.
            await self.refresh_tools()
        return model_tools(self._tools.tools.values())

    def find_tool(self, name: str) -> Tool | None:
        """Return a listed tool, or None; the visibility is not checked."""
        return self._tools.tools.get(name)

    def app_tools(self) -> dict[str, OfferedTool]:
        """Return the tools that Views offer, under names for the model that identify the View (APP-H-25)."""
        found: dict[str, OfferedTool] = {}
        for view in self._views.values():
            names = model_names(view.call.name, view.id, view.app_tools, {*self._tools.tools, *found})
            found.update({name: OfferedTool(view, tool) for name, tool in names.items()})
        return found

    async def refresh_tools(self) -> None:
        """List the tools of the server again. Open Views use the new list."""
        await self._tools.refresh()

    async def listed_tools(self, *, fresh_seconds: float = 0.0) -> Sequence[Raw]:
        """Return the tools as the server sent them, including those that cannot be decoded.

        They are listed again, unless they were listed less than `fresh_seconds` ago.
        """
        await self._tools.refresh_after(fresh_seconds)
        return self._tools.entries

    def begin_call(self, name: str) -> ToolCall:
        """Begin a call of a tool by the model. Raises LocalProtocolError for a tool that the model may not see."""
        tool = self._tools.tools.get(name)
        if tool is None or not is_for_model(tool):
            # The same text for both cases, so that the model learns nothing about hidden tools.
            raise LocalProtocolError(f"the model has no tool {name!r}")
        return ToolCall(self.client, tool)

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | Raw | None = None, *, on_progress: OnProgress | None = None
    ) -> ToolCall:
        """Call a tool for the model. Returns the finished call, with its `result` and whether it `has_view`.

        Raises LocalProtocolError for a tool that the model may not see, and the errors of a client.
        """
        call = self.begin_call(name)
        await call.run(arguments if arguments is not None else {}, on_progress=on_progress)
        return call

    # ------------------------------------------------------------------------------------------ views

    @property
    def views(self) -> Sequence[ShownView]:
        """The open Views."""
        return list(self._views.values())

    async def prefetch(self) -> list[ViewDocument]:
        """Read, check and review the documents of all tools now, so that Views open faster later.

        A document that cannot be shown is logged and left out. If there are more than 64, the first are read.
        """
        uris = {uri for tool in self._tools.tools.values() if (uri := resource_uri(tool)) is not None}
        return await self._documents.prefetch(uris)

    async def find_document(self, uri: str, *, fresh: bool = False) -> ViewDocument:
        """Return the document that a View of this resource would show now; `fresh` reads it again.

        Raises ConfigurationError if the server has none, and whatever a client raises.
        """
        if fresh:
            self._documents.expire()
        return await self._documents.get(uri)

    async def open_view(
        self, call: ToolCall, channel: ViewChannel, *, proxy: bool = False, context: HostContext | None = None
    ) -> ShownView:
        """Show the View of a call on a channel, at any time of the call. The frame must exist.

        `proxy` means that a sandbox proxy is at the other end and loads the document that it receives; otherwise the
        program loads `document.html` under `grant.policy()` itself. `context` is for this View alone. Raises
        ConfigurationError if there is nothing to show, LocalProtocolError if too many Views are open.
        """
        view = await self.prepare_view(call, proxy=proxy, context=context)
        try:
            pump = attach(view, channel)
        except BaseException:
            view.lost("the channel could not be used")
            raise

        if pump is not None:
            self._pumps[view.id] = pump
            if view.is_over:
                self._on_leave(view)

        return view

    async def prepare_view(
        self,
        call: ToolCall,
        *,
        proxy: bool = False,
        context: HostContext | None = None,
        treatment: Treatment = _DEFAULT_TREATMENT,
    ) -> ShownView:
        """Return a View without a channel. `ShownView.begin` starts its life and its time limits.

        `treatment` overrides settings of the host for this View.
        """
        if call.view_uri is None:
            raise ConfigurationError(f"the tool {call.name} has no View")

        self._check_room()
        document = await self._documents.get(call.view_uri)
        # Other Views may have been opened while the document was read.
        self._check_room()

        options = self.options
        settings = ViewSettings(
            host_info=options.info,
            capabilities=host_capabilities(self._hooks, self.client.server_capabilities),
            denials=self._denials,
            limits=options.limits,
            has_proxy=proxy,
            has_prompts=self.client.server_capabilities.prompts is not None,
            rewrite=treatment.rewrite,
            sends_early=treatment.sends_early,
        )

        surroundings = merge(self.context, HostContext(tool_info=ToolInfo(tool=call.tool)))
        view_id = self.conversation.name_view()
        machine = View(
            document,
            grant(
                document.csp,
                document.permissions,
                treatment.profile or options.profile,
                allowed=options.permissions if treatment.permissions is None else treatment.permissions,
            ),
            settings,
            context=surroundings if context is None else merge(surroundings, context),
            tools=self._tools.tools.values(),
            name=f"{view_id} ({call.name})",
        )

        view = self._views[view_id] = ShownView(view_id, call, machine, self._handler)
        call.attach(view.apply)
        return view

    async def listen_views(self, address: str, *, origin: str, hosts: Sequence[str] = ()) -> Relay:
        """Accept Views over WebSocket at `:PORT` or `HOST:PORT`, only from the web page at `origin`.

        `await relay.open_view(call)` returns a View and the one-time address for the page. `hosts` are further names of
        this machine. Raises ConfigurationError.
        """
        # A message that is slightly too large is refused and the View goes on. A far larger one ends the connection.
        limits = WebSocketLimits(max_frame_bytes=4 * self.options.limits.message_bytes)
        relay = Relay(self.prepare_view, address, origin, hosts=hosts, limits=limits)
        await relay.listen()
        self._closers.append(relay.aclose)
        return relay

    def change_context(self, delta: HostContext) -> None:
        """Change the host context of all Views: theme, locale. A View that cannot follow is left as it is."""
        self.context = merge(self.context, delta)
        change_contexts(self.views, delta)

    def _check_room(self) -> None:
        if self._is_closed:
            raise LocalProtocolError("the host is closed")
        if len(self._views) >= self.options.max_views:
            raise LocalProtocolError(f"{self.options.max_views} Views are open; close one first")

    def _on_leave(self, view: ShownView) -> None:
        view.call.detach(view.apply)
        self._views.pop(view.id, None)
        self._begin(self._wait_closed(view, self._pumps.pop(view.id, None)))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, context=detached())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _wait_closed(self, view: ShownView, pump: Pump | None) -> None:
        await view.wait_closed()
        if pump is not None:
            await pump.wait_closed()

    # ------------------------------------------------------------------------- what the server tells

    async def _on_list_changed(self, kind: ListKind) -> None:
        if kind == "tools":
            # Not awaited, so that other notifications are handled while the server lists its tools. Further changes
            # cause one more listing.
            self._have_tools_changed = True
            if not self._is_closed and (self._following is None or self._following.done()):
                self._following = self._begin(self._follow_tools())
            return

        if kind == "resources":
            self._documents.expire()
        await self._announce(kind)

    def _on_tools_read(self, tools: Iterable[Tool]) -> None:
        for view in self.views:
            view.apply(lambda machine: machine.set_tools(tools))

    async def _follow_tools(self) -> None:
        # List the tools until they no longer change. The change is announced each time, successful or not.
        faults = self.client.faults
        while self._have_tools_changed:
            self._have_tools_changed = False
            try:
                await self.refresh_tools()
            except Exception as error:
                text = "the tools of the server have changed and cannot be listed; the old list is used: %s"
                faults.log(logging.WARNING, text, printable(error))

            try:
                await self._announce("tools")
            except Exception as error:
                faults.log(logging.ERROR, "the callback for a changed list failed", error=error)

    async def _announce(self, kind: ListKind) -> None:
        for view in self.views:
            view.apply(lambda machine: machine.list_changed(kind))
        if self._callbacks.list_changed is not None:
            await settle(self._callbacks.list_changed(kind))

    async def _on_updated(self, uri: str) -> None:
        self._documents.expire()
        if self._callbacks.resource_updated is not None:
            await settle(self._callbacks.resource_updated(uri))
