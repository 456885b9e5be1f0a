"""`Host`: MCP Apps in a program of one's own.

Connects to a server, offers it Apps, gives the model its view of the tools, calls them for the model, and shows
their Views on any message channel. Composition only: the rules are in the modules beside this one.

Spec: MCP Apps 2026-01-26; rules APP-H-01 to -26 of docs/rules.toml.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from inspect import isawaitable
from typing import Any, Literal, NamedTuple

from msgspec import Raw, structs

from mcpd.apps.host.channels import Pump, Relay, ViewChannel, attach, open_relay
from mcpd.apps.host.conversation import Conversation
from mcpd.apps.host.document import ViewDocument, grant
from mcpd.apps.host.document_cache import DocumentCache
from mcpd.apps.host.options import HostOptions, Treatment, default_context
from mcpd.apps.host.shown_view import Hooks, ShownView, ViewRequestHandler, offered
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.host.view import View
from mcpd.apps.host.view.context import HostContext, ToolInfo, merge
from mcpd.apps.host.view.outgoing import model_names
from mcpd.apps.host.view.policy import ViewSettings
from mcpd.apps.tool_metadata import is_for_model, model_tools, resource_uri
from mcpd.client import Callbacks, Client
from mcpd.client.callbacks import ListKind, detached
from mcpd.client.session import OnProgress
from mcpd.client.target import Target
from mcpd.errors import ConfigurationError, LocalProtocolError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.tools import Tool
from mcpd.server.extensions.ui.constants import MIME_TYPE, UI
from mcpd.transports.websocket.server import WebSocketLimits


class ToolList:
    """All tools of one server by name, whoever may call them. `was_read` is called with each list that was read."""

    def __init__(self, client: Client, was_read: Callable[[Iterable[Tool]], None]) -> None:
        self.tools: dict[str, Tool] = {}
        self.entries: Sequence[Raw] = ()
        """The same as the server wrote them, with those that cannot be read."""
        self._read_at = 0.0
        self._client = client
        self._was_read = was_read
        self._listing = asyncio.Lock()
        self._times_asked = self._times_read = 0
        self._has_changed = False
        self._is_followed = False

    async def refresh(self) -> None:
        """List them again. Raises what the client does."""
        self._times_asked += 1
        asked = self._times_asked
        # One after the other, or an older list could arrive last. Whoever comes meanwhile shares the next one.
        async with self._listing:
            if self._times_read >= asked:
                return
            begun = self._times_asked
            tools, self.entries = await self._client.list_tools_as_sent()
            self.tools = {tool.name: tool for tool in tools}
            self._times_read, self._read_at = begun, asyncio.get_running_loop().time()
            self._was_read(self.tools.values())

    async def refresh_after(self, seconds: float) -> None:
        """The same, unless they were listed less than so many seconds ago."""
        async with self._listing:
            is_fresh = self._times_read > 0 and asyncio.get_running_loop().time() - self._read_at < seconds
        if not is_fresh:
            await self.refresh()

    def changed(self) -> bool:
        """The server says that there are others now; whether `follow` has to be started for it."""
        self._has_changed = True
        was_followed, self._is_followed = self._is_followed, True
        return not was_followed

    async def follow(self, announce: Callable[[], Awaitable[None]]) -> None:
        """List them until nothing has changed meanwhile; `announce` is awaited after each time, successful or not."""
        faults = self._client.faults
        try:
            while self._has_changed:
                self._has_changed = False
                try:
                    await self.refresh()
                except Exception as error:
                    text = "the server's tools have changed and cannot be listed; the old list holds: %s"
                    faults.say(logging.WARNING, text, printable(error))
                try:
                    await announce()
                except Exception as error:
                    faults.say(logging.ERROR, "the callback for a changed list failed", error=error)
        finally:
            self._is_followed = False


log = logging.getLogger("mcpd.host")

_NO_HOOKS = Hooks()
_NO_CALLBACKS = Callbacks()


_DEFAULT_OPTIONS = HostOptions()
_AS_ALL = Treatment()


class OfferedTool(NamedTuple):
    """A tool that a View offers, and the View."""

    view: ShownView
    tool: Tool


class Host:
    """A host of one server's MCP Apps: `async with Host(target) as host:`.

    `target` is a `Server` of this process, the command of a child process as a list, or an open channel.
    `denials` is how a denied link, message or download is answered: "error" (-32000, as the specification says) or
    "result" (`isError`, as most hosts do). `hooks` decide for the user; `callbacks` answer the server's questions.
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
        """The surroundings of Views opened from now on; see `change_context`."""
        self.conversation = conversation if conversation is not None else Conversation()
        self._hooks = hooks
        self._denials: Literal["error", "result"] = denials
        self._callbacks = callbacks

        self.client = Client(
            target,
            structs.replace(callbacks, list_changed=self._on_list_changed, resource_updated=self._on_updated),
            info=options.info,
            extensions={UI: {"mimeTypes": [MIME_TYPE]}},
            version=options.version,
            timeout=options.timeout,
            limits=options.client_limits,
            check_results=False,  # Views get what the tool gave
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
        self._is_closed = False

    # ------------------------------------------------------------------------------------------- life

    async def __aenter__(self) -> Host:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect to the server and learn its tools."""
        await self.client.open()
        try:
            await self.refresh_tools()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Tear down every View, within its time limit, and leave the server. Safe to call twice."""
        self._is_closed = True
        ourselves = asyncio.current_task()  # it may be a callback for a changed list that closes us
        if self._following is not None and self._following is not ourselves:
            self._following.cancel()

        try:
            await asyncio.gather(*(view.close("the host is closing") for view in self.views))
            while tasks := self._tasks - {ourselves}:
                await asyncio.wait(tasks)
        finally:
            # Cancelled or not, no View stays, and no server.
            for view in self.views:
                view.lost("the host is closed")
            try:
                while self._closers:
                    await self._closers.pop()()
            finally:
                await self.client.aclose()

    # ------------------------------------------------------------------------------------------ tools

    async def model_tools(self) -> list[Tool]:
        """The tools the model may see (APP-H-02): for its list, for searches, for any text that names tools."""
        offer = self.client.server_capabilities.tools
        if offer is None or not offer.list_changed:
            await self.refresh_tools()  # nobody tells us when they change
        return model_tools(self._tools.tools.values())

    async def describe_tools(self, words: str = "") -> str:
        """The model's tools as a text, a line each; only those that have all of these words in name or description."""
        wanted = words.lower().split()
        lines = []
        for tool in await self.model_tools():
            line = f"{tool.name}: {(tool.description or tool.title or '').strip()}".rstrip(": ")
            if all(word in line.lower() for word in wanted):
                lines.append(" ".join(line.split()))
        return "\n".join(lines)

    def find_tool(self, name: str) -> Tool | None:
        """A tool as last listed, whoever may call it."""
        return self._tools.tools.get(name)

    def app_tools(self) -> dict[str, OfferedTool]:
        """The tools that Views offer, under names for the model that say whose they are (APP-H-25)."""
        found: dict[str, OfferedTool] = {}
        for view in self._views.values():
            names = model_names(view.call.name, view.id, view.app_tools, {*self._tools.tools, *found})
            found.update({name: OfferedTool(view, tool) for name, tool in names.items()})
        return found

    async def refresh_tools(self) -> None:
        """List the server's tools again; Views that are open get by with the new list too."""
        await self._tools.refresh()

    async def listed_tools(self, *, fresh_seconds: float = 0.0) -> Sequence[Raw]:
        """The server's tools as it wrote them, those that cannot be read too.

        They are listed again, unless they were listed less than `fresh_seconds` ago.
        """
        await self._tools.refresh_after(fresh_seconds)
        return self._tools.entries

    def begin_call(self, name: str) -> ToolCall:
        """The model begins to write a call of this tool. Raises LocalProtocolError for a tool it may not see."""
        tool = self._tools.tools.get(name)
        if tool is None or not is_for_model(tool):
            # One text for both: the model learns nothing of tools that are not for it.
            raise LocalProtocolError(f"there is no tool {name!r} for the model")
        return ToolCall(self.client, tool)

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | Raw | None = None, *, on_progress: OnProgress | None = None
    ) -> ToolCall:
        """Call a tool for the model: the finished call, with its `result` and whether it `has_view`.

        Raises LocalProtocolError for a tool that the model may not see, and what a client raises.
        """
        call = self.begin_call(name)
        await call.run(arguments if arguments is not None else {}, on_progress=on_progress)
        return call

    # ------------------------------------------------------------------------------------------ views

    @property
    def views(self) -> Sequence[ShownView]:
        """The Views that are open."""
        return list(self._views.values())

    async def prefetch(self) -> list[ViewDocument]:
        """Read, check and review the documents of all tools now, so that Views open at once later.

        One that cannot be shown is left out, and logged; of more than 64 the first are read.
        """
        uris = {uri for tool in self._tools.tools.values() if (uri := resource_uri(tool)) is not None}
        return await self._documents.prefetch(uris)

    async def find_document(self, uri: str, *, fresh: bool = False) -> ViewDocument:
        """The document that a View of this resource would show now; `fresh` reads it again in any case.

        Raises ConfigurationError if there is none to show, and what a client raises.
        """
        if fresh:
            self._documents.expire()
        return await self._documents.get(uri)

    async def open_view(
        self, call: ToolCall, channel: ViewChannel, *, proxy: bool = False, context: HostContext | None = None
    ) -> ShownView:
        """Show a call's View on a channel, at any time of the call; the frame must be there.

        `proxy` says that a sandbox proxy stands at the other end, and loads the document that it is sent; else the
        program loads `document.html` under `grant.policy()` itself. `context` is for this View alone.
        Raises ConfigurationError if there is nothing to show, LocalProtocolError if too many are open.
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
        treatment: Treatment = _AS_ALL,
    ) -> ShownView:
        """A View whose channel comes later: `ShownView.begin` starts its life and its time limits.

        `treatment` is for a View that is not to be treated as all others are.
        """
        if call.view_uri is None:
            raise ConfigurationError(f"the tool {call.name} has no View")
        self._check_room()
        document = await self._documents.get(call.view_uri)
        # Others may have come while the document was read.
        self._check_room()

        options = self.options
        settings = ViewSettings(
            host_info=options.info,
            capabilities=offered(self._hooks, self.client.server_capabilities),
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
        call.attach(view.tell)
        return view

    async def listen_views(self, address: str, *, origin: str, hosts: Sequence[str] = ()) -> Relay:
        """Take Views over WebSocket at `:PORT` or `HOST:PORT`, from the web page at `origin` and nobody else.

        `await relay.open_view(call)` gives a View and the one-time address that the page connects to. `hosts` are
        names under which this machine is reached, besides its own. Raises ConfigurationError.
        """
        # What is a little too large is refused and the View goes on; what is far too large ends the connection.
        limits = WebSocketLimits(max_frame_bytes=4 * self.options.limits.message_bytes)
        relay = await open_relay(self.prepare_view, address, origin, hosts=hosts, limits=limits)
        self._closers.append(relay.aclose)
        return relay

    def change_context(self, delta: HostContext) -> None:
        """The surroundings of all Views are others now: theme, locale. A View that cannot follow is left as it is."""
        self.context = merge(self.context, delta)
        for view in self.views:
            try:
                view.change_context(delta)
            except LocalProtocolError as error:
                log.info("%s: %s", view.id, printable(error))

    def _check_room(self) -> None:
        if self._is_closed:
            raise LocalProtocolError("the host is closed")
        if len(self._views) >= self.options.max_views:
            raise LocalProtocolError(f"{self.options.max_views} Views are open; close one first")

    def _on_leave(self, view: ShownView) -> None:
        view.call.detach(view.tell)
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
            # Not awaited: however long the server takes to list them, what else it tells is heard. Further changes
            # are one more reading.
            if not self._is_closed and self._tools.changed():
                self._following = self._begin(self._tools.follow(self._announce_tools))
            return
        if kind == "resources":
            self._documents.expire()
        await self._announce(kind)

    def _on_tools_read(self, tools: Iterable[Tool]) -> None:
        for view in self.views:
            view.tell(lambda machine: machine.set_tools(tools))

    async def _announce_tools(self) -> None:
        await self._announce("tools")

    async def _announce(self, kind: ListKind) -> None:
        for view in self.views:
            view.tell(lambda machine: machine.list_changed(kind))
        if self._callbacks.list_changed is not None:
            told = self._callbacks.list_changed(kind)
            if isawaitable(told):
                await told

    async def _on_updated(self, uri: str) -> None:
        self._documents.expire()
        if self._callbacks.resource_updated is not None:
            told = self._callbacks.resource_updated(uri)
            if isawaitable(told):
                await told
