"""Changes of lists and resources, from each node of a service to the clients of all others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from secrets import token_bytes
from typing import Any, TypeAlias
from weakref import WeakSet

from mcpd.backplane.base import Kind, Subscriber
from mcpd.backplane.node import Node

_LIFE = 7 * 24 * 3600.0
_KINDS: tuple[Kind, ...] = ("tools", "prompts", "resources")
_MARK = 6
"""Bytes of a mark that are its own. What follows is the digest of the list, if there is one."""

ListDigest: TypeAlias = Callable[[Kind], bytes]
"""Gives what is the same for equal lists, on every node; empty if that cannot be told. Never raises."""


class NodeChanges:
    """A `ChangeBus` over a backplane. Beside what is said there is a mark of each kind's last change, which tells a
    node that heard nothing for a while whether it missed one.

    Nodes whose files change at the same time have the same list in the end. With `list_digest` one that has the list
    already that another one tells of says nothing: its clients heard of it when it got that.
    """

    def __init__(self, node: Node, list_digest: ListDigest | None = None) -> None:
        self._node = node
        self._list_digest = list_digest
        self._due: dict[tuple[Kind, str | None], None] = {}
        self._unsaid: dict[Kind, bytes] = {}
        """Marks of changes here of which not all have been told."""
        self._subscribers: WeakSet[Subscriber] = WeakSet()
        self._marks: dict[Kind, bytes | None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        node.on("changed", self._take)
        node.on_gap(self._gap)

    def start(self) -> None:
        """From now on changes are said: the event loop of the node runs."""
        self._loop = asyncio.get_running_loop()
        self._node.post(self._look(tells=False))

    def subscribe(self, subscriber: Subscriber) -> None:
        """See `ChangeBus`."""
        self._subscribers.add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """See `ChangeBus`."""
        self._subscribers.discard(subscriber)

    def publish(self, kind: Kind, uri: str | None, by: Subscriber) -> None:
        """See `ChangeBus`."""
        if self._loop is None:
            return  # nobody is served yet, and what was registered before that is no change
        try:
            self._loop.call_soon_threadsafe(self._changed, kind, uri)
        except RuntimeError:
            pass  # it is closed

    def _changed(self, kind: Kind, uri: str | None) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._say_due)  # each once, of all that comes in this turn
        self._due[kind, uri] = None

    def _say_due(self) -> None:
        due, self._due = self._due, {}
        for kind, uri in due:
            if uri is None:
                self._say(kind)
            else:
                self._node.post(self._node.tell_all("changed", kind, uri, b""))

    def _say(self, kind: Kind) -> None:
        digest = b"" if self._list_digest is None else self._list_digest(kind)
        mark = self._unsaid[kind] = token_bytes(_MARK) + digest
        self._node.post(self._say_mark(kind, mark))

    async def _say_mark(self, kind: Kind, mark: bytes) -> None:
        keeping = asyncio.ensure_future(self._keep(kind, mark))
        try:
            await self._node.tell_all("changed", kind, None, mark)
        finally:
            await keeping
        if self._unsaid.get(kind) == mark:
            del self._unsaid[kind]

    async def _keep(self, kind: Kind, mark: bytes) -> None:
        await self._node.backplane.set(f"c:{kind}", mark, _LIFE)
        self._marks[kind] = mark

    def _take(self, _: str, body: Any) -> None:
        kind, uri, mark = body
        if uri is None:
            self._marks[kind] = mark
            if self._has(kind, mark):
                return
        self._tell(kind, uri)

    def _has(self, kind: Kind, mark: bytes) -> bool:
        """Whether the list that the mark is of is the one of this node."""
        return len(mark) > _MARK and self._list_digest is not None and self._list_digest(kind) == mark[_MARK:]

    def _tell(self, kind: Kind, uri: str | None) -> None:
        for subscriber in list(self._subscribers):
            subscriber.notify(kind, uri)

    def _gap(self) -> None:
        self._node.post(self._catch_up())

    async def _catch_up(self) -> None:
        await self._look(tells=True)
        for kind in list(self._unsaid):  # behind the look: it would hide what others said before
            self._say(kind)

    async def _look(self, *, tells: bool) -> None:
        """Read the marks; with `tells` say of each kind that has another one, and another list, that it has changed."""
        marks = await asyncio.gather(*(self._node.backplane.get(f"c:{kind}") for kind in _KINDS))
        for kind, mark in zip(_KINDS, marks, strict=True):
            if mark is not None and mark != self._marks.get(kind):
                self._marks[kind] = mark
                if tells and not self._has(kind, mark):
                    self._tell(kind, None)

    @property
    def moved(self) -> list[Kind]:
        """The kinds that have ever changed, as far as that is known."""
        return [kind for kind in _KINDS if self._marks.get(kind) is not None]
