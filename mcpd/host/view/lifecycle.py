"""The states of a View, and how long it may stay in each.

state    how it is entered             the host may send           from the View
-------  ----------------------------  --------------------------  -----------------------------------------
NEW      View(...)                     nothing                     nothing
PROXY    start(), with a proxy         nothing                     sandbox-proxy-ready, once
HTML     resource-ready sent, or       answers                     ui/initialize, ping; other requests:
         start() without a proxy                                   -32600; notifications are ignored
INIT     ui/initialize answered        answers                     initialized; requests are served, with a
                                                                   Finding that they are early
LIVE     initialized seen              everything                  everything; ui/initialize: back to INIT
CLOSING  teardown sent                 answers                     the answer; other requests: -32000
GONE     teardown answered or overdue, nothing                     ignored
         or closed before LIVE
FAILED   a step or a ping overdue,     nothing                     ignored
         frame lost
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final

from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd.host")


class ViewPhase(Enum):
    """Where a View is in its life; the table is above."""

    NEW = "new"
    PROXY = "proxy"
    HTML = "html"
    INIT = "init"
    LIVE = "live"
    CLOSING = "closing"
    GONE = "gone"
    FAILED = "failed"


_STEPS: Final = {
    ViewPhase.PROXY: "the sandbox proxy did not report",
    ViewPhase.HTML: "the view did not send ui/initialize",
    ViewPhase.INIT: "the view did not send ui/notifications/initialized",
}
"""The states a View must leave by itself within `step_seconds`, and what it means if it does not."""

OVER: Final = (ViewPhase.GONE, ViewPhase.FAILED)


class Lifecycle:
    """Where one View is, and until when it has to get on: `step_seconds` for each step. `name` is for the log."""

    __slots__ = ("_name", "_step_seconds", "deadline", "state")

    def __init__(self, name: str, step_seconds: float) -> None:
        self._name = name
        self._step_seconds = step_seconds
        self.state = ViewPhase.NEW
        self.deadline: float | None = None
        """When `overdue` has something to say, in the caller's seconds."""

    def enter(self, state: ViewPhase, now: float) -> None:
        """It is in this state from now on."""
        log.debug("%s: %s -> %s", printable(self._name), self.state.value, state.value)
        self.state = state
        self.deadline = now + self._step_seconds if state in _STEPS else None

    def overdue(self, now: float) -> str | None:
        """What was not done in time, None if there is time left."""
        if self.deadline is None or now < self.deadline:
            return None
        return f"{_STEPS[self.state]} within {self._step_seconds:g} seconds"
