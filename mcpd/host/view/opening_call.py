"""The call that opened a View, as the View is told of it: partial input, input, then result or cancellation.

Theory of operation. The program reports what happens whenever it happens; `due` gives what the View may be
sent now, in the one order there is, each thing once:

    tool-input-partial   any number, the last one wins, never after tool-input
    tool-input           once; sent as {} before a result if none was given
    tool-result          at most one of these two ends it;
    tool-cancelled       a cancellation needs no input before it

A result with `isError` is a result. Nothing is replayed: a View that mounts again has missed it.

Spec: MCP Apps 2026-01-26, "Notifications (Host -> View)".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Raw

from mcpd.errors import LocalProtocolError
from mcpd.host.view.messages import (
    TOOL_CANCELLED,
    TOOL_INPUT,
    TOOL_INPUT_PARTIAL,
    TOOL_RESULT,
    ToolCancelledParams,
    ToolInputParams,
)
from mcpd.protocol.jsonrpc import as_object


class LaunchCall:
    """What has happened, and how much of it the View knows."""

    __slots__ = ("_end", "_ended", "_has_input", "_input", "_partial")

    def __init__(self) -> None:
        self._partial: Raw | None = None
        self._input: Raw | None = None
        self._has_input = False
        self._end: tuple[str, Any] | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether a result or a cancellation was reported."""
        return self._ended

    def partial(self, arguments: Mapping[str, Any] | Raw) -> bool:
        """The arguments as far as the model has written them; False if it is too late for that."""
        if self._has_input or self._ended:
            return False
        self._partial = as_object(arguments, "partial tool input")
        return True

    def input(self, arguments: Mapping[str, Any] | Raw | None) -> bool:
        """The complete arguments; False if the call is over. Raises LocalProtocolError the second time."""
        if self._has_input:
            raise LocalProtocolError("tool input is sent once per View; open another View for another call")
        if self._ended:
            return False
        self._input = as_object(arguments or {}, "tool input")
        self._has_input = True
        return True

    def result(self, result: Any) -> bool:
        """The call's CallToolResult, `isError` or not; False if the call had ended already."""
        if self._ended:
            return False
        if isinstance(result, Mapping) and "content" not in result:
            result = {**result, "content": []}  # required of a CallToolResult, and Views rely on it
        self._end_with(TOOL_RESULT, as_object(result, "tool result"))
        return True

    def cancelled(self, reason: str) -> bool:
        """The call was cancelled or failed without a result; False if the call had ended already."""
        if self._ended:
            return False
        self._end_with(TOOL_CANCELLED, ToolCancelledParams(reason))
        return True

    def due(self) -> Iterator[tuple[str, Any]]:
        """Method and params of each notification that the View should get now; each is given once."""
        if self._partial is not None:
            partial, self._partial = self._partial, None
            yield TOOL_INPUT_PARTIAL, ToolInputParams(partial)

        if self._input is not None:
            arguments, self._input = self._input, None
            yield TOOL_INPUT, ToolInputParams(arguments)

        if self._end is not None:
            end, self._end = self._end, None
            if end[0] == TOOL_RESULT and not self._has_input:
                self._has_input = True
                yield TOOL_INPUT, ToolInputParams(Raw(b"{}"))
            yield end

    def _end_with(self, method: str, params: Any) -> None:
        self._end = method, params
        self._ended = True
