"""Whether who sends a request has the scopes for something.

On stdio, and in memory without a user, nobody is asked who they are: who starts the process may do all that it can.
Spec: 2026-07-28 basic/authorization: it is for HTTP, and stdio takes credentials from the environment.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcpd.protocol.principal import Origin

_OPEN_TO_MANY = ("http", "websocket")


def is_asked(origin: Origin) -> bool:
    """Whether scopes mean anything where this came from."""
    return origin.transport in _OPEN_TO_MANY or origin.user.is_authenticated


def lacking(origin: Origin, scopes: Iterable[str]) -> list[str]:
    """Those of the scopes that are not there."""
    return [scope for scope in scopes if scope not in origin.user.scopes] if is_asked(origin) else []
