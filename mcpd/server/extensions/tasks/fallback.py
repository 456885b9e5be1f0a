"""Tasks for clients that accept no tasks (`task_fallback="poll"`): tools that return a result, or stop the work.

The id of a task enters the conversation, so this is off by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcpd.errors import ToolError
from mcpd.protocol.types.features import CallToolResult
from mcpd.server.context.context import Context
from mcpd.server.entries import tool_entry
from mcpd.server.registry.tools import failed
from .record import Record

if TYPE_CHECKING:
    from mcpd.server.extensions.base import ExtensionHost
    from .registry import Tasks

# Seconds; hosts give up after 60.
_LONGEST = 50.0
_UNKNOWN = "There is no task with this id: it has expired, or never existed"


def add_tools(get_tasks: Callable[[], Tasks], server: ExtensionHost) -> None:
    """Register the tools."""

    async def task_result(id: str, ctx: Context, wait: float = 25) -> CallToolResult:
        """Return the result of a tool that still worked when it was called.

        Waits for the result, but not longer than `wait` seconds.

        Args:
            id: The task's id.
            wait: The longest time to wait, in seconds, at most 50.
        """
        tasks = get_tasks()
        record = await find(id, ctx)
        ended = asyncio.Event()

        def watcher(changed: Record | None) -> None:
            if changed is None or changed.is_final:
                ended.set()

        tasks.watch(id, watcher)
        try:
            record = await find(id, ctx)
            if not record.is_final:
                async with asyncio.timeout(min(max(wait, 0.0), _LONGEST)):
                    await ended.wait()
        except TimeoutError:
            pass
        finally:
            tasks.unwatch(id, watcher)

        record = await find(id, ctx)
        if not record.is_final:
            said = f": {record.message}" if record.message else ""
            raise ToolError(f"The task still works{said}. Call task_result again to wait for it")
        outcome = await tasks.store.outcome(record)
        if outcome is None or outcome.has_failed:
            return failed(f"The task was {record.status}: {record.message or 'there is no result'}")
        return outcome.read()

    async def task_cancel(id: str, ctx: Context) -> str:
        """Stop a tool that still works.

        Args:
            id: The task's id.
        """
        record = await find(id, ctx)
        cancelled = None if record.is_final else await get_tasks().cancel(record)
        return "The task was stopped" if cancelled is not None else "The task had ended already"

    async def find(id: str, ctx: Context) -> Record:
        record = await get_tasks().find_for(id, ctx._exchange)
        if record is None:
            raise ToolError(_UNKNOWN)
        return record

    for function in (task_result, task_cancel):
        hints: Any = {"annotations": {"readOnlyHint": function is task_result}}
        server.catalog.tools.add(tool_entry(server.catalog, server.extensions.values(), function, hints))
