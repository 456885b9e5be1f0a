"""A View on a channel: runs its state machine, keeps its time limits, and carries out its requests with `Hooks`.

The state machine (`view`) has checked each request before: it is valid, allowed to Views, and within the limits. All
calls come from the thread of the event loop. Rules APP-H-03, -04, -17 to -22, -26 of docs/rules.toml.

What Views add to the conversation waits in a `Conversation`: messages of the user, and context for the next turn of the
model. The program takes both; nothing here reaches a model otherwise. Both queues are bounded: further messages of
Views are denied, as a user may deny them. Spec: MCP Apps 2026-01-26, `ui/message`, `ui/update-model-context`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

from msgspec import Raw, Struct
from msgspec.json import decode

from mcpd.apps.host.view.context import DisplayMode, HostContext
from mcpd.apps.host.view.events import ModelContextUpdate
from mcpd.apps.host.view.messages import Empty, HostCapabilities, SamplingOffer
from mcpd.apps.host.view.policy import DEFAULT_CAPABILITIES, Denied
from mcpd.client import Client
from mcpd.errors import InternalError, LocalProtocolError, RequestCancelled
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import ListChanged, ServerCapabilities
from mcpd.protocol.types.features import CallToolResult, ContentBlock, Tool
from mcpd.protocol.types.interaction import CreateMessageResult
from .document import ViewDocument
from .tool_call import ToolCall
from .view import View, ViewPhase, events


class ViewMessage(Struct, frozen=True):
    """A message that a View adds to the conversation with the role `user`."""

    view: str
    tool: str
    content: Sequence[ContentBlock]
    role: str = "user"


class ViewContext(Struct, frozen=True):
    """The last context of a View for the model; empty if the View removed it."""

    view: str
    tool: str
    content: Sequence[ContentBlock]
    structured_content: dict[str, Any] | None


class Conversation:
    """One conversation. Several hosts may share it, one for each server.

    `max_messages` and `max_bytes` bound what waits for `take_messages`, and separately what waits for `take_context`.
    If there is more context, the least recent is dropped.
    """

    def __init__(self, *, max_messages: int = 1000, max_bytes: int = 16 * 1024 * 1024) -> None:
        self.messages: list[ViewMessage] = []
        """The messages since they were last taken, in order."""
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._contexts: OrderedDict[str, tuple[ViewContext, int]] = OrderedDict()
        self._context_bytes = 0
        self._views = 0

    def name_view(self) -> str:
        """Return an id for a View that is never used again, whichever host shows the View."""
        self._views += 1
        return f"view-{self._views}"

    @property
    def contexts(self) -> list[ViewContext]:
        """What `take_context` would return now."""
        return [context for context, _ in self._contexts.values()]

    def add_message(self, message: ViewMessage) -> None:
        """Add a message of a View. Raises Denied if too much waits to be taken."""
        size = len(encode(message.content))
        if len(self.messages) >= self._max_messages or self._bytes + size > self._max_bytes:
            raise Denied("Too many messages wait to be taken into the conversation")
        self.messages.append(message)
        self._bytes += size

    def set_context(self, view: str, tool: str, update: ModelContextUpdate) -> None:
        _, size = self._contexts.pop(view, (None, 0))
        self._context_bytes -= size
        size = len(encode((update.content, update.structured_content)))
        self._contexts[view] = ViewContext(view, tool, update.content, update.structured_content), size
        self._context_bytes += size
        while len(self._contexts) > 1 and (
            self._context_bytes > self._max_bytes or len(self._contexts) > self._max_messages
        ):
            _, (_, size) = self._contexts.popitem(last=False)
            self._context_bytes -= size

    def take_messages(self) -> list[ViewMessage]:
        taken, self.messages, self._bytes = self.messages, [], 0
        return taken

    def take_context(self) -> list[ViewContext]:
        # Spec: "If multiple updates are received before the next user message, Host SHOULD only send the last".
        taken = self.contexts
        self._contexts.clear()
        self._context_bytes = 0
        return taken


log = logging.getLogger("mcpd.host")


class ShownView:
    """A View that is shown. `Host.open_view` creates it.

    `id` is unique in its conversation. `ended` completes when it is gone, with the event that has the reason.
    """

    def __init__(self, view_id: str, call: ToolCall, machine: View, handler: ViewRequestHandler) -> None:
        self.id = view_id
        self.call = call
        self.document = machine.document
        self.grant = machine.grant
        """The policy, sandbox tokens and `allow` attribute of the View."""
        self._machine = machine
        self._handler = handler

        self._loop = asyncio.get_running_loop()
        self._send: Callable[[bytes], object] | None = None
        self._close_channel: Callable[[], object] | None = None

        self._work: dict[int, asyncio.Task[Any]] = {}
        self._app_calls: dict[str, asyncio.Future[CallToolResult]] = {}
        self._pings: deque[tuple[asyncio.Future[float], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_turning = False

        self._live: asyncio.Future[bool] = self._loop.create_future()
        self.ended: asyncio.Future[events.Closed | events.Failed] = self._loop.create_future()

    # -------------------------------------------------------------------------------- what can be seen

    @property
    def state(self) -> ViewPhase:
        return self._machine.state

    @property
    def context(self) -> HostContext:
        return self._machine.context

    @property
    def app_tools(self) -> Sequence[Tool]:
        """The tools of the View as it last listed them."""
        return self._machine.app_tools

    @property
    def is_over(self) -> bool:
        return self.ended.done()

    async def live(self) -> bool:
        """Wait until the View is initialized. Returns False if it is gone before."""
        return await asyncio.shield(self._live)

    # ------------------------------------------------------------------------------ the channel's side

    def begin(self, send: Callable[[bytes], object], close: Callable[[], object] | None = None) -> None:
        """Start the View, because its frame exists. `send` sends messages to it; `close` is called once it is gone."""
        self._send, self._close_channel = send, close
        self._machine.start(self._loop.time())
        self._turn()

    def receive(self, message: bytes | str) -> None:
        self._machine.receive(message, self._loop.time())
        self._turn()

    def lost(self, reason: str = "the channel is closed") -> None:
        """Report that the frame or the channel is gone."""
        self._machine.frame_lost(reason)
        self._turn()

    # ------------------------------------------------------------------------------- the program's side

    def apply(self, function: Callable[[View], object]) -> None:
        """Call a function with the state machine, and send the resulting messages."""
        function(self._machine)
        self._turn()

    def change_context(self, delta: HostContext) -> None:
        """Change members of the host context. Raises LocalProtocolError for an unsupported display mode."""
        self.apply(lambda machine: machine.context_changed(delta))

    def ping(self) -> asyncio.Future[float]:
        # The View fails if it does not answer in time, and the future is cancelled if the View is gone.
        answer: asyncio.Future[float] = self._loop.create_future()
        self._machine.ping(self._loop.time())
        self._pings.append((answer, self._loop.time()))
        # After this, because the channel may answer at once.
        self._turn()
        return answer

    def list_app_tools(self) -> None:
        """Request the tools of the View again. `app_tools` has them after an AppToolsListed event."""
        self.apply(lambda machine: machine.list_app_tools(self._loop.time()))

    async def call_app_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, confirmed: bool = False
    ) -> CallToolResult:
        """Call a tool of the View. One that is not declared read-only needs `confirmed`: the user agreed.

        Raises LocalProtocolError if it cannot be called now, RemoteError, RequestTimeout, TransportError.
        """
        call_id = self._machine.call_app_tool(name, arguments or {}, self._loop.time(), confirmed=confirmed)
        answer: asyncio.Future[CallToolResult] = self._loop.create_future()
        self._app_calls[call_id] = answer
        self._turn()
        try:
            return await answer
        except asyncio.CancelledError:
            self._app_calls.pop(call_id, None)
            self.apply(lambda machine: machine.cancel_app_call(call_id))
            raise

    async def close(self, reason: str = "closed by the host") -> events.Closed | events.Failed:
        """Close the View, and return how it ended. The View is gone once it has answered or its time is up."""
        self.apply(lambda machine: machine.teardown(reason, self._loop.time()))
        return await asyncio.shield(self.ended)

    # --------------------------------------------------------------------------------------- the turn

    def _turn(self) -> None:
        # Send all messages and handle all events of the state machine, including those that result from this.
        # A call back from below is handled by the loop that is running.
        if self._is_turning:
            return
        self._is_turning = True
        machine = self._machine

        try:
            while True:
                messages, events = machine.data_to_send(), machine.events()
                if not messages and not events:
                    break
                for message in messages:
                    self._deliver(message)
                for event in events:
                    self._take(event)
        finally:
            self._is_turning = False

        self._set_timer()

    def _deliver(self, message: bytes) -> None:
        if self._send is None:
            return
        try:
            self._send(message)
        except Exception as error:
            log.warning("%s: the channel does not take messages: %s", self.id, printable(error))
            self._send = None
            self._machine.frame_lost("the channel does not take messages")

    def _take(self, event: events.Event) -> None:
        if isinstance(event, events.Ask):
            self._begin_work(event)
            return

        if isinstance(event, events.Abort):
            if (task := self._work.get(event.ask_id)) is not None:
                task.cancel()
        elif isinstance(event, events.Live):
            if not self._live.done():
                self._live.set_result(True)
            self._ask_for_tools()
        elif isinstance(event, events.AppToolsChanged):
            self._ask_for_tools()
        elif isinstance(event, events.AppToolAnswered):
            self._answer_app_call(event)
        elif isinstance(event, events.Pong):
            self._answer_ping()
        elif isinstance(event, (events.Closed, events.Failed)):
            self._end(event)

        self._handler.notice(self, event)

    def _ask_for_tools(self) -> None:
        if self._machine.app.tools is not None and self._machine.state is ViewPhase.LIVE:
            self._machine.list_app_tools(self._loop.time())

    def _answer_ping(self) -> None:
        if self._pings:
            answer, began = self._pings.popleft()
            if not answer.done():
                answer.set_result(self._loop.time() - began)

    def _answer_app_call(self, event: events.AppToolAnswered) -> None:
        answer = self._app_calls.pop(event.call_id, None)
        if answer is None or answer.done():
            return
        if event.result is not None:
            answer.set_result(event.result)
        else:
            answer.set_exception(event.error or LocalProtocolError("the call ended without a result"))

    def _begin_work(self, ask: events.Ask) -> None:
        # A callback ends the work, because a task that is cancelled before its first step runs no `finally`.
        task: asyncio.Task[Any] = self._loop.create_task(self._handler.handle(self, ask))
        self._work[ask.ask_id] = task
        task.add_done_callback(lambda task: self._end_work(ask, task))

    def _end_work(self, ask: events.Ask, task: asyncio.Task[Any]) -> None:
        machine, ask_id = self._machine, ask.ask_id
        del self._work[ask_id]
        error = RequestCancelled("given up") if task.cancelled() else task.exception()

        try:
            if error is None:
                machine.answer(ask_id, task.result())
                if isinstance(ask, events.ModelContextUpdate) and (update := machine.take_model_context()) is not None:
                    self._handler.conversation.set_context(self.id, self.call.name, update)
        except LocalProtocolError as impossible:
            error = impossible

        if isinstance(error, Denied):
            machine.deny(ask_id, error.message)
        elif error is not None:
            machine.fail(ask_id, error if isinstance(error, Exception) else InternalError())

        self._turn()

    def progress(self, ask_id: int, progress: float, total: float | None, message: str | None) -> None:
        if ask_id in self._work:
            self.apply(lambda machine: machine.progress(ask_id, progress, total, message))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._machine.deadline
        if deadline is not None and not self.is_over:
            self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        # The timer may fire slightly early. Then nothing is due yet, and a new timer is set.
        self.apply(lambda machine: machine.tick(self._loop.time()))

    def _end(self, event: events.Closed | events.Failed) -> None:
        for task in self._work.values():
            task.cancel()
        for answer in self._app_calls.values():
            answer.cancel()
        for ping, _ in self._pings:
            ping.cancel()
        if not self._live.done():
            self._live.set_result(False)
        if not self.ended.done():
            self.ended.set_result(event)
        close, self._close_channel, self._send = self._close_channel, None, None
        if close is not None:
            close()
        self._handler.on_leave(self)

    async def wait_closed(self) -> None:
        """Wait until the work for a View that is gone has stopped."""
        while self._work:
            await asyncio.wait(list(self._work.values()))


def change_contexts(views: Iterable[ShownView], delta: HostContext) -> None:
    """Change the host context of these Views. One that does not support the new display mode is left as it is."""
    for view in views:
        try:
            view.change_context(delta)
        except LocalProtocolError as error:
            log.info("%s: %s", view.id, printable(error))


T = TypeVar("T")
_Maybe: TypeAlias = T | Awaitable[T]


class Hooks(Struct, frozen=True, kw_only=True):
    """The decisions of the program. Each is a function or a coroutine function, and receives the View in question.

    Without a hook the safe answer is given: what has no hook is not offered to Views, except for messages and context
    for the model, which only wait in the conversation. A hook denies a request by returning False, or by raising
    `policy.Denied` with a reason for the author of the View.

        open_link      open this http(s) address outside the View; without it Views cannot open links
        download       save these files for the user, who should be asked; without it Views cannot offer any
        sample         ask the model: receives the params of `sampling/createMessage` as JSON, returns its result
        display_mode   show the View in this mode and return the resulting mode; without it the mode stays
        message        whether this may be added to the conversation as a message of the user; default yes
        model_context  whether the model may receive this; default yes
        call_tool      whether the View may make this call of a tool that is visible to Views; default yes
        review         whether this document may be shown, called once for each content and metadata; default yes
        event          receives all events: sizes, logs, findings, life and end
    """

    open_link: Callable[[ShownView, str], _Maybe[bool | None]] | None = None
    download: Callable[[ShownView, Sequence[events.DownloadItem]], _Maybe[bool | None]] | None = None
    sample: Callable[[ShownView, Raw], _Maybe[CreateMessageResult | Mapping[str, Any] | Raw]] | None = None
    sample_tools: bool = False
    display_mode: Callable[[ShownView, DisplayMode], _Maybe[DisplayMode | None]] | None = None
    message: Callable[[ShownView, Sequence[ContentBlock]], _Maybe[bool | None]] | None = None
    model_context: Callable[[ShownView, events.ModelContextUpdate], _Maybe[bool | None]] | None = None
    call_tool: Callable[[ShownView, Tool, Raw], _Maybe[bool | None]] | None = None
    review: Callable[[ViewDocument], _Maybe[bool | None]] | None = None
    event: Callable[[ShownView, events.Event], object] | None = None


async def settle(value: _Maybe[T]) -> T:
    """Return the value of a hook, awaited if necessary."""
    return await value if isawaitable(value) else value


def host_capabilities(hooks: Hooks, server: ServerCapabilities) -> HostCapabilities:
    tools, resources = server.tools, server.resources
    return HostCapabilities(
        open_links=Empty() if hooks.open_link is not None else None,
        download_file=Empty() if hooks.download is not None else None,
        server_tools=ListChanged(list_changed=tools.list_changed) if tools is not None else None,
        server_resources=ListChanged(list_changed=resources.list_changed) if resources is not None else None,
        logging=Empty(),
        update_model_context=DEFAULT_CAPABILITIES.update_model_context,
        message=DEFAULT_CAPABILITIES.message,
        sampling=SamplingOffer(tools=Empty() if hooks.sample_tools else None) if hooks.sample is not None else None,
    )


class _Arguments(Struct):
    arguments: Raw = Raw(b"{}")


class ViewRequestHandler:
    """Handles the requests of all Views of one host. `on_leave` is called for each View that is gone."""

    def __init__(
        self,
        client: Client,
        hooks: Hooks,
        conversation: Conversation,
        find_tool: Callable[[str], Tool | None],
        on_leave: Callable[[ShownView], None],
    ) -> None:
        self._client = client
        self._hooks = hooks
        self.conversation = conversation
        self._find_tool = find_tool
        self.on_leave = on_leave

    async def handle(self, view: ShownView, ask: events.Ask) -> Any:
        """Carry out an ask and return what `View.answer` takes. Raises Denied to deny it, or the error."""
        hooks = self._hooks
        if isinstance(ask, events.Forward):
            return await self._forward(view, ask)

        if isinstance(ask, events.OpenLink) and hooks.open_link is not None:
            _check(await settle(hooks.open_link(view, ask.url)), "The host did not open the link")
        elif isinstance(ask, events.Download) and hooks.download is not None:
            _check(await settle(hooks.download(view, ask.items)), "The host did not save the files")
        elif isinstance(ask, events.ChatMessage):
            if hooks.message is not None:
                _check(await settle(hooks.message(view, ask.content)), "The host did not take the message")
            # The conversation may be full, whatever the hook decides.
            self.conversation.add_message(ViewMessage(view.id, view.call.name, ask.content))
        elif isinstance(ask, events.ModelContextUpdate):
            if hooks.model_context is not None:
                _check(await settle(hooks.model_context(view, ask)), "The host did not take the context")
        elif isinstance(ask, events.ModeChange) and hooks.display_mode is not None:
            mode = await settle(hooks.display_mode(view, ask.mode))
            if mode is None:
                raise Denied("The host keeps the display mode")
            return mode
        elif isinstance(ask, events.Sample) and hooks.sample is not None:
            return await settle(hooks.sample(view, ask.params))
        else:
            raise Denied("The host has no way to do this")

        return None

    async def _forward(self, view: ShownView, ask: events.Forward) -> Raw:
        # Send a request to the View's own server, which is the only one here (APP-H-04).
        if ask.method == "tools/call" and self._hooks.call_tool is not None:
            tool = self._find_tool(ask.target)
            if tool is None:
                raise Denied(f"The tool {ask.target!r} is gone")
            arguments = decode(ask.params, type=_Arguments).arguments
            _check(await settle(self._hooks.call_tool(view, tool, arguments)), "The host did not allow the call")

        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            view.progress(ask.ask_id, progress, total, message)

        wanted = on_progress if ask.wants_progress else None
        return await self._client.request(ask.method, ask.params, on_progress=wanted)

    def notice(self, view: ShownView, event: events.Event) -> None:
        if self._hooks.event is not None:
            try:
                self._hooks.event(view, event)
            except Exception:
                log.exception("%s: the hook for events failed", view.id)


def _check(answer: bool | None, reason: str) -> None:
    # Only False denies: a hook without a return value agrees.
    if answer is False:
        raise Denied(reason)
