"""Several servers as one: names of tools and prompts get the server's name as prefix, URIs stay.

A call goes through the handlers of its own server, with the middleware, lifespan and limits of its author. Settings of
a whole connection cannot be shared and are refused by name.

Names of tools in texts get the prefix too, but only certain ones: names that are not words of a language, and any name
between backticks. Names of the tool's arguments and parts of paths or longer names stay.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Raw, structs
from msgspec.json import decode

from mcpd import __version__
from mcpd.errors import ConfigurationError
from mcpd.protocol.schemas import Schema, mapped
from mcpd.protocol.types.features import (
    CallToolParams,
    CallToolResult,
    GetPromptParams,
    GetPromptResult,
    Prompt,
    ReadResourceParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    Tool,
)
from mcpd.protocol.types.interaction import Completion
from mcpd.protocol.wire.headers import Mirror
from mcpd.server.context.exchange import Exchange, finished
from mcpd.server.extensions.builtin import BUILT_IN
from mcpd.server.registry.entries import (
    ActiveExtensions,
    Completing,
    Entries,
    Entry,
    Later,
    Problem,
    PromptEntry,
    ResourceEntry,
    TemplateEntry,
    ToolEntry,
    ToolMeta,
)
from mcpd.server.registry.resources import FixedResource
from .app import Server

_ODD = re.compile(r"[A-Za-z0-9](?:[_.-]+|(?<=[a-z])(?=[A-Z]))[A-Za-z0-9]")


class SiblingNames:
    """The tools of one server, and their names in the joined server."""

    def __init__(self, names: Iterable[str], named: Callable[[str], str]) -> None:
        self._names = sorted(names, key=len, reverse=True)
        self._named = named
        self._pattern: re.Pattern[str] | None = None

    def in_text(self, text: str, arguments: Collection[str] = ()) -> str:
        """Return the text with the new names of tools; names in `arguments` stay."""
        if not any(name in text for name in self._names):
            return text

        if self._pattern is None:
            odd = "|".join(re.escape(name) for name in self._names if _ODD.search(name)) or "(?!)"
            any_name = "|".join(map(re.escape, self._names))
            self._pattern = re.compile(
                rf"(?<![\w./:@#$%&?=+~\\<\[{{-])(?:(?P<alone>{odd})(?![\w/:@=~\\>\]}}-]|\.\w)"
                rf"|(?<=`)(?P<code>{any_name})(?=`|\())"
            )

        def here(found: re.Match[str]) -> str:
            return found[0] if found[0] in arguments else self._named(found[0])

        return self._pattern.sub(here, text)

    def in_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a tool's schema with new names in its descriptions; names of its arguments stay."""
        properties = schema.get("properties")
        arguments = frozenset(properties) if isinstance(properties, dict) else frozenset()

        def renamed(node: Any) -> Any:
            if not isinstance(node, dict):
                return node
            changed = mapped(node, renamed)
            if isinstance(description := changed.get("description"), str):
                changed["description"] = self.in_text(description, arguments)
            return changed

        return renamed(dict(schema))  # type: ignore[no-any-return]


E = TypeVar("E", bound=Entry)
A = TypeVar("A", TemplateEntry, PromptEntry)

_MOST_NAME = 128


def join(servers: Sequence[Server]) -> Server:
    """Return one server with everything that all of them offer, now and later.

    Raises ConfigurationError for a server that must be served alone, and for a URI that two of them have.
    """
    for server in servers:
        _check(server)
    names = _prefixes(servers)
    texts = [
        f"{name}: {_siblings(name, server).in_text(server.catalog.instructions)}"
        for name, server in names.items()
        if server.catalog.instructions
    ]
    joined = Server(
        "+".join(names),
        version=__version__,
        title=", ".join(server.identity.title or server.name for server in servers),
        instructions="\n\n".join(texts) or None,
        lifespan=partial(_lifespans, servers) if any(server.lifespan for server in servers) else None,
    )
    joined._state_keys = next((server._state_keys for server in servers if server._state_keys), joined._state_keys)
    for name, server in names.items():
        for id, extension in server.extensions.items():
            joined.need(id).joined(extension)
        # Subscribers of their resources are subscribers here.
        server._connections = joined._connections
        _refresh(joined, name, server)
        server.catalog.on_change = partial(_refresh, joined, name, server)
    return joined


