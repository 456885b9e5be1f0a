"""The life of one View, seen by the host: a state machine without I/O, tasks or a clock.

Start with `view`, which has the states. `requests` has what a View asks for, `outgoing` what the host sends, and
`messages` the structs.
"""

from __future__ import annotations

from mcpd.apps.host.view.policy import ViewLimits
from mcpd.apps.host.view.view import View, ViewPhase

__all__ = ["View", "ViewLimits", "ViewPhase"]
