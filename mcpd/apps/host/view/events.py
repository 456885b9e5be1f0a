"""The events that the state machine of a View reports to the program.

The program answers each `Ask` exactly once with `View.answer`, `View.deny` or `View.fail`, even after an `Abort`. After
an `Abort` the answer is not sent, but the request no longer counts as open. All other events need no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct

from mcpd.errors import McpdError
from mcpd.protocol.types.base import Implementation, LogLevel
from mcpd.protocol.types.features import CallToolResult, ContentBlock, Tool
from .context import DisplayMode
from .messages import AppCapabilities


class Event(Struct, frozen=True):
    """Base of all events."""


class Ask(Event, frozen=True):
    """A request of the View that the program decides on or carries out. `ask_id` is unique in the View."""

    ask_id: int


class Forward(Ask, frozen=True):
    """Send a request to the server of the View; answer with its result, or fail with its error.

    `target` is the name of the tool or the URI of the resource. `params` has no progress token and nothing in `_meta`
    that is reserved to the protocol. If `wants_progress`, request progress from the server and pass it to
    `View.progress`.
    """

    method: str
    params: Raw
    target: str = ""
    wants_progress: bool = False


class Sample(Ask, frozen=True):
    """Ask the model of the host. `params` are those of `sampling/createMessage`; answer with its result."""

    params: Raw


class OpenLink(Ask, frozen=True):
    """Open an http or https link outside the View."""

    url: str


class ChatMessage(Ask, frozen=True):
    """Add a message to the conversation as one of the user, which may start a turn of the model."""

    content: Sequence[ContentBlock]


class ModelContextUpdate(Ask, frozen=True):
    """Give this to the model in future turns, instead of the previous update of this View. An empty one removes it."""

    content: Sequence[ContentBlock]
    structured_content: dict[str, Any] | None


class ModeChange(Ask, frozen=True):
    """Show the View in a mode that both sides support. Answer with the resulting mode if it is different."""

    mode: DisplayMode


class DownloadItem(Struct, frozen=True):
    """One file: `data`, or a `url` to fetch it from. `name` is safe as a file name."""

    name: str
    mime_type: str | None
    data: bytes | None = None
    url: str | None = None


class Download(Ask, frozen=True):
    """Save files for the user, who should be asked."""

    items: Sequence[DownloadItem]


class Abort(Event, frozen=True):
    """Stop the work on an ask, because the View cancelled it, initialized again or is gone."""

    ask_id: int
    reason: str


class Connected(Event, frozen=True):
    """`ui/initialize` was answered. `again` means that the View initialized before."""

    app_info: Implementation
    capabilities: AppCapabilities
    requested_version: str
    again: bool


class Live(Event, frozen=True):
    """The View is initialized and has received everything that waited: show it now."""

    again: bool


class SizeChanged(Event, frozen=True):
    """The new size of the frame, within the limits of the container; None leaves an axis unchanged."""

    width: float | None
    height: float | None


class Logged(Event, frozen=True):
    """A log message of the View. `data` is any JSON value, and must be shown as text only."""

    level: LogLevel
    data: Any
    logger: str | None


class TeardownRequested(Event, frozen=True):
    """The View asks to be closed; call `View.teardown` to agree."""


class Pong(Event, frozen=True):
    """The View answered its oldest open ping."""


class AppToolsChanged(Event, frozen=True):
    """The View has other tools now: list them again."""


class AppToolsListed(Event, frozen=True):
    """The answer to `View.list_app_tools`. Invalid tools are left out, each with a `Finding`."""

    tools: Sequence[Tool]


class AppToolAnswered(Event, frozen=True):
    """The end of a call of `View.call_app_tool`: either `result` or `error` is set."""

    call_id: str
    tool: str
    result: CallToolResult | None = None
    error: McpdError | None = None


class Closed(Event, frozen=True):
    """The View was closed: remove its frame. `clean` is False if it did not answer the teardown."""

    reason: str
    clean: bool


class Failed(Event, frozen=True):
    """The View failed: remove its frame and show the text of the result instead."""

    reason: str


class Finding(Event, frozen=True):
    """Something that the View must not or should not do; `refused` means that it had no effect.

    `rule` is a word or two for the broken rule. `text` explains it and may quote the View, shortened.
    """

    rule: str
    text: str
    method: str = ""
    refused: bool = True
