"""The lists of several servers as one, and whose a name or URI is.

A server that cannot be asked is left out, and logged. Where all names have their server's before them nothing has to be
asked to know whose they are; else it is in the list that was asked for last, or in a new one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from random import uniform
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mcpd.client.client import Client
from mcpd.errors import ConfigurationError, ConnectionLost, McpdError, RegistrationError, RemoteError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import LogLevel
from mcpd.protocol.types.content import BlobResourceContents, EmbeddedResource, ResourceLink, TextResourceContents
from mcpd.protocol.types.prompts import Prompt
from mcpd.protocol.types.resources import Resource, ResourceTemplate
from mcpd.protocol.types.tools import Tool

T = TypeVar("T")
_KEPT_SCHEMES = ("ui", "skill")
_OWN_SCHEMES = ("http", "https")
_LONGEST = 31


def server_names(names: Iterable[str]) -> dict[str, str]:
    """The name of each server as prefixes have it: a-z, 0-9 and `-`, so that what follows the first `_` is not of it.

    Raises ConfigurationError for two that are one then.
    """
    found: dict[str, str] = {}
    for name in names:
        mended = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST].strip("-")
        if not mended:
            raise ConfigurationError(f"{name!r} is no name for a server: use letters and digits")
        if not mended[0].isalpha():
            mended = f"s{mended}"[:_LONGEST]
        for other, taken in found.items():
            if taken == mended:
                raise ConfigurationError(
                    f"the servers {other!r} and {name!r} would both be called {mended}: rename one"
                )
        found[name] = mended
    return found


class Prefix:
    """What the names and URIs of one server begin with; nothing, if `is_used` is not."""

    def __init__(self, server: str, *, is_used: bool) -> None:
        self._server = server
        self._is_used = is_used

    def name(self, name: str) -> str:
        """A tool's or prompt's name as the group has it."""
        return f"{self._server}_{name}" if self._is_used else name

    def own_name(self, name: str) -> str | None:
        """The name as the server has it; None if it is none of this server's."""
        return _after(f"{self._server}_", name) if self._is_used else name

    def uri(self, uri: str) -> str:
        """A URI, or a template, as the group has it."""
        scheme, colon, rest = uri.partition(":")
        if not self._is_used or scheme.lower() in _OWN_SCHEMES:
            return uri
        if colon and scheme in _KEPT_SCHEMES and rest.startswith("//"):
            return f"{scheme}://{self._server}/{rest[2:]}"
        return f"{self._server}+{uri}"

    def own_uri(self, uri: str) -> str | None:
        """The URI as the server has it; None if its name is not in it."""
        if not self._is_used:
            return None
        for scheme in _KEPT_SCHEMES:
            if (rest := _after(f"{scheme}://{self._server}/", uri)) is not None:
                return f"{scheme}://{rest}"
        return _after(f"{self._server}+", uri)

    def tool(self, tool: Tool) -> Tool:
        """A tool as the group lists it."""
        return replace(tool, name=self.name(tool.name), meta=self._meta(tool.meta))

    def content(self, block: T) -> T:
        """Content in which each URI is the group's."""
        if isinstance(block, ResourceLink | TextResourceContents | BlobResourceContents):
            return replace(block, uri=self.uri(block.uri))
        if isinstance(block, EmbeddedResource):
            return replace(block, resource=self.content(block.resource))
        if isinstance(block, dict) and isinstance(uri := block.get("uri"), str):
            return {**block, "uri": self.uri(uri)}  # type: ignore[return-value]
        return block

    def _meta(self, meta: dict[str, Any] | None) -> dict[str, Any] | None:
        """The same with the group's URI of the page that shows the tool's results."""
        if not meta or not self._is_used:
            return meta
        found = dict(meta)
        shown, flat = found.get("ui"), found.get("ui/resourceUri")
        if isinstance(shown, Mapping) and isinstance(uri := shown.get("resourceUri"), str):
            found["ui"] = {**shown, "resourceUri": self.uri(uri)}
        if isinstance(flat, str):
            found["ui/resourceUri"] = self.uri(flat)
        return found


def _after(prefix: str, text: str) -> str | None:
    return text[len(prefix) :] if text.startswith(prefix) else None


log = logging.getLogger("mcpd.client")

FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 60.0
_LIVED_SECONDS = 10.0
"""A server that was there for so long is tried again as soon as one that is tried for the first time."""


