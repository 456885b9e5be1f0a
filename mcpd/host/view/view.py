"""The life of one View, seen by the host: a state machine without I/O, tasks or clock.

Theory of operation. Bytes come in through `receive`, go out through `data_to_send`; what the program has to
know or do comes out of `events`. Every other method says what happened on the host's side. Time is a number
of seconds that the caller gives, and `deadline` says when to call `tick` next. After any call, drain both
queues. The program's side is here; what the View's messages do is in `machine`, which `View` is made on.

The states and what leads from one to the next are told in `lifecycle`; what the host says before LIVE waits
(`announcements`). A View that mounts again loses its open requests and its tools, gets a new snapshot, and no input
again.

A bad message is answered if it can be, becomes a `Finding`, and changes nothing else: no message of a View
ends its session.

Spec: MCP Apps 2026-01-26, "Lifecycle"; rules APP-H of docs/rules.toml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from mcpd.errors import LocalProtocolError
from mcpd.host.documents.csp import external_sources
from mcpd.host.view.announcements import ListKind
from mcpd.host.view.context import HostContext
from mcpd.host.view.events import Closed, Event, Failed, ModeChange, ModelContextUpdate
from mcpd.host.view.lifecycle import OVER, ViewPhase
from mcpd.host.view.machine import ViewMachine
from mcpd.host.view.output import log
from mcpd.protocol.printable import printable
from mcpd.protocol.types.tools import Tool

__all__ = ["ListKind", "View", "ViewPhase"]


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
