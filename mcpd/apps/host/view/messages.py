"""The messages between host and View: method names, capabilities, params and results in both directions.

Requests of the core protocol have the form in which a View may send them: `_meta` stays a dict, and members that only a
client may send (`inputResponses`, `requestState`, `task`) are not read.

Spec: MCP Apps 2026-01-26, "Communication Protocol", "MCP Apps Specific Messages", "App Capabilities in ui/initialize"
and "Host Capabilities". (D) marks what only the later draft and its SDK have.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Raw, field

from mcpd.protocol.types.base import Implementation, ListChanged, Wire
from mcpd.protocol.types.features import ContentBlock, EmbeddedResource, ResourceLink
from mcpd.server.extensions.ui.csp_sources import UiCsp, UiPermissions
from .context import DisplayMode, HostContext


class Empty(Wire):
    """`{}`: the capability is present."""


class Modalities(Wire, kw_only=True):
    """The accepted types of content in a message or a context update. Without any member all types are accepted."""

    text: Empty | None = None
    image: Empty | None = None
    audio: Empty | None = None
    resource: Empty | None = None
    resource_link: Empty | None = None
    structured_content: Empty | None = None


class SamplingOffer(Wire, kw_only=True):
    """`sampling`; with `tools` a View may pass tools to the model."""

    tools: Empty | None = None


class SandboxGrant(Wire, kw_only=True):
    """The part of the requested sources and permissions that a View was granted; None means nothing."""

    permissions: UiPermissions | None = None
    csp: UiCsp | None = None


class HostCapabilities(Wire, kw_only=True):
    # A method whose capability is None is answered with -32601. `download_file`, `sampling`, `message` and
    # `update_model_context` came after the stable text of 2026-01-26.
    experimental: dict[str, Any] | None = None
    open_links: Empty | None = None
    download_file: Empty | None = None
    server_tools: ListChanged | None = None
    server_resources: ListChanged | None = None
    logging: Empty | None = None
    sandbox: SandboxGrant | None = None
    update_model_context: Modalities | None = None
    message: Modalities | None = None
    sampling: SamplingOffer | None = None


class AppCapabilities(Wire, kw_only=True):
    # Display modes are plain strings, because unknown modes are ignored.
    experimental: Any = None
    tools: ListChanged | None = None
    available_display_modes: list[str] | None = None


def can_take(modalities: Modalities, kind: str) -> bool:
    """Return whether content of this type is accepted: the `type` of a block, or "structured_content"."""
    return modalities == Modalities() or getattr(modalities, kind) is not None


HANDSHAKE_VERSION = "2026-01-26"
"""The version of the handshake of a View, which is independent of the core protocol."""

INITIALIZE = "ui/initialize"
INITIALIZED = "ui/notifications/initialized"
PING = "ping"
PROGRESS = "notifications/progress"
PROXY_READY = "ui/notifications/sandbox-proxy-ready"
RESOURCE_READY = "ui/notifications/sandbox-resource-ready"
TOOL_INPUT_PARTIAL = "ui/notifications/tool-input-partial"
TOOL_INPUT = "ui/notifications/tool-input"
TOOL_RESULT = "ui/notifications/tool-result"
TOOL_CANCELLED = "ui/notifications/tool-cancelled"
HOST_CONTEXT_CHANGED = "ui/notifications/host-context-changed"
RESOURCE_TEARDOWN = "ui/resource-teardown"


class NoParams(Wire):
    """Params or result without members."""


# ------------------------------------------------------------------------------------- from the View


class InitializeParams(Wire, kw_only=True):
    app_info: Implementation
    app_capabilities: AppCapabilities
    protocol_version: str


class OpenLinkParams(Wire):
    url: str


class MessageParams(Wire, kw_only=True):
    # `ui/message`. The specification has one block, and every SDK sends an array; both are accepted.
    role: Literal["user"]
    content: ContentBlock | list[ContentBlock]


class DisplayModeParams(Wire):
    mode: DisplayMode


class UpdateModelContextParams(Wire, kw_only=True):
    # Without both members, the View removes the previous context.
    content: list[ContentBlock] | None = None
    structured_content: dict[str, Any] | None = None


class DownloadFileParams(Wire):
    # `ui/download-file` is in the later draft only.
    contents: list[EmbeddedResource | ResourceLink]


class SizeChangedParams(Wire, kw_only=True):
    # `ui/notifications/size-changed`. In the SDK either member may be absent.
    width: float | None = None
    height: float | None = None


class CallParams(Wire, kw_only=True):
    """Members that the params of every request for the server may have."""

    meta: dict[str, Any] | None = field(name="_meta", default=None)


class CallToolParams(CallParams, kw_only=True):
    name: str
    arguments: Raw = Raw(b"")


class ReadResourceParams(CallParams, kw_only=True):
    uri: str


class ListParams(CallParams, kw_only=True):
    """`tools/list` (D), `resources/list`, `resources/templates/list`, `prompts/list` (SDK only)."""

    cursor: str | None = None


# --------------------------------------------------------------------------------------- to the View


class InitializeResult(Wire, kw_only=True):
    """The result of `ui/initialize`. All members are required."""

    protocol_version: str
    host_info: Implementation
    host_capabilities: HostCapabilities
    host_context: HostContext


class DisplayModeResult(Wire):
    """The mode after the request, changed or not."""

    mode: DisplayMode


class DenialResult(Wire, kw_only=True):
    # `{isError: true}`, with which most hosts deny a link, a message or a download; see `ViewSettings.denials`.
    is_error: bool


class ResourceReadyParams(Wire, kw_only=True):
    """`ui/notifications/sandbox-resource-ready`, for the proxy."""

    html: str
    sandbox: str | None = None
    csp: UiCsp | None = None
    permissions: UiPermissions | None = None


class ToolInputParams(Wire):
    # `ui/notifications/tool-input` and its `-partial`. `arguments` is sent even if empty.
    arguments: Raw


class ToolCancelledParams(Wire):
    # `ui/notifications/tool-cancelled`. The specification requires a reason.
    reason: str


class TeardownParams(Wire):
    # `ui/resource-teardown`. The specification requires a reason, and the schema of the SDK removes it.
    reason: str


class AppToolsPage(Wire, kw_only=True):
    # `tools/list` (D). Each tool is decoded separately, so that an invalid one is left out alone.
    tools: list[Raw]
    next_cursor: str | None = None
