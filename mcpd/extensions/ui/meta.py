"""The `_meta` of MCP Apps: what a tool and a UI resource say about their View, and its checks.

Spec: apps-2026-01-26, "UI Resource Format"; rules APP-S-01, -11, -12, -13 of apps.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ...errors import RegistrationError

__all__ = ["tool_meta", "visibility_from_data"]

log = logging.getLogger("mcpd")

_AUDIENCES = ("model", "app")


def tool_meta(resource_uri: str | None, visibility: Sequence[str] | None) -> dict[str, Any]:
    """A tool's `_meta` for clients with Apps: nested, and the URI also under the older flat key (APP-S-11).

    Raises RegistrationError for a URI without `ui://`, or a visibility that is not made of "model" and "app".
    """
    ui: dict[str, Any] = {}
    meta: dict[str, Any] = {"ui": ui}
    if resource_uri is not None:
        if not resource_uri.startswith("ui://"):
            raise RegistrationError(f"ui={resource_uri!r}: the URI of a View begins with ui://")
        ui["resourceUri"] = resource_uri
        meta["ui/resourceUri"] = resource_uri
    if visibility is not None:
        if not visibility or isinstance(visibility, str) or any(name not in _AUDIENCES for name in visibility):
            raise RegistrationError(f'visibility={visibility!r}: give a list of "model" and "app", at least one')
        ui["visibility"] = list(visibility)
    return meta


def visibility_from_data(value: object, where: str) -> list[str] | None:
    """A visibility that came from a file: unknown names are dropped with a warning, nothing left is the default."""
    if value is None:
        return None
    names = value if isinstance(value, list) else [value]
    known = [name for name in names if name in _AUDIENCES]
    if known != names or not known:
        log.warning("%s: visibility %r has other names than model and app; using %r", where, value, known or "both")
    return known or None