class Member:
    """A server called `name`: `make` makes a client of it, `told` hears of each time it comes or goes."""

    def __init__(
        self, name: str, prefix: Prefix, make: Callable[[], Client], told: Callable[[Member, McpdError | None], None]
    ) -> None:
        self.name = name
        self.prefix = prefix
        self.client: Client | None = None
        """The client while the server is there."""
        self.error: McpdError | None = None
        """Why it is not there; None while it is, and before it was tried."""
        self.tried = asyncio.Event()
        """It has come, or failed to, at least once."""

        self._make = make
        self._told = told
        self._current: Client | None = None
        self._lost = asyncio.Event()
        self._uris: set[str] = set()
        self._level: LogLevel | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to open it."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def aclose(self) -> None:
        """Close it, and try no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def require(self) -> Client:
        """The client. Raises ConnectionLost that says why there is none."""
        if self.client is None:
            why = "it has not come yet" if self.error is None else str(self.error)
            raise ConnectionLost(f"the server {self.name} is not there, and is tried again: {why}")
        return self.client

    def lose(self, client: Client, error: McpdError) -> None:
        """The connection of this client has ended."""
        if client is self._current:
            self._current = self.client = None
            self.error = error
            self._lost.set()

    async def watch(self, uri: str) -> None:
        """Subscribe to a resource, also when the server comes again."""
        await self.require().subscribe(uri)
        self._uris.add(uri)

    async def unwatch(self, uri: str) -> None:
        """Be subscribed to it no longer."""
        self._uris.discard(uri)
        if self.client is not None:
            await self.client.unsubscribe(uri)

    async def set_log_level(self, level: LogLevel) -> None:
        """Hear of log messages of this level and above, also when the server comes again."""
        self._level = level
        if self.client is not None and self.client.server_capabilities.logging is not None:
            await self.client.set_log_level(level)

    # -- its life -----------------------------------------------------------------------------

    async def _keep(self) -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            self._lost.clear()
            client = self._current = self._make()
            client.on_lost = lambda error, client=client: self.lose(client, error)
            began = loop.time()
            try:
                await self._open(client)
                began = loop.time()
                await self._lost.wait()
            except (McpdError, OSError) as error:
                self.error = error if isinstance(error, McpdError) else ConnectionLost(str(error))
            except Exception as error:  # whatever it is: the server is tried again, and nobody waits for it in vain
                log.exception("the server %s cannot be opened", printable(self.name))
                self.error = ConnectionLost(f"{type(error).__name__}: {error}")
            finally:
                self._current = self.client = None
                await self._close(client)

            self._report()
            failures = 1 if loop.time() - began > _LIVED_SECONDS else min(failures + 1, 20)
            most = min(FIRST_RETRY_SECONDS * 2 ** (failures - 1), LONGEST_RETRY_SECONDS)
            await asyncio.sleep(uniform(most / 2, most))  # not all at once where many were lost at once

    async def _open(self, client: Client) -> None:
        await client.open()
        try:
            if self._level is not None and client.server_capabilities.logging is not None:
                await client.set_log_level(self._level)
            for uri in sorted(self._uris):
                await client.subscribe(uri)
        except RemoteError as error:
            log.warning("the server %s is there again, and takes no subscription: %s", self.name, printable(error))
        if not self._lost.is_set():
            self.client, self.error = client, None
            log.debug("the server %s is there", self.name)
            self._report()

    async def _close(self, client: Client) -> None:
        client.on_lost = None
        try:
            await client.aclose()
        except Exception as error:
            log.debug("the server %s cannot be closed: %s", self.name, printable(error))

    def _report(self) -> None:
        self.tried.set()
        self._told(self, self.error)


Kind: TypeAlias = Literal["tool", "resource", "template", "prompt"]


class Collision(Struct, frozen=True):
    """Two servers have something of this name, or URI: `server` is asked for it, `hidden` is not."""

    kind: Kind
    name: str
    server: str
    hidden: str


class GroupLists:
    """The lists of these members, which are in the order in which they count."""

    def __init__(self, members: Mapping[str, Member], *, has_prefixes: bool) -> None:
        self._members = members
        self._has_prefixes = has_prefixes
        self._owners: dict[Kind, dict[str, tuple[Member, str]]] = {}
        self._collisions: dict[Kind, list[Collision]] = {}
        self._logged: set[Collision] = set()

    @property
    def collisions(self) -> list[Collision]:
        """What of the last lists cannot be reached."""
        return [one for found in self._collisions.values() for one in found]

    # -- lists --------------------------------------------------------------------------------

    async def tools(self, *, fresh: bool = False) -> list[Tool]:
        """All tools, by the names that the group has for them."""
        found = await self._all("tools", lambda client: client.list_tools(fresh=fresh))
        every = [(member, tool.name, member.prefix.tool(tool)) for member, tool in found]
        return self._merged("tool", every, lambda tool: tool.name)

    async def prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """All prompts, likewise."""
        found = await self._all("prompts", lambda client: client.list_prompts(fresh=fresh))
        every = [(member, one.name, replace(one, name=member.prefix.name(one.name))) for member, one in found]
        return self._merged("prompt", every, lambda prompt: prompt.name)

    async def resources(self, *, fresh: bool = False) -> list[Resource]:
        """All resources, by the URIs that the group has for them."""
        found = await self._all("resources", lambda client: client.list_resources(fresh=fresh))
        every = [(member, one.uri, replace(one, uri=member.prefix.uri(one.uri))) for member, one in found]
        return self._merged("resource", every, lambda resource: resource.uri)

    async def templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """All templates, likewise."""
        found = await self._all("resource templates", lambda client: client.list_resource_templates(fresh=fresh))
        every = [
            (member, one.uri_template, replace(one, uri_template=member.prefix.uri(one.uri_template)))
            for member, one in found
        ]
        return self._merged("template", every, lambda template: template.uri_template)

    async def _all(self, what: str, ask: Callable[[Client], Coroutine[Any, Any, list[T]]]) -> list[tuple[Member, T]]:
        """What each server that is there answers, side by side, in the order of the servers."""

        async def entries(member: Member, client: Client) -> list[tuple[Member, T]]:
            try:
                return [(member, entry) for entry in await ask(client)]
            except McpdError as error:
                said = f"the {what} of the server {member.name} are left out: {error}"
                log.warning("%s", printable(said))
                return []

        there = [(member, client) for member in self._members.values() if (client := member.client) is not None]
        found = await asyncio.gather(*(entries(member, client) for member, client in there))
        return [entry for list_of_one in found for entry in list_of_one]

    def _merged(self, kind: Kind, found: list[tuple[Member, str, T]], name_of: Callable[[T], str]) -> list[T]:
        """One list; of several that are called alike the first counts."""
        owners: dict[str, tuple[Member, str]] = {}
        merged: list[T] = []
        collisions: list[Collision] = []
        for member, own, entry in found:
            name = name_of(entry)
            first = owners.setdefault(name, (member, own))[0]
            if first is member:
                merged.append(entry)
                continue
            collision = Collision(kind, name, first.name, member.name)
            collisions.append(collision)
            if collision not in self._logged:
                self._logged.add(collision)
                text = f"{kind} {name} of the server {member.name} is hidden by that of {first.name}"
                log.warning("%s", printable(text))

        self._owners[kind], self._collisions[kind] = owners, collisions
        return merged

    # -- whose it is --------------------------------------------------------------------------

    async def owner_of_tool(self, name: str) -> tuple[Member, str]:
        """The server that has a tool of this name, and what it calls it. Raises ConfigurationError if none has."""
        return self._by_prefix(name) or await self._listed("tool", name, self.tools) or self._missing("tool", name)

    async def owner_of_prompt(self, name: str) -> tuple[Member, str]:
        """The same of a prompt."""
        found = self._by_prefix(name) or await self._listed("prompt", name, self.prompts)
        return found or self._missing("prompt", name)

    async def owner_of_uri(self, uri: str) -> tuple[Member, str]:
        """The same of a resource or template: by its name in the URI, else by who lists it, or what fits it."""
        for member in self._members.values():
            if (own := member.prefix.own_uri(uri)) is not None:
                return member, own
        found = await self._listed("resource", uri, self.resources) or await self._listed(
            "template", uri, self.templates
        )
        return found or self._fitting(uri) or self._missing("resource", uri)

    def _by_prefix(self, name: str) -> tuple[Member, str] | None:
        if self._has_prefixes:
            for member in self._members.values():
                if (own := member.prefix.own_name(name)) is not None:
                    return member, own
        return None

    async def _listed(
        self, kind: Kind, name: str, ask: Callable[[], Coroutine[Any, Any, object]]
    ) -> tuple[Member, str] | None:
        if self._has_prefixes and kind in ("tool", "prompt"):
            return None
        if name not in self._owners.get(kind, {}):
            await ask()
        return self._owners[kind].get(name)

    def _fitting(self, uri: str) -> tuple[Member, str] | None:
        """The server one of whose templates this URI fits, as it has it."""
        from mcpd.server.registry.uri_template import UriTemplate

        for member, template in self._owners.get("template", {}).values():
            try:
                if UriTemplate(template).match(uri) is not None:
                    return member, uri
            except RegistrationError:
                continue  # one that is no template
        return None

    def _missing(self, kind: str, name: str) -> tuple[Member, str]:
        gone = [member.name for member in self._members.values() if member.client is None]
        if not self._has_prefixes and gone:
            raise ConnectionLost(f"no server that is there has a {kind} {name!r}; not there: {', '.join(gone)}")
        names = ", ".join(self._members)
        begins = f"names begin with that of their server and {'+' if kind == 'resource' else '_'}: "
        how = begins if self._has_prefixes else ""
        raise ConfigurationError(f"no server of this group has a {kind} {name!r}: {how}there are {names}")
