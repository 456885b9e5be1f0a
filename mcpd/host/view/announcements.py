"""What the host tells a View by itself: it waits until the View is live, and goes out in one order.

That order is: what changed in the context since the snapshot in the answer to `ui/initialize`, last partial input,
input, result or cancellation, list changes, each once.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Raw

from mcpd.host.view.messages import HOST_CONTEXT_CHANGED
from mcpd.host.view.opening_call import LaunchCall
from mcpd.host.view.output import ViewOutput
from mcpd.host.view.requests import ViewState
from mcpd.protocol.jsonrpc import encode

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
