"""The limits of tasks, and the options of a tool. This module needs no other one of the package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from mcpd.protocol.types.features import ToolExecution

if TYPE_CHECKING:
    from mcpd.server.registry.rules import Condition

TASKS = "io.modelcontextprotocol/tasks"

TaskMode: TypeAlias = 'Literal["never", "auto", "required"]'
"""Whether calls of a tool never, may or must become tasks."""


class TaskSettings(Struct, frozen=True, kw_only=True):
    """The limits of tasks, for each process."""

    keep: float = 900.0
    """The seconds for which the result of a task is kept after its end."""
    max_ttl: float = 86_400.0
    """The longest time in seconds for which a client may have a task kept, and for which a task waits for an answer."""
    running: int = 64
    """How many tasks may work at once."""
    running_each: int = 8
    """How many tasks of one client may work at once. Tasks that wait for their client's answer do not count."""
    kept_each: int = 256
    """How many tasks of one client are kept, including tasks that work."""
    result_bytes: int = 4 << 20
    """The largest size of a result, in bytes."""


class TaskTool(Struct):
    """The options of a tool about tasks."""

    mode: TaskMode
    after: float | None
    retry: int | None
    condition: Condition | None = None
    is_required: bool = False

    def meta(self, active: object) -> Mapping[str, Any]:
        """Return no `_meta`: only 2025-11-25 shows which tools can be tasks, in `execution`."""
        return {}

    @property
    def execution(self) -> ToolExecution:
        """What clients of 2025-11-25 see."""
        return ToolExecution(task_support="required" if self.mode == "required" else "optional")

    def retries_of(self, entry: Any) -> int:
        """Return how many times a task may run again; the default is 1 for tools without effects, otherwise 0."""
        if self.retry is not None:
            return self.retry
        hints = getattr(getattr(entry, "tool", None), "annotations", None)
        return int(hints is not None and bool(hints.idempotent_hint or hints.read_only_hint))
