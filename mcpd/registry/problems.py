"""`Problem`: something wrong with what is registered, in words for its author. `mcpd check` prints them."""

from __future__ import annotations

from msgspec import Struct


class Problem(Struct, frozen=True):
    """One problem. An error will fail some client; a warning is worth correcting."""

    where: str
    """What it is about, e.g. `tool forecast`."""
    text: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"
