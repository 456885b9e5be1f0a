"""The life of one View, seen by the host: a state machine without I/O, tasks or a clock.

`View.receive` takes the messages of the View, `View.data_to_send` returns the messages for it, and `View.events`
returns what the program must know or do. The other methods report what happened in the host. The caller passes the
time as a number of seconds, and calls `View.tick` at `View.deadline`. After each call, drain both queues.

state    entered by                    the host may send           the View may send
-------  ----------------------------  --------------------------  -----------------------------------------
NEW      View(...)                     nothing                     nothing
PROXY    start(), with a proxy         nothing                     sandbox-proxy-ready, once
HTML     resource-ready was sent, or   answers                     ui/initialize, ping; other requests get
         start() without a proxy                                   -32600; notifications are ignored
INIT     ui/initialize was answered    answers                     initialized; requests are answered, with a
                                                                   Finding that they are early
LIVE     initialized was received      everything                  everything; ui/initialize: back to INIT
CLOSING  teardown was sent             answers                     the answer; other requests get -32000
GONE     teardown was answered or is   nothing                     ignored
         overdue, or closed before LIVE
FAILED   a step or ping is overdue,    nothing                     ignored
         or the frame is lost

What the host reports before LIVE waits (`announcements`). A View that initializes again loses its open requests and its
tools, receives the context again, and does not receive the input again. A bad message is answered if possible, becomes
a `Finding`, and changes nothing else: no message of a View ends its session.

Spec: MCP Apps 2026-01-26, "Lifecycle"; rules APP-H of docs/rules.toml.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final

from msgspec import Raw, structs

from mcpd.apps.host.document import Grant, ViewDocument
from mcpd.errors import InternalError, LocalProtocolError, ProtocolError
from mcpd.protocol.jsonrpc import Failure, Notification, Request, Response
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import CancelledParams
from mcpd.protocol.types.features import Tool
from . import messages
from .context import ContextFeed, HostContext
from .events import (
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
from .outgoing import Announcements, ListKind, Outgoing
from .policy import Denied, TooMuch, ViewSettings, WrongState, rule_of
from .requests import NOTIFICATIONS, Incoming, ViewState, decode_params
from .wire import MessageReader, ViewOutput

log = logging.getLogger("mcpd.host")


class ViewPhase(Enum):
    """The state of a View; the table of the module describes each."""

    NEW = "new"
    PROXY = "proxy"
    HTML = "html"
    INIT = "init"
    LIVE = "live"
    CLOSING = "closing"
    GONE = "gone"
    FAILED = "failed"


# The states that a View must leave within `ViewLimits.step_seconds`, and the failure if it does not.
_OVERDUE: Final = {
    ViewPhase.PROXY: "the sandbox proxy did not report",
    ViewPhase.HTML: "the view did not send ui/initialize",
    ViewPhase.INIT: "the view did not send ui/notifications/initialized",
}

_OVER: Final = (ViewPhase.GONE, ViewPhase.FAILED)


class View:
    """One View, from its frame to its end."""

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
        """`tools` are the listed tools of the server of the View. `name` is for the log."""
        self.document = document
        self.grant = grant
        self.settings = settings
        self.app = messages.AppCapabilities()
        self.state = ViewPhase.NEW

        # The name of the tool, which the server chooses, is part of the name.
        self._output = ViewOutput(printable(name))
        self._feed = ContextFeed(context if context is not None else HostContext())
        sandbox = messages.SandboxGrant(permissions=grant.permissions, csp=grant.csp)
        self._view_state = ViewState(settings, structs.replace(settings.capabilities, sandbox=sandbox), self._feed, {})
        self._announcements = Announcements(self._view_state, self._output)
        self._incoming = Incoming(self._view_state, self._output)
        self._outgoing = Outgoing(settings.limits, self._output)
        self._reader = MessageReader(settings.limits, self._output)
        self._step_deadline: float | None = None
        self._was_live = False
        self._closing_reason = ""
        self.set_tools(tools)

    # ---------------------------------------------------------------------------------------- queues

    def events(self) -> list[Event]:
        events, self._output.events = self._output.events, []
        return events

    def data_to_send(self) -> list[bytes]:
        """Return the messages for the View since the last call, each one JSON text."""
        messages, self._output.messages = self._output.messages, []
        return messages

    @property
    def deadline(self) -> float | None:
        """The time at which to call `tick`, in seconds; None if nothing is due."""
        return min((at for at in (self._step_deadline, self._outgoing.deadline) if at is not None), default=None)

    def tick(self, now: float) -> None:
        """End what is overdue at this time."""
        if self._step_deadline is not None and now >= self._step_deadline:
            seconds = self.settings.limits.step_seconds
            self._end(ViewPhase.FAILED, Failed(f"{_OVERDUE[self.state]} within {seconds:g} seconds"))

        for purpose in self._outgoing.overdue(now):
            if purpose == "teardown":
                self._end(ViewPhase.GONE, Closed(self._closing_reason, clean=False))
            elif purpose == "ping" and self.state is not ViewPhase.CLOSING:
                self._end(ViewPhase.FAILED, Failed("the view does not answer a ping any more"))

    # ----------------------------------------------------------------------------- start and end

    def start(self, now: float) -> None:
        """Start the time limits, because the frame exists. Raises LocalProtocolError the second time."""
        if self.state is not ViewPhase.NEW:
            raise LocalProtocolError("a View is started once; open another one")

        document = self.document
        log.info("%s: %s, sha256 %s", self._output.name, printable(document.uri), document.digest)
        log.info("%s: policy %s", self._output.name, printable(self.grant.policy(), 2000))
        if external := self.grant.external_sources:
            log.warning("%s: the view may reach %s", self._output.name, printable(", ".join(external), 2000))
        for problem in (*document.problems, *self.grant.problems):
            log.warning("%s: %s", self._output.name, printable(problem, 2000))

        self._enter(ViewPhase.PROXY if self.settings.has_proxy else ViewPhase.HTML, now)

    def teardown(self, reason: str, now: float) -> None:
        """Close the View, which ends when it answers or its time is up. Before LIVE it ends at once."""
        if self.state is ViewPhase.LIVE:
            self._closing_reason = reason
            self._outgoing.teardown(reason, now)
            self._enter(ViewPhase.CLOSING, now)
        elif self.state is not ViewPhase.CLOSING:
            # The host may send no request before `initialized`, and the View has nothing to store yet.
            self._end(ViewPhase.GONE, Closed(reason, clean=True))

    def frame_lost(self, reason: str) -> None:
        """Report that the frame or the channel is gone: a failure, unless the View is being closed."""
        if self.state is ViewPhase.CLOSING:
            self._end(ViewPhase.GONE, Closed(self._closing_reason, clean=False))
        else:
            self._end(ViewPhase.FAILED, Failed(reason))

    def _enter(self, state: ViewPhase, now: float) -> None:
        log.debug("%s: %s -> %s", printable(self._output.name), self.state.value, state.value)
        self.state = state
        self._step_deadline = now + self.settings.limits.step_seconds if state in _OVERDUE else None
        self._output.is_muted = state in (ViewPhase.NEW, ViewPhase.PROXY, *_OVER)
        self._outgoing.is_open = state is ViewPhase.LIVE

    def _end(self, state: ViewPhase, event: Closed | Failed) -> None:
        if self.state not in _OVER:
            self._end_requests(event.reason)
            self._enter(state, 0.0)
            self._output.events.append(event)

    def _end_requests(self, reason: str) -> None:
        # End the requests in both directions, because the document that sent and received them is gone.
        self._incoming.abort_all(reason)
        self._outgoing.drop_all(reason)

    # ----------------------------------------------------------------------------- messages of the View

    def receive(self, data: bytes | str, now: float) -> None:
        """Take one message of the View or of its proxy."""
        if self.state in _OVER:
            return

        try:
            message = self._reader.read(data)
        except ProtocolError as error:
            if self._reader.is_within_rate(now):
                self._output.refuse(error, error.request_id)
            return

        if isinstance(message, (Response, Failure)):
            # An expected answer does not count towards the rate.
            if self._outgoing.awaits(message.id) or self._reader.is_within_rate(now):
                self._on_answer(message, now)
        elif not self._reader.is_within_rate(now):
            if isinstance(message, Request):
                self._output.error(message.id, TooMuch("Too many messages; slow down"))
        elif self.state in (ViewPhase.NEW, ViewPhase.PROXY) and message.method != messages.PROXY_READY:
            self._output.find("state", "sent before the document was there", message.method)
        elif isinstance(message, Request):
            self._on_request(message, now)
        else:
            self._on_notification(message, now)

    def _on_answer(self, message: Response | Failure, now: float) -> None:
        purpose = self._outgoing.receive(message, now)
        if purpose == "teardown":
            # An official example answers -32601, so any answer counts.
            self._end(ViewPhase.GONE, Closed(self._closing_reason, clean=True))
        elif purpose == "ping":
            self._output.events.append(Pong())

    def _on_request(self, request: Request, now: float) -> None:
        try:
            answer = self._answer_to(request, now)
            if answer is not None:
                self._output.result(request.id, answer)
                if self.settings.sends_early:
                    self._flush()
        except ProtocolError as error:
            self._output.refuse(error, request.id, request.method)
        except Exception as error:
            self._output.log(logging.ERROR, "%s failed", printable(request.method), error=error)
            self._output.refuse(InternalError(), request.id, request.method)

    def _answer_to(self, request: Request, now: float) -> object | None:
        # Return the answer, or None if the program gives it later.
        if request.method == messages.PING:
            return messages.NoParams()
        if self.state is ViewPhase.CLOSING:
            raise Denied("The view is being closed")
        if request.method == messages.INITIALIZE:
            return self._initialize(request, now)
        if self.state is ViewPhase.HTML:
            raise WrongState("The first request of a view is ui/initialize")
        return self._incoming.receive(request, is_early=self.state is ViewPhase.INIT)

    def _initialize(self, request: Request, now: float) -> messages.InitializeResult:
        # Answer `ui/initialize`. With a second one the View starts again, and nothing is sent a second time.
        params = decode_params(messages.InitializeParams, request.params)
        again = self.state is not ViewPhase.HTML
        if again:
            self._end_requests("the view mounted again")

        if params.protocol_version != messages.HANDSHAKE_VERSION:
            text = f"asked for version {params.protocol_version[:40]!r}; answered with {messages.HANDSHAKE_VERSION}"
            self._output.find("version", text, messages.INITIALIZE, refused=False)

        self.app = params.app_capabilities
        self._outgoing.mount(offers_tools=self.app.tools is not None)
        context = self._feed.snapshot(self.app.available_display_modes)
        self._enter(ViewPhase.INIT, now)
        self._output.events.append(Connected(params.app_info, self.app, params.protocol_version, again))
        return messages.InitializeResult(
            protocol_version=messages.HANDSHAKE_VERSION,
            host_info=self.settings.host_info,
            host_capabilities=self._view_state.capabilities,
            host_context=context,
        )

    def _on_notification(self, message: Notification, now: float) -> None:
        method = message.method
        if method == messages.PROXY_READY:
            self._on_proxy_ready(now)
        elif self.state is ViewPhase.HTML:
            self._output.find("state", "a notification before ui/initialize", method)
        elif method == messages.INITIALIZED:
            self._on_initialized(now)
        elif method not in NOTIFICATIONS and method not in self._REQUEST_NOTIFICATIONS:
            self._output.find("method", "hosts do not know this notification", method)
        elif self.state is not ViewPhase.CLOSING:
            if self.state is ViewPhase.INIT:
                self._output.find("early", "sent before ui/notifications/initialized", method, refused=False)
            try:
                if (handle := self._REQUEST_NOTIFICATIONS.get(method)) is not None:
                    handle(self, message.params)
                elif (event := NOTIFICATIONS[method](self._view_state, message.params)) is not None:
                    self._output.events.append(event)
            except ProtocolError as error:
                self._output.find(rule_of(error), error.message, method)

    def _on_proxy_ready(self, now: float) -> None:
        # Send the document to the proxy. Only its first report counts, because the View could send another.
        if self.state is not ViewPhase.PROXY:
            self._output.find("proxy-ready", "the document was sent already", messages.PROXY_READY)
            return
        grant = self.grant
        document = messages.ResourceReadyParams(
            html=self.document.html, sandbox=grant.sandbox, csp=grant.csp, permissions=grant.permissions
        )
        self._output.notify(messages.RESOURCE_READY, document)
        self._enter(ViewPhase.HTML, now)

    def _on_initialized(self, now: float) -> None:
        if self.state is not ViewPhase.INIT:
            self._output.find("state", "initialized without a new ui/initialize", messages.INITIALIZED)
            return
        again, self._was_live = self._was_live, True
        self._enter(ViewPhase.LIVE, now)
        self._flush()
        self._output.events.append(Live(again))

    def _on_cancelled(self, params: Raw) -> None:
        self._incoming.cancel(decode_params(CancelledParams, params))

    def _on_app_tools_changed(self, params: Raw) -> None:
        if not self._outgoing.tools.offered:
            raise WrongState("the view did not declare tools in appCapabilities")
        self._output.events.append(AppToolsChanged())

    # The notifications about requests. Those without an effect on the state are in `requests`.
    _REQUEST_NOTIFICATIONS: ClassVar[dict[str, Callable[[View, Raw], None]]] = {
        "notifications/cancelled": _on_cancelled,
        "notifications/tools/list_changed": _on_app_tools_changed,
    }

    # ------------------------------------------------------------------- the call that opened the View

    def partial_input(self, arguments: Mapping[str, Any] | Raw) -> bool:
        """Report the arguments that the model has written so far. Returns False if it is too late for that."""
        return self._announce(self._announcements.call.partial(arguments))

    def tool_input(self, arguments: Mapping[str, Any] | Raw | None = None) -> bool:
        """Report the complete arguments. Raises LocalProtocolError the second time."""
        return self._announce(self._announcements.call.input(arguments))

    def tool_result(self, result: Any) -> bool:
        """Report the result of the call, `isError` or not. Returns False if the call had ended."""
        return self._announce(self._announcements.call.result(result))

    def tool_cancelled(self, reason: str = "cancelled") -> bool:
        """Report that the call was cancelled or failed without a result. Returns False if the call had ended."""
        return self._announce(self._announcements.call.cancelled(reason))

    def _announce(self, is_new: bool) -> bool:
        self._flush()
        return is_new and self.state not in _OVER

    # ------------------------------------------------------------------------- changes in the host

    @property
    def context(self) -> HostContext:
        """The current host context, whether the View has received it or not."""
        return self._feed.context

    def context_changed(self, delta: HostContext) -> None:
        """Change members of the host context. Raises LocalProtocolError for a display mode the View does not know."""
        self._feed.change(delta)
        self._flush()

    def set_tools(self, tools: Iterable[Tool]) -> None:
        self._view_state.tools = {tool.name: tool for tool in tools}

    def list_changed(self, kind: ListKind) -> None:
        """Report that a list of the server has changed. The View is notified if the host offered that."""
        if self._announcements.list_changed(kind):
            self._flush()

    def _flush(self) -> None:
        # Send what waits, unless the View is not initialized.
        is_early = self.settings.sends_early and self.state is ViewPhase.INIT
        if self.state is ViewPhase.LIVE or is_early:
            self._announcements.flush()

    # ---------------------------------------------------------------------- answers of the program

    def answer(self, ask_id: int, result: Any = None) -> None:
        """Report that an ask was carried out.

        `result` is the answer of the server or the model to a Forward or a Sample, the new mode for a ModeChange (None
        for the requested one), and None for the others.
        """
        asked = self._incoming.get(ask_id)
        if isinstance(asked.ask, ModeChange) and self._incoming.is_open(asked):
            mode = result or asked.ask.mode
            if mode != self._feed.mode:
                # The View receives the new context before the answer, so that both agree.
                self.context_changed(HostContext(display_mode=mode))

        self._incoming.answer(asked, result)

    def deny(self, ask_id: int, reason: str) -> None:
        """Report that the user or the program denies an ask; the reason is for the author of the View."""
        self._incoming.deny(ask_id, reason)

    def fail(self, ask_id: int, error: Exception) -> None:
        """Report that an ask failed. The View receives a JSON-RPC error of the server unchanged."""
        self._incoming.fail(ask_id, error)

    def progress(self, ask_id: int, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress of a forwarded request, which the View receives with its own token, if it gave one."""
        if self.state is ViewPhase.LIVE:
            self._incoming.progress(ask_id, progress, total, message)

    @property
    def model_context(self) -> ModelContextUpdate | None:
        """The last context that the View gave for the model; it may be empty."""
        return self._view_state.model_context

    def take_model_context(self) -> ModelContextUpdate | None:
        # Spec: "If multiple updates are received before the next user message, Host SHOULD only send the last".
        return self._incoming.take_model_context()

    # ------------------------------------------------------------------------ requests of the host

    def ping(self, now: float) -> None:
        """Send a ping. The View fails if it does not answer in time."""
        self._outgoing.ping(now)

    @property
    def app_tools(self) -> Sequence[Tool]:
        """The tools of the View as it last listed them; empty once it is gone."""
        return self._outgoing.tools.tools

    def list_app_tools(self, now: float) -> None:
        """Request the tools of the View: an AppToolsListed or a Finding follows. Raises LocalProtocolError."""
        self._outgoing.list_tools(now)

    def call_app_tool(self, tool: str, arguments: Mapping[str, Any], now: float, *, confirmed: bool = False) -> str:
        """Call a tool of the View and return an id. An AppToolAnswered with the id follows in any case.

        A tool that is not declared read-only needs `confirmed`, which means that the user agreed.
        """
        return self._outgoing.call_tool(tool, arguments, now, confirmed=confirmed)

    def cancel_app_call(self, call_id: str, reason: str = "cancelled") -> None:
        """Cancel a call; without effect if it has ended."""
        self._outgoing.cancel_call(call_id, reason)
