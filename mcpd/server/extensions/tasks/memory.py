"""The records of tasks in the memory of one process: the store of servers that have no other.

Nothing is encoded, and no method waits. The limits of tasks bound its size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from heapq import heappop, heappush

from msgspec.structs import replace

from mcpd.server.backplane.memory import MemoryBackplane
from .record import Record
from .store import TaskStore, is_position


class MemoryStore(TaskStore):
    """See `TaskStore`. `change` replaces a record by a changed copy, so that a record never changes."""

    is_memory = True

    def __init__(self) -> None:
        super().__init__(MemoryBackplane(), 0.0, "")
        self._records: dict[str, Record] = {}
        # The number of each task by owner, in the order of their creation, and when tasks expire.
        self._numbers: dict[str, dict[str, int]] = {}
        self._ends: list[tuple[float, str]] = []
        self._last = 0

    def __len__(self) -> int:
        """The number of tasks."""
        return len(self._records)

    def own(self, task_id: str) -> Record | None:
        return self._records.get(task_id)

    def forget(self, task_id: str) -> None:
        """Do nothing, because a record has no other copy."""

    async def create(self, record: Record, *, is_listed: bool) -> None:
        self._records[record.id] = record
        if is_listed:
            self._last += 1
            self._numbers.setdefault(record.owner, {})[record.id] = self._last

    async def read(self, task_id: str, *, is_fresh: bool = False) -> Record | None:
        return self._records.get(task_id)

    async def change(self, task_id: str, step: Callable[[Record], bool], now: float) -> Record | None:
        record = self._records.get(task_id)
        if record is None:
            return None
        record = replace(record)
        record.asks = dict(record.asks)
        if not step(record):
            return None
        record.updated = max(record.updated, now)
        self._records[task_id] = record
        if record.ends:
            heappush(self._ends, (record.created + record.ttl, task_id))
        return record

    async def discard(self, task_id: str) -> None:
        record = self._records.pop(task_id, None)
        if record is not None:
            numbers = self._numbers.get(record.owner, {})
            numbers.pop(task_id, None)
            if not numbers:
                self._numbers.pop(record.owner, None)

    async def ids_of(self, owner: str, after: str, limit: int) -> list[tuple[str, str]] | None:
        if after and not is_position(after):
            return None
        first = int(after.partition("-")[0] or 0)  # clients may send positions of another store
        numbers = self._numbers.get(owner, {})
        ids = list(numbers)
        start = bisect_right(ids, first, key=numbers.__getitem__)
        return [(str(numbers[task_id]), task_id) for task_id in ids[start : start + limit]]

    async def expire(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, task_id = heappop(self._ends)
            record = self._records.get(task_id)
            if record is not None and record.is_over(now):
                await self.discard(task_id)
