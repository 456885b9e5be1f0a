"""A parent process, as what serves in one of its workers sees it: `Settings(overseer=…)`; `workers.worker` has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from mcpd.listener import Ending


class Watcher(Protocol):
    """Watches one server: `observe.watching.Watching`."""

    async def start(self) -> None:
        """Begin, before anybody connects. Raises ConfigurationError."""

    def add(self, listener: object) -> None:
        """It listens now."""

    def ready(self, urls: list[str]) -> None:
        """It serves now, at these addresses."""

    def stopping(self) -> None:
        """It is told to stop, and lets calls end."""

    def stop(self) -> None:
        """It has stopped."""


class Overseer(Protocol):
    """Whoever runs this process. All of it is called in the event loop's thread."""

    @property
    def is_last_on_sockets(self) -> bool:
        """Whether nobody else listens on the sockets of `--http` that were given to this process, once it stops."""

    def take_stop(self, stop: Callable[[], None]) -> None:
        """This stops serving, as a first signal does; it does nothing after one."""

    def new_watcher(self, server: object, connections: Callable[[], Iterable[Ending]]) -> Watcher:
        """What watches the server, in the place of `Watching`; `connections` gives all that are open."""
