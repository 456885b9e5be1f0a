"""Whether a client gets MCP Apps: its offer, the server's setting, the environment. apps.md section 7, decision 2.

Spec: apps-2026-01-26, "Client<>Server Capability Negotiation".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Literal

from ...session import Client

__all__ = ["FLAT_URI", "MIME_TYPE", "UI", "AppsMode", "UiExtension", "has_ui", "is_app_type"]

log = logging.getLogger("mcpd")

UI = "io.modelcontextprotocol/ui"
"""The extension's id."""

MIME_TYPE = "text/html;profile=mcp-app"
"""The type of a View's HTML, written exactly so."""

FLAT_URI = "ui/resourceUri"
"""The older key of a tool's `_meta` beside `ui`; a big host once read only this one, so both are written (APP-S-11)."""

AppsMode = Literal["auto", "always", "never"]


def is_app_type(mime_type: object) -> bool:
    """Whether a MIME type is the one of MCP Apps, however it is spaced and capitalised."""
    if not isinstance(mime_type, str):
        return False
    kind, *parameters = (part.strip() for part in mime_type.split(";"))
    if kind.lower() != "text/html":
        return False
    pairs = [parameter.partition("=") for parameter in parameters]
    return any(name.strip().lower() == "profile" and value.strip(' "') == "mcp-app" for name, _, value in pairs)


def has_ui(meta: Mapping[str, Any] | None) -> bool:
    """Whether `_meta`, as an author wrote it, speaks of MCP Apps."""
    return meta is not None and ("ui" in meta or FLAT_URI in meta)


class UiExtension:
    """MCP Apps as this server offers them.

    `auto` follows the client's offer, `always` serves hosts that render apps without offering it, `never` is off;
    so is everything when the environment says MCP_APPS_ENABLED=false.
    """

    id = UI

    def __init__(self, mode: AppsMode = "auto") -> None:
        if mode not in ("auto", "always", "never"):
            raise ValueError(f"apps must be auto, always or never, not {mode!r}")
        enabled = os.environ.get("MCP_APPS_ENABLED", "").strip().lower()
        if enabled == "false":
            mode = "never"
        elif enabled not in ("", "true"):
            log.warning("MCP_APPS_ENABLED=%s changes nothing; to turn MCP Apps off, set it to false", enabled)
        self.mode: AppsMode = mode

    def settings(self) -> dict[str, Any]:
        """What the server's echo says."""
        return {"mimeTypes": [MIME_TYPE]}

    def admits(self, client: Client) -> bool:
        """An offer without `mimeTypes` counts; one whose list lacks our type does not."""
        if self.mode != "auto":
            return self.mode == "always"
        offer = (client.capabilities.extensions or {}).get(UI)
        if not isinstance(offer, dict):
            return False
        types = offer.get("mimeTypes")
        return types is None or (isinstance(types, list) and any(map(is_app_type, types)))
