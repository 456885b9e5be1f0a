"""The machine inside a View: its state, and what the View's messages do to it.

Without I/O, tasks or clock, as `view` tells, which is the rest of it: what the program says and asks.

Spec: MCP Apps 2026-01-26, "Lifecycle"; rules APP-H of docs/rules.toml.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final

from msgspec import Raw, structs
from msgspec.json import Decoder

from mcpd.apps.host.document import Grant, ViewDocument, external_sources
from mcpd.apps.host.view.announcements import Announcements, ListKind
from mcpd.apps.host.view.context import ContextFeed, HostContext
from mcpd.apps.host.view.events import (
    AppToolsChanged,
    Closed,
    Connected,
    Event,
    Failed,
    Live,
    ModeChange,
    ModelContextUpdate,
    Pong,
)
from mcpd.apps.host.view.incoming import Incoming
from mcpd.apps.host.view.messages import (
    HANDSHAKE_VERSION,
    INITIALIZE,
    INITIALIZED,
    PING,
    PROXY_READY,
    RESOURCE_READY,
    AppCapabilities,
    InitializeParams,
    InitializeResult,
    NoParams,
    ResourceReadyParams,
    SandboxGrant,
)
from mcpd.apps.host.view.outgoing import Outgoing
from mcpd.apps.host.view.policy import Denied, TooMuch, ViewSettings, WrongState, rule_of
from mcpd.apps.host.view.requests import NOTIFICATIONS, ViewState, decode_params
from mcpd.apps.host.view.wire import MessageReader, ViewOutput
from mcpd.errors import InternalError, LocalProtocolError, ProtocolError
from mcpd.protocol.jsonrpc import Failure, Notification, Request, Response
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import CancelledParams
from mcpd.protocol.types.tools import Tool

__all__ = ["ListKind", "View", "ViewPhase"]


log = logging.getLogger("mcpd.host")


class ViewPhase(Enum):
    """Where a View is in its life; the table is above."""

    NEW = "new"
    PROXY = "proxy"
    HTML = "html"
    INIT = "init"
    LIVE = "live"
    CLOSING = "closing"
    GONE = "gone"
    FAILED = "failed"


_STEPS: Final = {
    ViewPhase.PROXY: "the sandbox proxy did not report",
    ViewPhase.HTML: "the view did not send ui/initialize",
    ViewPhase.INIT: "the view did not send ui/notifications/initialized",
}
"""The states a View must leave by itself within `step_seconds`, and what it means if it does not."""

OVER: Final = (ViewPhase.GONE, ViewPhase.FAILED)


class Lifecycle:
    """Where one View is, and until when it has to get on: `step_seconds` for each step. `name` is for the log."""

    __slots__ = ("_name", "_step_seconds", "deadline", "state")

    def __init__(self, name: str, step_seconds: float) -> None:
        self._name = name
        self._step_seconds = step_seconds
        self.state = ViewPhase.NEW
        self.deadline: float | None = None
        """When `overdue` has something to say, in the caller's seconds."""

    def enter(self, state: ViewPhase, now: float) -> None:
        """It is in this state from now on."""
        log.debug("%s: %s -> %s", printable(self._name), self.state.value, state.value)
        self.state = state
        self.deadline = now + self._step_seconds if state in _STEPS else None

    def overdue(self, now: float) -> str | None:
        """What was not done in time, None if there is time left."""
        if self.deadline is None or now < self.deadline:
            return None
        return f"{_STEPS[self.state]} within {self._step_seconds:g} seconds"


_decode_initialize = Decoder(InitializeParams).decode
_decode_cancelled = Decoder(CancelledParams).decode


