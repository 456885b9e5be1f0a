"""What a low-level server says of itself, and the small types of its handlers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcpd.compat.types.base import Model
from mcpd.compat.types.content import Icon
from mcpd.compat.types.lifecycle import ServerCapabilities

__all__ = ["InitializationOptions", "NotificationOptions", "ReadResourceContents"]


class NotificationOptions:
    """Which changes of lists a server tells of. Ours always may, whatever this says."""

    def __init__(
        self, prompts_changed: bool = False, resources_changed: bool = False, tools_changed: bool = False
    ) -> None:
        self.prompts_changed = prompts_changed
        self.resources_changed = resources_changed
        self.tools_changed = tools_changed


class InitializationOptions(Model):
    """Who the server is, and what it offers."""

    server_name: str
    server_version: str
    capabilities: ServerCapabilities
    instructions: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


@dataclass
class ReadResourceContents:
    """One content of a resource: text or bytes."""

    content: str | bytes
    mime_type: str | None = None
    meta: dict[str, Any] | None = None
