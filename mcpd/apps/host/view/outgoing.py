"""The requests a host sends to a View: ping, teardown, and calls of the tools it offers.

Each has a deadline. What their answers mean for the View's life is not decided here (`machine`).

Spec: MCP Apps 2026-01-26, `ui/resource-teardown`; the later draft for a View's tools.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Raw
from msgspec.json import Decoder

from mcpd.apps.host.view.events import AppToolAnswered, AppToolsListed
from mcpd.apps.host.view.messages import PING, RESOURCE_TEARDOWN, AppToolsPage, TeardownParams
from mcpd.apps.host.view.policy import ViewLimits
from mcpd.apps.host.view.wire import ViewOutput, log
from mcpd.errors import InvalidParams, LocalProtocolError, McpdError, RequestCancelled, RequestTimeout, TransportError
from mcpd.protocol.jsonrpc import MALFORMED, Failure, Response, as_object, explain, remote_error
from mcpd.protocol.printable import printable
from mcpd.protocol.requests import PendingRequest, PendingRequests
from mcpd.protocol.types.base import CancelledParams
from mcpd.protocol.types.tools import CallToolResult, Tool

MAX_PAGES: Final = 10

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_decode_page = Decoder(AppToolsPage).decode
_decode_tool = Decoder(Tool).decode
_decode_result = Decoder(CallToolResult).decode


class AppTools:
    """The tools of one mounted View."""

    __slots__ = ("_is_outdated", "_is_reading", "_limit", "_pages", "_reading", "_tools", "offered")

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
        """Those of the last complete list."""
        return list(self._tools.values())

    def start(self) -> bool:
        """A new list is wanted; until it is complete the old one holds. Whether to ask for it now.

        One is read at a time: pages of two would make one list of both. False says that `finish` will ask again.
        """
        if self._is_reading:
            self._is_outdated = True
            return False
        self._reading, self._pages, self._is_reading = {}, 0, True
        return True

    def finish(self) -> bool:
        """The list is complete, or none will come. Whether another one was wanted meanwhile."""
        self._is_reading = False
        is_outdated, self._is_outdated = self._is_outdated, False
        return is_outdated

    def read_page(self, result: Raw) -> tuple[str | None, list[str]]:
        """Take one page: the cursor of the next, or None at the end, and what is wrong with entries left out.

        Raises InvalidParams for a page that is none.
        """
        try:
            page = _decode_page(result)
        except MALFORMED as error:
            raise InvalidParams(f"the view's tools/list result: {explain(error)}") from None

        problems: list[str] = []
        self._pages += 1
        for index, entry in enumerate(page.tools):
            # Bad ones count too: each is a problem to report.
            if len(self._reading) == self._limit or index == 2 * self._limit:
                problems.append(f"a view may offer {self._limit} tools; the rest is ignored")
                break

            try:
                tool = _decode_tool(entry)
            except MALFORMED as error:
                problems.append(f"a tool that cannot be read: {explain(error)}")
                continue

            if not _NAME.fullmatch(tool.name):
                problems.append(f"not a tool name: {tool.name[:80]!r}")
            elif tool.name in self._reading:
                problems.append(f"tool {tool.name!r} is listed twice; the first one counts")
            else:
                self._reading[tool.name] = tool

        if page.next_cursor is not None and len(self._reading) < self._limit and self._pages < MAX_PAGES:
            return page.next_cursor, problems
        self._tools = self._reading
        return None, problems

    def check_call(self, name: str, *, confirmed: bool) -> Tool:
        """The tool, if it may be called now; raises LocalProtocolError if not."""
        tool = self._tools.get(name)
        if tool is None:
            raise LocalProtocolError(f"the view has not listed a tool {name!r}; call list_app_tools first")
        if not confirmed and needs_confirmation(tool):
            raise LocalProtocolError(f"the view's tool {name!r} is not read-only: ask the user, then set confirmed")
        return tool


def needs_confirmation(tool: Tool) -> bool:
    """Whether the user is to be asked before a View's tool runs: unless it says that it changes nothing."""
    return tool.annotations is None or tool.annotations.read_only_hint is not True


