"""What the host tells a View by itself: it waits until the View is live, and goes out in one order.

That order is: what changed in the context since the snapshot in the answer to `ui/initialize`, last partial input,
input, result or cancellation, list changes, each once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Raw

from mcpd.apps.host.view.messages import (
    HOST_CONTEXT_CHANGED,
    TOOL_CANCELLED,
    TOOL_INPUT,
    TOOL_INPUT_PARTIAL,
    TOOL_RESULT,
    ToolCancelledParams,
    ToolInputParams,
)
from mcpd.apps.host.view.requests import ViewState
from mcpd.apps.host.view.wire import ViewOutput
from mcpd.errors import LocalProtocolError
from mcpd.protocol.jsonrpc import as_object, encode


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


ListKind: TypeAlias = Literal["tools", "resources", "prompts"]


class Announcements:
    """What one View has not been told yet."""

    __slots__ = ("_changed_lists", "_output", "_view_state", "launch")

    def __init__(self, view_state: ViewState, output: ViewOutput) -> None:
        self.launch = LaunchCall()
        """The call that the View was opened for."""
        self._view_state = view_state
        self._output = output
        self._changed_lists: dict[ListKind, None] = {}

    def list_changed(self, kind: ListKind) -> bool:
        """The server's list of these has changed; whether the View is to hear of it, because it was promised that."""
        offered = self._view_state.capabilities
        promised = {
            "tools": offered.server_tools is not None and offered.server_tools.list_changed,
            "resources": offered.server_resources is not None and offered.server_resources.list_changed,
            "prompts": self._view_state.settings.has_prompts,
        }
        if promised[kind]:
            self._changed_lists[kind] = None
        return promised[kind]

    def flush(self) -> None:
        """Send what waits."""
        if (delta := self._view_state.feed.due()) is not None:
            self._output.notify(HOST_CONTEXT_CHANGED, delta)
        rewrite = self._view_state.settings.rewrite
        for method, params in self.launch.due():
            told = params if rewrite is None else rewrite(method, Raw(encode(params)))
            if told is not None:
                self._output.notify(method, told)
        changed, self._changed_lists = self._changed_lists, {}
        for kind in changed:
            self._output.notify(f"notifications/{kind}/list_changed")
