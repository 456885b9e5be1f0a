"""The life of one View, seen by the host: a state machine without I/O, tasks or clock.

Theory of operation. Bytes come in through `receive`, go out through `data_to_send`; what the program has to
know or do comes out of `events`. Every other method says what happened on the host's side. Time is a number
of seconds that the caller gives, and `deadline` says when to call `tick` next. After any call, drain both
queues.

The states and what leads from one to the next are told in `lifecycle`; what the host says before LIVE waits
(`announcements`). A View that mounts again loses its open requests and its tools, gets a new snapshot, and no input
again.

A bad message is answered if it can be, becomes a `Finding`, and changes nothing else: no message of a View
ends its session.

Spec: MCP Apps 2026-01-26, "Lifecycle"; the rules of `APP-H` in the project's reference.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Raw, structs
from msgspec.json import Decoder

from ..errors import InternalError, LocalProtocolError, ProtocolError
from ..jsonrpc import Failure, Notification, Request, Response
from ..printable import printable
from ..types.notifications import CancelledParams
from ..types.tools import Tool
from .announcements import Announcements, ListKind
from .capabilities import AppCapabilities, SandboxGrant
from .context import ContextFeed, HostContext
from .csp import Grant, external_sources
from .document import ViewDocument
from .events import (
    AppToolsChanged,
    Closed,
    Connected,
    Event,
    Failed,
    Live,
    ModeChange,
    ModelContextUpdate,
)
from .incoming import Incoming
from .lifecycle import OVER, Lifecycle, State
from .messages import (
    HANDSHAKE_VERSION,
    INITIALIZE,
    INITIALIZED,
    PING,
    PROXY_READY,
    RESOURCE_READY,
    InitializeParams,
    InitializeResult,
    NoParams,
    ResourceReadyParams,
)
from .notifications import NOTIFICATIONS
from .outgoing import Outgoing
from .outlet import Outlet, log
from .policy import Settings
from .reader import MessageReader
from .refusals import Denied, TooMuch, WrongState, rule_of
from .requests import ViewState, decode_params

__all__ = ["ListKind", "State", "View"]

_decode_initialize = Decoder(InitializeParams).decode
_decode_cancelled = Decoder(CancelledParams).decode


class View:
    """One View, from its frame to its end."""

    def __init__(
        self,
        document: ViewDocument,
        grant: Grant,
        settings: Settings,
        *,
        context: HostContext | None = None,
        tools: Iterable[Tool] = (),
        name: str = "view",
    ) -> None:
        """`tools` are those of the View's own server, as listed; `name` is for the log."""
        self.document = document
        self.grant = grant
        self.settings = settings
        self.app = AppCapabilities()
        self._outlet = Outlet(printable(name))  # the name of the tool, which is the server's, is in it
        self._feed = ContextFeed(context if context is not None else HostContext())
        sandbox = SandboxGrant(permissions=grant.permissions, csp=grant.csp)
        self._view_state = ViewState(settings, structs.replace(settings.capabilities, sandbox=sandbox), self._feed, {})
        self._announcements = Announcements(self._view_state, self._outlet)
        self._incoming = Incoming(self._view_state, self._outlet)
        self._outgoing = Outgoing(settings.limits, self._outlet)
        self._reader = MessageReader(settings.limits, self._outlet)
        self._life = Lifecycle(self._outlet.name, settings.limits.step_seconds)
        self._was_live = False
        self._closing_reason = ""
        self.set_tools(tools)

    # ----------------------------------------------------------------------------- what can be seen

    @property
    def state(self) -> State:
        """Where the View is in its life."""
        return self._life.state

    @property
    def context(self) -> HostContext:
        """The host context as it is now, whether the View knows it yet or not."""
        return self._feed.context

    @property
    def model_context(self) -> ModelContextUpdate | None:
        """What the View last gave for the model, if anything; it may be empty."""
        return self._view_state.model_context

    @property
    def app_tools(self) -> Sequence[Tool]:
        """The View's own tools as it last listed them; none once it is gone."""
        return self._outgoing.tools.tools

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do, if nothing else happens before."""
        return min((at for at in (self._life.deadline, self._outgoing.deadline) if at is not None), default=None)

    def events(self) -> list[Event]:
        """What happened since the last call."""
        events, self._outlet.events = self._outlet.events, []
        return events

    def data_to_send(self) -> list[bytes]:
        """The messages for the View since the last call, in order, each one JSON text."""
        messages, self._outlet.messages = self._outlet.messages, []
        return messages

    # -------------------------------------------------------------------------------- the beginning

    def start(self, now: float) -> None:
        """The frame exists; from now on the View has time limits."""
        if self._life.state is not State.NEW:
            raise LocalProtocolError("a View is started once; open another one")
        document = self.document
        log.info(
            "%s: %s, sha256 %s, policy %s",
            self._outlet.name,
            printable(document.uri),
            document.digest,
            printable(self.grant.policy(), 2000),
        )
        if external := external_sources(self.grant.csp):
            log.warning("%s: the view may reach %s", self._outlet.name, printable(", ".join(external), 2000))
        for problem in (*document.problems, *self.grant.problems):
            log.warning("%s: %s", self._outlet.name, printable(problem, 2000))
        self._enter(State.PROXY if self.settings.has_proxy else State.HTML, now)

    def set_tools(self, tools: Iterable[Tool]) -> None:
        """The tools of the View's server, as listed; call it again when the list has changed."""
        self._view_state.tools = {tool.name: tool for tool in tools}

    # ------------------------------------------------------------------- the call it was opened for

    def partial_input(self, arguments: Mapping[str, Any] | Raw) -> bool:
        """The launch call's arguments as far as they are written; False if it is too late for that."""
        return self._tell(self._announcements.launch.partial(arguments))

    def tool_input(self, arguments: Mapping[str, Any] | Raw | None = None) -> bool:
        """The launch call's complete arguments. Raises LocalProtocolError the second time."""
        return self._tell(self._announcements.launch.input(arguments))

    def tool_result(self, result: Any) -> bool:
        """The launch call's result, `isError` or not; False if it had ended already."""
        return self._tell(self._announcements.launch.result(result))

    def tool_cancelled(self, reason: str = "cancelled") -> bool:
        """The launch call was aborted, or failed with a protocol error; False if it had ended already."""
        return self._tell(self._announcements.launch.cancelled(reason))

    def _tell(self, is_news: bool) -> bool:
        self._flush()
        return is_news and self._life.state not in OVER

    # --------------------------------------------------------------------------- changes around it

    def context_changed(self, delta: HostContext) -> None:
        """Members of the host context have new values. Raises LocalProtocolError for a mode the View does not know."""
        self._feed.change(delta)
        self._flush()

    def list_changed(self, kind: ListKind) -> None:
        """The server's list of these has changed; the View hears of it if it was promised that."""
        if self._announcements.list_changed(kind):
            self._flush()

    def _flush(self) -> None:
        """Send what waits, if the View may be told anything: nothing "before it receives an `initialized`"."""
        if self._life.state is State.LIVE:
            self._announcements.flush()

    # ------------------------------------------------------------------------- what the View sends

    def receive(self, data: bytes | str, now: float) -> None:
        """Take one message of the View (or of its proxy)."""
        if self._life.state in OVER:
            return
        try:
            message = self._reader.read(data)
        except ProtocolError as error:
            if self._reader.is_within_rate(now):
                self._outlet.refuse(error, error.request_id)
            return
        if isinstance(message, (Response, Failure)):
            # What we wait for is never too much.
            if self._outgoing.awaits(message.id) or self._reader.is_within_rate(now):
                self._on_answer(message, now)
        elif not self._reader.is_within_rate(now):
            if isinstance(message, Request):
                self._outlet.error(message.id, TooMuch("Too many messages; slow down"))
        elif self._life.state in (State.NEW, State.PROXY) and message.method != PROXY_READY:
            self._outlet.find("state", "sent before the document was there", message.method)
        elif isinstance(message, Request):
            self._on_request(message, now)
        else:
            self._on_notification(message, now)

    def _on_answer(self, message: Response | Failure, now: float) -> None:
        if self._outgoing.receive(message, now) == "teardown":
            # An official example answers -32601: any answer means "go on".
            self._end(State.GONE, Closed(self._closing_reason, clean=True))

    def _on_request(self, request: Request, now: float) -> None:
        try:
            answer = self._answer_to(request, now)
            if answer is not None:
                self._outlet.result(request.id, answer)
        except ProtocolError as error:
            self._outlet.refuse(error, request.id, request.method)
        except Exception as error:
            text = "%s: %s failed"
            self._outlet.faults.say(logging.ERROR, text, self._outlet.name, printable(request.method), error=error)
            self._outlet.refuse(InternalError(), request.id, request.method)

    def _answer_to(self, request: Request, now: float) -> object | None:
        """The answer, or None if the program gives it later."""
        if request.method == PING:
            return NoParams()
        if self._life.state is State.CLOSING:
            raise Denied("The view is being closed")
        if request.method == INITIALIZE:
            return self._initialize(request, now)
        if self._life.state is State.HTML:
            raise WrongState("The first request of a view is ui/initialize")
        return self._incoming.receive(request, is_early=self._life.state is State.INIT)

    def _initialize(self, request: Request, now: float) -> InitializeResult:
        """Spec: `ui/initialize`. A second one is a second mount: the latest wins, nothing is replayed."""
        params = decode_params(_decode_initialize, request.params)
        again = self._life.state is not State.HTML
        if again:
            self._let_go("the view mounted again")
        if params.protocol_version != HANDSHAKE_VERSION:
            text = f"asked for version {params.protocol_version[:40]!r}; answered with {HANDSHAKE_VERSION}"
            self._outlet.find("version", text, INITIALIZE, refused=False)
        self.app = params.app_capabilities
        self._outgoing.mount(offers_tools=self.app.tools is not None)
        context = self._feed.snapshot(self.app.available_display_modes)
        self._enter(State.INIT, now)
        self._outlet.events.append(Connected(params.app_info, self.app, params.protocol_version, again))
        return InitializeResult(
            protocol_version=HANDSHAKE_VERSION,
            host_info=self.settings.host_info,
            host_capabilities=self._view_state.capabilities,
            host_context=context,
        )

    def _on_notification(self, message: Notification, now: float) -> None:
        method = message.method
        if method == PROXY_READY:
            self._on_proxy_ready(now)
        elif self._life.state is State.HTML:
            self._outlet.find("state", "a notification before ui/initialize", method)
        elif method == INITIALIZED:
            self._on_initialized(now)
        elif method not in NOTIFICATIONS and method not in self._OF_REQUESTS:
            self._outlet.find("method", "no notification a host knows", method)
        elif self._life.state is not State.CLOSING:
            if self._life.state is State.INIT:
                self._outlet.find("early", "sent before ui/notifications/initialized", method, refused=False)
            try:
                self._hear(method, message.params)
            except ProtocolError as error:
                self._outlet.find(rule_of(error), error.message, method)

    def _hear(self, method: str, params: Raw) -> None:
        """Do what a notification calls for. Raises ProtocolError for what is wrong with it."""
        handle = self._OF_REQUESTS.get(method)
        if handle is not None:
            handle(self, params)
        elif (event := NOTIFICATIONS[method](self._view_state, params)) is not None:
            self._outlet.events.append(event)

    def _on_proxy_ready(self, now: float) -> None:
        """Spec: "Sandbox proxy", steps 3 and 4. The first report counts: a View could send the next one."""
        if self._life.state is not State.PROXY:
            self._outlet.find("proxy-ready", "the document was sent already", PROXY_READY)
            return
        grant = self.grant
        document = ResourceReadyParams(
            html=self.document.html, sandbox=grant.sandbox, csp=grant.csp, permissions=grant.permissions
        )
        self._outlet.notify(RESOURCE_READY, document)
        self._enter(State.HTML, now)

    def _on_initialized(self, now: float) -> None:
        if self._life.state is not State.INIT:
            self._outlet.find("state", "initialized without a new ui/initialize", INITIALIZED)
            return
        again, self._was_live = self._was_live, True
        self._enter(State.LIVE, now)
        self._flush()
        self._outlet.events.append(Live(again))

    def _on_cancelled(self, params: Raw) -> None:
        self._incoming.cancel(decode_params(_decode_cancelled, params))

    def _on_app_tools_changed(self, params: Raw) -> None:
        if not self._outgoing.tools.offered:
            raise WrongState("the view did not declare tools in appCapabilities")
        self._outlet.events.append(AppToolsChanged())

    _OF_REQUESTS: ClassVar[dict[str, Callable[[View, Raw], None]]] = {
        "notifications/cancelled": _on_cancelled,
        "notifications/tools/list_changed": _on_app_tools_changed,
    }
    """The notifications about what is asked in either direction; the others only tell something (`notifications`)."""

    # ---------------------------------------------------------------- what the program did about it

    def answer(self, ask_id: int, result: Any = None) -> None:
        """An ask was carried out.

        `result` is the server's or the model's for a Forward or a Sample, the mode that came of it for a
        ModeChange (None: the one asked for), and nothing for the others.
        """
        asked = self._incoming.get(ask_id)
        if isinstance(asked.ask, ModeChange) and not asked.aborted:
            mode = result or asked.ask.mode
            if mode != self._feed.mode:
                # The View hears of the new mode before its request is answered: then its context is right.
                self.context_changed(HostContext(display_mode=mode))
        self._incoming.answer(asked, result)

    def deny(self, ask_id: int, reason: str) -> None:
        """The user or the program says no to an ask; the reason is for the View's author."""
        self._incoming.deny(self._incoming.get(ask_id), reason)

    def fail(self, ask_id: int, error: Exception) -> None:
        """An ask could not be carried out. A JSON-RPC error of the server goes on to the View as it is."""
        self._incoming.fail(self._incoming.get(ask_id), error)

    def progress(self, ask_id: int, progress: float, total: float | None = None, message: str | None = None) -> None:
        """How far a forwarded request is; it reaches the View under its own token, if it gave one."""
        if self._life.state is State.LIVE:
            self._incoming.progress(ask_id, progress, total, message)

    def take_model_context(self) -> ModelContextUpdate | None:
        """What the View gave for the model since the last call, to be added to the next turn; None if nothing new.

        Spec: "If multiple updates are received before the next user message, Host SHOULD only send the last".
        """
        return self._incoming.take_model_context()

    # ------------------------------------------------------------------------ requests of the host

    def ping(self, now: float) -> None:
        """Ask whether the View is still there; it FAILS if it does not answer in time."""
        self._outgoing.ping(now)

    def list_app_tools(self, now: float) -> None:
        """Ask for the View's own tools: an AppToolsListed follows, or a Finding says why not.

        Raises LocalProtocolError if the View did not say that it has any.
        """
        self._outgoing.list_tools(now)

    def call_app_tool(self, tool: str, arguments: Mapping[str, Any], now: float, *, confirmed: bool = False) -> str:
        """Call one of them; an AppToolAnswered with the id given back follows, whatever happens.

        A tool that does not say it is read-only runs only once the user has `confirmed` it.
        """
        return self._outgoing.call_tool(tool, arguments, now, confirmed=confirmed)

    def cancel_app_call(self, call_id: str, reason: str = "cancelled") -> None:
        """Give up a call; nothing happens if it has ended."""
        self._outgoing.cancel_call(call_id, reason)

    # ------------------------------------------------------------------------------------- the end

    def teardown(self, reason: str, now: float) -> None:
        """Close the View: it is told, and gone when it answers or time is up. Before LIVE it is gone at once."""
        if self._life.state is State.LIVE:
            self._closing_reason = reason
            self._outgoing.teardown(reason, now)
            self._enter(State.CLOSING, now)
        elif self._life.state is not State.CLOSING:
            # It must not be sent a request before `initialized`, and has nothing to lose yet.
            self._end(State.GONE, Closed(reason, clean=True))

    def frame_lost(self, reason: str) -> None:
        """The frame or the channel is gone: a failure, unless it was about to be closed anyway."""
        if self._life.state is State.CLOSING:
            self._end(State.GONE, Closed(self._closing_reason, clean=False))
        else:
            self._end(State.FAILED, Failed(reason))

    def tick(self, now: float) -> None:
        """See to what is overdue."""
        if (failure := self._life.overdue(now)) is not None:
            self._end(State.FAILED, Failed(failure))
        for purpose in self._outgoing.overdue(now):
            if purpose == "teardown":
                self._end(State.GONE, Closed(self._closing_reason, clean=False))
            elif purpose == "ping" and self._life.state is not State.CLOSING:
                self._end(State.FAILED, Failed("the view does not answer a ping any more"))

    def _enter(self, state: State, now: float) -> None:
        """The one place where the state changes."""
        self._life.enter(state, now)
        self._outlet.is_mute = state in (State.NEW, State.PROXY, *OVER)
        self._outgoing.is_open = state is State.LIVE

    def _end(self, state: State, event: Closed | Failed) -> None:
        """Over, one way or the other: whoever waits for the View, or works for it, is told."""
        if self._life.state not in OVER:
            self._let_go(event.reason)
            self._enter(state, 0.0)
            self._outlet.events.append(event)

    def _let_go(self, reason: str) -> None:
        """The document that asked and was asked is no more."""
        self._incoming.abort_all(reason)
        self._outgoing.drop_all(reason)
