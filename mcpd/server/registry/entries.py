"""The entries of the catalog, as protocols: a function, a file or another server may be behind one.

`tools.FunctionTool`, `resources.FunctionResource`, `resources.FunctionTemplate` and `prompts.FunctionPrompt` are
entries with functions. A class that derives from one of the protocols inherits defaults: visible to every client,
without additions of extensions.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from msgspec import Raw, Struct

from mcpd.protocol.types.features import (
    CallToolResult,
    GetPromptResult,
    Prompt,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    Tool,
)
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.listing import ActiveExtensions, Entry

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import Completion
    from mcpd.protocol.wire.headers import Mirror
    from mcpd.server.registry.rules import Condition


class Problem(Struct, frozen=True):
    """A problem of an entry, in words for its author; printed by `mcpd check`.

    An error fails for some client, a warning is worth fixing.
    """

    where: str
    """The entry or place, e.g. `tool forecast`."""
    text: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


T = TypeVar("T")
Later: TypeAlias = T | Coroutine[Any, Any, T]
"""A result or a coroutine of one."""


class ToolMeta(Protocol):
    """The `_meta` that one extension adds to a tool."""

    condition: Condition | None
    """A condition for `meta`, beside the extension; its key is among the active extensions if it holds."""

    def meta(self, active: ActiveExtensions) -> Mapping[str, Any]:
        """Return the `_meta` that only clients with this extension see."""


class ToolEntry(Entry, Protocol):
    """A tool; `key` is its name."""

    @property
    def extension_meta(self) -> Mapping[str, ToolMeta]:
        """The additions of extensions, by the extension's id."""
        return {}

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """The arguments that HTTP headers repeat, by `x-mcp-header` in the input schema."""
        return ()

    def listed(self, active: ActiveExtensions) -> Tool:
        """Return the tool as `tools/list` shows it with these extensions active."""

    def run(self, arguments: Raw, exchange: Exchange) -> Coroutine[Any, Any, CallToolResult]:
        """Call the tool. `arguments` are the JSON as received, or `types.base.NO_JSON` if there were none."""


class ResourceEntry(Entry, Protocol):
    """A resource; `key` is its URI."""

    of_tool: str | None = None
    """The tool that it is a part of: visible to everybody who sees that tool, regardless of rules for resources. `""`
    is a part of several tools that is visible to everybody.
    """

    @property
    def extension_data(self) -> Mapping[str, Any]:
        """Data of extensions about the resource, beside what is listed, by the extension's id."""
        return {}

    def listed(self, active: ActiveExtensions) -> Resource:
        """Return the resource as `resources/list` shows it with these extensions active."""

    def run(self, uri: str, exchange: Exchange) -> Later[ReadResourceResult]:
        """Read the resource. `uri` is the URI that the client sent. Raises ResourceNotFound."""


class Completing(Protocol):
    """An entry with arguments that clients complete. `Server.completion` goes before its own completion."""

    @property
    def arguments(self) -> Collection[str]:
        """The names of its arguments."""
        return ()

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        """Return suggestions for an argument that begins with `value`; `others` are the arguments known so far."""
        from mcpd.protocol.types.interaction import Completion  # few clients ask

        return Completion(values=[])


class TemplateEntry(Entry, Completing, Protocol):
    """A family of resources; `key` is its URI template."""

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        """Return the template as `resources/templates/list` shows it with these extensions active."""

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in a URI, or None if the URI does not match.

        Raises InvalidParams for forbidden values, such as `..` in a path.
        """

    def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> Later[ReadResourceResult]:
        """Read the resource of a URI that matches. Raises ResourceNotFound."""


class PromptEntry(Entry, Completing, Protocol):
    """A prompt; `key` is its name."""

    def listed(self, active: ActiveExtensions) -> Prompt:
        """Return the prompt as `prompts/list` shows it with these extensions active."""

    def run(self, arguments: dict[str, str | None], exchange: Exchange) -> Later[GetPromptResult]:
        """Return its messages. An argument that is None was left empty. Raises InvalidParams for a missing or unknown
        one.
        """


class Entries(Struct, frozen=True, kw_only=True):
    """All entries of one owner, for `Server.replace`. None means none of that kind ever, `()` none now."""

    tools: Sequence[ToolEntry] | None = None
    resources: Sequence[ResourceEntry] | None = None
    templates: Sequence[TemplateEntry] | None = None
    prompts: Sequence[PromptEntry] | None = None
    problems: Sequence[Problem] = ()
    """The items that were left out, with reasons, for `mcpd check`."""
