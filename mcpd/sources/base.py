"""What a source is: something that gives all its entries, whenever it is asked."""

from __future__ import annotations

from typing import Protocol

from mcpd.registry.entries import Entries
from mcpd.server import Server


class Source(Protocol):
    """Where entries come from besides decorators."""

    @property
    def owner(self) -> str:
        """The name under which the server has its entries, one of its own."""

    def load(self) -> Entries:
        """All that it offers now. What has not changed since the last time is equal to what it gave then.

        What cannot be used is left out and said in the log. May take its time; called in any thread, one call at a
        time.
        """


def refresh(server: Server, source: Source) -> None:
    """Let a server offer what a source has now, all at once: clients hear of what is another one. Any thread.

    Raises RegistrationError, and changes nothing, for a name or URI that another owner has.
    """
    server.replace(source.owner, source.load())
