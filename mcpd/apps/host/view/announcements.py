"""The notifications of the host for a View, which wait until it is live and are sent in a fixed order.

The order is: changes of the host context since the answer to `ui/initialize`, then the call that opened the View, then
changed lists, each once. The View receives these notifications about the call:

    tool-input-partial   any number of times; the last one replaces the others; never after tool-input
    tool-input           once; {} before a result without input
    tool-result          at most one of these two, which ends the call;
    tool-cancelled       a cancellation needs no input before it

A result with `isError` is a result. A View that initializes again receives none of this again.

Spec: MCP Apps 2026-01-26, "Notifications (Host -> View)".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Raw

from mcpd.apps.host.view import messages
from mcpd.apps.host.view.requests import ViewState
from mcpd.apps.host.view.wire import ViewOutput
from mcpd.errors import LocalProtocolError
from mcpd.protocol.jsonrpc import as_object, encode

ListKind: TypeAlias = Literal["tools", "resources", "prompts"]


class OpeningCall:
    """The state of the call that opened a View, and how much of it the View has received."""

    def __init__(self) -> None:
        self.ended = False
        """Whether a result or a cancellation was reported."""
        self._partial: Raw | None = None
        self._input: Raw | None = None
        self._has_input = False
        self._end: tuple[str, Any] | None = None

    def partial(self, arguments: Mapping[str, Any] | Raw) -> bool:
        """Report the arguments that the model has written so far. Returns False if it is too late for that."""
        if self._has_input or self.ended:
            return False
        self._partial = as_object(arguments, "partial tool input")
        return True

    def input(self, arguments: Mapping[str, Any] | Raw | None) -> bool:
        """Report the complete arguments. Returns False if the call has ended, raises LocalProtocolError if repeated."""
        if self._has_input:
            raise LocalProtocolError("tool input is sent once per View; open another View for another call")
        if self.ended:
            return False
        self._input = as_object(arguments or {}, "tool input")
        self._has_input = True
        return True

    def result(self, result: Any) -> bool:
        """Report the result of the call, `isError` or not. Returns False if the call had ended."""
        if self.ended:
            return False
        # Views rely on the member, which a CallToolResult must have.
        if isinstance(result, Mapping) and "content" not in result:
            result = {**result, "content": []}
        self._end, self.ended = (messages.TOOL_RESULT, as_object(result, "tool result")), True
        return True

    def cancelled(self, reason: str) -> bool:
        """Report that the call was cancelled or failed without a result. Returns False if the call had ended."""
        if self.ended:
            return False
        self._end, self.ended = (messages.TOOL_CANCELLED, messages.ToolCancelledParams(reason)), True
        return True

    def due(self) -> Iterator[tuple[str, Any]]:
        """Yield the method and params of each notification that the View should receive now, each once."""
        if self._partial is not None:
            partial, self._partial = self._partial, None
            yield messages.TOOL_INPUT_PARTIAL, messages.ToolInputParams(partial)

        if self._input is not None:
            arguments, self._input = self._input, None
            yield messages.TOOL_INPUT, messages.ToolInputParams(arguments)

        if self._end is not None:
            end, self._end = self._end, None
            if end[0] == messages.TOOL_RESULT and not self._has_input:
                self._has_input = True
                yield messages.TOOL_INPUT, messages.ToolInputParams(Raw(b"{}"))
            yield end


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
        """Send everything that waits."""
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
