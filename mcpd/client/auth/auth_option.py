"""The values of `Client(url, auth=…)`, and where the user's logins are stored.

Every client imports this module. The settings themselves are in `settings`, which is imported only when it is needed.
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
"""A plain or coroutine function that returns a token. It is called again after a token was refused."""

_SECRET_FIELDS = frozenset(("client_secret", "key_pem", "id_token", "idp_client_secret", "token", "source"))


class AuthSettings(Struct, frozen=True, kw_only=True):
    """The base of all settings for `auth=`. The `repr` hides the values of secrets."""

    def __repr__(self) -> str:
        names = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default and value is not None:
                names.append(f"{each.name}={'…' if each.name in _SECRET_FIELDS else repr(value)}")
        return f"{type(self).__name__}({', '.join(names)})"

    __str__ = __repr__


Auth: TypeAlias = AuthSettings | str | TokenSource
"""Values of `Client(url, auth=…)`: `OAuth`, a grant for programs, a token, or a function that returns a token."""


def login_file() -> str:
    """Return the path of the file with the user's logins, in the platform's folder for application state."""
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
    """Whether the user's file may contain a login at this server. The file is searched, but not checked."""
    plain = url.partition("?")[0].partition("#")[0]
    try:
        with open(login_file(), "rb") as file:
            return encode(f"http{plain[2:]}" if plain.startswith("ws") else plain) in file.read()
    except OSError:
        return False