def _check(server: Server) -> None:
    # Raise ConfigurationError for settings that affect more than the server's own calls.
    catalog = server.catalog
    others = {id for id in server.extensions if id not in {row.id for row in BUILT_IN}}
    reason = ""
    if catalog.rules is not None:
        reason = "it has visibility rules"
    elif server.authenticate is not None:
        reason = "it authenticates callers itself"
    elif server._routes:
        reason = "it has HTTP routes"
    elif others:
        reason = f"it has an extension of its own ({', '.join(sorted(others))})"
    elif server._roots_functions:
        reason = "it uses its client's roots"
    elif hasattr(server, "offered"):
        reason = "its lists are functions of another library"
    if reason:
        raise ConfigurationError(f"{server.name} cannot be served together with others: {reason}; serve it alone")


def _prefixes(servers: Sequence[Server]) -> dict[str, Server]:
    # Return the servers by prefix; a repeated name gets a number.
    by_prefix: dict[str, Server] = {}
    for server in servers:
        plain = "".join(c if c.isascii() and (c.isalnum() or c == "-") else " " for c in server.name)
        name = wanted = "-".join(plain.split()) or "server"
        number = 1
        while name in by_prefix:
            number += 1
            name = f"{wanted}-{number}"
        by_prefix[name] = server
    return by_prefix


@asynccontextmanager
async def _lifespans(servers: Sequence[Server], joined: Server) -> AsyncIterator[None]:
    # Open all lifespans for the duration of this one; the last one opened is closed first.
    opened: list[Server] = []
    try:
        for server in servers:
            opened.append(server)
            await server.open()
        yield None
    finally:
        for server in reversed(opened):
            await server.aclose()


def _refresh(joined: Server, prefix: str, part: Server, changed: object = None) -> None:
    # Replace all entries of one server, whichever list has changed. Raises ConfigurationError for a URI that another
    # server has.
    catalog, problems = part.catalog, list(part.catalog.source_problems.values())
    offers, siblings = catalog.offers, _siblings(prefix, part)
    tools = [_JoinedTool(prefix, part, tool, siblings) for tool in catalog.tools]
    long = [tool.key for tool in tools if len(tool.key) > _MOST_NAME]
    own_problems = [
        Problem(f"tool {key}", f"its name has more than {_MOST_NAME} characters, so it is left out") for key in long
    ]
    # Resources of extensions are the extension's own; it finds them again in the lists of the server.
    resources = [
        part.extensions[resource.requires].joined_resource(resource, partial(_named, prefix))
        if isinstance(resource, FixedResource) and resource.requires
        else _JoinedResource(part, resource)
        for resource in catalog.resources
    ]
    joined.replace(
        f"server {prefix}",
        Entries(
            tools=[tool for tool in tools if tool.key not in long] if "tools" in offers else None,
            resources=resources if "resources" in offers else None,
            templates=[_JoinedTemplate(part, template) for template in catalog.templates],
            prompts=[_JoinedPrompt(prefix, part, one, siblings) for one in catalog.prompts]
            if "prompts" in offers
            else None,
            problems=[problem for each in (*problems, own_problems) for problem in each],
        ),
    )


def _named(prefix: str, name: str) -> str:
    return f"{prefix}_{name}"


def _siblings(prefix: str, part: Server) -> SiblingNames:
    return SiblingNames((tool.key for tool in part.catalog.tools), partial(_named, prefix))


def _as_dict(schema: Schema | Raw) -> dict[str, Any]:
    return schema if isinstance(schema, dict) else decode(schema, type=dict[str, Any])


