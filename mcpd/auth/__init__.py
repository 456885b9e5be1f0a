"""Authorization of a server's clients by OAuth 2.1.

`Server(auth=…)` takes one of `Jwt`, `Introspection`, `StaticTokens` and `TokenFunction`; each name is imported when it
is first used. `base.py` handles requests and challenges for all of them. `issuers.py` has the first two, and
`settings.py` the others, with the options and `[auth]` of mcpd.toml. `server/` is the login server. Logging in as a
client is in `mcpd.client.auth`. Start reading at `Auth` in `base.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import (
        Auth as Auth,
        InvalidToken as InvalidToken,
        TokenRequest as TokenRequest,
        Unavailable as Unavailable,
    )
    from .issuers import Introspection as Introspection, Issuer as Issuer, Jwt as Jwt
    from .settings import StaticTokens as StaticTokens, TokenFunction as TokenFunction

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

_MODULES = {"issuers": ("Introspection", "Issuer", "Jwt"), "settings": ("StaticTokens", "TokenFunction")}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = next((module for module, names in _MODULES.items() if name in names), "base")
    return getattr(import_module(f".{home}", __name__), name)
