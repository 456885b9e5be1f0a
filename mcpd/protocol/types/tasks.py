"""Tasks: the extension of 2026-07-28, and the experimental feature of 2025-11-25 (`Legacy…`).

Most servers never load this module. Times are RFC 3339 texts, durations are milliseconds.

Spec: tasks-extension; 2025-11-25 basic/utilities/tasks.
"""

from typing import Any, Literal, TypeAlias

from msgspec import Raw, field

from .base import META, NO_JSON, PageParams, Params, Result, Wire
from .interaction import InputRequest

# The id of the extension.
TASKS = f"{META}tasks"

# The `_meta` key of 2025-11-25 that names the task to which a message belongs.
RELATED_TASK = f"{META}related-task"

# The `_meta` key of 2025-11-25 with a text for the model to read instead of a result.
IMMEDIATE_RESPONSE = f"{META}model-immediate-response"

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

# The statuses that never change.
FINAL: frozenset[str] = frozenset(("completed", "failed", "cancelled"))


class TaskParams(Params, kw_only=True):
    """The params of a request about one task: `tasks/get`, `tasks/cancel`, and `tasks/result` of 2025-11-25."""

    task_id: str


class UpdateTaskParams(TaskParams, kw_only=True):
    """The params of `tasks/update`: answers by the keys of `input_requests`."""

    input_responses: dict[str, Raw]


class TaskError(Wire, kw_only=True):
    """The JSON-RPC error of a failed task."""

    code: int
    message: str
    data: Any = None


class CreateTaskResult(Result, kw_only=True):
    """A task, as the result of a request that became one. `ttl_ms` counts from the creation; None means no limit."""

    task_id: str
    status: TaskStatus
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = field(default_factory=lambda: None)  # a plain default would not be encoded
    poll_interval_ms: int | None = None


class DetailedTask(CreateTaskResult, kw_only=True):
    """A task with its result, error or questions: the result of `tasks/get`, the params of `notifications/tasks`."""

    input_requests: dict[str, InputRequest] | None = None
    result: Raw = NO_JSON
    error: TaskError | None = None


class LegacyTask(Result, kw_only=True):
    """A task of 2025-11-25: the result of `tasks/get` and `tasks/cancel`, and the params of its notification."""

    task_id: str
    status: TaskStatus
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl: int | None = field(default_factory=lambda: None)
    poll_interval: int | None = None


class LegacyCreateTaskResult(Result, kw_only=True):
    """The result of a request of 2025-11-25 that became a task."""

    task: LegacyTask


class ListTasksParams(PageParams, kw_only=True):
    """The params of `tasks/list`."""


class ListTasksResult(Result, kw_only=True):
    """One page of the tasks of the sender."""

    tasks: list[LegacyTask]
    next_cursor: str | None = None


class TaskRequest(Wire, kw_only=True):
    """The member `task` of a request of 2025-11-25 that should become a task, and how long it should be kept."""

    ttl: int | None = None
