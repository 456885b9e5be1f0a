"""What makes an application one node of a service: the key, the backplane, and what is heard over it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Protocol

from mcpd.backplane.base import Backplane, ChangeBus, Kind
from mcpd.backplane.memory_backplane import MemoryBackplane
from mcpd.backplane.node import Node
from mcpd.backplane.node_changes import ListDigest, NodeChanges
from mcpd.backplane.opening import open_backplane, timed_backplane
from mcpd.dispatcher.observing import HookedObserver
from mcpd.errors import ConfigurationError
from mcpd.http.sealed_ids import IdSealer
from mcpd.protocol.observer import Observer
from mcpd.protocol.state_keys import StateKeys


class Changing(Protocol):
    """A server whose clients are told of changes."""

    def notify(self, kind: Kind, uri: str | None) -> None:
        """On another node a list of that kind has changed, or that resource."""

    def missed(self) -> None:
        """What was said may not have been heard."""

    def join(self, bus: ChangeBus) -> None:
        """Hear of others' changes there, and tell of these."""


class Sharing:
    """One node. Without `is_shared` nobody else is there, and nothing is listened to."""

    def __init__(
        self,
        backplane: Backplane,
        keys: StateKeys,
        server_name: str,
        changing: Changing | None,
        list_digest: ListDigest | None = None,
        *,
        is_shared: bool,
    ) -> None:
        self.node = Node(backplane, keys)
        self.sealer = IdSealer(keys.of("session"), server_name)
        self.changes = NodeChanges(self.node, list_digest)
        self.is_shared = is_shared
        if is_shared and changing is not None:
            changing.join(self.changes)
            self.node.on_gap(changing.missed)

    async def start(self) -> None:
        """Take part from now on; safe to call again."""
        if self.is_shared:
            await self.node.start()
            self.changes.start()

    async def aclose(self) -> None:
        """Leave."""
        if self.is_shared:
            await self.node.aclose()

    @property
    def trouble(self) -> str:
        """What is wrong with the backplane, for people; empty if nothing is."""
        since = self.node.backplane.away_since
        if since is None:
            return ""
        return f"backplane away for {asyncio.get_running_loop().time() - since:.0f} s"


def make_sharing(
    backplane: str | Backplane | None,
    keys: StateKeys,
    server_name: str,
    changing: Changing | None,
    observers: Iterable[Observer] = (),
    list_digest: ListDigest | None = None,
) -> Sharing | None:
    """Of the settings; None without a backplane and without a key. Observers may watch what it is asked.

    Raises ConfigurationError.
    """
    if backplane is None:
        if not keys:
            return None
        return Sharing(MemoryBackplane(), keys, server_name, changing, is_shared=False)

    if isinstance(backplane, str):
        if not keys and not backplane.startswith("memory:"):
            raise ConfigurationError(
                "a backplane needs a secret that all processes have: set MCPD_STATE_KEY to 16 bytes or more, "
                "for example by openssl rand -base64 32"
            )
        backplane = open_backplane(backplane, server_name)
    counters = [observer.backplane_answered for observer in observers if isinstance(observer, HookedObserver)]
    keys = keys or StateKeys([os.urandom(32)])
    return Sharing(timed_backplane(backplane, counters), keys, server_name, changing, list_digest, is_shared=True)
