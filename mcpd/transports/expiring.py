"""When what a client was let in with ends: streams and WebSockets that began before end then too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import time

from mcpd.protocol.principal import Principal

_LONGEST = 24 * 60 * 60.0
"""What lasts longer is ended all the same, and may begin again: no clock of ours has to be right for years."""


def at_expiry(user: Principal, function: Callable[[], object]) -> asyncio.TimerHandle | None:
    """Call a function when this principal's token ends; None for one without end. The caller cancels the timer."""
    if user.expires is None:
        return None
    left = min(max(user.expires - time(), 0.0), _LONGEST)
    return asyncio.get_running_loop().call_later(left, function)