class _Joined(Generic[E]):
    # An entry of one of the servers. Equal to another one of the same entry.
    def __init__(self, part: Server, entry: E, prefix: str = "") -> None:
        self.key: str = _named(prefix, entry.key) if prefix else entry.key
        self._part = part
        self._entry = entry
        self.requires: str | None = entry.requires
        self.tags: frozenset[str] = entry.tags

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Joined) and self.key == other.key and self._entry == other._entry

    def __hash__(self) -> int:
        return hash(self.key)

    def _ask(self, method: str, exchange: Exchange, params: Any) -> Any:
        return self._part.handlers[method](exchange, params)


class _JoinedTool(_Joined[ToolEntry], ToolEntry):
    def __init__(self, prefix: str, part: Server, entry: ToolEntry, siblings: SiblingNames) -> None:
        super().__init__(part, entry, prefix)
        self._siblings = siblings
        self._listed: tuple[Tool, Tool] | None = None

    @property
    def extension_meta(self) -> Mapping[str, ToolMeta]:
        return self._entry.extension_meta

    @property
    def mirrors(self) -> Sequence[Mirror]:
        return self._entry.mirrors

    def listed(self, active: ActiveExtensions) -> Tool:
        item: Tool = self._entry.listed(active)
        if self._listed is None or self._listed[0] is not item:
            schema = self._siblings.in_schema(_as_dict(item.input_schema))
            arguments = schema.get("properties", ())
            description = item.description and self._siblings.in_text(item.description, arguments)
            here = structs.replace(item, name=self.key, description=description, input_schema=schema)
            self._listed = item, here
        return self._listed[1]

    async def run(self, arguments: Raw, exchange: Exchange) -> CallToolResult:
        params = CallToolParams(name=self._entry.key, arguments=arguments)
        return await finished(self._ask("tools/call", exchange, params))  # type: ignore[no-any-return]


class _JoinedResource(_Joined[ResourceEntry], ResourceEntry):
    @property
    def extension_data(self) -> Mapping[str, Any]:
        return self._entry.extension_data

    def listed(self, active: ActiveExtensions) -> Resource:
        return self._entry.listed(active)

    def run(self, uri: str, exchange: Exchange) -> Later[ReadResourceResult]:
        return self._ask("resources/read", exchange, ReadResourceParams(uri=uri))  # type: ignore[no-any-return]


class _JoinedCompleting(_Joined[A], Completing):
    @property
    def arguments(self) -> Collection[str]:
        return self._entry.arguments

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        completer = self._part.catalog.completers.get((self._entry.key, argument))
        if completer is not None:
            return await completer.complete(value, others, exchange)
        return await self._entry.complete(argument, value, others, exchange)


class _JoinedTemplate(_JoinedCompleting[TemplateEntry], TemplateEntry):
    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        return self._entry.listed(active)

    def match(self, uri: str) -> dict[str, str] | None:
        return self._entry.match(uri)

    def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> Later[ReadResourceResult]:
        return self._ask("resources/read", exchange, ReadResourceParams(uri=uri))  # type: ignore[no-any-return]


class _JoinedPrompt(_JoinedCompleting[PromptEntry], PromptEntry):
    def __init__(self, prefix: str, part: Server, entry: PromptEntry, siblings: SiblingNames) -> None:
        super().__init__(part, entry, prefix)
        self._siblings = siblings

    def listed(self, active: ActiveExtensions) -> Prompt:
        item: Prompt = self._entry.listed(active)
        description = item.description and self._siblings.in_text(item.description, self.arguments)
        return structs.replace(item, name=self.key, description=description)

    def run(self, arguments: dict[str, str | None], exchange: Exchange) -> Later[GetPromptResult]:
        params = GetPromptParams(name=self._entry.key, arguments=arguments)
        return self._ask("prompts/get", exchange, params)  # type: ignore[no-any-return]
