"""Authorization as OAuth 2.1 has it: what protects a server. Each name is loaded when it is first used.

`Server(auth=…)` takes one of `Jwt`, `Introspection`, `StaticTokens` and `TokenFunction`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpd.auth.base import (
        Auth as Auth,
        InvalidToken as InvalidToken,
        TokenRequest as TokenRequest,
        Unavailable as Unavailable,
    )
    from mcpd.auth.introspection import Introspection as Introspection
    from mcpd.auth.jwt import Issuer as Issuer, Jwt as Jwt
    from mcpd.auth.tokens import StaticTokens as StaticTokens, TokenFunction as TokenFunction

__all__ = [
    "Auth",
    "Introspection",
    "InvalidToken",
    "Issuer",
    "Jwt",
    "StaticTokens",
    "TokenFunction",
    "TokenRequest",
    "Unavailable",
]

_HOMES = {
    "Auth": "base",
    "InvalidToken": "base",
    "Introspection": "introspection",
    "Issuer": "jwt",
    "Jwt": "jwt",
    "StaticTokens": "tokens",
    "TokenFunction": "tokens",
    "TokenRequest": "base",
    "Unavailable": "base",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{home}", __name__), name)
