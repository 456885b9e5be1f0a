"""The machine inside a View: its state, and what the View's messages do to it.

Without I/O, tasks or clock, as `view` tells, which is the rest of it: what the program says and asks.

Spec: MCP Apps 2026-01-26, "Lifecycle"; rules APP-H of docs/rules.toml.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import ClassVar

from msgspec import Raw, structs
from msgspec.json import Decoder

from mcpd.errors import InternalError, ProtocolError
from mcpd.host.documents.csp import Grant
from mcpd.host.documents.document import ViewDocument
from mcpd.host.view.announcements import Announcements
from mcpd.host.view.capabilities import AppCapabilities, SandboxGrant
from mcpd.host.view.context import ContextFeed, HostContext
from mcpd.host.view.events import AppToolsChanged, Closed, Connected, Failed, Live, Pong
from mcpd.host.view.incoming import Incoming
from mcpd.host.view.lifecycle import OVER, Lifecycle, ViewPhase
from mcpd.host.view.messages import (
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
from mcpd.host.view.notifications import NOTIFICATIONS
from mcpd.host.view.outgoing import Outgoing
from mcpd.host.view.output import ViewOutput
from mcpd.host.view.policy import ViewSettings
from mcpd.host.view.reader import MessageReader
from mcpd.host.view.refusals import Denied, TooMuch, WrongState, rule_of
from mcpd.host.view.requests import ViewState, decode_params
from mcpd.protocol.jsonrpc import Failure, Notification, Request, Response
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import CancelledParams
from mcpd.protocol.types.tools import Tool

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
