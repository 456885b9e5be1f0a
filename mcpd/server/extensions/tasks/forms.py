"""The form of tasks in 2026-07-28: what clients send and receive. `legacy` has the form of 2025-11-25.

Spec: tasks-extension.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from mcpd.protocol.envelope import raw_capabilities
from mcpd.protocol.session import Call
from mcpd.protocol.types.base import EmptyResult, Result
from mcpd.protocol.types.tasks import TASKS
from mcpd.server.context.exchange import Exchange
from .peer import Run
from .record import Record, created, detailed
from .registry import Tasks

if TYPE_CHECKING:
    from mcpd.server.context.peer import Peer

# Bytes of the capabilities of a client that are remembered.
_MOST_REMEMBERED = 1024

# Whether clients with these capabilities accept tasks.
_known: dict[bytes, bool] = {}


def offers(call: Call) -> bool:
    """Whether a request of 2026-07-28 says that its client accepts tasks (TASK-005)."""
    raw = raw_capabilities(call.meta)
    known = _known.get(raw)
    if known is None:
        known = isinstance((call.client.capabilities.extensions or {}).get(TASKS), dict)
        if len(raw) <= _MOST_REMEMBERED:
            if len(_known) >= _MOST_REMEMBERED:
                _known.clear()
            _known[raw] = known
    return known


class TaskForm:
    """How 2026-07-28 writes tasks: the server decides, and the client polls. `legacy` has the form of 2025-11-25."""

    def capability(self, tasks: Tasks, exchange: Exchange, extensions: dict[str, Any]) -> dict[str, Any] | None:
        """Return the capability `tasks`, or put the extension into `extensions`."""
        extensions[TASKS] = {}
        return None

    def is_taken(self, call: Call) -> bool:
        """Whether the sender of a call accepts a task as its answer."""
        return offers(call)

    def wish(self, call: Call) -> tuple[bool, float | None]:
        """Return whether a call must become a task, and how many seconds it asks the task to be kept."""
        return False, None

    def seed(self, record: Record, immediate: str) -> Result:
        """Return the answer to a call that has become a task; `immediate` is a text for the model."""
        return created(record)

    def seen(self, record: Record, now: float) -> Result:
        """Return an unfinished task, for `tasks/get`."""
        return detailed(record, None, now)

    async def found(self, tasks: Tasks, record: Record) -> Result:
        """Return any task, for `tasks/get`."""
        outcome = await tasks.store.outcome(record) if record.is_final else None
        return detailed(record, outcome, tasks.clock())

    async def cancelled(self, tasks: Tasks, record: Record, cancelled: Record | None) -> Result:
        """Return the answer to `tasks/cancel`; `cancelled` is None if the task had ended."""
        return EmptyResult()

    def stays(self, call: Call) -> bool:
        """Whether the connection of a call receives messages of its task after the answer."""
        return False

    def say(self, tasks: Tasks, run: Run, peer: Peer, method: str, params: Any) -> Coroutine[Any, Any, None] | None:
        """Send a notification of the work to its client: neither progress nor log messages (TASK-053)."""
        return None

    def changed(self, tasks: Tasks, run: Run, record: Record, *, is_new: bool) -> None:
        """Notify the client that created a task of a change. Clients of 2026-07-28 subscribe to changes instead."""


MODERN_FORM = TaskForm()
