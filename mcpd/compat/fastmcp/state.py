"""What is kept of each session for `Context.get_state`; it goes with the session."""

from __future__ import annotations

from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from mcpd.compat.fastmcp.store import Visibility
from mcpd.compat.lowlevel.context import current_exchange

__all__ = ["has_rules", "session_id", "session_rules", "session_values"]


class _Kept:
    def __init__(self) -> None:
        self.id = ""
        self.values: dict[str, Any] = {}
        self.rules = Visibility()


_sessions: WeakKeyDictionary[object, _Kept] = WeakKeyDictionary()


def _kept() -> _Kept:
    exchange = current_exchange.get(None)
    if exchange is None:
        raise RuntimeError(
            "session_id is not available because no session exists. "
            "This typically means you're outside a request context."
        )
    kept = _sessions.get(exchange.call.session)
    if kept is None:
        kept = _sessions[exchange.call.session] = _Kept()
        kept.id = exchange.origin.headers().get("mcp-session-id") or str(uuid4())
    return kept


def session_values() -> dict[str, Any]:
    """What is kept of the session whose request runs. Raises RuntimeError where none does."""
    return _kept().values


def session_rules() -> Visibility:
    """What is offered to that session besides, or not. Raises RuntimeError where none runs."""
    return _kept().rules


def has_rules() -> bool:
    """Whether there are any."""
    exchange = current_exchange.get(None)
    kept = None if exchange is None else _sessions.get(exchange.call.session)
    return kept is not None and not kept.rules.is_empty


def session_id() -> str:
    """A text that is the same for all its requests. Raises RuntimeError where none runs."""
    return _kept().id