def model_names(call: str, view_id: str, tools: Iterable[Tool], taken: Collection[str]) -> dict[str, Tool]:
    """A View's tools under names for the model: they say where a tool comes from and clash with none in `taken`.

    `call` is the name of the tool that opened the View. The id is in them whole, so that a View's tools keep their
    names whatever other Views come and go.
    """
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
    """A View's answer to `tools/call`. Raises InvalidParams if it is no CallToolResult."""
    try:
        return _decode_result(result)
    except MALFORMED as error:
        raise InvalidParams(f"the view's tools/call result: {explain(error)}") from None


Purpose: TypeAlias = Literal["teardown", "ping", "list", "call"]


class _Sent(PendingRequest, kw_only=True, eq=False):
    """A request of ours that the View should answer before its deadline."""

    purpose: Purpose
    tool: str = ""

    @property
    def call_id(self) -> str:
        """Its id, as a string."""
        return str(self.id)


class Outgoing:
    """What a View was asked and has not answered yet. Nothing can be asked while it is not `is_open`."""

    __slots__ = ("_limits", "_output", "_sent", "is_open", "tools")

    def __init__(self, limits: ViewLimits, output: ViewOutput) -> None:
        self._limits = limits
        self._output = output
        # Ids that no View uses: a simple one takes any message with the id it waits for as its answer, a request too.
        self._sent: PendingRequests[_Sent] = PendingRequests("host-")
        self.is_open = False
        self.tools = AppTools(limits.app_tools)

    @property
    def deadline(self) -> float | None:
        """When the first answer is overdue."""
        return self._sent.deadline

    def mount(self, *, offers_tools: bool) -> None:
        """A new document: its tools are others."""
        self.tools = AppTools(self._limits.app_tools, offered=offers_tools)

    # ----------------------------------------------------------------------------------- asking

    def ping(self, now: float) -> None:
        """Is anybody there?"""
        self._request(_Sent(PING, purpose="ping"), now + self._limits.step_seconds)

    def teardown(self, reason: str, now: float) -> None:
        """Say that this is the end."""
        sent = _Sent(RESOURCE_TEARDOWN, purpose="teardown")
        self._request(sent, now + self._limits.teardown_seconds, TeardownParams(reason))

    def list_tools(self, now: float, cursor: str | None = None) -> None:
        """Ask for the first or the next page of the View's tools; one list at a time."""
        if not self.tools.offered:
            raise LocalProtocolError("the view did not declare tools in appCapabilities")
        self._check_open()
        if cursor is None and not self.tools.start():
            return
        params = {} if cursor is None else {"cursor": cursor}
        self._request(_Sent("tools/list", purpose="list"), now + self._limits.app_tool_seconds, params)

    def call_tool(self, tool: str, arguments: Mapping[str, Any], now: float, *, confirmed: bool) -> str:
        """Call one of the View's tools; the id under which its end is reported. Raises LocalProtocolError."""
        self._check_open()
        self.tools.check_call(tool, confirmed=confirmed)
        raw = as_object(arguments, "arguments")
        log.info("%s: the host calls the view's tool %s", self._output.name, printable(tool))
        sent = _Sent("tools/call", purpose="call", tool=tool)
        return self._request(sent, now + self._limits.app_tool_seconds, {"name": tool, "arguments": raw})

    def cancel_call(self, call_id: str, reason: str) -> None:
        """Give up a call; nothing happens if it has ended."""
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
        """Whether an answer with this id is expected."""
        return call_id in self._sent

    def receive(self, message: Response | Failure, now: float) -> Purpose | None:
        """Take an answer; what it was about, or None if nothing of ours."""
        sent = self._sent.receive(message)
        if sent is None:
            self._output.find("unknown-answer", f"an answer to nothing we asked: id {message.id!r:.80}")
            return None
        if sent.purpose == "list":
            self._on_tools_page(message, now)
        elif sent.purpose == "call":
            self._on_tool_answer(sent, message)
        return sent.purpose

    def overdue(self, now: float) -> list[Purpose]:
        """What was not answered in time; calls of tools are closed here."""
        overdue = self._sent.take_overdue(now)
        for sent in overdue:
            if sent.purpose in ("list", "call"):
                self._give_up(sent, RequestTimeout(f"no answer within {self._limits.app_tool_seconds:g} seconds"))
            if sent.purpose == "list":
                self._finish_list(now)
        return [sent.purpose for sent in overdue]

    def drop_all(self, reason: str) -> None:
        """The document that was asked is no more, and its tools with it."""
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
