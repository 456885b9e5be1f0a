"""The constants of MCP Apps on the wire: the extension's id, the MIME type and URI scheme of Views, keys of `_meta`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

UI = "io.modelcontextprotocol/ui"
"""The extension's id."""

SCHEME = "ui://"
"""What the URI of every View begins with."""

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
