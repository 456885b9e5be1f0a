"""What happened to a View, as the page is told: `kind`, and what there is to say of it."""

from __future__ import annotations

from typing import Any

from mcpd.host.view.events import (
    AppToolsListed,
    Closed,
    Connected,
    Event,
    Failed,
    Finding,
    Live,
    Logged,
    SizeChanged,
    TeardownRequested,
)


def told(event: Event) -> dict[str, Any] | None:
    """An event in JSON; None for what the page asks for or is asked in another way."""
    if isinstance(event, Connected):
        return {
            "kind": "connected",
            "app": event.app_info,
            "capabilities": event.capabilities,
            "version": event.requested_version,
            "again": event.again,
        }
    if isinstance(event, Live):
        return {"kind": "live", "again": event.again}
    if isinstance(event, SizeChanged):
        return {"kind": "size", "width": event.width, "height": event.height}
    if isinstance(event, Logged):
        return {"kind": "logged", "level": event.level, "data": event.data, "logger": event.logger}
    if isinstance(event, Finding):
        return {
            "kind": "finding",
            "rule": event.rule,
            "text": event.text,
            "method": event.method,
            "refused": event.refused,
        }
    if isinstance(event, Failed):
        return {"kind": "failed", "reason": event.reason}
    if isinstance(event, Closed):
        return {"kind": "closed", "reason": event.reason, "clean": event.clean}
    if isinstance(event, TeardownRequested):
        return {"kind": "teardownRequested"}

    if isinstance(event, AppToolsListed):
        return {"kind": "appTools", "tools": event.tools}

    return None
