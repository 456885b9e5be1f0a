"""What the server tells, in the order in which it came, until the program's callbacks have taken it.

One after the other: a program must not see an old state last. What waits is bounded (`ClientLimits`): the server is not
read while the callbacks are behind. There is one exception, for two that wait for each other would wait for ever: a
callback that asks the server something needs its answer, which stands behind what is not read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context

from msgspec import Raw

from mcpd.client.callbacks import Callbacks, is_heard, is_state, tell
from mcpd.client.events import Notified
from mcpd.client.faults import Faults
from mcpd.client.limits import ClientLimits
from mcpd.errors import ConnectionLost, McpdError

_PATIENCE = 4
"""How many times the limit may wait while the server has to be read on."""

_SMALL_BYTES = 200
"""What a message costs besides its bytes."""


class Inbox:
    """The notifications of one connection. `pause` stops reading the server or, given False, reads on.

    `deliver` runs as a task while anything waits; `ends` is called when the server has to be given up.
    """

    def __init__(
        self,
        callbacks: Callbacks,
        limits: ClientLimits,
        faults: Faults,
        pause: Callable[[bool], bool],
        ends: Callable[[McpdError], None],
    ) -> None:
        self._callbacks = callbacks
        self._limits = limits
        self._faults = faults
        self._pause = pause
        self._ends = ends

        self._waiting: deque[tuple[str, Raw, int]] = deque()
        self._bytes = 0
        self._states: set[tuple[str, bytes]] = set()
        """What waits to be told that is news once, however often it came."""

        self._asking = 0
        """How many requests callbacks wait for."""
        self._is_paused = False
        self._is_delivering = False
        self.has_delivered = False
        """Whether any callback was ever called for it: before, none can ask anything, and `begin_request` is False."""

    @property
    def is_paused(self) -> bool:
        """Whether the server is not read."""
        return self._is_paused

    def put(self, told: Notified) -> bool:
        """Take one; whether `deliver` has to be started for it."""
        method, params = told.method, told.params
        if not is_heard(self._callbacks, method):
            return False

        if is_state(method):
            state = (method, bytes(params))
            if state in self._states:
                return False
            self._states.add(state)

        size = len(params) + _SMALL_BYTES
        self._waiting.append((method, params, size))
        self._bytes += size
        if len(self._waiting) > self._limits.waiting_messages or self._bytes > self._limits.waiting_bytes:
            self._is_full()

        if self._is_delivering:
            return False
        self._is_delivering = True
        return True

    def _is_full(self) -> None:
        limits = self._limits

        # Not while a callback waits for an answer of the server: that would never be read.
        if not self._asking and not self._is_paused:
            self._is_paused = self._pause(True)
            if self._is_paused:
                self._faults.say(
                    logging.INFO, "the server tells more than callbacks take: it is not read until they have"
                )
        if self._is_paused:
            return  # what still comes was on its way already

        if len(self._waiting) > _PATIENCE * limits.waiting_messages:
            self._give_up(f"{_PATIENCE * limits.waiting_messages} messages", "waiting_messages")
        elif self._bytes > _PATIENCE * limits.waiting_bytes and len(self._waiting) > 1:
            self._give_up(f"{_PATIENCE * limits.waiting_bytes} bytes", "waiting_bytes")

    def _give_up(self, much: str, limit: str) -> None:
        text = f"The server told more than callbacks could take: {much} wait (ClientLimits.{limit}, four times over)"
        self._ends(ConnectionLost(text))

    def clear(self) -> None:
        """Forget what waits: nobody is to hear it any more."""
        self._waiting.clear()
        self._states.clear()
        self._bytes = 0

    async def deliver(self, took: Callable[[], None]) -> None:
        """Call the callbacks until nothing waits; `took` is called after each."""
        _delivering.set(self)
        self.has_delivered = True
        try:
            while self._waiting:
                method, params, size = self._waiting.popleft()
                if self._states:
                    self._states.discard((method, bytes(params)))
                await tell(self._callbacks, method, params, self._faults)
                # Only now: what a callback works on is held as well.
                self._bytes = max(0, self._bytes - size)
                took()
                self._read_on()
        finally:
            self._is_delivering = False

    def _read_on(self) -> None:
        limits = self._limits
        if self._is_paused and (
            self._asking
            or (2 * len(self._waiting) <= limits.waiting_messages and 2 * self._bytes <= limits.waiting_bytes)
        ):
            self._is_paused = False
            self._pause(False)

    def begin_request(self) -> bool:
        """A request is about to wait for its answer; whether it is a callback of ours that asks."""
        if _delivering.get() is not self:
            return False
        self._asking += 1
        self._read_on()
        return True

    def end_request(self) -> None:
        """The callback has its answer."""
        self._asking -= 1


def detached() -> Context:
    """The context for a task that a callback starts and does not wait for: what it asks need not be read at once."""
    context = copy_context()
    context.run(_delivering.set, None)
    return context


_delivering: ContextVar[Inbox | None] = ContextVar("mcpd_delivering", default=None)
"""The inbox on whose behalf a callback runs, and the tasks that it has started."""
