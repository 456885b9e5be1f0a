"""Params and results of the page's API, as they stand on the wire: camelCase, absent members left out.

Both ends of it are ours: what is here is what `assets/host` writes and reads.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Raw, UnsetType

from mcpd.apps.host.document import Profile
from mcpd.apps.host.view.context import HostContext
from mcpd.protocol.types.base import LogLevel, Wire
from mcpd.server.extensions.ui.csp_sources import UiCsp


class Quirks(Wire, kw_only=True):
    """What other hosts do wrong, for Views opened from now on. `hidden_until_initialized` is the page's to do."""

    drop_meta: bool = False
    drop_structured_content: bool = False
    no_tool_input: bool = False
    input_before_initialized: bool = False
    hidden_until_initialized: bool = False
    opaque_origin: bool = False
    error_result: bool = False
    openai_global: bool = False


class ServerInfo(Wire, kw_only=True):
    """Who the server is, and how it is spoken to. `era` is "legacy" or "modern"."""

    name: str | None = None
    title: str | None = None
    version: str | None = None
    protocol_version: str | None = None
    era: str | None = None
    instructions: str | None = None
    capabilities: Any = None
    extensions: dict[str, Any] | None = None
    state: str = "lost"


class Nothing(Wire):
    """Params of what needs none."""


class Hello(Wire):
    """The first message of a page."""

    token: str


class SandboxInfo(Wire):
    """`origin` is the source of all frames, as in a policy."""

    origin: str


class HelloResult(Wire, kw_only=True):
    """What a page has to know before anything else."""

    mcpd: str
    target: str
    profile: Profile
    profiles: list[Profile]
    quirks: Quirks
    versions: list[str]
    server: ServerInfo
    sandbox: SandboxInfo
    context: HostContext


class Connect(Wire):
    """`version` None agrees on the newest in common."""

    version: str | None = None


class Uri(Wire):
    """Of a resource."""

    uri: str


class GetPrompt(Wire):
    """As on the wire."""

    name: str
    arguments: dict[str, str] | None = None


class Complete(Wire):
    """As on the wire."""

    ref: Raw
    argument: Raw
    context: Raw | UnsetType = UNSET


class CallId(Wire, kw_only=True, rename={"caller": "as", "call_id": "callId"}):
    """A call that the model begins to write. The id is the page's own."""

    call_id: str
    name: str
    caller: Literal["model", "app"] = "model"


class CallPartial(Wire, kw_only=True):
    """All characters of the arguments so far."""

    call_id: str
    text: str


class Cancel(Wire, kw_only=True):
    """A call is given up."""

    call_id: str
    reason: str = "cancelled by the user"


class ToolsCall(Wire, kw_only=True, rename={"caller": "as", "call_id": "callId"}):
    """A call with its complete arguments."""

    call_id: str
    name: str
    arguments: dict[str, Any] | None = None
    caller: Literal["model", "app"] = "model"


class CallResult(Wire, kw_only=True, omit_defaults=False):
    """How a call ended. `text` is what a host without Apps shows, `view` the tool's `ui://` resource."""

    result: Raw
    milliseconds: float
    view: str | None = None
    text: list[Any] = []


class OpenView(Wire, kw_only=True):
    """`context` is for this View alone."""

    call_id: str
    context: HostContext | None = None


class ViewId(Wire, kw_only=True):
    """One View."""

    view_id: str


class ViewReason(ViewId, kw_only=True):
    """A View is to be closed."""

    reason: str = "closed by the user"


class ViewLost(ViewId, kw_only=True):
    """Its frame is gone."""

    reason: str = "the frame is gone"


class ViewMessage(ViewId, kw_only=True):
    """A message of a View or its proxy, or for them."""

    message: Raw


class ChangeContext(Wire, kw_only=True):
    """Without a View: for all, and for those to come."""

    view_id: str | None = None
    context: HostContext


class ViewToolsCall(ViewId, kw_only=True):
    """A call of a View's own tool."""

    name: str
    arguments: dict[str, Any] | None = None
    confirmed: bool = False


class Permission(ViewId, kw_only=True):
    """A feature that the View is to have when it is shown again: a name of `_meta.ui.permissions`."""

    name: str


class Permissions(Wire, kw_only=True):
    """What the document asks for, and what of it is granted."""

    asked: list[str]
    granted: list[str]


class ViewInfo(Wire, kw_only=True, omit_defaults=False):
    """What the page frames, and what is in force there. `csp` is the policy's text; `bytes` are of the HTML."""

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
    permissions: Permissions
    domain: str | None
    sha256: str
    bytes: int
    uri: str
    problems: list[str]
    profile: Profile


class SetQuirks(Wire):
    """All of them."""

    quirks: Quirks


class SetProfile(Wire):
    """For Views opened from now on."""

    profile: Profile


class SetLevel(Wire):
    """Of the server's log."""

    level: LogLevel


class TraceFilter(Wire, kw_only=True):
    """What is shown: `text` anywhere in the message, without case."""

    parties: list[str] | None = None
    methods: list[str] | None = None
    kinds: list[str] | None = None
    text: str | None = None


class TraceGet(Wire, kw_only=True, rename={"start": "from"}):
    """`count` entries from the one at place `from` of those that pass the filter; or one of them, `whole`, by its n."""

    start: int = 0
    count: int = 100
    filter: TraceFilter | None = None
    brief: bool = False
    """Without the messages, for lists."""
    masked: bool = False
    """Without tokens, passwords and keys, as far as they are known by their names: for files."""
    whole: int | None = None
