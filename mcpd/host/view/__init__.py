"""The life of one View, seen by the host: a state machine without I/O, tasks or clock. Its map is in `mcpd.host`."""

from __future__ import annotations

from mcpd.host.view.policy import ViewLimits
from mcpd.host.view.view import ListKind, View, ViewPhase

__all__ = ["ListKind", "View", "ViewLimits", "ViewPhase"]
