"""The observer that writes each request into the debug log: its method, its id, how it ended and after how long.

Params and results are not logged: they may hold secrets.
"""

from __future__ import annotations

import logging

from ..observer import ObservedCall, Observer, Outcome
from ..printable import printable

__all__ = ["CallLog"]

log = logging.getLogger("mcpd")


class CallLog(Observer):
    """Logs at level debug."""

    def call_ended(self, call: ObservedCall, outcome: Outcome) -> None:
        """See `Observer`."""
        if outcome.kind == "refused":
            log.debug("%s (id %s): refused with %d", printable(call.method), printable(call.id), outcome.code)
            return
        how = outcome.kind if outcome.code is None else f"{outcome.kind} with {outcome.code}"
        log.debug("%s (id %s): %s after %.1f ms", call.method, printable(call.id), how, outcome.seconds * 1000)
