"""The mounts of one server: their entries in its catalog, and their start and end."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mcpd.client.names import Prefix
from mcpd.errors import ConfigurationError, RegistrationError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.methods import METHODS
from mcpd.protocol.printable import printable
from mcpd.server.context.exchange import Exchange, Handler, finished
from mcpd.server.extensions.base import Extension, ExtensionHost
from mcpd.server.registry.entries import Entries, Problem
from .entries import entries_of
from .settings import MountSettings, read_settings
from .upstream import Upstream

if TYPE_CHECKING:
    from mcpd.client.target import Target
    from mcpd.server import Server

log = logging.getLogger("mcpd.mounts")

_ID = "mcpd/mounts"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


def mount(server: Server, name: str, target: Target, **settings: Any) -> Upstream:
    """Mount a server on another one; see `Server.mount`. Raises ConfigurationError."""
    return mounts_of(server).add(name, target, read_settings(name, settings))


def serve_alone(name: str, target: Target, settings: MountSettings) -> Server:
    """Return a server that is what a single mounted server is: its names and results stay as they are."""
    from mcpd.server import Server
    from .passing import pass_on

    server = Server(name)
    pass_on(server, mounts_of(server).add(name, target, replace(settings, prefix="")))
    return server


def mounts_of(server: Server) -> Mounts:
    """Return the mounts of a server, which may have none yet."""
    found = server.extensions.get(_ID)
    if found is None:
        found = Mounts(server)
        server.add_extension(found)
    assert isinstance(found, Mounts)
    return found


class Mounts(Extension):
    """All mounts of one server. Clients do not see it: it is an extension to be started and ended with the server."""

    def __init__(self, server: Server) -> None:
        super().__init__(_ID)
        self._host = server
        self.by_name: dict[str, Upstream] = {}

    def bind(self, server: ExtensionHost) -> None:
        """Let lists wait for mounted servers whose lists are not known yet."""
        self.server = server
        server.handlers.wrap(self._wrapped)

    def admits(self, client: ClientIdentity) -> bool:
        """No client has it."""
        return False

    def add(self, name: str, target: Target, settings: MountSettings) -> Upstream:
        """Mount a server. Raises ConfigurationError for a name that is invalid or taken."""
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"mount {name!r}: the name must begin with a-z and may contain a-z, 0-9 and -, at most 31 characters"
            )
        if name in self.by_name:
            raise ConfigurationError(f"mount {name!r} exists already: choose another name")
        prefix = name if settings.prefix is None else settings.prefix
        upstream = Upstream(name, target, settings, Prefix(prefix, is_used=bool(prefix)), self._lists_changed)
        if settings.enabled:
            self.by_name[name] = upstream
            for kind in ("tools", "resources", "prompts", "completions"):
                self._host.catalog.offer(kind)
        return upstream

    def _lists_changed(self, upstream: Upstream) -> None:
        catalog, owner = self._host.catalog, f"mount {upstream.name}"
        found, problems = entries_of(upstream), []

        def free(listing: Any, entries: Any) -> list[Any]:
            # Leave out what somebody else has: own entries, and those of earlier mounts.
            kept = []
            for entry in entries:
                try:
                    listing.check(owner, [entry])
                    kept.append(entry)
                except RegistrationError as error:
                    log.warning("mount %s: %s", printable(upstream.name), printable(error))
                    problems.append(Problem(owner, str(error)))
            return kept

        entries = Entries(
            tools=free(catalog.tools, found.tools),
            resources=free(catalog.resources, found.resources),
            templates=free(catalog.templates, found.templates),
            prompts=free(catalog.prompts, found.prompts),
            problems=problems,
        )
        lists = (catalog.tools, catalog.resources, catalog.templates, catalog.prompts)
        if owner in catalog.source_problems or any(each.has_pages for each in lists):
            self._host.replace(owner, entries)
        else:
            catalog.replace(owner, entries, is_known=False)

    def _wrapped(self, method: str, handler: Handler) -> Handler:
        if method not in METHODS or not METHODS[method].is_list:
            return handler

        async def handle(exchange: Exchange, params: Any) -> Any:
            await asyncio.gather(*(each.ready(exchange) for each in self.by_name.values()))
            return await finished(handler(exchange, params))

        return handle

    async def start(self) -> None:
        """Start the mounted servers that are `eager`."""
        for upstream in self.by_name.values():
            if upstream.settings.eager:
                await upstream.ready()

    async def list_once(self) -> None:
        """Start the mounted servers, fetch their lists, and end them."""
        try:
            await asyncio.gather(*(each.ready() for each in self.by_name.values()))
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """End all mounted servers, at the same time."""
        await asyncio.gather(*(upstream.aclose() for upstream in self.by_name.values()))
