"""The lists of several servers as one, and whose a name or URI is.

A server that cannot be asked is left out, and logged. Where all names have their server's before them nothing has to be
asked to know whose they are; else it is in the list that was asked for last, or in a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mcpd.client.client import Client
from mcpd.client.group_member import Member
from mcpd.errors import ConfigurationError, ConnectionLost, McpdError, RegistrationError
from mcpd.protocol.printable import printable
from mcpd.types.prompts import Prompt
from mcpd.types.resources import Resource, ResourceTemplate
from mcpd.types.tools import Tool

log = logging.getLogger("mcpd.client")

T = TypeVar("T")
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
        from mcpd.registry.uri_template import UriTemplate

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
