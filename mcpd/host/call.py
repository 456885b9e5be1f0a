"""One call of a tool by the model, and the Views that show it.

    call = host.begin_call("forecast")        the model has begun to write the arguments
    call.stream_arguments('{"city": "Os')     as they come
    await call.run({"city": "Oslo"})          the complete ones: the call is made

A View may be opened at any time; it is told what has happened so far, in the one order there is.

Spec: MCP Apps 2026-01-26, "Notifications (Host -> View)"; rules APP-H-09 to -12.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw
from msgspec.json import Decoder

from mcpd.client import Client
from mcpd.client.session import OnProgress
from mcpd.errors import LocalProtocolError, ProtocolError, RequestCancelled
from mcpd.host.partial_json import PartialArguments
from mcpd.host.visibility import resource_uri
from mcpd.protocol.jsonrpc import MALFORMED, as_object, encode, explain
from mcpd.protocol.types.tools import CallToolResult, Tool

if TYPE_CHECKING:
    from mcpd.host.view import View

_read_arguments = Decoder(dict[str, Any]).decode
_read_result = Decoder(CallToolResult).decode


class AttachedView(Protocol):
    """A View that hears of a call, see `shown.ShownView`."""

    def tell(self, say: Callable[[View], object]) -> None:
        """Let its machine hear of something, and send what comes of it."""


class ToolCall:
    """A call, from the first character of its arguments to its end."""

    def __init__(self, client: Client, tool: Tool) -> None:
        self.tool = tool
        self.view_uri = resource_uri(tool)
        """The `ui://` resource that shows the result; None for a tool without a View."""
        self.result: CallToolResult | None = None
        """The result, once there is one; a tool that failed gives one with `is_error`."""
        self.raw_result: Raw | None = None
        """The same as the server sent it."""
        self.error: str = ""
        """Why there will be no result."""

        self._client = client
        self._partial = PartialArguments()
        self._shown_partial: Raw | None = None
        self._arguments: Raw | None = None
        self._running: asyncio.Task[Raw] | None = None
        self._views: list[AttachedView] = []

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    @property
    def has_view(self) -> bool:
        """Whether the tool has a View."""
        return self.view_uri is not None

    @property
    def partial(self) -> dict[str, Any]:
        """The arguments as far as they are written, closed; what the Views were last told."""
        return {} if self._shown_partial is None else _read_arguments(self._shown_partial)

    @property
    def is_over(self) -> bool:
        """Whether there is a result, or will be none."""
        return self.raw_result is not None or bool(self.error)

    def stream_arguments(self, chunk: str) -> dict[str, Any] | None:
        """More of the arguments' JSON as the model writes it; the Views see it closed. The arguments so far.

        What is no JSON any more is not shown; the complete arguments of `run` are what counts.
        """
        if self._arguments is not None:
            raise LocalProtocolError("the arguments of this call are complete")
        arguments = self._partial.feed(chunk)
        if arguments is not None:
            partial = self._shown_partial = Raw(encode(arguments))
            self._tell(lambda machine: machine.partial_input(partial))
        return arguments

    async def run(
        self, arguments: Mapping[str, Any] | Raw | None = None, *, on_progress: OnProgress | None = None
    ) -> CallToolResult:
        """Make the call with its complete arguments; None takes those that were streamed, or none.

        Raises RemoteError and what else a client raises; the Views hear then that the call was cancelled.
        """
        if self._arguments is not None or self.is_over:
            raise LocalProtocolError("a call is made once; begin another one")

        raw = self._arguments = self._complete(arguments)
        self._tell(lambda machine: machine.tool_input(raw))
        params = {"name": self.name, "arguments": raw}
        self._running = asyncio.ensure_future(self._client.request("tools/call", params, on_progress=on_progress))

        try:
            answer = await self._running
            if self.error:  # given up while the answer was on its way to us
                raise RequestCancelled(self.error)
            self.result = _read_result(answer)
        except asyncio.CancelledError:
            # Whose doing it was: `cancel`, which has said why, or who cancels the task that waits here.
            task = asyncio.current_task()
            if self.error and (task is None or not task.cancelling()):
                raise RequestCancelled(self.error) from None
            self._end("cancelled")
            raise
        except MALFORMED as error:
            self._end("the server's result cannot be read")
            raise ProtocolError(f"The result of {self.name} cannot be read: {explain(error)}") from None
        except Exception as error:
            self._end(str(error) or type(error).__name__)
            raise
        finally:
            self._running = None

        self.raw_result = answer
        self._tell(lambda machine: machine.tool_result(answer))
        return self.result

    def cancel(self, reason: str = "cancelled") -> None:
        """Give the call up: the server is told, the Views too, and `run` raises RequestCancelled."""
        if self.is_over:
            return
        self._end(reason)
        if self._running is not None:
            self._running.cancel()

    def follow(self, tool: Tool) -> None:
        """The tool is listed in another way now: Views that are opened from now on show that one's resource."""
        self.tool = tool
        self.view_uri = resource_uri(tool)

    def attach(self, view: AttachedView) -> None:
        """Tell a View what has happened so far, and from now on."""
        self._views.append(view)
        arguments, partial, result, error = self._arguments, self._shown_partial, self.raw_result, self.error
        if arguments is not None:
            view.tell(lambda machine: machine.tool_input(arguments))
        elif partial is not None:
            view.tell(lambda machine: machine.partial_input(partial))
        if result is not None:
            view.tell(lambda machine: machine.tool_result(result))
        elif error:
            view.tell(lambda machine: machine.tool_cancelled(error))

    def detach(self, view: AttachedView) -> None:
        """This View is gone."""
        if view in self._views:
            self._views.remove(view)

    def _complete(self, arguments: Mapping[str, Any] | Raw | None) -> Raw:
        if arguments is None:
            arguments = self._partial.whole() or {}
        return as_object(arguments, "arguments")

    def _end(self, reason: str) -> None:
        if not self.is_over:
            self.error = reason
            self._tell(lambda machine: machine.tool_cancelled(reason))

    def _tell(self, say: Callable[[View], object]) -> None:
        for view in list(self._views):  # one that fails meanwhile is detached
            view.tell(say)
