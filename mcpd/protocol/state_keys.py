"""The secret of a service, the same for all its processes: one key, or several of which the first seals and all open.

A new key is taken in three roll-outs: `old,new`, then `new,old`, then `new` once nothing is left that `old` sealed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, TypeAlias

Purpose: TypeAlias = 'Literal["session", "state", "bus", "nonce"]'  # a text: `Literal[…]` is made at each start
"""What a key seals: each has a key of its own, so that what is sealed for one never opens for another."""


class StateKeys:
    """Keys of at least 16 bytes, the first of which seals; it may have none. Raises ValueError for a short one."""

    __slots__ = ("_derived", "keys")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self.keys = tuple(keys)
        if any(len(key) < 16 for key in self.keys):
            raise ValueError("the state key (state_key, or MCPD_STATE_KEY) needs at least 16 bytes")
        self._derived: dict[Purpose, tuple[bytes, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.keys)

    def __repr__(self) -> str:
        return f"<StateKeys: {len(self.keys)}>"  # a key has no business in a log

    def of(self, purpose: Purpose) -> tuple[bytes, ...]:
        """The keys for one purpose, 32 bytes each, the one that seals first."""
        found = self._derived.get(purpose)
        if found is None:
            import hmac  # costs start-up, and most servers seal nothing

            found = tuple(hmac.digest(key, b"mcpd " + purpose.encode(), "sha256") for key in self.keys)
            self._derived[purpose] = found
        return found


_handed_over = ""


def hand_over_keys(text: str) -> None:
    """What the keys of this process are if its environment says nothing: what its tools start inherits that, and has no
    business with them."""
    global _handed_over
    _handed_over = text


def keys_of_process() -> StateKeys:
    """Those of the environment, else those that were handed over; none if there are neither. Raises ValueError."""
    return read_keys(os.environ.get("MCPD_STATE_KEY", "") or _handed_over)


def read_keys(text: str) -> StateKeys:
    """Keys with commas between them, as MCPD_STATE_KEY has them. Raises ValueError."""
    return StateKeys(part.strip().encode() for part in text.split(",") if part.strip())
