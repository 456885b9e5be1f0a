"""`server.tasks`, for tasks whose work another system does, such as a CI server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mcpd.errors import InternalError, LocalProtocolError, ProtocolError
from mcpd.protocol.types.base import Result
from mcpd.protocol.types.tasks import TaskStatus
from mcpd.server.registry.content import tool_result
from .record import error_outcome, outcome_of
from .registry import identity_of

if TYPE_CHECKING:
    from mcpd.server.context.questions import Question
    from .registry import Tasks


class TaskInfo(Struct, frozen=True, kw_only=True):
    """One task. Times are in seconds since 1970."""

    id: str
    status: TaskStatus
    message: str | None
    tool: str
    created: float
    updated: float
    expires: float


class ServerTasks:
    """The tasks of a server. Call the methods in the event loop that serves. They find the tasks of all clients."""

    __slots__ = ("_tasks",)

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    async def find(self, task_id: str) -> TaskInfo | None:
        """Return a task; None if it has expired or never existed."""
        record = await self._tasks.read(task_id)
        if record is None:
            return None
        return TaskInfo(
            id=record.id,
            status=record.status,
            message=record.message,
            tool=record.tool,
            created=record.created,
            updated=record.updated,
            expires=record.created + record.life(self._tasks.clock()),
        )

    async def finish(self, task_id: str, result: Any) -> bool:
        """End a task with the value that its tool would have returned. Returns False if it has ended already."""
        tasks = self._tasks
        record = await tasks.read(task_id)
        host = None if record is None else tasks.hosts.get(record.server)
        if record is None or host is None:
            return False
        tool = host.catalog.tools.find(record.tool)
        has_schema = tool is not None and tool.listed(frozenset()).output_schema is not None
        made: Result = result if isinstance(result, Result) else tool_result(result, has_schema)
        return await tasks.end(record, outcome_of(made, identity_of(host))) is not None

    async def fail(self, task_id: str, error: ProtocolError | str) -> bool:
        """End a task with an error. Returns False if it has ended already."""
        raised = error if isinstance(error, ProtocolError) else InternalError(error)
        record = await self._tasks.read(task_id)
        return record is not None and await self._tasks.end(record, error_outcome(raised)) is not None

    async def note(self, task_id: str, text: str) -> bool:
        """Set the status message of a task. Returns False if it has ended already."""
        return await self._tasks.note(task_id, text) is not None

    async def ask(self, task_id: str, question: Question) -> Any:
        """Ask the client of a task, and return its answer. Raises LocalProtocolError if the task has ended.

        Make the question with `mcpd.elicit_form`, `elicit_url`, `sample` or `list_roots`.
        """
        record = await self._tasks.read(task_id)
        if record is None or record.is_final:
            raise LocalProtocolError(f"task {task_id[:8]}… has ended: nobody can be asked")
        return (await self._tasks.questions.ask(task_id, {"question": question}))["question"]
