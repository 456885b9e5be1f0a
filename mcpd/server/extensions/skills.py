"""Skills as an extension of a server: its declaration. Its methods are in `skill_methods`.

It is loaded with every server, so other modules are imported with the first skill. Clients need not offer the
extension: the server's declaration is enough (SEP-2640, Capability Negotiation).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.types.base import Result
from mcpd.server.context.exchange import Exchange
from mcpd.server.extensions.base import Extension, ExtensionHost, Method

SKILLS = "io.modelcontextprotocol/skills"
"""The extension's id."""

SCHEME = "skill://"
"""The URI scheme of skills."""

FILE = "SKILL.md"
"""The file that makes a folder a skill."""

DIRECTORY = "inode/directory"
"""The MIME type of a folder."""

MOST_FILES = 512
"""The number of files of a skill that every host must accept."""

MOST_TOTAL_BYTES = 16 * 1024 * 1024
"""The total size of the files of a skill that every host must accept."""


class SkillsExtension(Extension):
    """The skills of a server. It is announced with the first skill, or the first source of skills."""

    capabilities = ("resources",)

    def __init__(self) -> None:
        super().__init__(SKILLS, settings={"directoryRead": True})
        self._is_offered = False

    def offer(self) -> None:
        """Announce the extension: there are skills, or there may be some."""
        if self._is_offered:
            return
        assert self.server is not None
        self._is_offered = True
        from mcpd.server.extensions.skill_methods import METHODS

        self.requests.update(METHODS)
        self.server.announce(self)

    # -- for the server ----------------------------------------------------------------------

    def bind(self, server: ExtensionHost) -> None:
        """Add the extension to a server, without announcing it."""
        self.server = server

    def admits(self, client: ClientIdentity) -> bool:
        """Return True: every client may use skills."""
        return True

    def resource_changed(self, uri: str, *, is_removed: bool) -> None:
        """Announce the extension with the first skill."""
        if self._is_offered or is_removed or not (uri.startswith(SCHEME) and uri.endswith(f"/{FILE}")):
            return
        assert self.server is not None
        entry = self.server.catalog.resources.find(uri)
        if entry is not None and SKILLS in entry.extension_data:
            self.offer()

    def joined(self, other: Extension) -> None:
        """Announce the extension if the other server has skills."""
        if isinstance(other, SkillsExtension) and other._is_offered:
            self.offer()

    def handler(self, name: str, method: Method) -> Callable[[Exchange, Any], Coroutine[Any, Any, Result]]:
        """Return the handler of a method, which receives the catalog as the client may see it."""
        assert self.server is not None
        catalog = self.server.catalog
        run: Any = method.run

        async def handle(exchange: Exchange, params: Any) -> Result:
            from mcpd.server.extensions.skill_methods import visible_catalog  # loaded by `offer`

            found: Result = await run(await visible_catalog(catalog, exchange), exchange, params)
            return found

        return handle
