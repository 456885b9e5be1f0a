"""The parts of a server that the HTTP application uses, with hidden tools and digests of lists.

A digest shows whether a list has changed, or differs from another process's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct
from msgspec.json import encode

from mcpd.errors import AccessDenied
from mcpd.protocol.principal import Origin
from mcpd.protocol.session import Call
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.catalog import Catalog

if TYPE_CHECKING:
    from mcpd.protocol.channel import Channel, Ending
    from mcpd.protocol.observer import Observer
    from mcpd.protocol.session import Opening
    from mcpd.protocol.state_keys import StateKeys
    from mcpd.protocol.types.base import Implementation
    from mcpd.protocol.wire.headers import Mirror
    from mcpd.server.backplane.base import Backplane
    from mcpd.server.dispatcher.announcer import Announcer
    from mcpd.server.dispatcher.connection import ServerConnection
    from mcpd.server.registry.catalog import Kind
    from mcpd.transports.routes import Route
    from .lifespan import Lifespan


class Hiding(Struct, eq=False):
    """Answers whether a tool exists for a caller, for transports that check calls before handlers do."""

    _catalog: Catalog
    _lifespan: Lifespan | None

    @property
    def has_rules(self) -> bool:
        """Whether there are visibility rules."""
        return self._catalog.rules is not None

    def denied_in(self, parts: Iterable[object], origin: Origin) -> AccessDenied | None:
        """Return why a batch is denied to its sender before anything of it runs; None if it is not."""
        if not self._catalog.is_guarded:
            return None
        from mcpd.server.handlers.access import denied_in

        return denied_in(self._catalog, parts, origin)

    async def hides_tool(self, call: Call, connection: Any) -> bool:
        """Return whether the tool of a call does not exist for its sender."""
        if self._catalog.rules is None:
            return False
        from mcpd.server.registry.visibility import view  # few servers have rules

        exchange = Exchange(call, connection, None if self._lifespan is None else self._lifespan.value)
        seen = await view(self._catalog, exchange, call.method, call.params)
        return seen.tools.get(call.params.name, seen.active_extensions(exchange)) is None


_DIGEST_BYTES = 16


def encoded_lists(catalog: Catalog, kind: Kind) -> list[bytes]:
    """Return the lists of a kind as encoded items, for a client with every extension."""
    active = frozenset(catalog.extensions)
    return [_item(entry, active) for listing in catalog.listings(kind) for entry in listing]


def _item(entry: Any, active: frozenset[str]) -> bytes:
    try:
        return encode(entry.listed(active))
    except Exception as error:  # a schema that cannot be made; listing it reports the error
        return f"{entry.key}: {error}".encode()


class ListDigests(Struct, eq=False):
    """The digest of each kind of list, computed again only after a change. `catalog` returns the current catalog."""

    _catalog: Callable[[], Catalog]
    _made: dict[Kind, tuple[list[object], bytes]] = {}

    def __call__(self, kind: Kind) -> bytes:
        """Return a digest that is the same in all processes that show everybody the same.

        Empty if the lists depend on more than the entries, because the digest could not detect changes then.
        """
        catalog = self._catalog()
        if catalog.rules is not None or catalog.is_guarded or catalog.has_external_rules:
            return b""
        state = [catalog, frozenset(catalog.extensions), *(listing.generation for listing in catalog.listings(kind))]
        made = self._made.get(kind)
        if made is None or made[0] != state:
            made = self._made[kind] = state, _digest(encoded_lists(catalog, kind))
        return made[1]


def _digest(items: Iterable[bytes]) -> bytes:
    from hashlib import blake2b

    digest = blake2b(digest_size=_DIGEST_BYTES)
    for item in items:
        digest.update(len(item).to_bytes(8, "big"))
        digest.update(item)
    return digest.digest()


class Served(Protocol):
    """An extension of a server, as whoever serves it needs it; see `extensions.base.Extension`."""

    parts: Collection[str]

    @property
    def work(self) -> Ending | None:
        """The work that goes on without a call."""

    def routes(self, endpoint: str, public_url: str) -> Sequence[Route]:
        """Return the routes beside the endpoint's path."""

    def share(self, backplane: Backplane) -> None:
        """Several processes serve together."""

    async def start(self) -> None:
        """Serving begins."""

    async def aclose(self) -> None:
        """Serving has ended."""


class Backend(NamedTuple):
    """The server behind an application.

    `connect` creates the connection of a channel. `mirrors` returns the arguments of a tool that headers repeat.
    `routes` may grow while the application runs.
    """

    connect: Callable[[Channel, Opening], ServerConnection]
    mirrors: Callable[[str], Sequence[Mirror]]
    lifespan: Lifespan | None
    observers: Sequence[Observer]
    routes: Sequence[Route]
    identity: Implementation
    hiding: Hiding
    keys: StateKeys
    announcer: Announcer
    list_digest: ListDigests
    extensions: Callable[[], Iterable[Served]] = tuple
