"""Changes of lists and resources, from each node of a service to the clients of all others."""

from __future__ import annotations

import asyncio
from secrets import token_bytes
from typing import Any
from weakref import WeakSet

from .base import Kind, Subscriber
from .node import Node

__all__ = ["NodeChanges"]

_LIFE = 7 * 24 * 3600.0
_KINDS: tuple[Kind, ...] = ("tools", "prompts", "resources")


class NodeChanges:
    """A `ChangeBus` over a backplane. Beside what is said there is a mark of each kind's last change, which tells a
    node that heard nothing for a while whether it missed one."""

    def __init__(self, node: Node) -> None:
        self._node = node
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
            self._loop.call_soon_threadsafe(self._say, kind, uri)
        except RuntimeError:
            pass  # it is closed

    def _say(self, kind: Kind, uri: str | None) -> None:
        if uri is not None:
            self._node.post(self._node.tell_all("changed", kind, uri, b""))
            return
        mark = self._marks[kind] = token_bytes(6)
        self._node.post(self._node.backplane.set(f"c:{kind}", mark, _LIFE))
        self._node.post(self._node.tell_all("changed", kind, None, mark))

    def _take(self, _: str, body: Any) -> None:
        kind, uri, mark = body
        if uri is None:
            self._marks[kind] = mark
        self._tell(kind, uri)

    def _tell(self, kind: Kind, uri: str | None) -> None:
        for subscriber in list(self._subscribers):
            subscriber.notify(kind, uri)

    def _gap(self) -> None:
        self._node.post(self._look(tells=True))

    async def _look(self, *, tells: bool) -> None:
        """Read the marks; with `tells` say of each kind that has another one that it has changed."""
        marks = await asyncio.gather(*(self._node.backplane.get(f"c:{kind}") for kind in _KINDS))
        for kind, mark in zip(_KINDS, marks, strict=True):
            if mark is not None and mark != self._marks.get(kind):
                self._marks[kind] = mark
                if tells:
                    self._tell(kind, None)

    @property
    def moved(self) -> list[Kind]:
        """The kinds that have ever changed, as far as that is known."""
        return [kind for kind in _KINDS if self._marks.get(kind) is not None]
