"""What a program that shows no Views still needs to list them: the offer to the server, and which page is whose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcpd.extensions.ui.constants import FLAT_URI, MIME_TYPE, UI
from mcpd.protocol.types.tools import Tool

KIND = "apps"
"""What such tools are called in a list, and on a command line."""

OFFER: Mapping[str, Any] = {UI: {"mimeTypes": [MIME_TYPE]}}
"""The extensions of a client that is to be told of Views."""


def view_uri(tool: Tool) -> str:
    """The URI of the page that hosts show with the tool's result, or "" if it has none."""
    meta = tool.meta or {}
    ui = meta.get("ui")
    uri = ui.get("resourceUri") if isinstance(ui, dict) else meta.get(FLAT_URI)
    return uri if isinstance(uri, str) else ""
