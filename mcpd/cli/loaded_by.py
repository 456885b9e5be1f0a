"""`LoadedBy`: who loads a target. For type checkers; nothing loads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcpd.compat.program import Wanted
    from mcpd.server import Server


class LoadedBy(Protocol):
    """Who loads a target, and serves what calls `run()` in it; a `compat.program.Program`."""

    has_served: bool
    """Whether the target called `run()`."""

    def run(self, server: Server, wanted: Wanted) -> None:
        """Serve until stopped; blocks."""

    async def serve(self, server: Server, wanted: Wanted) -> None:
        """The same in the event loop that runs."""

    def take_words(self) -> None:
        """The words behind the target were its arguments."""
