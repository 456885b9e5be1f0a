"""One call of a tool by the model, with streamed arguments, and the Views that show it.

    call = host.begin_call("forecast")        the model has begun to write the arguments
    call.stream_arguments('{"city": "Os')     as they come
    await call.run({"city": "Oslo"})          the complete arguments: the call is made

A View may be opened at any time, and then receives what has happened so far in the order of the specification.

Streamed arguments are unfinished JSON, which `PartialArguments` closes so that a View can show them. Incomplete parts
are left out: a key without a value, `tru`, half an escape, the `e+` of a number. Nothing is invented: each string is a
prefix of the final one, each number has the first digits of the final one, arrays and objects lack only their last
elements.

Spec: MCP Apps 2026-01-26, "Notifications (Host -> View)"; rules APP-H-09 to -12.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Raw
from msgspec.json import decode

from mcpd.apps.tool_metadata import resource_uri
from mcpd.client import Client
from mcpd.client.session import OnProgress
from mcpd.errors import ConfigurationError, LocalProtocolError, ProtocolError, RequestCancelled
from mcpd.protocol.jsonrpc import MALFORMED, as_object, encode, explain
from mcpd.protocol.types.features import CallToolResult, Tool

if TYPE_CHECKING:
    from .view import View


MAX_CHARS: Final = 4 * 1024 * 1024
"""The length of streamed arguments, in characters. Longer ones are not shown."""

# A short text is parsed again for each chunk. A longer one is parsed when it has grown by 1/256 or may be complete, so
# that the total work is linear in its length, however small the chunks are.
_ALWAYS_PARSED: Final = 4096
_GROWTH: Final = 256

_SPACE: Final = " \t\r\n"
_SURROGATE = re.compile("[\ud800-\udfff]")
# An escape. The group matches half a surrogate pair, unless the text ends where the other half may follow.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|"
    r"\\(u[dD](?:[89abAB][0-9a-fA-F]{2}(?!(?:\\(?:u(?:[dD](?:[c-fC-F].?)?)?)?)?\Z)|[c-fC-F][0-9a-fA-F]{2}))|"
    r"\\.",
    re.DOTALL,
)


class PartialArguments:
    """The arguments of one tool call as they arrive. Requires jiter, from the extra `apps`.

    If the text is not the beginning of a JSON object, or is too long, `broken` is the reason and nothing more is shown.
    Once the text is complete, the result equals `json.loads(text)`, but a lone surrogate is U+FFFD, which can be sent.
    No text of a model raises an exception.
    """

    def __init__(self) -> None:
        self.broken = ""
        self._parts: list[str] = []
        self._count = 0
        # The length of the text when it was last parsed.
        self._parsed = 0
        # The sum of the lengths of all parsed texts.
        self._total_parsed = 0
        # The first half of a surrogate pair that ended the last chunk.
        self._half = ""
        self._shown: dict[str, Any] | None = None

    def feed(self, chunk: str) -> dict[str, Any] | None:
        """Add a chunk. Returns the arguments so far, or None if the chunk changed nothing visible."""
        if self.broken or not chunk:
            return None
        chunk = self._joined_surrogates(chunk)
        self._parts.append(chunk)
        self._count += len(chunk)
        if self._count > MAX_CHARS:
            self._break(f"more than {MAX_CHARS} characters")
            return None

        has_grown = self._count <= _ALWAYS_PARSED or (self._count - self._parsed) * _GROWTH >= self._count
        may_end = chunk.rstrip(_SPACE).endswith("}") and self._total_parsed < 2 * _GROWTH * self._count
        found = self._parse() if has_grown or may_end else None
        if found is None or found == self._shown:
            return None
        self._shown = found
        return found

    def complete(self) -> dict[str, Any] | None:
        """Return the arguments, or None if they are not complete."""
        text = "".join(self._parts)
        try:
            return _from_json(_sendable(text)) if text.lstrip(_SPACE)[:1] == "{" else None
        except ValueError:
            return None

    def _parse(self) -> dict[str, Any] | None:
        text = "".join(self._parts)
        self._parts, self._parsed = [text], self._count
        self._total_parsed += self._count
        start = text.lstrip(_SPACE)[:1]
        if not start:
            return None
        if start != "{":
            self._break("tool arguments are a JSON object")
            return None

        data = _sendable(text)
        try:
            return _from_json(data)
        except ValueError as error:
            # Only the strict parser distinguishes invalid from incomplete text.
            reason = str(error)
            if not reason.startswith("EOF"):
                self._break(reason)
                return None
            if reason.startswith("EOF while parsing a value"):
                # The complete digits of a number remain.
                data = data.rstrip(b"+-.eE")

            return _from_json(data, "trailing-strings")

    def _break(self, reason: str) -> None:
        self.broken = reason
        self._parts.clear()

    def _joined_surrogates(self, chunk: str) -> str:
        # Join surrogate pairs across chunks. A half at the end waits for the next chunk; a lone one becomes U+FFFD.
        if not self._half and _SURROGATE.search(chunk) is None:
            return chunk
        chunk, self._half = self._half + chunk, ""
        if chunk and "\ud800" <= chunk[-1] < "\udc00":
            chunk, self._half = chunk[:-1], chunk[-1]
        return chunk.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _from_json(data: bytes, partial_mode: Any = False) -> dict[str, Any]:
    try:
        import jiter
    except ImportError:
        text = "reading arguments as they are written needs a library: pip install 'mcpd-server[apps]'"
        raise ConfigurationError(text) from None
    found: dict[str, Any] = jiter.from_json(data, allow_inf_nan=False, partial_mode=partial_mode)
    return found


def _sendable(text: str) -> bytes:
    # Encode a text with U+FFFD instead of each escape that is half a surrogate pair.
    if "\\ud" in text or "\\uD" in text:
        text = _ESCAPE.sub(lambda found: r"\ufffd" if found[1] else found[0], text)
    return text.encode()


ApplyToView: TypeAlias = "Callable[[Callable[[View], object]], None]"
"""Calls a function with the state machine of a View, and sends the resulting messages: `ShownView.apply`."""


class ToolCall:
    """One call, from the first character of its arguments to its end."""

    def __init__(self, client: Client, tool: Tool) -> None:
        self.tool = tool
        self.view_uri = resource_uri(tool)
        """The `ui://` resource that shows the result; None for a tool without a View."""
        self.result: CallToolResult | None = None
        """The result, once there is one. A tool that failed has one with `is_error`."""
        self.raw_result: Raw | None = None
        """The result as the server sent it."""
        self.error: str = ""
        """Why there will be no result."""

        self._client = client
        self._partial = PartialArguments()
        self._shown_partial: Raw | None = None
        self._arguments: Raw | None = None
        self._running: asyncio.Task[Raw] | None = None
        self._views: list[ApplyToView] = []

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def has_view(self) -> bool:
        return self.view_uri is not None

    @property
    def partial(self) -> dict[str, Any]:
        """The arguments that were last sent to the Views, before they were complete."""
        return {} if self._shown_partial is None else decode(self._shown_partial, type=dict[str, Any])

    @property
    def is_over(self) -> bool:
        return self.raw_result is not None or bool(self.error)

    def stream_arguments(self, chunk: str) -> dict[str, Any] | None:
        # The Views receive the arguments so far. Invalid JSON is not shown; the arguments of `run` are those that
        # count.
        if self._arguments is not None:
            raise LocalProtocolError("the arguments of this call are complete")
        arguments = self._partial.feed(chunk)
        if arguments is not None:
            partial = self._shown_partial = Raw(encode(arguments))
            self._apply(lambda machine: machine.partial_input(partial))
        return arguments

    async def run(
        self, arguments: Mapping[str, Any] | Raw | None = None, *, on_progress: OnProgress | None = None
    ) -> CallToolResult:
        """Make the call with its complete arguments. None uses the streamed ones, or none.

        Raises RemoteError and whatever else a client raises; the Views are then notified that the call was cancelled.
        """
        if self._arguments is not None or self.is_over:
            raise LocalProtocolError("a call is made once; begin another one")

        raw = self._arguments = self._complete(arguments)
        self._apply(lambda machine: machine.tool_input(raw))
        params = {"name": self.name, "arguments": raw}
        self._running = asyncio.ensure_future(self._client.request("tools/call", params, on_progress=on_progress))

        try:
            answer = await self._running
            # It was cancelled while the answer arrived.
            if self.error:
                raise RequestCancelled(self.error)
            self.result = decode(answer, type=CallToolResult)
        except asyncio.CancelledError:
            # Either `cancel` was called, which sets the error, or the task that waits here is being cancelled.
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
        self._apply(lambda machine: machine.tool_result(answer))
        return self.result

    def cancel(self, reason: str = "cancelled") -> None:
        """Cancel the call: the server and the Views are notified, and `run` raises RequestCancelled."""
        if self.is_over:
            return
        self._end(reason)
        if self._running is not None:
            self._running.cancel()

    def follow(self, tool: Tool) -> None:
        """Use a changed tool: Views that are opened from now on show its resource."""
        self.tool = tool
        self.view_uri = resource_uri(tool)

    def attach(self, apply: ApplyToView) -> None:
        """Send a View what has happened so far, and what happens from now on."""
        self._views.append(apply)
        arguments, partial, result, error = self._arguments, self._shown_partial, self.raw_result, self.error
        if arguments is not None:
            apply(lambda machine: machine.tool_input(arguments))
        elif partial is not None:
            apply(lambda machine: machine.partial_input(partial))

        if result is not None:
            apply(lambda machine: machine.tool_result(result))
        elif error:
            apply(lambda machine: machine.tool_cancelled(error))

    def detach(self, apply: ApplyToView) -> None:
        if apply in self._views:
            self._views.remove(apply)

    def _complete(self, arguments: Mapping[str, Any] | Raw | None) -> Raw:
        if arguments is None:
            arguments = self._partial.complete() or {}
        return as_object(arguments, "arguments")

    def _end(self, reason: str) -> None:
        if not self.is_over:
            self.error = reason
            self._apply(lambda machine: machine.tool_cancelled(reason))

    def _apply(self, function: Callable[[View], object]) -> None:
        for apply in list(self._views):  # a View that fails is detached
            apply(function)
