"""What an extension may declare to a server: an id, settings, and which clients have it.

The server reads this and never passes itself in. Spec: 2026-07-28 basic/versioning, extension negotiation.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..session import Client

__all__ = ["Extension"]


class Extension(Protocol):
    """One extension as a server offers it."""

    id: str
    """A prefixed name, e.g. `io.modelcontextprotocol/ui`."""

    def settings(self) -> dict[str, Any]:
        """The object under `capabilities.extensions[id]`."""

    def admits(self, client: Client) -> bool:
        """Whether the extension is in force for that client."""
