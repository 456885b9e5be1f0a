"""Skills as an extension of a server: what it declares. How its methods answer is in `methods`.

Loaded with every server, so all else is imported when there is a skill. Clients need not offer the extension: to one
that knows it, the server's declaration is enough (SEP-2640, Capability Negotiation).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.types.base import Result
from mcpd.server.context.exchange import Exchange
from mcpd.server.extensions.base import Extension, ExtensionHost, Method
from mcpd.server.extensions.skills.constants import FILE, SCHEME, SKILLS


class SkillsExtension(Extension):
    """The skills of a server. Nothing is announced before there is one, or a place for them."""

    capabilities = ("resources",)

    def __init__(self) -> None:
        super().__init__(SKILLS, settings={"directoryRead": True})
        self._is_offered = False

    def offer(self) -> None:
        """There are skills, or there may be: from now on the extension is announced."""
        if self._is_offered:
            return
        assert self.server is not None
        self._is_offered = True
        from mcpd.server.extensions.skills.methods import METHODS

        self.requests.update(METHODS)
        self.server.announce(self)

    # -- what a server asks ------------------------------------------------------------------

    def bind(self, server: ExtensionHost) -> None:
        """The extension was added to a server."""
        self.server = server

    def admits(self, client: ClientIdentity) -> bool:
        """Everybody."""
        return True

    def resource_changed(self, uri: str, *, is_removed: bool) -> None:
        """With the first skill there are skills here."""
        if self._is_offered or is_removed or not (uri.startswith(SCHEME) and uri.endswith(f"/{FILE}")):
            return
        assert self.server is not None
        entry = self.server.catalog.resources.find(uri)
        if entry is not None and SKILLS in entry.extension_data:
            self.offer()

    def joined(self, other: Extension) -> None:
        """With skills of another server there are skills here."""
        if isinstance(other, SkillsExtension) and other._is_offered:
            self.offer()

    def handler(self, name: str, method: Method) -> Callable[[Exchange, Any], Coroutine[Any, Any, Result]]:
        """What serves a request: these see the catalog as the request does, and are given it."""
        assert self.server is not None
        catalog = self.server.catalog
        run: Any = method.run

        async def handle(exchange: Exchange, params: Any) -> Result:
            from mcpd.server.extensions.skills.methods import seen_by  # loaded by `offer`

            found: Result = await run(await seen_by(catalog, exchange), exchange, params)
            return found

        return handle
