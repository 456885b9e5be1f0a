"""Random interleavings of what a host reports and what a View says never break the order rules of apps.md 1.3.

The rules are checked on the messages alone, by a reader that knows nothing of the state machine: what a View
was told, in order, between its own messages.
"""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.host_stage import Stage

from mcpd.apps.host.view import ViewPhase
from mcpd.apps.host.view.context import HostContext
from mcpd.apps.host.view.events import Abort, AppToolAnswered, Ask, Closed, Failed, Finding, Forward, Live
from mcpd.errors import LocalProtocolError, McpdError

UI = "ui/notifications/"
TOOL = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


class Reader:
    """What one View may be told next, judged by what it has said and been told."""

    def __init__(self) -> None:
        self.document_sent = False
        self.initialized = False  # since the last ui/initialize
        self.inputs = self.ends = 0
        self.open: dict[Any, str] = {}  # its requests without an answer
        self.closing = False
        self.context: dict[str, Any] = {}

    def hears(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            self.hears_answer(message)
            return
        if method == UI + "sandbox-resource-ready":
            assert not self.document_sent, "the document is sent once"
            self.document_sent = True
            return
        assert self.initialized, f"APP-H-08: {method} before initialized"
        assert not self.closing, f"{method} after teardown"
        if method == UI + "tool-input-partial":
            assert not self.inputs, "APP-H-10: partial after input"
            assert not self.ends
        elif method == UI + "tool-input":
            self.inputs += 1
            assert self.inputs == 1, "APP-H-09: input twice"
            assert not self.ends, "APP-H-09: input after the end"
        elif method in (UI + "tool-result", UI + "tool-cancelled"):
            self.ends += 1
            assert self.ends == 1, "exactly one of result and cancelled"
            assert self.inputs or method == UI + "tool-cancelled", "APP-H-09: result before input"
        elif method == UI + "host-context-changed":
            assert message["params"], "an empty delta"
            for name, value in message["params"].items():
                assert self.context.get(name) != value, f"{name} is no change"
            self.context.update(message["params"])
        elif method == "ui/resource-teardown":
            self.closing = True

    def hears_answer(self, message: dict[str, Any]) -> None:
        assert self.document_sent, "an answer before the document was there"
        method = self.open.pop(message["id"])  # KeyError: answered twice, or never asked
        if method == "ui/initialize" and "result" in message:
            self.initialized = False
            self.open.clear()  # the document that asked for those is no more: an answer would meet the new one
            self.context = dict(message["result"]["hostContext"])


class Life(RuleBasedStateMachine):
    """One View and everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(started=False)
        self.reader = Reader()
        self.asks: list[int] = []
        self.aborted: set[int] = set()
        self.calls: set[str] = set()
        self.ends = 0
        self.next_id = 0
        self.heard = 0

    def listen(self) -> None:
        """Read what the View was told, and sort the events."""
        stage = self.stage
        stage.drain()
        for message in stage.told[self.heard :]:
            self.reader.hears(message)
        self.heard = len(stage.told)
        self.asks += [ask.ask_id for ask in stage.take(Ask)]
        self.aborted |= {abort.ask_id for abort in stage.take(Abort)}
        self.calls -= {answered.call_id for answered in stage.take(AppToolAnswered)}
        self.ends += len(stage.take(Closed)) + len(stage.take(Failed))

    def says(self, message: dict[str, Any]) -> None:
        self.stage.now += 0.05
        self.stage.says({"jsonrpc": "2.0", **message})
        self.listen()

    def asks_for(self, method: str, params: Any) -> None:
        request_id, self.next_id = self.next_id, self.next_id + 1
        self.reader.open[request_id] = method
        self.says({"id": request_id, "method": method, "params": params})

    # -------------------------------------------------------------------------------- the View

    @initialize(steps=st.sampled_from([4, 4, 4, 4, 4, 4, 3, 3, 2, 1, 0]))
    def begin(self, steps: int) -> None:
        """Most of what can happen happens late, so most lives begin there."""
        for step in (self.start, self.proxy_is_ready, self.mounts, self.is_initialized)[:steps]:
            step()

    @precondition(lambda self: self.stage.state is ViewPhase.NEW)
    @rule()
    def start(self) -> None:
        self.stage.view.start(self.stage.now)
        self.listen()

    @rule()
    def proxy_is_ready(self) -> None:
        self.says({"method": UI + "sandbox-proxy-ready", "params": {}})

    @rule(modes=st.none() | st.lists(st.sampled_from(["inline", "fullscreen", "pip", "cinema"])))
    def mounts(self, modes: Any = None) -> None:
        capabilities = {"tools": {}} if modes is None else {"tools": {}, "availableDisplayModes": modes}
        app = {"name": "v", "version": "1"}
        self.asks_for(
            "ui/initialize", {"appInfo": app, "appCapabilities": capabilities, "protocolVersion": "2026-01-26"}
        )

    @rule()
    def is_initialized(self) -> None:
        if self.stage.state is ViewPhase.INIT:
            self.reader.initialized = True
        self.says({"method": UI + "initialized"})

    @rule(
        call=st.sampled_from(
            [
                ("tools/call", {"name": "refresh", "_meta": {"progressToken": 0}}),
                ("tools/call", {"name": "delete_all"}),
                ("ui/open-link", {"url": "https://example.com"}),
                ("ui/open-link", {"url": "javascript:x"}),
                ("ui/request-display-mode", {"mode": "fullscreen"}),
                ("ui/request-display-mode", {"mode": "pip"}),
                ("ui/update-model-context", {"content": []}),
                ("ui/message", {}),
                ("ping", {}),
                ("nothing", {}),
            ]
        )
    )
    def requests(self, call: tuple[str, Any]) -> None:
        self.asks_for(*call)

    @precondition(lambda self: self.reader.open)
    @rule(data=st.data())
    def takes_back(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.reader.open)))
        before = len(self.aborted)
        self.says({"method": "notifications/cancelled", "params": {"requestId": request_id}})
        if len(self.aborted) > before:
            del self.reader.open[request_id]

    @rule(method=st.sampled_from(["size-changed", "request-teardown", "nothing"]))
    def notifies(self, method: str) -> None:
        self.says({"method": UI + method, "params": {"height": 10}})

    @rule(number=st.integers(0, 4), failed=st.booleans())
    def answers(self, number: int, failed: bool) -> None:
        """Any answer to anything, ours or not."""
        body = {"error": {"code": -32601, "message": "?"}} if failed else {"result": {"tools": [TOOL], "content": []}}
        self.says({"id": f"host-{number}", **body})

    # -------------------------------------------------------------------------------- the host

    @rule()
    def partial_input(self) -> None:
        self.stage.view.partial_input({"a": self.next_id})
        self.listen()

    @rule()
    def tool_input(self) -> None:
        with contextlib.suppress(LocalProtocolError):  # the second time
            self.stage.view.tool_input({"a": 1})
        self.listen()

    @rule(is_error=st.booleans())
    def tool_result(self, is_error: bool) -> None:
        self.stage.view.tool_result({"content": [], "isError": is_error})
        self.listen()

    @rule()
    def tool_cancelled(self) -> None:
        self.stage.view.tool_cancelled("x")
        self.listen()

    @rule(
        delta=st.builds(
            HostContext,
            theme=st.sampled_from(["light", "dark"]) | st.none(),
            display_mode=st.sampled_from(["inline", "pip"]) | st.none(),
            available_display_modes=st.just(["inline", "pip"]) | st.none(),
        )
    )
    def context_changes(self, delta: HostContext) -> None:
        declared = self.stage.view.app.available_display_modes
        try:
            self.stage.view.context_changed(delta)
        except LocalProtocolError:
            assert declared is not None
            assert delta.display_mode not in declared
        self.listen()

    @rule(kind=st.sampled_from(["tools", "resources", "prompts"]))
    def list_changes(self, kind: Any) -> None:
        self.stage.view.list_changed(kind)
        self.listen()

    @precondition(lambda self: self.asks)
    @rule(data=st.data(), how=st.sampled_from(["answer", "deny", "fail"]))
    def decides(self, data: st.DataObject, how: str) -> None:
        """In any order, and also what nobody waits for any more."""
        ask_id = self.asks.pop(data.draw(st.integers(0, len(self.asks) - 1)))
        view, heard = self.stage.view, self.heard
        try:
            if how == "answer":
                view.answer(ask_id)
            elif how == "deny":
                view.deny(ask_id, "no")
            else:
                view.fail(ask_id, McpdError("no"))
        except LocalProtocolError:  # the View changed its modes meanwhile
            view.deny(ask_id, "no")
        self.listen()
        answered = [message for message in self.stage.told[heard:] if "method" not in message]
        assert len(answered) == (ask_id not in self.aborted)

    @precondition(lambda self: self.asks)
    @rule(data=st.data())
    def progresses(self, data: st.DataObject) -> None:
        self.stage.view.progress(data.draw(st.sampled_from(self.asks)), 0.5)
        self.listen()

    @rule(what=st.sampled_from(["ping", "list", "call"]))
    def asks_the_view(self, what: str) -> None:
        view, now = self.stage.view, self.stage.now
        try:
            if what == "ping":
                view.ping(now)
            elif what == "list":
                view.list_app_tools(now)
            else:
                self.calls.add(view.call_app_tool("look", {}, now))
        except LocalProtocolError:
            assert self.stage.state is not ViewPhase.LIVE or what == "call"
        self.listen()

    @rule(seconds=st.sampled_from([0.1, 0.1, 0.1, 0.5, 1.5, 2.5, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.passes(seconds)
        self.listen()

    @precondition(lambda self: self.next_id > 3)
    @rule()
    def teardown(self) -> None:
        self.stage.view.teardown("x", self.stage.now)
        self.listen()

    @precondition(lambda self: self.next_id > 8)
    @rule()
    def frame_is_lost(self) -> None:
        self.stage.view.frame_lost("x")
        self.listen()

    # ------------------------------------------------------------------------------- always

    @invariant()
    def ends_once_and_lets_everybody_go(self) -> None:
        over = self.stage.state in (ViewPhase.GONE, ViewPhase.FAILED)
        assert self.ends == int(over)
        if over:
            assert set(self.asks) <= self.aborted, "an ask of a View that is gone was not aborted"
            assert not self.calls, "a call of a View's tool was never ended"
            assert not self.stage.view.app_tools
            assert self.stage.view.deadline is None

    @invariant()
    def every_request_is_open_asked_or_answered(self) -> None:
        """Nothing is forgotten: what has no answer waits for the program, unless its document is no more."""
        waiting = len([ask for ask in self.asks if ask not in self.aborted])
        if self.stage.state in (ViewPhase.INIT, ViewPhase.LIVE, ViewPhase.CLOSING):
            assert waiting <= len(self.reader.open)
            assert waiting <= 8

    @invariant()
    def steps_have_deadlines(self) -> None:
        if self.stage.state in (ViewPhase.PROXY, ViewPhase.HTML, ViewPhase.INIT, ViewPhase.CLOSING):
            assert self.stage.view.deadline is not None

    @invariant()
    def a_live_view_has_its_launch_call_complete(self) -> None:
        """Nothing waits while it could be sent."""
        if self.stage.state is ViewPhase.LIVE:
            self.stage.take(Live)
            self.stage.take(Finding)
            self.stage.take(Forward)
            assert self.stage.view.data_to_send() == []
            told = self.reader.context
            context = self.stage.view.context
            assert told.get("theme") == context.theme
            assert told.get("displayMode") == context.display_mode


Life.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestLife = Life.TestCase
