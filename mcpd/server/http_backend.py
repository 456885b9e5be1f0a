"""What a server hides from some of those who ask, for transports that look at calls before handlers do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec.json import encode

from mcpd.errors import AccessDenied
from mcpd.protocol.principal import Origin
from mcpd.protocol.session import Call
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.catalog import Catalog

if TYPE_CHECKING:
    from mcpd.server.lifespan import Lifespan
    from mcpd.server.registry.catalog import Catalog, Kind


class Hiding:
    """Whether a tool exists for whoever asks."""

    def __init__(self, catalog: Catalog, lifespan: Lifespan | None) -> None:
        self._catalog = catalog
        self._lifespan = lifespan

    @property
    def has_rules(self) -> bool:
        """Whether anything is asked about who sees what."""
        return self._catalog.rules is not None

    def denied_in(self, parts: Iterable[object], origin: Origin) -> AccessDenied | None:
        """Why a batch is denied to who sent it, before anything of it runs; None if it is not."""
        if not self._catalog.is_guarded:
            return None
        from mcpd.server.handlers.access import denied_in

        return denied_in(self._catalog, parts, origin)

    async def hides_tool(self, call: Call, connection: Any) -> bool:
        """Whether the tool of a call does not exist for whoever sent it."""
        if self._catalog.rules is None:
            return False
        from mcpd.server.registry.visibility import view  # few servers have rules

        exchange = Exchange(call, connection, None if self._lifespan is None else self._lifespan.value)
        seen = await view(self._catalog, exchange, call.method, call.params)
        return seen.tools.get(call.params.name, seen.active_extensions(exchange)) is None


_DIGEST_BYTES = 16


def shown(catalog: Catalog, kind: Kind) -> list[bytes]:
    """What the lists of that kind say, for a client with every extension."""
    active = frozenset(catalog.extensions)
    return [_item(entry, active) for listing in catalog.listings(kind) for entry in listing]


def _item(entry: Any, active: frozenset[str]) -> bytes:
    try:
        return encode(entry.listed(active))
    except Exception as error:  # a schema that cannot be made; whoever lists it is told
        return f"{entry.key}: {error}".encode()


class ListDigests:
    """The digest of each kind of list, made anew only after a change; `catalog` gives the one that is served now."""

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog
        self._made: dict[Kind, tuple[list[object], bytes]] = {}

    def __call__(self, kind: Kind) -> bytes:
        """The same in all processes that show the same to everybody.

        Empty if more than the entries decides what somebody sees: then nobody can know.
        """
        catalog = self._catalog()
        if catalog.rules is not None or catalog.is_guarded or catalog.is_decided_outside:
            return b""
        state = [catalog, frozenset(catalog.extensions), *(listing.generation for listing in catalog.listings(kind))]
        made = self._made.get(kind)
        if made is None or made[0] != state:
            made = self._made[kind] = state, _digest(shown(catalog, kind))
        return made[1]


def _digest(items: Iterable[bytes]) -> bytes:
    from hashlib import blake2b

    found = blake2b(digest_size=_DIGEST_BYTES)
    for item in items:
        found.update(len(item).to_bytes(8, "big"))
        found.update(item)
    return found.digest()
