"""The tools, resources, templates and prompts of a mounted server as entries of a catalog."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct, structs
from msgspec.json import Decoder, decode, encode

from mcpd.errors import InvalidParams, McpdError, RegistrationError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import NO_JSON, RawResult
from mcpd.protocol.types.features import Prompt, Resource, ResourceTemplate, Tool
from mcpd.protocol.types.interaction import CompleteResult, Completion
from mcpd.protocol.wire.headers import mirrors
from mcpd.server.extensions.skills import SKILLS, Skill
from mcpd.server.extensions.tasks.settings import TASKS, TaskTool
from mcpd.server.extensions.ui.constants import SCHEME, UI
from mcpd.server.registry.entries import (
    ActiveExtensions,
    Completing,
    Entries,
    PromptEntry,
    ResourceEntry,
    TemplateEntry,
    ToolEntry,
)
from mcpd.server.registry.tools import failed
from mcpd.server.registry.uri_template import UriTemplate
from .carried import without_apps
from .manifest import Pins
from .upstream import ALL_LISTS, SKILLS_LIST, Unavailable, Upstream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpd.protocol.wire.headers import Mirror
    from mcpd.server.context.exchange import Exchange
    from mcpd.server.registry.entries import ToolMeta

log = logging.getLogger("mcpd.mounts")

_LONGEST = 128
_read_members = Decoder(dict[str, Raw]).decode
_read_completion = Decoder(CompleteResult).decode


def entries_of(upstream: Upstream) -> Entries:
    """Return the entries of a mounted server, from its lists. Invalid ones are left out and logged."""
    settings = upstream.settings
    tools = [tool for tool in _valid(upstream, "tools/list") if settings.allows(tool.name)]
    withheld: Collection[str] = ()
    if settings.pin and tools:
        withheld = Pins(upstream.name).withheld(tools)
    return Entries(
        tools=[MountedTool(upstream, tool) for tool in tools if tool.name not in withheld],
        resources=_resources(upstream),
        templates=[MountedTemplate(upstream, each) for each in _valid(upstream, "resources/templates/list")],
        prompts=[
            MountedPrompt(upstream, each) for each in _valid(upstream, "prompts/list") if settings.allows(each.name)
        ],
    )


def _resources(upstream: Upstream) -> list[MountedResource]:
    # Return the resources with the files of skills, which a server need not list.
    found = {each.uri: MountedResource(upstream, each) for each in _valid(upstream, "resources/list")}
    uri_of = upstream.prefix.uri
    for skill in _valid(upstream, SKILLS_LIST):
        files = [] if isinstance(skill.resources, str) else skill.resources
        for uri in (skill.uri, *(file.uri for file in files)):
            if uri not in found:
                found[uri] = MountedResource(upstream, Resource(uri=uri, name=uri.rpartition("/")[2]))
            found[uri].extension_data = {SKILLS: None, **found[uri].extension_data}
        own = [structs.replace(file, uri=uri_of(file.uri)) for file in files] or skill.resources
        described = structs.replace(skill, uri=uri_of(skill.uri), resources=own)
        found[skill.uri].extension_data = {SKILLS: _MountedSkill(described)}

    return list(found.values())


class _MountedSkill(Struct, frozen=True):
    skill: Skill

    def describe(self) -> Skill:
        return self.skill


def _valid(upstream: Upstream, method: str) -> list[Any]:
    return [item for _, item in valid_entries(upstream, method)]


def valid_entries(upstream: Upstream, method: str) -> list[tuple[Raw, Any]]:
    """Return the entries of a list as the server wrote them, and as structs. Invalid ones are left out and logged."""
    listed = upstream.lists.get(method)
    if listed is None:
        return []
    if listed.valid is None:
        listed.valid = list(_without_invalid(upstream, method, listed.entries))
    return listed.valid


def _without_invalid(upstream: Upstream, method: str, entries: list[Raw]) -> Iterator[tuple[Raw, Any]]:
    kind = ALL_LISTS[method][2]
    read: Any = Decoder(kind).decode
    read_loosely: Any = Decoder(kind, strict=False).decode
    seen: set[str] = set()
    for raw in entries:
        try:
            try:
                item = read(raw)
            except MALFORMED:
                item = read_loosely(raw)
            problem = _problem(item, upstream)
        except MALFORMED as error:
            problem = explain(error)
        else:
            key = _key(item)
            if not problem and key in seen:
                problem = f"{key} is listed twice"
            seen.add(key)
        if problem:
            text = "mount %s: an entry of %s is left out: %s"
            log.warning(text, printable(upstream.name), printable(method), printable(problem, 300))
        else:
            yield raw, item


def _key(item: Any) -> str:
    if isinstance(item, (Resource, Skill)):
        return item.uri
    return item.uri_template if isinstance(item, ResourceTemplate) else item.name


def _problem(item: Any, upstream: Upstream) -> str:
    key = _key(item)
    if isinstance(item, (Resource, ResourceTemplate, Skill)):
        # Without a prefix, which is part of the scheme, a relative one works as it does without mcpd.
        is_invalid = (upstream.prefix.is_used and ":" not in key) or not key.isprintable() or " " in key
        return f"{key!r} is not a URI" if is_invalid else ""

    if not key or len(key) > _LONGEST or not key.isprintable():
        return f"{key[:200]!r} is not a valid name"
    if isinstance(item, Tool):
        for schema in (item.input_schema, item.output_schema):
            if schema is not None and not isinstance(schema, dict) and bytes(schema)[:1] != b"{":
                return f"{key}: its schema is not an object"

    return ""


class _Mounted:
    # An entry of a mounted server. Equal to another one that is listed in the same way.
    key: str
    requires: str | None = None
    tags: frozenset[str] = frozenset()
    extension_data: Mapping[str, Any] = {}

    def __init__(self, upstream: Upstream, own: str, item: Any) -> None:
        self._upstream = upstream
        self._own = own
        self._item = item

    @property
    def upstream(self) -> Upstream:
        """The mount that it belongs to."""
        return self._upstream

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Mounted)
            and self.key == other.key
            and self._upstream is other._upstream
            and self._item == other._item
            and self.extension_data == other.extension_data
        )

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def mount(self) -> str:
        """The name of the mount."""
        return self._upstream.name

    def listed(self, active: ActiveExtensions) -> Any:
        return self._item

    async def _call(self, method: str, exchange: Exchange, own: Mapping[str, Any], *, may_repeat: bool = True) -> Any:
        # Pass the request on, with the names of the mounted server.
        from .relay import forward  # a start with a manifest needs none of it

        params = {**_read_members(exchange.call.raw), **own}
        return await self._upstream.call(
            exchange, lambda connection: forward(connection, method, params, exchange), is_repeatable=may_repeat
        )


class MountedTool(_Mounted, ToolEntry):
    """A tool of a mounted server."""

    def __init__(self, upstream: Upstream, tool: Tool) -> None:
        settings = upstream.settings
        self._fixed = settings.arguments.get(tool.name, {})
        hints = tool.annotations
        self.is_repeatable = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
        shown = upstream.prefix.tool(tool)
        self.key = upstream.prefix.name(settings.rename.get(tool.name, tool.name))
        description = settings.describe.get(tool.name, tool.description)
        schema = _without(tool.input_schema, self._fixed) if self._fixed else tool.input_schema
        shown = structs.replace(shown, name=self.key, description=description, input_schema=schema)
        super().__init__(upstream, tool.name, shown)
        self._plain, self.requires = without_apps(shown)
        self._mirrors: Sequence[Mirror] | None = None

    def listed(self, active: ActiveExtensions) -> Any:
        """Return the tool, with its app only for clients with MCP Apps."""
        return self._item if UI in active else self._plain

    @property
    def extension_meta(self) -> Mapping[str, ToolMeta]:
        """A tool of a legacy server that asks may run as a task of this server, if the settings say so."""
        about = self._upstream.about
        has_sessions = about is not None and about.has_sessions
        return _AS_TASK if self._upstream.settings.task and has_sessions else {}

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """The arguments that HTTP headers repeat."""
        if self._mirrors is None:
            schema = self._item.input_schema
            try:
                self._mirrors = mirrors(schema if isinstance(schema, dict) else decode(schema))
            except (RegistrationError, *MALFORMED):
                self._mirrors = ()
        return self._mirrors

    async def run(self, arguments: Raw, exchange: Exchange) -> Any:
        """Call the tool of the mounted server."""
        own: dict[str, Any] = {"name": self._own}
        if self._fixed:
            given = {} if arguments is NO_JSON else decode(arguments)
            own["arguments"] = {**given, **self._fixed} if isinstance(given, dict) else given
        elif arguments is not NO_JSON:
            own["arguments"] = arguments
        try:
            return await self._call("tools/call", exchange, own, may_repeat=self.is_repeatable)
        except Unavailable as error:
            return failed(str(error))


# A call becomes a task with the first question, not after some time.
_AS_TASK = {TASKS: TaskTool("auto", None, 0)}


def _without(schema: Any, fixed: Mapping[str, Any]) -> Any:
    # Return a schema without the arguments that callers cannot set.
    found = schema if isinstance(schema, dict) else decode(schema)
    properties, required = found.get("properties"), found.get("required")
    if isinstance(properties, dict):
        found = {**found, "properties": {name: each for name, each in properties.items() if name not in fixed}}
    if isinstance(required, list):
        found = {**found, "required": [name for name in required if name not in fixed]}
    return found


class MountedResource(_Mounted, ResourceEntry):
    """A resource of a mounted server."""

    def __init__(self, upstream: Upstream, resource: Resource) -> None:
        self.key = upstream.prefix.uri(resource.uri)
        super().__init__(upstream, resource.uri, structs.replace(resource, uri=self.key))
        self.requires = UI if resource.uri.startswith(SCHEME) else None

    def own_uri(self, uri: str) -> str:
        """Return the URI at the mounted server."""
        return self._own

    def run(self, uri: str, exchange: Exchange) -> Any:
        """Read it from the mounted server."""
        return self._call("resources/read", exchange, {"uri": self._own})


class _MountedCompleting(_Mounted, Completing):
    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        about = self._upstream.about
        if about is not None and about.capabilities.completions is None and not about.has_sessions:
            return Completion(values=[])
        from .relay import forward

        params: dict[str, Any] = {"ref": self._ref(), "argument": {"name": argument, "value": value}}
        if others:
            params["context"] = {"arguments": dict(others)}
        try:
            result = await self._upstream.call(
                exchange, lambda connection: forward(connection, "completion/complete", params, exchange)
            )
        except McpdError as error:
            raise InvalidParams(str(error)) from None

        return _read_completion(result.raw if isinstance(result, RawResult) else encode(result)).completion

    def _ref(self) -> dict[str, str]:
        raise NotImplementedError


class MountedTemplate(_MountedCompleting, TemplateEntry):
    """A resource template of a mounted server."""

    def __init__(self, upstream: Upstream, template: ResourceTemplate) -> None:
        self.key = upstream.prefix.uri(template.uri_template)
        super().__init__(upstream, template.uri_template, structs.replace(template, uri_template=self.key))
        try:
            self._template: UriTemplate | None = UriTemplate(self.key)
        except RegistrationError:
            self._template = None  # it can be listed, but no URI is known to match

    @property
    def arguments(self) -> Collection[str]:
        """The variables of the template."""
        return () if self._template is None else self._template.variables

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in a URI, or None if the URI does not match."""
        return None if self._template is None else self._template.match(uri)

    def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> Any:
        """Read a resource that matches."""
        return self._call("resources/read", exchange, {"uri": self.own_uri(uri)})

    def own_uri(self, uri: str) -> str:
        """Return the URI at the mounted server."""
        return self._upstream.prefix.own_uri(uri) or uri

    def _ref(self) -> dict[str, str]:
        return {"type": "ref/resource", "uri": self._own}


class MountedPrompt(_MountedCompleting, PromptEntry):
    """A prompt of a mounted server."""

    def __init__(self, upstream: Upstream, prompt: Prompt) -> None:
        settings = upstream.settings
        self.key = upstream.prefix.name(settings.rename.get(prompt.name, prompt.name))
        description = settings.describe.get(prompt.name, prompt.description)
        super().__init__(upstream, prompt.name, structs.replace(prompt, name=self.key, description=description))

    @property
    def arguments(self) -> Collection[str]:
        """The names of its arguments."""
        return [each.name for each in self._item.arguments or ()]

    def run(self, arguments: dict[str, str | None], exchange: Exchange) -> Any:
        """Get its messages from the mounted server."""
        return self._call("prompts/get", exchange, {"name": self._own})

    def _ref(self) -> dict[str, str]:
        return {"type": "ref/prompt", "name": self._own}
