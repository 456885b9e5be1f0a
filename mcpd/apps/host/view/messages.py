"""Every message between host and View as structs: method names, params and results, both ways.

Requests of the core protocol that a View sends are here in the shape a View may send them: `_meta` stays a
dict, and what only a client may say (`inputResponses`, `requestState`, `task`) is not read at all.

Spec: MCP Apps 2026-01-26, "Communication Protocol" and "MCP Apps Specific Messages"; marked (D) where only
the later draft and its SDK have it.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Raw, field

from mcpd.apps.host.view.context import DisplayMode, HostContext
from mcpd.protocol.types.base import Implementation, ListChanged, Wire
from mcpd.protocol.types.content import ContentBlock, EmbeddedResource, ResourceLink
from mcpd.server.extensions.ui.csp_sources import UiCsp, UiPermissions


class Empty(Wire):
    """`{}`: yes, and nothing more to say about it."""


class Modalities(Wire, kw_only=True):
    """The kinds of content taken by a message or a context update. None at all is read as: no restriction."""

    text: Empty | None = None
    image: Empty | None = None
    audio: Empty | None = None
    resource: Empty | None = None
    resource_link: Empty | None = None
    structured_content: Empty | None = None


class SamplingOffer(Wire, kw_only=True):
    """`sampling`; with `tools` the View may pass tools to the model."""

    tools: Empty | None = None


class SandboxGrant(Wire, kw_only=True):
    """What was granted of what the resource asked for; absent means nothing was."""

    permissions: UiPermissions | None = None
    csp: UiCsp | None = None


class HostCapabilities(Wire, kw_only=True):
    """What the host offers a View. A method whose capability is None is answered with -32601."""

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
    """What a View can do. Unknown display modes are ignored, so they are plain strings here."""

    experimental: Any = None
    tools: ListChanged | None = None
    available_display_modes: list[str] | None = None


_MODALITY = {
    "text": "text",
    "image": "image",
    "audio": "audio",
    "resource": "resource",
    "resource_link": "resource_link",
    "structuredContent": "structured_content",
}


def can_take(modalities: Modalities, kind: str) -> bool:
    """Whether content of this kind (a block's `type`, or "structuredContent") is taken."""
    return modalities == Modalities() or getattr(modalities, _MODALITY[kind]) is not None


HANDSHAKE_VERSION = "2026-01-26"
"""The version of the View's handshake; it has nothing to do with the core protocol's."""

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
    """A method without params of its own."""


# ------------------------------------------------------------------------------------- from the View


class InitializeParams(Wire, kw_only=True):
    """`ui/initialize`."""

    app_info: Implementation
    app_capabilities: AppCapabilities
    protocol_version: str


class OpenLinkParams(Wire):
    """`ui/open-link`."""

    url: str


class MessageParams(Wire, kw_only=True):
    """`ui/message`. The text prints one block, every SDK sends an array: both are read."""

    role: Literal["user"]
    content: ContentBlock | list[ContentBlock]


class DisplayModeParams(Wire):
    """`ui/request-display-mode`."""

    mode: DisplayMode


class UpdateModelContextParams(Wire, kw_only=True):
    """`ui/update-model-context`; with neither member it takes back what was said before."""

    content: list[ContentBlock] | None = None
    structured_content: dict[str, Any] | None = None


class DownloadFileParams(Wire):
    """`ui/download-file` (D)."""

    contents: list[EmbeddedResource | ResourceLink]


class SizeChangedParams(Wire, kw_only=True):
    """`ui/notifications/size-changed`; the SDK lets either be absent."""

    width: float | None = None
    height: float | None = None


class CallParams(Wire, kw_only=True):
    """What the params of every request for the server may hold."""

    meta: dict[str, Any] | None = field(name="_meta", default=None)


class CallToolParams(CallParams, kw_only=True):
    """`tools/call`."""

    name: str
    arguments: Raw = Raw(b"")


class ReadResourceParams(CallParams, kw_only=True):
    """`resources/read`."""

    uri: str


class ListParams(CallParams, kw_only=True):
    """`tools/list` (D), `resources/list`, `resources/templates/list`, `prompts/list` (SDK only)."""

    cursor: str | None = None


# --------------------------------------------------------------------------------------- to the View


class InitializeResult(Wire, kw_only=True):
    """The answer to `ui/initialize`; all four members are always there."""

    protocol_version: str
    host_info: Implementation
    host_capabilities: HostCapabilities
    host_context: HostContext


class DisplayModeResult(Wire):
    """The mode in force after the request, changed or not."""

    mode: DisplayMode


class DenialResult(Wire, kw_only=True):
    """`{isError: true}`: how most hosts deny a link, a message or a download; see `ViewSettings.denials`."""

    is_error: bool


class ResourceReadyParams(Wire, kw_only=True):
    """`ui/notifications/sandbox-resource-ready`, for the proxy."""

    html: str
    sandbox: str | None = None
    csp: UiCsp | None = None
    permissions: UiPermissions | None = None


class ToolInputParams(Wire):
    """`ui/notifications/tool-input` and its `-partial`; `arguments` is written even when empty."""

    arguments: Raw


class ToolCancelledParams(Wire):
    """`ui/notifications/tool-cancelled`. The text requires a reason, so there always is one."""

    reason: str


class TeardownParams(Wire):
    """`ui/resource-teardown`. The text requires a reason, the SDK's schema drops it."""

    reason: str


class AppToolsPage(Wire, kw_only=True):
    """A View's answer to `tools/list` (D); each tool is read on its own, so that one bad one spoils no list."""

    tools: list[Raw]
    next_cursor: str | None = None
