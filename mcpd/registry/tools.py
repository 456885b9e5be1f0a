"""Tools: a description to list, and a function that runs on raw arguments.

Spec: 2026-07-28 server/tools. Arguments that do not fit, and failures a tool reports, are results with
`isError` (SEP-1303); an unknown tool is a JSON-RPC error and is decided before this room is entered.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from msgspec import Raw, structs

from ..context import Context
from ..errors import McpdError, ProtocolError, ToolError
from ..types.base import NO_JSON
from ..types.content import TextContent
from ..types.tools import CallToolResult, Tool
from .content import tool_result
from .pages import Audience
from .signature import Callee
from .threads import run_in_thread

__all__ = ["ToolEntry", "failed"]

log = logging.getLogger("mcpd")

_NO_ARGUMENTS = Raw(b"{}")


class ToolEntry:
    """One tool. `extras` maps an extension's id to the `_meta` that only clients with this extension see;
    `requires` names an extension without which the tool does not exist."""

    def __init__(
        self,
        tool: Tool,
        callee: Callee,
        *,
        extras: Mapping[str, Mapping[str, Any]] | None = None,
        requires: str | None = None,
    ) -> None:
        self.key = tool.name
        self.tool = tool
        self.callee = callee
        self.extras = dict(extras or {})
        self.requires = requires
        self._call = callee.call
        self._is_async = callee.is_async
        self._has_schema: bool | None = None

    def listed(self, audience: Audience) -> Tool:
        """The tool as `tools/list` shows it to that audience. Schemas are made when first listed."""
        tool = self.tool
        if not tool.input_schema:
            tool.input_schema = self.callee.input_schema
        if tool.output_schema is None:
            tool.output_schema = self.callee.output_schema
        added: dict[str, Any] = {}
        for extension, meta in self.extras.items():
            if extension in audience:
                added.update(meta)
        return structs.replace(tool, meta={**(tool.meta or {}), **added}) if added else tool

    def _result(self, value: Any) -> CallToolResult:
        if self._has_schema is None:
            self._has_schema = self.tool.output_schema is not None or self.callee.output_schema is not None
        return tool_result(value, self._has_schema)

    def run(self, arguments: Raw, ctx: Context) -> Coroutine[Any, Any, CallToolResult]:
        """Call the tool. Absent and null arguments are none."""
        if arguments is NO_JSON or memoryview(arguments) == b"null":
            arguments = _NO_ARGUMENTS
        return self._run(arguments, ctx) if self._is_async else self._run_plain(arguments, ctx)

    async def _run(self, arguments: Raw, ctx: Context) -> CallToolResult:
        try:
            return self._result(await self._call(arguments, ctx))
        except Exception as error:
            return self._failed(error, ctx)

    async def _run_plain(self, arguments: Raw, ctx: Context) -> CallToolResult:
        try:
            return self._result(await run_in_thread(self._call, arguments, ctx))
        except Exception as error:
            return self._failed(error, ctx)

    def _failed(self, error: Exception, ctx: Context) -> CallToolResult:
        if isinstance(error, ToolError):
            return failed(str(error))
        if isinstance(error, ProtocolError):
            raise error
        log.error("tool %s (request %r) failed", self.key, ctx.request_id, exc_info=error)
        if isinstance(error, McpdError):
            return failed(str(error))
        return failed(f"The tool {self.key} failed: internal error, details are in the server's log")


def failed(message: str) -> CallToolResult:
    """A result that tells the model what went wrong."""
    return CallToolResult(content=[TextContent(message)], is_error=True)
