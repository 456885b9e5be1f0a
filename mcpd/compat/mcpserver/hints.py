"""What servers say of caching and of states, which mcpd does itself: taken, and not looked at."""

from __future__ import annotations

from typing import Any, Self

__all__ = ["CacheHint", "MCPDeprecationWarning", "RequestStateSecurity"]


class CacheHint:
    """How long an answer holds. Not written here."""

    def __init__(self, **said: Any) -> None:
        self.said = said


class RequestStateSecurity:
    """How the states of rounds are sealed. mcpd seals them by itself."""

    def __init__(self, **said: Any) -> None:
        self.said = said

    @classmethod
    def ephemeral(cls) -> Self:
        """By keys of this process."""
        return cls()


class MCPDeprecationWarning(DeprecationWarning):
    """What the library says of names that will go."""
