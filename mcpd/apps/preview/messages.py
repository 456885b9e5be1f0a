"""The params and results of the API of the page, as they are on the wire: camelCase, without absent members.

The scripts in `assets/host` send and receive these messages.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Raw, UnsetType

from mcpd.apps.host.document import Profile
from mcpd.apps.host.view.context import HostContext
from mcpd.apps.host.view.messages import NoParams as NoParams
from mcpd.protocol.types.base import LogLevel, Wire
from mcpd.server.extensions.ui.csp_sources import UiCsp

# ------------------------------------------------------------------------------------------ session


class Hello(Wire):
    token: str


class ServerInfo(Wire):
    """The server and its connection. `era` is "legacy" or "modern"."""

    name: str | None = None
    title: str | None = None
    version: str | None = None
    protocol_version: str | None = None
    era: str | None = None
    instructions: str | None = None
    capabilities: Any = None
    extensions: dict[str, Any] | None = None
    state: str = "lost"


class Connect(Wire):
    """Without a version, the newest common one is used."""

    version: str | None = None


class Quirks(Wire):
    """Faults of other hosts to imitate. `hidden_until_initialized` is up to the page."""

    drop_meta: bool = False
    drop_structured_content: bool = False
    no_tool_input: bool = False
    input_before_initialized: bool = False
    hidden_until_initialized: bool = False
    opaque_origin: bool = False
    error_result: bool = False
    openai_global: bool = False


class SetQuirks(Wire):
    """For Views that are opened from now on."""

    quirks: Quirks


class SetProfile(Wire):
    """For Views that are opened from now on."""

    profile: Profile


# ------------------------------------------------------------------------------------------ server


class Uri(Wire):
    uri: str


class TaskId(Wire):
    task_id: str


class GetPrompt(Wire):
    name: str
    arguments: dict[str, str] | None = None


class Complete(Wire):
    ref: Raw
    argument: Raw
    context: Raw | UnsetType = UNSET


class SetLevel(Wire):
    level: LogLevel


class BeginCall(Wire, kw_only=True, rename={"caller": "as", "call_id": "callId"}):
    """A call whose arguments the model has begun to write. The page chooses the id."""

    call_id: str
    name: str
    caller: Literal["model", "app"] = "model"


class ToolsCall(BeginCall, kw_only=True, rename={"caller": "as", "call_id": "callId"}):
    arguments: dict[str, Any] | None = None


class PartialCall(Wire):
    call_id: str
    text: str


class CancelCall(Wire):
    call_id: str
    reason: str = "cancelled by the user"


# ------------------------------------------------------------------------------------------ Views


class OpenView(Wire):
    """`context` is for this View alone."""

    call_id: str
    context: HostContext | None = None


class ViewId(Wire):
    view_id: str


class CloseView(ViewId):
    reason: str = "closed by the user"


class ViewLost(ViewId):
    reason: str = "the frame is gone"


class ViewMessage(ViewId):
    message: Raw


class ChangeContext(Wire, kw_only=True):
    """Without a View, for all Views and future ones."""

    view_id: str | None = None
    context: HostContext


class CallViewTool(ViewId):
    name: str
    arguments: dict[str, Any] | None = None
    confirmed: bool = False


class AllowPermission(ViewId):
    """A permission for the document of a View, by its name in `_meta.ui.permissions`."""

    name: str


class ViewInfo(Wire, kw_only=True, omit_defaults=False):
    """The frame of a View and its restrictions. `csp` is the text of the policy, `bytes` the size of the HTML."""

    view_id: str
    call_id: str
    title: str
    proxy_url: str
    proxy_origin: str
    outer_sandbox: str
    sandbox: str
    allow: str
    prefers_border: bool | None
    csp: str
    declared: UiCsp | None
    permissions: dict[str, list[str]]
    """`asked` and `granted`."""
    domain: str | None
    sha256: str
    bytes: int
    uri: str
    problems: list[str]
    profile: Profile


# ------------------------------------------------------------------------------------------ trace


class TraceFilter(Wire):
    """The entries to show. `text` is searched in the whole message, ignoring case."""

    parties: list[str] | None = None
    methods: list[str] | None = None
    kinds: list[str] | None = None
    text: str | None = None


class TraceGet(Wire, kw_only=True, rename={"start": "from"}):
    """`count` entries that pass the filter, beginning at place `from`; or the entry with the number `whole`."""

    start: int = 0
    count: int = 100
    filter: TraceFilter | None = None
    brief: bool = False
    """Without messages, for lists."""
    masked: bool = False
    """For a file: as records of `mcpd trace`, with known secrets masked."""
    whole: int | None = None
