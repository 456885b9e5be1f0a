"""What host and View tell each other they can do, in `ui/initialize` and its answer.

A capability is present (`{}` or more) or absent (None). `downloadFile`, `sampling`, `message` and
`updateModelContext` came after the stable text of 2026-01-26; Views that do not know them ignore them.

Spec: MCP Apps 2026-01-26, "App Capabilities in ui/initialize", "Host Capabilities".
"""

from __future__ import annotations

from typing import Any

from mcpd.extensions.ui.csp_sources import UiCsp, UiPermissions
from mcpd.protocol.types.base import ListChanged, Wire


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
