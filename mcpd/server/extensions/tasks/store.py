"""The records of tasks, on a backplane or in memory, and the nodes that run them.

Every change is a compare-and-set of the whole record; if that fails, the record is read and changed again. A node that
runs tasks renews a key; once that has expired, the node is dead and another one takes its tasks over.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from heapq import heappop, heappush
from secrets import token_hex
from typing import NamedTuple

from msgspec.structs import replace

from mcpd.server.backplane.base import Backplane
from mcpd.server.backplane.memory import MemoryBackplane, OwnBus
from .record import Outcome, Record, decode_outcome, decode_record, encode_outcome, encode_record

# A larger outcome has a key of its own, so that polls of other nodes stay small.
_SMALL_OUTCOME = 4096
# Seconds for which a record outlives its task.
_MARGIN = 1.0
_NODE_LIFE = 7 * 24 * 3600.0
_MOST_LISTED = 4096
_MOST_NODES = 1000
_GRAVE = b"-"
# Whether a text can be a position in a log of some backplane.
is_position = re.compile(r"[0-9]{1,19}(-[0-9]{1,19})?").fullmatch


class Stored(NamedTuple):
    """A record, and its bytes as they are stored, for the next compare-and-set."""

    record: Record
    raw: bytes


class TaskStore:
    """The tasks of one service, as one node sees them. Raises BackplaneAway."""

    def __init__(self, backplane: Backplane, lease: float, namespace: str) -> None:
        """`namespace` separates servers that use the same file."""
        self.backplane = backplane
        self._prefix = namespace
        self.node = token_hex(5)
        self._lease = lease
        # The records of tasks that this node runs. They are not read from the backplane.
        self._own: dict[str, Stored] = {}
        self._is_listed = False
        self._buried: set[str] = set()
        self._nodes, self._channel = f"{namespace}tasks:nodes", f"{namespace}tasks"

    @property
    def is_memory(self) -> bool:
        """Whether all tasks end with this process."""
        return isinstance(self.backplane, MemoryBackplane)

    def _key(self, task_id: str) -> str:
        return f"{self._prefix}task:{task_id}"

    def _of(self, owner: str) -> str:
        # The key of the log of an owner's tasks.
        return f"{self._prefix}tasks:of:{owner}"

    def _on(self, node: str) -> str:
        # The key of the log of the tasks that a node has begun.
        return f"{self._prefix}tasks:on:{node}"

    def _alive(self, node: str) -> str:
        # The key that a node renews.
        return f"{self._prefix}tasks:node:{node}"

    # -- records -----------------------------------------------------------------------------

    def own(self, task_id: str) -> Record | None:
        """Return the record of a task that this node runs."""
        stored = self._own.get(task_id)
        return None if stored is None else stored.record

    def forget(self, task_id: str) -> None:
        """Read a task from the backplane in future, because this node no longer runs it."""
        self._own.pop(task_id, None)

    async def create(self, record: Record, *, is_listed: bool) -> None:
        """Store a new task, which this node runs."""
        await self._join()
        raw = encode_record(record)
        ttl = record.ttl + _MARGIN
        name = record.id.encode()
        if not self.is_memory:
            # Before the record: if this process dies in between, no task is left that nobody takes over.
            await self.backplane.append(self._on(record.node), [name], _MOST_LISTED, _NODE_LIFE)
        await self.backplane.set(self._key(record.id), raw, ttl)
        self._own[record.id] = Stored(record, raw)
        if is_listed:
            await self.backplane.append(self._of(record.owner), [name], _MOST_LISTED, ttl)

    async def adopt(self, record: Record) -> None:
        """Let this node run a task that another one has left."""
        await self._join()
        self._own[record.id] = Stored(record, encode_record(record))
        await self.backplane.append(self._on(record.node), [record.id.encode()], _MOST_LISTED, _NODE_LIFE)

    async def read(self, task_id: str, *, is_fresh: bool = False) -> Record | None:
        """Return a record; `is_fresh` reads it from the backplane even if this node runs it."""
        own = self._own.get(task_id)
        if own is not None and not is_fresh:
            return own.record
        raw = await self.backplane.get(self._key(task_id))
        if raw is None:
            return None
        record = decode_record(raw)
        latest = self._own.get(task_id)
        if latest is not own and latest is not None:
            return latest.record  # it was changed here meanwhile
        if latest is not None:
            self._own[task_id] = Stored(record, raw)
        return record

    async def change(self, task_id: str, step: Callable[[Record], bool], now: float) -> Record | None:
        """Change a record by `step`, which returns False to leave it as it is. Returns None if nothing was changed.

        `step` may be called several times, each time with another copy.
        """
        own = self._own.get(task_id)
        old = None if own is None else own.raw
        while True:
            if old is None:
                old = await self.backplane.get(self._key(task_id))
                if old is None:
                    return None
                if task_id in self._own:
                    self._own[task_id] = Stored(decode_record(old), old)
            record = decode_record(old)
            if not step(record):
                return None
            record.updated = max(record.updated, now)
            raw = encode_record(record)
            if await self.backplane.swap(self._key(task_id), old, raw, self._left(record, now)):
                if task_id in self._own:
                    self._own[task_id] = Stored(record, raw)
                return record
            old = None

    async def extend(self, task_id: str, now: float) -> None:
        """Keep the record of an unfinished task for longer."""
        own = self._own.get(task_id)
        if own is not None:
            await self.backplane.swap(self._key(task_id), own.raw, own.raw, self._left(own.record, now))

    def _left(self, record: Record, now: float) -> float:
        return max(0.0, record.created + record.life(now) - now) + _MARGIN

    async def put_outcome(self, task_id: str, outcome: Outcome, ttl: float) -> tuple[Outcome | None, str]:
        """Return an outcome for a record, or the place where it was stored because it is large."""
        raw = encode_outcome(outcome)
        if len(raw) <= _SMALL_OUTCOME:
            return outcome, ""
        place = f"{self._key(task_id)}:{token_hex(4)}"
        await self.backplane.set(place, raw, ttl + _MARGIN)
        return None, place

    async def outcome(self, record: Record) -> Outcome | None:
        """Return how a task ended; None while it works."""
        if not record.place:
            return record.outcome
        raw = await self.backplane.get(record.place)
        return None if raw is None else decode_outcome(raw)

    async def discard(self, task_id: str) -> None:
        """Delete a task that no client has received."""
        self.forget(task_id)
        await self.backplane.delete(self._key(task_id))

    async def ids_of(self, owner: str, after: str, limit: int) -> list[tuple[str, str]] | None:
        """Return positions and ids of the tasks of an owner, oldest first; None if `after` is not a position."""
        if after and not is_position(after):
            return None
        found = await self.backplane.read(self._of(owner), after, limit)
        return [(position, name.decode()) for position, name in found]

    async def expire(self, now: float) -> None:
        """Drop tasks that have expired, unless the backplane does."""

    # -- changes -----------------------------------------------------------------------------

    async def listen(self, receive: Callable[[str], object], on_gap: Callable[[], object]) -> None:
        """Call `receive` with the id of each task that another node has changed."""
        if not isinstance(self.backplane, OwnBus):
            self.backplane.on_gap(on_gap)
            await self.backplane.subscribe(self._channel, lambda data: _received(self.node, data, receive))

    @property
    def is_silent(self) -> bool:
        """Whether other processes may change tasks without a message; then `was_changed` says when to look."""
        return hasattr(self.backplane, "was_changed")

    async def was_changed(self) -> bool:
        """Return whether another process may have changed a task since the last call."""
        return await self.backplane.was_changed()  # type: ignore[attr-defined, no-any-return]

    async def publish(self, task_id: str) -> None:
        """Notify other nodes that a task has changed. The message has only its id."""
        if not isinstance(self.backplane, OwnBus):
            await self.backplane.publish(self._channel, f"{self.node} {task_id}".encode())

    # -- nodes -------------------------------------------------------------------------------

    async def _join(self) -> None:
        # Enter this node in the list of nodes, before it runs its first task.
        if self._is_listed or self.is_memory:
            return
        self._is_listed = True
        await self.backplane.set(self._alive(self.node), b"1", self._lease)
        await self.backplane.append(self._nodes, [self.node.encode()], _MOST_NODES, _NODE_LIFE)

    async def renew(self) -> None:
        """Show that this node is alive. After too long a silence, its tasks run elsewhere, so it gets another name."""
        if self._is_listed and not await self.backplane.swap(self._alive(self.node), b"1", b"1", self._lease):
            self.node, self._is_listed = token_hex(5), False

    async def leave(self) -> None:
        """Announce that this node runs no more tasks."""
        if self._is_listed:
            self._is_listed = False
            await self.backplane.delete(self._alive(self.node))
            await self.publish("")

    async def orphans(self) -> AsyncIterator[Record]:
        """Yield the unfinished tasks of nodes that have died, each dead node's once."""
        if self.is_memory:
            return
        names = [entry for _, entry in await self.backplane.read(self._nodes)]
        self._buried.update(entry[1:].decode() for entry in names if entry.startswith(_GRAVE))
        for node in {entry.decode() for entry in names if not entry.startswith(_GRAVE)} - self._buried - {self.node}:
            if await self.backplane.get(self._alive(node)) is not None:
                continue
            position = ""
            while entries := await self.backplane.read(self._on(node), position):
                position = entries[-1][0]
                for _, entry in entries:
                    record = await self.read(entry.decode(), is_fresh=True)
                    if record is not None and record.node == node:
                        yield record
            # Added only now: if this node dies meanwhile, another one looks again.
            self._buried.add(node)
            await self.backplane.append(self._nodes, [_GRAVE + node.encode()], _MOST_NODES, _NODE_LIFE)


def _received(own: str, data: bytes, receive: Callable[[str], object]) -> None:
    node, _, task_id = data.decode().partition(" ")
    if node != own:
        receive(task_id)


class MemoryStore(TaskStore):
    """The tasks of one process, for servers without another store: it encodes nothing, and waits for nothing.

    `change` replaces a record by a changed copy, so that a record never changes.
    """

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