class ViewMachine:
    """The state of one View. A bad message is answered if it can be, becomes a `Finding`, and changes nothing else."""

    def __init__(
        self,
        document: ViewDocument,
        grant: Grant,
        settings: ViewSettings,
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

        self._output = ViewOutput(printable(name))  # the name of the tool, which is the server's, is in it
        self._feed = ContextFeed(context if context is not None else HostContext())
        sandbox = SandboxGrant(permissions=grant.permissions, csp=grant.csp)
        self._view_state = ViewState(settings, structs.replace(settings.capabilities, sandbox=sandbox), self._feed, {})

        self._announcements = Announcements(self._view_state, self._output)
        self._incoming = Incoming(self._view_state, self._output)
        self._outgoing = Outgoing(settings.limits, self._output)
        self._reader = MessageReader(settings.limits, self._output)
        self._life = Lifecycle(self._output.name, settings.limits.step_seconds)

        self._was_live = False
        self._closing_reason = ""
        self.set_tools(tools)

    # ------------------------------------------------------------------------- what the View sends

    def receive(self, data: bytes | str, now: float) -> None:
        """Take one message of the View (or of its proxy)."""
        if self._life.state in OVER:
            return

        try:
            message = self._reader.read(data)
        except ProtocolError as error:
            if self._reader.is_within_rate(now):
                self._output.refuse(error, error.request_id)
            return

        if isinstance(message, (Response, Failure)):
            # What we wait for is never too much.
            if self._outgoing.awaits(message.id) or self._reader.is_within_rate(now):
                self._on_answer(message, now)
        elif not self._reader.is_within_rate(now):
            if isinstance(message, Request):
                self._output.error(message.id, TooMuch("Too many messages; slow down"))
        elif self._life.state in (ViewPhase.NEW, ViewPhase.PROXY) and message.method != PROXY_READY:
            self._output.find("state", "sent before the document was there", message.method)
        elif isinstance(message, Request):
            self._on_request(message, now)
        else:
            self._on_notification(message, now)

    def _on_answer(self, message: Response | Failure, now: float) -> None:
        purpose = self._outgoing.receive(message, now)
        if purpose == "teardown":
            # An official example answers -32601: any answer means "go on".
            self._end(ViewPhase.GONE, Closed(self._closing_reason, clean=True))
        elif purpose == "ping":
            self._output.events.append(Pong())

    def _on_request(self, request: Request, now: float) -> None:
        try:
            answer = self._answer_to(request, now)
            if answer is not None:
                self._output.result(request.id, answer)
                if self.settings.tells_early:
                    self._flush()
        except ProtocolError as error:
            self._output.refuse(error, request.id, request.method)
        except Exception as error:
            text = "%s: %s failed"
            self._output.faults.say(logging.ERROR, text, self._output.name, printable(request.method), error=error)
            self._output.refuse(InternalError(), request.id, request.method)

    def _answer_to(self, request: Request, now: float) -> object | None:
        """The answer, or None if the program gives it later."""
        if request.method == PING:
            return NoParams()
        if self._life.state is ViewPhase.CLOSING:
            raise Denied("The view is being closed")
        if request.method == INITIALIZE:
            return self._initialize(request, now)
        if self._life.state is ViewPhase.HTML:
            raise WrongState("The first request of a view is ui/initialize")
        return self._incoming.receive(request, is_early=self._life.state is ViewPhase.INIT)

    def _initialize(self, request: Request, now: float) -> InitializeResult:
        """Spec: `ui/initialize`. A second one is a second mount: the latest wins, nothing is replayed."""
        params = decode_params(_decode_initialize, request.params)
        again = self._life.state is not ViewPhase.HTML
        if again:
            self._let_go("the view mounted again")

        if params.protocol_version != HANDSHAKE_VERSION:
            text = f"asked for version {params.protocol_version[:40]!r}; answered with {HANDSHAKE_VERSION}"
            self._output.find("version", text, INITIALIZE, refused=False)

        self.app = params.app_capabilities
        self._outgoing.mount(offers_tools=self.app.tools is not None)
        context = self._feed.snapshot(self.app.available_display_modes)
        self._enter(ViewPhase.INIT, now)

        self._output.events.append(Connected(params.app_info, self.app, params.protocol_version, again))
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
        elif self._life.state is ViewPhase.HTML:
            self._output.find("state", "a notification before ui/initialize", method)
        elif method == INITIALIZED:
            self._on_initialized(now)
        elif method not in NOTIFICATIONS and method not in self._OF_REQUESTS:
            self._output.find("method", "no notification a host knows", method)
        elif self._life.state is not ViewPhase.CLOSING:
            if self._life.state is ViewPhase.INIT:
                self._output.find("early", "sent before ui/notifications/initialized", method, refused=False)
            try:
                self._hear(method, message.params)
            except ProtocolError as error:
                self._output.find(rule_of(error), error.message, method)

    def _hear(self, method: str, params: Raw) -> None:
        """Do what a notification calls for. Raises ProtocolError for what is wrong with it."""
        handle = self._OF_REQUESTS.get(method)
        if handle is not None:
            handle(self, params)
        elif (event := NOTIFICATIONS[method](self._view_state, params)) is not None:
            self._output.events.append(event)

    def _on_proxy_ready(self, now: float) -> None:
        """Spec: "Sandbox proxy", steps 3 and 4. The first report counts: a View could send the next one."""
        if self._life.state is not ViewPhase.PROXY:
            self._output.find("proxy-ready", "the document was sent already", PROXY_READY)
            return
        grant = self.grant
        document = ResourceReadyParams(
            html=self.document.html, sandbox=grant.sandbox, csp=grant.csp, permissions=grant.permissions
        )
        self._output.notify(RESOURCE_READY, document)
        self._enter(ViewPhase.HTML, now)

    def _on_initialized(self, now: float) -> None:
        if self._life.state is not ViewPhase.INIT:
            self._output.find("state", "initialized without a new ui/initialize", INITIALIZED)
            return
        again, self._was_live = self._was_live, True
        self._enter(ViewPhase.LIVE, now)
        self._flush()
        self._output.events.append(Live(again))

    def _on_cancelled(self, params: Raw) -> None:
        self._incoming.cancel(decode_params(_decode_cancelled, params))

    def _on_app_tools_changed(self, params: Raw) -> None:
        if not self._outgoing.tools.offered:
            raise WrongState("the view did not declare tools in appCapabilities")
        self._output.events.append(AppToolsChanged())

    _OF_REQUESTS: ClassVar[dict[str, Callable[[ViewMachine, Raw], None]]] = {
        "notifications/cancelled": _on_cancelled,
        "notifications/tools/list_changed": _on_app_tools_changed,
    }
    """The notifications about what is asked in either direction; the others only tell something (`notifications`)."""

    # ------------------------------------------------------------------------------- its state

    def set_tools(self, tools: Iterable[Tool]) -> None:
        """The tools of the View's server, as listed; call it again when the list has changed."""
        self._view_state.tools = {tool.name: tool for tool in tools}

    def _flush(self) -> None:
        """Send what waits, if the View may be told anything: nothing "before it receives an `initialized`"."""
        is_early = self.settings.tells_early and self._life.state is ViewPhase.INIT
        if self._life.state is ViewPhase.LIVE or is_early:
            self._announcements.flush()

    def _enter(self, state: ViewPhase, now: float) -> None:
        """The one place where the state changes."""
        self._life.enter(state, now)
        self._output.is_mute = state in (ViewPhase.NEW, ViewPhase.PROXY, *OVER)
        self._outgoing.is_open = state is ViewPhase.LIVE

    def _end(self, state: ViewPhase, event: Closed | Failed) -> None:
        """Over, one way or the other: whoever waits for the View, or works for it, is told."""
        if self._life.state not in OVER:
            self._let_go(event.reason)
            self._enter(state, 0.0)
            self._output.events.append(event)

    def _let_go(self, reason: str) -> None:
        """The document that asked and was asked is no more."""
        self._incoming.abort_all(reason)
        self._outgoing.drop_all(reason)


class View(ViewMachine):
    """One View, from its frame to its end."""

    # ----------------------------------------------------------------------------- what can be seen

    @property
    def state(self) -> ViewPhase:
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
        events, self._output.events = self._output.events, []
        return events

    def data_to_send(self) -> list[bytes]:
        """The messages for the View since the last call, in order, each one JSON text."""
        messages, self._output.messages = self._output.messages, []
        return messages

    # -------------------------------------------------------------------------------- the beginning

    def start(self, now: float) -> None:
        """The frame exists; from now on the View has time limits."""
        if self._life.state is not ViewPhase.NEW:
            raise LocalProtocolError("a View is started once; open another one")

        document = self.document
        log.info(
            "%s: %s, sha256 %s, policy %s",
            self._output.name,
            printable(document.uri),
            document.digest,
            printable(self.grant.policy(), 2000),
        )

        if external := external_sources(self.grant.csp):
            log.warning("%s: the view may reach %s", self._output.name, printable(", ".join(external), 2000))
        for problem in (*document.problems, *self.grant.problems):
            log.warning("%s: %s", self._output.name, printable(problem, 2000))

        self._enter(ViewPhase.PROXY if self.settings.has_proxy else ViewPhase.HTML, now)

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

    # ---------------------------------------------------------------- what the program did about it

    def answer(self, ask_id: int, result: Any = None) -> None:
        """An ask was carried out.

        `result` is the server's or the model's for a Forward or a Sample, the mode that came of it for a
        ModeChange (None: the one asked for), and nothing for the others.
        """
        asked = self._incoming.get(ask_id)
        if isinstance(asked.ask, ModeChange) and self._incoming.is_open(asked):
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
        if self._life.state is ViewPhase.LIVE:
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
        if self._life.state is ViewPhase.LIVE:
            self._closing_reason = reason
            self._outgoing.teardown(reason, now)
            self._enter(ViewPhase.CLOSING, now)
        elif self._life.state is not ViewPhase.CLOSING:
            # It must not be sent a request before `initialized`, and has nothing to lose yet.
            self._end(ViewPhase.GONE, Closed(reason, clean=True))

    def frame_lost(self, reason: str) -> None:
        """The frame or the channel is gone: a failure, unless it was about to be closed anyway."""
        if self._life.state is ViewPhase.CLOSING:
            self._end(ViewPhase.GONE, Closed(self._closing_reason, clean=False))
        else:
            self._end(ViewPhase.FAILED, Failed(reason))

    def tick(self, now: float) -> None:
        """See to what is overdue."""
        if (failure := self._life.overdue(now)) is not None:
            self._end(ViewPhase.FAILED, Failed(failure))
        for purpose in self._outgoing.overdue(now):
            if purpose == "teardown":
                self._end(ViewPhase.GONE, Closed(self._closing_reason, clean=False))
            elif purpose == "ping" and self._life.state is not ViewPhase.CLOSING:
                self._end(ViewPhase.FAILED, Failed("the view does not answer a ping any more"))
