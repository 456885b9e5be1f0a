"""A new connection to a mounted server, and its lists. Loaded when the first one is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.json import Decoder

from mcpd.client.callbacks import Callbacks, ListKind
from mcpd.client.limits import ClientLimits
from mcpd.client.link import ServerLink
from mcpd.client.results import read_list
from mcpd.client.target import Target
from mcpd.protocol.types.base import ClientCapabilities
from mcpd.protocol.versions.table import MODERN
from .settings import HOPS, MountSettings
from .shapes import declared_for
from .trust import clean_entry, http_options, with_environment

if TYPE_CHECKING:
    from mcpd.client.connection import ClientConnection
    from mcpd.server.context.exchange import Exchange

_LIMITS = ClientLimits(questions=1000, list_entries=10_000, list_bytes=4 * 1024 * 1024, list_pages=1000)

_members = Decoder(dict[str, Raw]).decode


class _Link(ServerLink):
    # A client that declares what the mounted server may know.
    def __init__(
        self, target: Target, callbacks: Callbacks, declared: ClientCapabilities, *, skips_probe: bool, **options: Any
    ) -> None:
        self._declared_here = declared
        super().__init__(target, callbacks, reconnect=False, cache=False, check_results=False, **options)
        self._is_old = skips_probe

    def _declared(self, callbacks: Callbacks, extensions: Mapping[str, Any] | None) -> ClientCapabilities:
        return self._declared_here


def new_link(
    name: str,
    target: Target,
    settings: MountSettings,
    exchange: Exchange | None,
    on_change: Callable[[ListKind], None],
    *,
    skips_probe: bool,
) -> ServerLink:
    """Return a client for a mounted server, which is not open yet. `exchange` is a request of its only client."""
    return _Link(
        with_environment(target, settings),
        Callbacks(list_changed=on_change),
        declared_for(exchange, settings),
        skips_probe=skips_probe,
        version=MODERN[-1] if settings.protocol == "modern" else None,
        timeout=settings.start_timeout,
        limits=_LIMITS,
        http=http_options(name, settings),
    )


async def read_all(
    connection: ClientConnection, method: str, member: str, kind: type, settings: MountSettings, hops: int
) -> tuple[dict[str, Raw], list[Raw]]:
    """Return the members of the first page of a list, and all entries. Raises the errors of a request.

    `hops` counts the mounts that the request passes.
    """
    first: dict[str, Raw] = {}
    entries: list[Raw] = []

    async def ask(params: Any) -> Raw:
        params = {**(params or {}), "_meta": {HOPS: hops}}
        page = await connection.request(method, params, timeout=settings.start_timeout)
        if not first:
            first.update(_members(page))
        return page

    await read_list(ask, method, member, kind, _LIMITS, connection.session.faults, entries)
    return first, [clean_entry(entry, settings.csp) for entry in entries]
