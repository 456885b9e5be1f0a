"""Messages of the host to a View: requests (ping, teardown, calls of the tools of the View), and notifications.

Each request has a deadline. `view` decides what the answers mean for the View. The tools belong to the document:
another `ui/initialize` and the end of the View remove them. Annotations of a View's tools decide what the user is
asked, never what is allowed.

Notifications wait until the View is live and are sent in a fixed order: changes of the host context since the answer to
`ui/initialize`, then the call that opened the View, then changed lists, each once. About the call the View receives:

    tool-input-partial   any number of times; the last one replaces the others; never after tool-input
    tool-input           once; {} before a result without input
    tool-result          at most one of these two, which ends the call;
    tool-cancelled       a cancellation needs no input before it

A result with `isError` is a result. A View that initializes again receives none of this again.

Spec: MCP Apps 2026-01-26, "Notifications (Host -> View)", `ui/resource-teardown`; the later draft, app-provided tools;
2025-11-25 server/tools, names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Raw
from msgspec.json import decode

from mcpd.errors import InvalidParams, LocalProtocolError, McpdError, RequestCancelled, RequestTimeout, TransportError
from mcpd.protocol.jsonrpc import MALFORMED, Failure, Response, as_object, encode, explain, remote_error
from mcpd.protocol.printable import printable
from mcpd.protocol.requests import PendingRequest, PendingRequests
from mcpd.protocol.types.base import CancelledParams
from mcpd.protocol.types.features import CallToolResult, Tool
from . import messages
from .events import AppToolAnswered, AppToolsListed
from .messages import PING, RESOURCE_TEARDOWN, AppToolsPage, TeardownParams
from .policy import ViewLimits
from .requests import ViewState
from .wire import ViewOutput, log

MAX_PAGES: Final = 10

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


class AppTools:
    def __init__(self, limit: int, *, offered: bool = False) -> None:
        self.offered = offered
        self._limit = limit
        self._tools: dict[str, Tool] = {}
        self._reading: dict[str, Tool] = {}
        self._pages = 0
        self._is_reading = False
        self._is_outdated = False

    @property
    def tools(self) -> Sequence[Tool]:
        return list(self._tools.values())

    def start(self) -> bool:
        # Only one list is read at a time, or the pages of two would be mixed. After False, `finish` returns True.
        if self._is_reading:
            self._is_outdated = True
            return False
        self._reading, self._pages, self._is_reading = {}, 0, True
        return True

    def finish(self) -> bool:
        """End the current list, complete or not. Returns whether another one was requested meanwhile."""
        self._is_reading = False
        is_outdated, self._is_outdated = self._is_outdated, False
        return is_outdated

    def read_page(self, result: Raw) -> tuple[str | None, list[str]]:
        """Return the cursor of the next page or None, and the problems of its tools. Raises InvalidParams."""
        try:
            page = decode(result, type=AppToolsPage)
        except MALFORMED as error:
            raise InvalidParams(f"the view's tools/list result: {explain(error)}") from None

        problems: list[str] = []
        self._pages += 1
        for index, entry in enumerate(page.tools):
            # Invalid tools count too, because each adds a problem.
            if len(self._reading) == self._limit or index == 2 * self._limit:
                problems.append(f"a view may offer {self._limit} tools; further tools are ignored")
                break

            try:
                tool = decode(entry, type=Tool)
            except MALFORMED as error:
                problems.append(f"an invalid tool: {explain(error)}")
                continue

            if not _NAME.fullmatch(tool.name):
                problems.append(f"not a tool name: {tool.name[:80]!r}")
            elif tool.name in self._reading:
                problems.append(f"tool {tool.name!r} is listed twice; the first one is used")
            else:
                self._reading[tool.name] = tool

        if page.next_cursor is not None and len(self._reading) < self._limit and self._pages < MAX_PAGES:
            return page.next_cursor, problems
        self._tools = self._reading
        return None, problems

    def check_call(self, name: str, *, confirmed: bool) -> Tool:
        """Return a tool that may be called now. Raises LocalProtocolError if it may not."""
        tool = self._tools.get(name)
        if tool is None:
            raise LocalProtocolError(f"the view has not listed a tool {name!r}; call list_app_tools first")
        if not confirmed and needs_confirmation(tool):
            raise LocalProtocolError(f"the view's tool {name!r} is not read-only: ask the user, then set confirmed")
        return tool


def needs_confirmation(tool: Tool) -> bool:
    """Return whether the user must be asked before a tool of a View runs: unless it is declared read-only."""
    return tool.annotations is None or tool.annotations.read_only_hint is not True


def model_names(call: str, view_id: str, tools: Iterable[Tool], taken: Collection[str]) -> dict[str, Tool]:
    # The names contain the whole id of the View, so that they do not change when other Views open or close.
    prefix = f"{_UNFIT.sub('_', call)[: 23 - len(view_id)].strip('_') or 'view'}-{view_id}"
    names: dict[str, Tool] = {}
    for tool in tools:
        stem = f"{prefix}__{_UNFIT.sub('_', tool.name)}"[:60]
        name, number = stem, 1
        while name in taken or name in names:
            number += 1
            name = f"{stem}_{number}"
        names[name] = tool

    return names


def read_result(result: Raw) -> CallToolResult:
    try:
        return decode(result, type=CallToolResult)
    except MALFORMED as error:
        raise InvalidParams(f"the view's tools/call result: {explain(error)}") from None


Purpose: TypeAlias = Literal["teardown", "ping", "list", "call"]


class _Sent(PendingRequest, kw_only=True, eq=False):
    purpose: Purpose
    tool: str = ""

    @property
    def call_id(self) -> str:
        return str(self.id)


class Outgoing:
    """The requests that a View has not answered. Requests can be sent only while `is_open`."""

    def __init__(self, limits: ViewLimits, output: ViewOutput) -> None:
        self._limits = limits
        self._output = output
        # No View uses such ids. A simple View takes any message with the id of its own request for the answer.
        self._sent: PendingRequests[_Sent] = PendingRequests("host-")
        self.is_open = False
        self.tools = AppTools(limits.app_tools)

    @property
    def deadline(self) -> float | None:
        return self._sent.deadline

    def mount(self, *, offers_tools: bool) -> None:
        self.tools = AppTools(self._limits.app_tools, offered=offers_tools)

    # ----------------------------------------------------------------------------------- asking

    def ping(self, now: float) -> None:
        self._request(_Sent(PING, purpose="ping"), now + self._limits.step_seconds)

    def teardown(self, reason: str, now: float) -> None:
        sent = _Sent(RESOURCE_TEARDOWN, purpose="teardown")
        self._request(sent, now + self._limits.teardown_seconds, TeardownParams(reason))

    def list_tools(self, now: float, cursor: str | None = None) -> None:
        """Request the first or the next page of the tools of the View."""
        if not self.tools.offered:
            raise LocalProtocolError("the view did not declare tools in appCapabilities")
        self._check_open()
        if cursor is None and not self.tools.start():
            return
        params = {} if cursor is None else {"cursor": cursor}
        self._request(_Sent("tools/list", purpose="list"), now + self._limits.app_tool_seconds, params)

    def call_tool(self, tool: str, arguments: Mapping[str, Any], now: float, *, confirmed: bool) -> str:
        """Call a tool of the View and return the id under which its end is reported. Raises LocalProtocolError."""
        self._check_open()
        self.tools.check_call(tool, confirmed=confirmed)
        raw = as_object(arguments, "arguments")
        log.info("%s: the host calls the view's tool %s", self._output.name, printable(tool))
        sent = _Sent("tools/call", purpose="call", tool=tool)
        return self._request(sent, now + self._limits.app_tool_seconds, {"name": tool, "arguments": raw})

    def cancel_call(self, call_id: str, reason: str) -> None:
        """Cancel a call; without effect if it has ended."""
        sent = self._sent.take(call_id)
        if sent is not None:
            self._give_up(sent, RequestCancelled(reason))

    def _request(self, sent: _Sent, deadline: float, params: object = None) -> str:
        self._check_open()
        sent.deadline = deadline
        self._sent.add(sent)
        self._output.request(sent.call_id, sent.method, params)
        return sent.call_id

    def _check_open(self) -> None:
        if not self.is_open:
            raise LocalProtocolError("a view can only be asked while it is live")

    # ---------------------------------------------------------------------------------- answers

    def awaits(self, call_id: object) -> bool:
        return call_id in self._sent

    def receive(self, message: Response | Failure, now: float) -> Purpose | None:
        """Take an answer. Returns the purpose of the request, or None for an unknown id."""
        sent = self._sent.receive(message)
        if sent is None:
            self._output.find("unknown-answer", f"an answer without a request: id {message.id!r:.80}")
            return None
        if sent.purpose == "list":
            self._on_tools_page(message, now)
        elif sent.purpose == "call":
            self._on_tool_answer(sent, message)

        return sent.purpose

    def overdue(self, now: float) -> list[Purpose]:
        """Return the purposes of requests that were not answered in time, and end calls of tools among them."""
        overdue = self._sent.take_overdue(now)
        for sent in overdue:
            if sent.purpose in ("list", "call"):
                self._give_up(sent, RequestTimeout(f"no answer within {self._limits.app_tool_seconds:g} seconds"))
            if sent.purpose == "list":
                self._finish_list(now)
        return [sent.purpose for sent in overdue]

    def drop_all(self, reason: str) -> None:
        """End all requests and remove the tools, because the document is gone."""
        self.tools = AppTools(self._limits.app_tools)
        for sent in self._sent.take_all():
            if sent.purpose == "call":
                self._report(sent, TransportError(f"the view is gone: {reason}"))

    def _on_tools_page(self, message: Response | Failure, now: float) -> None:
        try:
            if isinstance(message, Failure):
                raise InvalidParams(f"the view cannot list its tools: {message.error.message}")
            cursor, problems = self.tools.read_page(message.result)
        except InvalidParams as error:
            self._output.find("app-tools", error.message, "tools/list")
            self._finish_list(now)
            return

        for problem in problems:
            self._output.find("app-tools", problem, "tools/list")

        if cursor is None:
            self._output.events.append(AppToolsListed(self.tools.tools))
            self._finish_list(now)
        elif self.is_open:
            self.list_tools(now, cursor)

    def _finish_list(self, now: float) -> None:
        if self.tools.finish() and self.is_open:
            self.list_tools(now)

    def _on_tool_answer(self, sent: _Sent, message: Response | Failure) -> None:
        if isinstance(message, Failure):
            self._report(sent, remote_error(message))
            return
        try:
            result = read_result(message.result)
        except InvalidParams as error:
            self._output.find("app-tools", error.message, "tools/call")
            self._report(sent, error)
        else:
            self._output.events.append(AppToolAnswered(sent.call_id, sent.tool, result=result))

    def _give_up(self, sent: _Sent, error: McpdError) -> None:
        if self.is_open:
            params = CancelledParams(request_id=sent.call_id, reason=str(error))
            self._output.notify("notifications/cancelled", params)
        if sent.purpose == "call":
            self._report(sent, error)
        else:
            self._output.find("app-tools", str(error), "tools/list")

    def _report(self, sent: _Sent, error: McpdError) -> None:
        self._output.events.append(AppToolAnswered(sent.call_id, sent.tool, error=error))


ListKind: TypeAlias = Literal["tools", "resources", "prompts"]


class OpeningCall:
    """The state of the call that opened a View, and how much of it the View has received."""

    def __init__(self) -> None:
        self.ended = False
        """Whether a result or a cancellation was reported."""
        self._has_input = False
        # The params of notifications in the order in which they are sent, by method.
        self._due: dict[str, Any] = {}

    def partial(self, arguments: Mapping[str, Any] | Raw) -> bool:
        if self._has_input or self.ended:
            return False
        self._due[messages.TOOL_INPUT_PARTIAL] = messages.ToolInputParams(as_object(arguments, "partial tool input"))
        return True

    def input(self, arguments: Mapping[str, Any] | Raw | None) -> bool:
        if self._has_input:
            raise LocalProtocolError("tool input is sent once per View; open another View for another call")
        if self.ended:
            return False
        self._due[messages.TOOL_INPUT] = messages.ToolInputParams(as_object(arguments or {}, "tool input"))
        self._has_input = True
        return True

    def result(self, result: Any) -> bool:
        if self.ended:
            return False
        # Views rely on the member, which a CallToolResult must have.
        if isinstance(result, Mapping) and "content" not in result:
            result = {**result, "content": []}
        params = as_object(result, "tool result")
        if not self._has_input:
            self.input({})
        self._due[messages.TOOL_RESULT] = params
        self.ended = True
        return True

    def cancelled(self, reason: str) -> bool:
        if self.ended:
            return False
        self._due[messages.TOOL_CANCELLED] = messages.ToolCancelledParams(reason)
        self.ended = True
        return True

    def due(self) -> Iterable[tuple[str, Any]]:
        """Return the method and params of each notification that the View should receive now, each once."""
        due, self._due = self._due, {}
        return due.items()


class Announcements:
    """The notifications that one View has not received yet."""

    def __init__(self, view_state: ViewState, output: ViewOutput) -> None:
        self.call = OpeningCall()
        self._view_state = view_state
        self._output = output
        self._changed_lists: dict[ListKind, None] = {}

    def list_changed(self, kind: ListKind) -> bool:
        """Report a changed list of the server. Returns whether the host offered to notify the View of that."""
        capabilities = self._view_state.capabilities
        offered = {
            "tools": capabilities.server_tools is not None and capabilities.server_tools.list_changed,
            "resources": capabilities.server_resources is not None and capabilities.server_resources.list_changed,
            "prompts": self._view_state.settings.has_prompts,
        }
        if offered[kind]:
            self._changed_lists[kind] = None
        return offered[kind]

    def flush(self) -> None:
        if (delta := self._view_state.feed.due()) is not None:
            self._output.notify(messages.HOST_CONTEXT_CHANGED, delta)
        rewrite = self._view_state.settings.rewrite
        for method, params in self.call.due():
            rewritten = params if rewrite is None else rewrite(method, Raw(encode(params)))
            if rewritten is not None:
                self._output.notify(method, rewritten)
        changed, self._changed_lists = self._changed_lists, {}
        for kind in changed:
            self._output.notify(f"notifications/{kind}/list_changed")
