"""What a server hides from some of those who ask, for transports that look at calls before handlers do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mcpd.context.exchange import Exchange
from mcpd.errors import AccessDenied
from mcpd.protocol.principal import Origin
from mcpd.protocol.session import Call
from mcpd.registry.catalog import Catalog

if TYPE_CHECKING:
    from mcpd.server.lifespan import Lifespan


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
        from mcpd.handlers.access import denied_in

        return denied_in(self._catalog, parts, origin)

    async def hides_tool(self, call: Call, connection: Any) -> bool:
        """Whether the tool of a call does not exist for whoever sent it."""
        if self._catalog.rules is None:
            return False
        from mcpd.registry.visibility import view  # few servers have rules

        exchange = Exchange(call, connection, None if self._lifespan is None else self._lifespan.value)
        seen = await view(self._catalog, exchange, call.method, call.params)
        return seen.tools.get(call.params.name, seen.active_extensions(exchange)) is None
