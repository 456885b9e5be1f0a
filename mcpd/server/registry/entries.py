"""What the catalog holds: protocols, so that an entry may be backed by a function, a file or another server.

Functions are `tools.FunctionTool`, `resources.FunctionResource`, `resources.FunctionTemplate` and
`prompts.FunctionPrompt`. A class that derives from one of the protocols has its
defaults: an entry for every client, to which no extension adds anything.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from msgspec import Raw, Struct

from mcpd.protocol.types.prompts import GetPromptResult, Prompt
from mcpd.protocol.types.resources import ReadResourceResult, Resource, ResourceTemplate
from mcpd.protocol.types.tools import CallToolResult, Tool
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.listing import ActiveExtensions, Entry
from mcpd.server.registry.tools import FunctionTool, ToolMeta

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import Completion
    from mcpd.protocol.wire.headers import Mirror
    from mcpd.server.registry.rules import EntryRule, Needs


class Problem(Struct, frozen=True):
    """One problem. An error will fail some client; a warning is worth correcting."""

    where: str
    """What it is about, e.g. `tool forecast`."""
    text: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


T = TypeVar("T")
Later: TypeAlias = T | Coroutine[Any, Any, T]
"""A result, or a coroutine of it."""


class ToolEntry(Entry, Protocol):
    """A tool; `key` is its name."""

    requires: str | None = None
    tags: frozenset[str] = frozenset()
    is_enabled: bool = True
    visible: EntryRule | None = None
    needs: Needs | None = None

    @property
    def extension_meta(self) -> Mapping[str, ToolMeta]:
        """What extensions add to the tool, by the extension's id."""
        return {}

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """The arguments that HTTP headers repeat, by the `x-mcp-header` of its input schema."""
        return ()

    def listed(self, active: ActiveExtensions) -> Tool:
        """The tool as `tools/list` shows it where those extensions are active."""

    def run(self, arguments: Raw, exchange: Exchange) -> Coroutine[Any, Any, CallToolResult]:
        """Call it. `arguments` are the JSON as it came, or empty (`types.base.NO_JSON`) if there were none."""


class ResourceEntry(Entry, Protocol):
    """A resource; `key` is its URI."""

    requires: str | None = None
    tags: frozenset[str] = frozenset()
    is_enabled: bool = True
    visible: EntryRule | None = None
    needs: Needs | None = None
    of_tool: str | None = None
    """The tool that it is a part of: whoever sees that tool sees it, and nobody else, whatever rules say of resources.
    `""` is a part of several that tells of none of them: everybody sees it."""

    @property
    def extension_data(self) -> Mapping[str, Any]:
        """What extensions know of the resource beside what is listed, by the extension's id."""
        return {}

    def listed(self, active: ActiveExtensions) -> Resource:
        """The resource as `resources/list` shows it where those extensions are active."""

    def run(self, uri: str, exchange: Exchange) -> Later[ReadResourceResult]:
        """Read it. `uri` is what the client asked for. Raises ResourceNotFound."""


class Completing(Protocol):
    """What has arguments that clients complete; `Server.completion` goes before what is said here."""

    @property
    def arguments(self) -> Collection[str]:
        """The names of its arguments."""
        return ()

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        """What a client may write for one of the arguments that begins with `value`; `others` are known already."""
        from mcpd.protocol.types.interaction import Completion  # few clients ask

        return Completion(values=[])


class TemplateEntry(Entry, Completing, Protocol):
    """A family of resources; `key` is its URI template."""

    requires: str | None = None
    tags: frozenset[str] = frozenset()
    is_enabled: bool = True
    visible: EntryRule | None = None
    needs: Needs | None = None

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        """The template as `resources/templates/list` shows it where those extensions are active."""

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the variables in a URI of this family; None if it is none of it.

        Raises InvalidParams for values that are not to be had, as `..` in a path.
        """

    def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> Later[ReadResourceResult]:
        """Read the resource of a URI that matches. Raises ResourceNotFound."""


class PromptEntry(Entry, Completing, Protocol):
    """A prompt; `key` is its name."""

    requires: str | None = None
    tags: frozenset[str] = frozenset()
    is_enabled: bool = True
    visible: EntryRule | None = None
    needs: Needs | None = None

    def listed(self, active: ActiveExtensions) -> Prompt:
        """The prompt as `prompts/list` shows it where those extensions are active."""

    def run(self, arguments: dict[str, str | None], exchange: Exchange) -> Later[GetPromptResult]:
        """Its messages; an argument that is None was left empty. Raises InvalidParams for a missing or unknown one."""


class Entries(Struct, frozen=True, kw_only=True):
    """All that one owner offers, for `Server.replace`. None: none of that kind, now and later; `()`: none for now."""

    tools: Sequence[ToolEntry] | None = None
    resources: Sequence[ResourceEntry] | None = None
    templates: Sequence[TemplateEntry] | None = None
    prompts: Sequence[PromptEntry] | None = None
    problems: Sequence[Problem] = ()
    """What is left out of it, and why; `mcpd check` names it."""


def metadata_of(entry: ToolEntry) -> Tool:
    """The tool without what extensions add, and without its schemas, which may be such that they cannot be made."""
    return entry.tool if isinstance(entry, FunctionTool) else entry.listed(frozenset())
