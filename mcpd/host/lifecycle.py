"""The states of a View; how each is entered and left is told in `view`."""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["OVER", "STEPS", "State"]


class State(Enum):
    """Where a View is in its life; the table is in `view`."""

    NEW = "new"
    PROXY = "proxy"
    HTML = "html"
    INIT = "init"
    LIVE = "live"
    CLOSING = "closing"
    GONE = "gone"
    FAILED = "failed"


STEPS: Final = {
    State.PROXY: "the sandbox proxy did not report",
    State.HTML: "the view did not send ui/initialize",
    State.INIT: "the view did not send ui/notifications/initialized",
}
"""The states a View must leave by itself within `step_seconds`, and what it means if it does not."""

OVER: Final = (State.GONE, State.FAILED)
