"""Tools that a View offers to the host (`appCapabilities.tools`): the list, its limits, and their names.

They live as long as the View's document: a second mount or the end of the View drops them, and nothing of
them is kept. Everything about them comes from the View, so nothing about them is believed: annotations
decide what is asked of the user, never what is allowed.

Spec: MCP Apps, later draft, app-provided tools; 2025-11-25 server/tools, tool names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Raw
from msgspec.json import Decoder

from mcpd.errors import InvalidParams, LocalProtocolError
from mcpd.host.view.messages import AppToolsPage
from mcpd.protocol.jsonrpc import MALFORMED, explain
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
