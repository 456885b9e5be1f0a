"""What the lists of a server say, as bytes: to tell whether they are others than before, or than another process's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec.json import encode

if TYPE_CHECKING:
    from mcpd.registry.catalog import Catalog, Kind

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
