"""Pages that a server wanted visited, until it says that what happens there is over. 2025-11-25 alone has such words.

Spec: 2025-11-25 client/elicitation, completion notifications: clients "MUST ignore notifications referencing unknown or
already-completed IDs".
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.json import Decoder

from mcpd.errors import RemoteError, UrlElicitationRequired
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.types.base import Wire

_MOST = 1000
"""So many are remembered: of more the oldest are forgotten, and a word about them is dropped."""


class _Named(Wire):
    elicitation_id: str | None = None


_read_named = Decoder(_Named).decode


class Visits:
    """The ids of one connection's pages."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}

    def asked(self, params: Raw) -> None:
        """The server asks something of the user: if it is to visit a page, its id is known from now on."""
        try:
            self._add(_read_named(params).elicitation_id)
        except MALFORMED:
            return  # whoever answers says what is wrong with it

    def required(self, error: RemoteError) -> None:
        """A request was refused until pages were visited: so are theirs."""
        if error.code != UrlElicitationRequired.code or not isinstance(error.data, dict):
            return
        found: Any = error.data.get("elicitations")
        for each in found if isinstance(found, list) else ():
            self._add(each.get("elicitationId") if isinstance(each, dict) else None)

    def complete(self, params: Raw) -> bool:
        """The server says that one is over: whether it is one that was open until now."""
        try:
            name = _read_named(params).elicitation_id
        except MALFORMED:
            return False
        if name is None or name not in self._open:
            return False
        del self._open[name]
        return True

    def _add(self, name: Any) -> None:
        if isinstance(name, str):
            self._open[name] = None
            if len(self._open) > _MOST:
                del self._open[next(iter(self._open))]
