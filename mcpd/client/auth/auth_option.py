"""What `Client(url, auth=…)` takes, as far as a client knows that needs no authorization; and where logins are kept.

The settings themselves are in `auth/settings.py`, which nothing loads that does not need it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import fields

TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]
"""Gives a token, anew for each connection and after each refusal; a plain function, or one that is awaited."""

_SECRETS = frozenset(("client_secret", "key_pem", "id_token", "idp_client_secret", "token", "source"))


class AuthSettings(Struct, frozen=True, kw_only=True):
    """What all that `Client(url, auth=…)` takes has in common; its repr says of secrets only that they are there."""

    def __repr__(self) -> str:
        said = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default and value is not None:
                said.append(f"{each.name}={'…' if each.name in _SECRETS else repr(value)}")
        return f"{type(self).__name__}({', '.join(said)})"

    __str__ = __repr__


Auth: TypeAlias = AuthSettings | str | TokenSource
"""What `Client(url, auth=…)` takes: `OAuth`, a grant for programs, a token, or a function that gives one."""


def login_file() -> str:
    """Where the user's logins are: in the platform's folder for what programs remember."""
    home = os.path.expanduser("~")
    if base := os.environ.get("XDG_STATE_HOME"):
        pass
    elif sys.platform == "darwin":
        base = os.path.join(home, "Library", "Application Support")
    elif sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or home
    else:
        base = os.path.join(home, ".local", "state")
    return os.path.join(base, "mcpd", "auth.json")


def has_login(url: str) -> bool:
    """Whether the user's file may have a login at this server: a look that checks nothing."""
    plain = url.partition("?")[0].partition("#")[0]
    try:
        with open(login_file(), "rb") as file:
            return encode(f"http{plain[2:]}" if plain.startswith("ws") else plain) in file.read()
    except OSError:
        return False
