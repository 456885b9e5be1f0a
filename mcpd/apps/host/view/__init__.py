"""The life of one View, seen by the host: a state machine without I/O, tasks or a clock.

Start reading in `view`, which has the states. `requests` has what a View asks for, `policy` what it may do, `outgoing`
what the host sends, `events` what the program learns, and `messages` and `wire` their format. Modules that open
connections or show a View are in `apps.host`.
"""

from __future__ import annotations

from .policy import ViewLimits
from .view import View, ViewPhase

__all__ = ["View", "ViewLimits", "ViewPhase"]
