"""What the state machine tells the program that runs it.

An `Ask` wants a decision or some work: the program answers each one exactly once with `View.answer`,
`View.deny` or `View.fail`, also after an `Abort` (the answer then goes nowhere, but the request counts no more).
Everything else is news.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Raw, Struct

from mcpd.apps.host.view.context import DisplayMode
from mcpd.apps.host.view.messages import AppCapabilities
from mcpd.errors import McpdError
from mcpd.protocol.types.base import Implementation, LogLevel
from mcpd.protocol.types.content import ContentBlock
from mcpd.protocol.types.tools import CallToolResult, Tool


class Ask(Struct, frozen=True):
    """A request of the View that the program decides or carries out; `ask_id` is this View's and never used again."""

    ask_id: int


class Forward(Ask, frozen=True):
    """Send this request to the View's own server; answer with its result, or fail with its error.

    `target` is the tool's name or the resource's URI. `params` is clean: no progress token, nothing reserved
    to the protocol in `_meta`. If `wants_progress`, ask the server for it and hand it to `View.progress`.
    """

    method: str
    params: Raw
    target: str = ""
    wants_progress: bool = False


class Sample(Ask, frozen=True):
    """Ask the host's model: `params` as in `sampling/createMessage`; answer with its result."""

    params: Raw


class OpenLink(Ask, frozen=True):
    """Open this http or https address outside the View."""

    url: str


class ChatMessage(Ask, frozen=True):
    """Add a message of the user's to the conversation, and let it follow up."""

    content: Sequence[ContentBlock]


class ModelContextUpdate(Ask, frozen=True):
    """Give this to the model in future turns, instead of what this View said before. Empty: nothing any more."""

    content: Sequence[ContentBlock]
    structured_content: dict[str, Any] | None


class ModeChange(Ask, frozen=True):
    """Show the View in this mode, one that both sides know. Answer with the mode that came of it, if another."""

    mode: DisplayMode


class DownloadItem(Struct, frozen=True):
    """One file: `data`, or a `url` to fetch it from. `name` is safe to use as a file name."""

    name: str
    mime_type: str | None
    data: bytes | None = None
    url: str | None = None


class Download(Ask, frozen=True):
    """Save these files for the user, who should be asked."""

    items: Sequence[DownloadItem]


class Abort(Struct, frozen=True):
    """Stop work on an ask: the View gave it up, mounted anew or is gone."""

    ask_id: int
    reason: str


class Connected(Struct, frozen=True):
    """`ui/initialize` was answered; `again` if the View mounted a second time."""

    app_info: Implementation
    capabilities: AppCapabilities
    requested_version: str
    again: bool


class Live(Struct, frozen=True):
    """The View is initialized and has been sent what was waiting: time to show it."""

    again: bool


class SizeChanged(Struct, frozen=True):
    """The frame's new size, already within the container's limits; None leaves an axis as it is."""

    width: float | None
    height: float | None


class Logged(Struct, frozen=True):
    """A log message of the View; `data` is any JSON value, and hostile until shown as text."""

    level: LogLevel
    data: Any
    logger: str | None


class TeardownRequested(Struct, frozen=True):
    """The View would like to be closed; to agree, call `View.teardown`."""


class Pong(Struct, frozen=True):
    """The View answered the first of the pings that it had not answered yet."""


class AppToolsChanged(Struct, frozen=True):
    """The View's own tools are others now; list them again."""


class AppToolsListed(Struct, frozen=True):
    """The answer to `View.list_app_tools`; unusable entries are left out, each with a `Finding`."""

    tools: Sequence[Tool]


class AppToolAnswered(Struct, frozen=True):
    """How a call of `View.call_app_tool` ended: exactly one of `result` and `error` is set."""

    call_id: str
    tool: str
    result: CallToolResult | None = None
    error: McpdError | None = None


class Closed(Struct, frozen=True):
    """The View is gone on purpose: remove its frame. `clean` is False if it did not answer the teardown."""

    reason: str
    clean: bool


class Failed(Struct, frozen=True):
    """The View is gone by fault: remove its frame and show the tool's text result instead."""

    reason: str


class Finding(Struct, frozen=True):
    """Something the View did that it must not or should not do; `refused` if it had no effect.

    `rule` names what was broken in a word or two; `text` explains it and may quote the View, shortened.
    """

    rule: str
    text: str
    method: str = ""
    refused: bool = True


Event: TypeAlias = (
    Ask
    | Abort
    | Connected
    | Live
    | SizeChanged
    | Logged
    | TeardownRequested
    | Pong
    | AppToolsChanged
    | AppToolsListed
    | AppToolAnswered
    | Closed
    | Failed
    | Finding
)
