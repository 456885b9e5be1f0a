"""The secret keys of a service, shared by all its processes. The first key seals, and every key opens.

To replace a key, roll out `old,new`, then `new,old`, then `new` once nothing sealed with `old` is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, TypeAlias

# The kind of sealed data. Each purpose has its own key, so data sealed for one cannot be opened for another.
Purpose: TypeAlias = 'Literal["session", "state", "bus", "nonce", "events", "cursor"]'


class StateKeys:
    """Zero or more keys of at least 16 bytes. Raises ValueError for a shorter key."""

    __slots__ = ("_derived", "keys")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self.keys = tuple(keys)
        if any(len(key) < 16 for key in self.keys):
            raise ValueError("the state key (state_key or MCPD_STATE_KEY) must have at least 16 bytes")
        self._derived: dict[Purpose, tuple[bytes, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.keys)

    def __repr__(self) -> str:
        return f"<StateKeys: {len(self.keys)}>"  # keys must not appear in logs

    def of(self, purpose: Purpose) -> tuple[bytes, ...]:
        """Return the keys for one purpose, 32 bytes each."""
        keys = self._derived.get(purpose)
        if keys is None:
            import hmac  # most servers seal nothing

            keys = tuple(hmac.digest(key, b"mcpd " + purpose.encode(), "sha256") for key in self.keys)
            self._derived[purpose] = keys
        return keys


_handed_over = ""


def hand_over_keys(text: str) -> None:
    """Set the keys of a worker process. They are not in its environment, which its child processes inherit."""
    global _handed_over
    _handed_over = text


def keys_of_process() -> StateKeys:
    """Return the keys from MCPD_STATE_KEY, or those handed over by the parent process. Raises ValueError."""
    return read_keys(os.environ.get("MCPD_STATE_KEY", "") or _handed_over)


def read_keys(text: str) -> StateKeys:
    """Parse comma-separated keys. Raises ValueError for a short key."""
    return StateKeys(part.strip().encode() for part in text.split(",") if part.strip())
